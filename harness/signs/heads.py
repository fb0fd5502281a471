"""Hints on heads and layers: which K/V head a query head reads, whether heads are split and merged in place, whose input."""

from __future__ import annotations

import numpy as np

from harness.signs import Hint, same
from harness.signs.probe import (
    PROMPT,
    TOKEN,
    Fields,
    decoder,
    forward,
    readable_heads,
    request,
    step,
    with_layer,
)
from harness.subject import Asking
from harness.values import Array

# -- heads -------------------------------------------------------------------------------------------------------------


def heads(subject: Asking) -> Hint | None:
    """One head is right: what is wrong with several is how they are split, grouped or merged."""
    return _groups(subject) or _merged(subject) or _split(subject) or _repeated(subject)


def _groups(subject: Asking) -> Hint | None:
    """A text of one token: each query head's block shows the K/V head that it was read from."""
    for n_heads in (4, 6):
        fields = readable_heads(n_heads, 2, 2)
        asked = request(subject, fields)
        decoded = None
        if asked is not None and asked.prefill([0]) is not None:
            decoded = asked.decode(0)
        whole = forward(subject, fields, [0])
        right = [i // (n_heads // 2) for i in range(n_heads)]
        for name, row in (("forward", None if whole is None else whole[0]), ("decode_step", decoded)):
            if row is None:
                continue
            blocks = row.reshape(n_heads, 2).copy()
            blocks[0, 0] -= 1  # the token itself
            read = [i for block in blocks for i in (0, 1) if same(block, [1.0 + i, 0.0])]
            if len(read) == n_heads and read != right:
                told, wanted = (", ".join(map(str, heads)) for heads in (read, right))
                seen = f"In {name}, query heads 0 to {n_heads - 1} read K/V heads {told}, where {wanted} is right."
                return Hint("cache-head-order", seen)
    return None


def _merged(subject: Asking) -> Hint | None:
    """Two heads with W_Q = 0 over four tokens: each block holds its own token's even weights."""
    fields = readable_heads(2, 2, 4)
    text = [0, 1, 2, 3]
    even = np.tri(4) / np.arange(1, 5)[:, None]
    right = np.concatenate([even, 2 * even], axis=1) + np.eye(4, 8)
    asked = request(subject, fields)
    rows = {"forward": forward(subject, fields, text), "prefill": asked.prefill(text) if asked is not None else None}
    for name, got in rows.items():
        if got is not None and not same(got, right):
            seen = f"With one head {name} is right; with two, a head's results are not in its token's row and its own columns."
            return Hint("cache-head-order", seen)
    return None


def _split(subject: Asking) -> Hint | None:
    """With two heads a token's logits change with the tokens after it; with one they do not."""
    one, two = decoder(1, heads=(1, 1)), decoder(1, heads=(2, 2))
    for name in ("forward", "prefill"):
        if _leaks(subject, name, two) and _leaks(subject, name, one) is False:
            seen = f"In {name}, a token's logits change with the tokens after it with two heads, and not with one."
            return Hint("cache-head-order", f"{seen} Heads are mixed up with tokens.")
    return None


def _leaks(subject: Asking, name: str, fields: Fields) -> bool | None:
    rows = []
    for last in (4, 7):
        text = [*PROMPT, 6, 0, last]
        asked = request(subject, fields)
        if asked is None:
            return None
        found = forward(subject, fields, text) if name == "forward" else asked.prefill(text)
        if found is None:
            return None
        rows.append(found[:-1])
    return not same(*rows)


def _repeated(subject: Asking) -> Hint | None:
    """Two K/V heads for four query heads give what four give whose columns are those of the two, each twice in a row."""
    grouped = decoder(1)
    layer = grouped["layers"][0]

    def spread(weights: Array, tiled: bool = False) -> Array:
        columns = weights.reshape(8, 2, 2)
        return (np.tile(columns, (1, 2, 1)) if tiled else columns.repeat(2, axis=1)).reshape(8, 8)

    text = [*PROMPT, TOKEN]
    found = forward(subject, grouped, text)
    right = forward(
        subject, {**with_layer(grouped, 0, W_K=spread(layer["W_K"]), W_V=spread(layer["W_V"])), "n_kv_heads": 4}, text
    )
    if found is None or right is None or same(found, right):
        return None
    mixed = with_layer(grouped, 0, W_K=spread(layer["W_K"], True), W_V=spread(layer["W_V"]))
    other = forward(subject, {**mixed, "n_kv_heads": 4}, text)
    if other is not None and same(found, other):
        return Hint(
            "cache-head-order", "Query head i reads the keys of K/V head i % n_kv_heads, not i // (group size)."
        )
    return Hint(None, "Grouped heads do not give what heads of their own with the same columns give.")


# -- layers ------------------------------------------------------------------------------------------------------------


def layers(subject: Asking) -> Hint | None:
    """With one layer a decode step is right: what is wrong with two is which layer's rows it reads or stores."""
    return _order(subject) or _inputs(subject) or _rows_read(subject)


def _order(subject: Asking) -> Hint | None:
    """A text of one token, which sees itself alone: what two layers give follows from their matrices, in their order."""
    fields = decoder(2, heads=(1, 1))
    rows = forward(subject, fields, [TOKEN])
    if rows is None:
        return None

    def through(layers: list[dict[str, Array]]) -> Array:
        x = fields["embedding"][TOKEN]
        for layer in layers:
            x = x + x @ layer["W_V"] @ layer["W_O"]
        return np.asarray(x @ fields["embedding"].T)

    if not same(rows[0], through(fields["layers"])) and same(rows[0], through(fields["layers"][::-1])):
        return Hint("cache-layer-mixed", "forward gives what two layers give in the wrong order, the last one first.")
    return None


def _inputs(subject: Asking) -> Hint | None:
    """What the second layer stores of a token is made from what the first one gave, not from the embedding."""
    fields = decoder(2)
    embedding, second = fields["embedding"], fields["layers"][1]
    whole, asked = request(subject, fields), request(subject, fields)
    if whole is None or asked is None or whole.prefill([*PROMPT, TOKEN]) is None:
        return None
    if asked.prefill(PROMPT) is None or asked.decode(TOKEN) is None:
        return None
    for name, matrix in (("keys", "W_K"), ("values", "W_V")):
        raw = (embedding @ second[matrix]).reshape(len(embedding), 2, 2)
        for what, kept, token in (("prefill", whole, PROMPT[0]), ("decode_step", asked, TOKEN)):
            rows = kept.held(1, name)
            row = None if rows is None or len(rows) != 4 else rows[0 if what == "prefill" else -1]
            if row is not None and same(row, raw[token]):
                seen = f"In {what}, the second layer's {name} are made from the embedding, not from the first layer's result."
                return Hint("cache-layer-mixed", seen)
    return None


def _rows_read(subject: Asking) -> Hint | None:
    """With another W_V (or W_K) of the second layer in prefill alone, that layer's cache holds other rows, and a step moves."""
    two = decoder(2)
    before, alone, right = step(subject, two), step(subject, decoder(1)), forward(subject, decoder(1), [*PROMPT, TOKEN])
    if before is None or alone is None or right is None or not same(alone, right[-1]):
        return None  # one layer is wrong already
    for matrix, name in (("W_V", "values"), ("W_K", "keys")):
        first, second = (with_layer(two, i, **{matrix: 2 * two["layers"][i][matrix] + 1}) for i in (0, 1))
        after, by_first = step(subject, second, other=two), step(subject, first, other=two)
        one, another = request(subject, two), request(subject, second)
        if after is None or by_first is None or one is None or another is None:
            return None
        if one.prefill(PROMPT) is None or another.prefill(PROMPT) is None:
            return None
        held = [asked.held(1, name) for asked in (one, another)]
        if same(before, after) and not same(before, by_first) and not same(*held):
            return Hint(
                "cache-layer-mixed", f"A decode step stays the same whatever {name} the second layer's cache holds."
            )
    return None
