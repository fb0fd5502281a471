"""Hints on whom a token sees, in a whole prompt, in its chunks and in a decode step: read off decoders with W_Q = 0."""

from __future__ import annotations

import numpy as np

from harness.signs import Hint, same
from harness.signs.probe import PROMPT, TOKEN, decoder, forward, readable, request, step
from harness.subject import Asking
from harness.values import Array

TEXT = [2, 0, 5, 1, 7, 4, 6]


def weights(subject: Asking) -> Hint | None:
    """With W_Q = 0 and one-hot embeddings, logits are the weights: all alike, on every token up to the one that asks."""
    fields = readable()
    n = len(TEXT)
    asked = request(subject, fields, 20)
    first = asked.prefill(TEXT[:-1]) if asked is not None else None
    whole = forward(subject, fields, TEXT)
    for name, rows in (("prefill", first), ("forward", whole)):
        found = _whom(subject, name, rows)
        if found is not None:
            return found
    if asked is None or first is None:
        return None
    row = asked.decode(TEXT[-1])
    if row is None:
        return None
    weights, elsewhere = _read(row, TEXT)
    even = np.full(n, 1 / n)
    if same(weights, even) and not elsewhere.any():
        return None
    told = ", ".join(f"{w:.3f}" for w in weights)
    seen = f"In a decode step with W_Q = 0 the {n} tokens should weigh {1 / n:.3f} each, and weigh {told}"
    if same(elsewhere[8:][TEXT], even):
        return Hint("cache-keys-values-swapped", "With W_Q = 0 a decode step takes the mean of keys, not of values.")
    own = np.zeros(len(row))
    own[8 + TEXT[-1]] = 1 / n
    if same(weights, np.append(even[:-1], 0.0)) and same(elsewhere, own):
        return Hint("cache-keys-values-swapped", "With W_Q = 0 a decode step takes the new token's key for its value.")
    if elsewhere.any():
        return Hint(None, f"{seen}.")
    return _lopsided(subject, weights, seen, n)


def _lopsided(subject: Asking, weights: Array, seen: str, n: int) -> Hint:
    """What uneven weights of a decode step say."""
    if same(weights, np.append(np.full(n - 1, 1 / (n - 1)), 0.0)):
        return Hint("cache-missing-self", f"{seen}: the new token does not see itself.")
    if same(weights, np.append(np.full(n - 1, 1 / (n + 1)), 2 / (n + 1))):
        return Hint("decode-self-twice", f"{seen}: the new token counts twice.")
    later = chunk(subject)
    if later is not None and later.code is not None:
        return later
    for m in range(1, n):
        share = np.full(m, 1 / m)
        if same(weights, np.append(np.zeros(n - m), share)):
            which = "itself alone" if m == 1 else f"the last {m} tokens alone"
            return Hint("cache-truncated", f"{seen}: it sees {which}.")
        if same(weights, np.append(share, np.zeros(n - m))):
            return Hint("cache-truncated", f"{seen}: it sees the first {m} alone.")
    if same(weights, np.full(n, 1 / 20)):
        return Hint("cache-padding-attended", f"{seen}: the rest goes to empty slots of a cache for 20.")
    return Hint(None, f"{seen}.")


def _read(row: Array, text: list[int]) -> tuple[Array, Array]:
    """The weights on the tokens of a text whose last one asks, and what lies on other ids."""
    weights = row.copy()
    weights[text[-1]] -= 1
    elsewhere = weights.copy()
    elsewhere[text] = 0
    return weights[text], np.where(np.abs(elsewhere) < 1e-9, 0.0, elsewhere)


def _unmasked(subject: Asking) -> bool:
    """Whether the first token of a prompt gets what it gets as the last one of the same tokens: nothing is hidden from it."""
    fields = decoder(1)
    requests = [(request(subject, fields), text) for text in ([TOKEN, *PROMPT], [*PROMPT, TOKEN])]
    rows = [asked.prefill(text) if asked is not None else None for asked, text in requests]
    return rows[0] is not None and rows[1] is not None and same(rows[0][0], rows[1][-1])


def _whom(subject: Asking, name: str, rows: Array | None) -> Hint | None:
    """What rows of a whole text see."""
    if rows is None:
        return None
    n = len(rows)
    table, elsewhere = np.zeros((n, n)), np.zeros(rows.shape)
    for i, row in enumerate(rows):
        weights = row.copy()
        weights[TEXT[i]] -= 1
        table[i] = weights[TEXT[:n]]
        weights[TEXT[:n]] = 0
        elsewhere[i] = np.where(np.abs(weights) < 1e-9, 0.0, weights)
    even = np.tri(n) / np.arange(1, n + 1)[:, None]
    if same(table, even) and not elsewhere.any():
        return None
    if same(table, np.full((n, n), 1 / n)):
        code = "cache-prefill-unmasked" if name == "prefill" and _unmasked(subject) else None
        return Hint(code, f"In {name}, every token sees all {n}, those after it too.")
    if same(table, np.tri(n) / n):
        return Hint(
            "mask-after-softmax",
            f"In {name}, weights are hidden after the softmax: those of a token sum to less than 1.",
        )
    if same(table, np.tri(n, n, 1) / np.minimum(np.arange(2, n + 2), n)[:, None]):
        return Hint("causal-mask-lookahead", f"In {name}, a token sees the one after it.")
    if np.triu(table, 1).any():
        return Hint(None, f"In {name}, a token's logits change with the tokens after it.")
    for w in range(1, n):
        if same(table, np.triu(np.tri(n), 1 - w) / np.minimum(np.arange(1, n + 1), w)[:, None]) and not elsewhere.any():
            which = "itself alone" if w == 1 else f"the last {w} tokens alone"
            return Hint("cache-truncated", f"In {name}, a token sees {which}.")
    if same(elsewhere[:, [8 + t for t in TEXT[:n]]], even):
        return Hint("cache-keys-values-swapped", f"With W_Q = 0, {name} takes the mean of keys, not of values.")
    return Hint(None, f"With W_Q = 0, {name} does not take the mean of the values up to each token.")


def chunk(subject: Asking) -> Hint | None:
    """A prompt of six tokens in two chunks: each of the second three sees all before it."""
    fields, text = readable(), TEXT[:6]
    asked = request(subject, fields, 8)
    if asked is None or asked.prefill(text[:3]) is None:
        return None
    given = asked.cache
    rows = asked.prefill(text[3:])
    if rows is None:
        return None
    table = np.array(
        [_read(row, [*text[: 3 + i], text[3 + i]])[0].tolist() + [0.0] * (2 - i) for i, row in enumerate(rows)]
    )
    ahead = [row[t] for i, row in enumerate(rows) for t in text[4 + i :]]
    steps = np.arange(1, 4)[:, None]
    kept = given is not None and asked.subject.call("@len", given).value == 6
    if same(table, np.tri(3, 6, 3) / (3 + steps)) and not np.any(np.abs(ahead) > 1e-9):
        return None
    if same(table, np.tri(3, 6) / steps):
        seen = "The second chunk of a prompt sees the first tokens of the text: its mask starts at the first one."
        return Hint("cache-chunk-misaligned", seen)
    own = np.concatenate([np.zeros((3, 3)), np.tri(3) / steps], axis=1)
    if same(table, own) and kept:
        return Hint("cache-truncated", "The second chunk of a prompt sees itself alone, not the first.")
    if ahead and np.any(np.abs(ahead) > 1e-9):
        return Hint("cache-prefill-unmasked", "In the second chunk of a prompt, tokens see those after them.")
    return None


def window(subject: Asking) -> Hint | None:
    """A text of 300 tokens that are all alike but one: its weight says whether it is seen."""
    fields, n = readable(), 300

    def sees(place: int) -> bool | None:
        text = [1] * n
        text[place] = 0
        row = step(subject, fields, text[:-1], text[-1])
        return None if row is None else bool(abs(row[0]) > 1e-9)

    first, last = sees(0), sees(n - 2)
    if first is None or last is None or first == last:
        return None
    low, high = 0, n - 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sees(middle) == first else (low, middle)
    which = f"first {high}" if first else f"last {n - high}"
    return Hint("cache-truncated", f"Of a text of {n} tokens, the newest sees the {which} alone.")
