"""Hints on forward, prefill and decode_step: what they do that the given model does not, told from decoders that can be read.

Looked at in the order in which one builds on another: what is stored of a token, what it is turned into, where it stands,
whom it sees, with which heads, in which layer. The first thing that explains what is wrong ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.signs import Hint, same
from harness.signs.heads import heads, layers
from harness.signs.probe import (
    PROMPT,
    TOKEN,
    WIDTH,
    Fields,
    decoder,
    forward,
    request,
    step,
    with_layer,
)
from harness.signs.sight import chunk, weights, window
from harness.subject import Asking
from harness.values import Array


def hints(subject: Asking) -> Iterator[Hint]:
    """The first thing that explains what is wrong, where attention itself is as it should be."""
    said = (_fresh, _unchanged, _own, _stored, _given, _silent, _second, _places, _linear)
    seen = (weights, chunk, heads, layers, window, _unread, _overfull, _step)
    for look in (*said, *seen):
        found = look(subject)
        if found is not None:
            yield found
            return


def _unchanged(subject: Asking) -> Hint | None:
    """Forward, prefill and a decode step leave the model's arrays as they were."""
    fields = decoder(1)
    asked = request(subject, fields)
    if asked is None or asked.prefill(PROMPT) is None or asked.decode(TOKEN) is None:
        return None
    subject.call("kv_cache.forward", asked.model, PROMPT)
    layers = subject.keep("@attr", asked.model, "layers").value
    found = [("embedding", fields["embedding"], subject.call("@attr", asked.model, "embedding").value)]
    if isinstance(layers, tuple | list) and len(layers) == 1:
        found += [
            (name, before, subject.call("@attr", layers[0], name).value) for name, before in fields["layers"][0].items()
        ]
    for name, before, after in found:
        if isinstance(after, np.ndarray) and not np.array_equal(before, after):
            return Hint(
                "input-mutated", f"The model's {name} is another after a prompt and a decode step than before them."
            )
    return None


# -- what is stored ----------------------------------------------------------------------------------------------------


def _fresh(subject: Asking) -> Hint | None:
    """Two requests without a cache get one each. A cache that is kept may fit one number of layers alone."""
    for fields in (decoder(), decoder(1)):
        one, another = request(subject, fields), request(subject, fields)
        if one is None or another is None or one.prefill(PROMPT) is None or another.prefill(PROMPT) is None:
            continue
        if subject.call("@same", one.cache, another.cache).value is True:
            return Hint("cache-shared-state", "Two calls of prefill without a cache give back one and the same cache.")
    return None


def _own(subject: Asking) -> Hint | None:
    """The cache that prefill makes for a float64 model holds float64."""
    asked = request(subject, decoder(1))
    keys = asked.held(0) if asked is not None and asked.prefill(PROMPT) is not None else None
    if keys is None or keys.dtype not in (np.float16, np.float32):
        return None
    seen = f"For a model in float64, the cache that prefill makes holds {keys.dtype}."
    return Hint("cache-wrong-dtype", seen)


def _given(subject: Asking) -> Hint | None:
    """An empty cache that is given, and one that holds tokens, are what comes back."""
    asked = request(subject, decoder(), 20)
    if asked is None:
        return None
    for tokens, what in ((PROMPT, "An empty cache"), ([TOKEN, 7], "A cache of 3 tokens")):
        given = asked.cache
        before = asked.length
        if asked.prefill(tokens) is None:
            return None
        other = subject.call("@same", given, asked.cache).value is False
        if other and subject.call("@len", given).value == before:
            return Hint(
                "cache-given-ignored", f"{what} that is given to prefill is as it was afterwards: another came back."
            )
    return None


def _stored(subject: Asking) -> Hint | None:
    """A prompt of three tokens and one decoded: what each layer held before is there after, and one token more."""
    asked = request(subject, decoder())
    if asked is not None and asked.prefill(PROMPT) is None:
        given = request(subject, decoder(), 20)
        rows = None if given is None or given.prefill(PROMPT) is not None else given.held(0)
        if rows is None or len(rows) != 6:
            return None
        return Hint("cache-appended-twice", "A prompt of 3 tokens raises, and leaves 6 in the first layer.")
    if asked is None:
        return None
    counted, before = asked.length, [asked.held(layer) for layer in (0, 1)]
    if counted == 6 and all(rows is not None and len(rows) == 6 for rows in before):
        return Hint("cache-appended-twice", "After a prompt of 3 tokens the cache holds 6.")
    if counted == 1:
        return Hint("cache-truncated", "After a prompt of 3 tokens the cache holds 1.")
    if counted != 3 or asked.decode(TOKEN) is None:
        return None
    longer, after = asked.length, [asked.held(layer) for layer in (0, 1)]
    if any(rows is None for rows in (*before, *after)):
        return None
    old, new = [rows for rows in before if rows is not None], [rows for rows in after if rows is not None]
    if [len(rows) for rows in old] != [3, 3]:
        return None
    lengths = [len(rows) for rows in new]
    seen = "After a prompt of 3 tokens and a decoded one,"
    if lengths == [3, 3] and all(same(a, b) for a, b in zip(old, new, strict=True)):
        return Hint("cache-not-appended", f"{seen} the cache holds 3.")
    if lengths == [5, 5] and longer == 5:
        return Hint("cache-appended-twice", f"{seen} the cache holds 5.")
    if sorted(lengths) == [3, 4]:
        return Hint("cache-layer-mixed", f"{seen} layer 0 holds {lengths[0]} and layer 1 holds {lengths[1]}.")
    if lengths == [4, 4]:
        for rows, earlier in zip(new, old, strict=True):
            if not same(rows[:3], earlier):
                if same(rows[1:], earlier):
                    return Hint("cache-prepended", "A decoded token's key stands in front of the prompt's.")
                return Hint("cache-overwritten", "A decoded token changed the keys that the prompt had stored.")
    return None


# -- what a token is turned into ---------------------------------------------------------------------------------------


def _silent(subject: Asking) -> Hint | None:
    """With W_O = 0 no layer adds anything: logits are the token's embedding times all embeddings."""
    fields = decoder(2, W_O=0.0)
    right = fields["embedding"] @ fields["embedding"].T
    table = _table(subject)
    for name, text in (("forward", [*PROMPT, TOKEN]), ("prefill", PROMPT), ("decode_step", [TOKEN])):
        rows = _rows_of(subject, name, fields, text)
        if rows is None or same(rows, right[text]):
            continue
        if same(rows, np.zeros_like(rows)):
            seen = f"With W_O = 0, the logits of {name} are 0: what comes into a layer is not added to what it gives."
            return Hint("decode-residual-missing", seen)
        if name == "decode_step":
            before = [PROMPT[-1], 7]
            others = [rows[0], _decoded(subject, fields, [1, 5, 7])]
            if all(row is not None and same(row, right[t]) for row, t in zip(others, before, strict=True)):
                seen = "decode_step gives the logits of the token before the one that it is given."
                return Hint("decode-stale-logits", seen)
        if len(rows) > 1 and same(rows[1:], right[text[:-1]]):
            return Hint("decode-stale-logits", f"{name} gives each token the logits of the one before it.")
        return _added(name, fields, text, rows, table) or Hint(
            None, f"With W_O = 0, the logits of {name} are not embedding[token] @ embedding.T."
        )
    return None


def _rows_of(subject: Asking, name: str, fields: Fields, text: list[int]) -> Array | None:
    """Rows of logits for a text; of decode_step the one for its last token after the prompt."""
    if name == "forward":
        return forward(subject, fields, text)
    if name == "prefill":
        asked = request(subject, fields)
        return asked.prefill(text) if asked is not None else None
    row = _decoded(subject, fields, PROMPT, text[-1])
    return None if row is None else row[None]


def _decoded(subject: Asking, fields: Fields, prompt: list[int], token: int = TOKEN) -> Array | None:
    return step(subject, fields, prompt, token)


def _table(subject: Asking) -> Array | None:
    """The submission's own positions."""
    value = subject.call("attention.sinusoidal_positions", 16, WIDTH).value
    return np.asarray(value) if np.shape(value) == (16, WIDTH) else None


def _added(name: str, fields: Fields, text: list[int], rows: Array, table: Array | None) -> Hint | None:
    """What stands between rows of logits and embedding[text] @ embedding.T."""
    embedding = fields["embedding"]
    right = embedding[text] @ embedding.T
    x = _solved(embedding, rows)
    at = len(PROMPT) if name == "decode_step" else 0
    if table is not None and any(same(x - embedding[text], n * table[at : at + len(text)]) for n in (1, 2, 3)):
        return Hint("positions-misplaced", f'{name} adds positions for a model with positions="none".')
    extra = f"With W_O = 0, the logits of {name} are embedding[token] @ embedding.T, and"
    if rows.min() >= 0 and same(rows.sum(axis=-1), np.ones(len(rows))):
        return Hint("decode-extra-step", f"{extra} yours are probabilities: they sum to 1.")
    if same(np.exp(rows).sum(axis=-1), np.ones(len(rows))):
        return Hint("decode-extra-step", f"{extra} yours are logarithms of probabilities.")
    if same(rows, np.maximum(right, 0)):
        return Hint("decode-extra-step", f"{extra} yours are 0 where that is below 0.")
    factor = float((rows * right).sum() / (right * right).sum())
    if same(rows, factor * right):
        return Hint("decode-extra-step", f"{extra} yours are {factor:.4g} times that.")
    if same(x @ embedding.T, rows) and all(_levelled(a, embedding[t]) for a, t in zip(x, text, strict=True)):
        return Hint("decode-extra-step", f"{extra} yours are those of a normalised embedding.")
    return None


def _levelled(x: Array, embedded: Array) -> bool:
    """Whether x is a·embedded + b with two numbers: a norm over the features, whatever its kind."""
    both = np.stack([embedded, np.ones_like(embedded)], axis=1)
    fitted = both @ np.linalg.lstsq(both, x, rcond=None)[0]
    return same(fitted, x)


def _solved(embedding: Array, rows: Array) -> Array:
    """The x (n, d) where rows = x @ embedding.T."""
    return np.linalg.lstsq(embedding, rows.T, rcond=None)[0].T


def _second(subject: Asking) -> Hint | None:
    """A second layer with W_O = 0 leaves what the first one gives."""
    one = decoder(1)
    two = decoder(2)
    two = with_layer(two, 1, W_O=0 * two["layers"][1]["W_O"])
    embedding = one["embedding"]
    for name, text in (("forward", [*PROMPT, TOKEN]), ("prefill", PROMPT), ("decode_step", [TOKEN])):
        first, both = (_rows_of(subject, name, fields, text) for fields in (one, two))
        if first is None or both is None or same(first, both):
            continue
        if same(both, embedding[text] @ embedding.T):
            seen = f"In {name} a second layer with W_O = 0 undoes the first: it adds to the embedding, not to its own input."
            return Hint("decode-residual-missing", seen)
    return None


def _linear(subject: Asking) -> Hint | None:
    """With W_Q = 0 weights are what they are: an embedding n times as large gives n times what attention adds."""
    fields = decoder(1, W_Q=0.0)
    embedding = fields["embedding"]
    for name, text in (("forward", [TOKEN]), ("prefill", [TOKEN]), ("decode_step", [TOKEN])):
        added = []
        for factor in (1, 2, 3):
            rows = _rows_of(subject, name, {**fields, "embedding": factor * embedding}, text)
            if rows is None:
                break
            added.append(_solved(factor * embedding, rows)[0] - factor * embedding[TOKEN])
        if len(added) < 3 or np.allclose(added[1], 2 * added[0], rtol=1e-4, atol=1e-6):
            continue
        if np.allclose(added[2] - added[1], added[1] - added[0], rtol=1e-2, atol=1e-3):
            seen = f"In {name}, part of what attention adds stays the same for an embedding twice as large"
            return Hint("decode-extra-step", f"{seen}: something is normalised before.")
        return Hint(None, f"In {name}, twice the embedding does not give twice what attention adds.")
    return None


# -- where it stands ---------------------------------------------------------------------------------------------------


def _places(subject: Asking) -> Hint | None:
    """With W_O = 0 and sinusoidal positions, logits show a token's embedding and the row of positions that was added."""
    table = _table(subject)
    if table is None or not np.abs(table).max(axis=1).all():
        return None
    text = [*PROMPT, TOKEN, 0, 7]
    for n_layers in (1, 2):
        fields = decoder(n_layers, "sinusoidal", W_O=0.0)
        rows = forward(subject, fields, text)
        asked = request(subject, fields, 8)
        first = asked.prefill(PROMPT) if asked is not None else None
        if rows is None or asked is None or first is None:
            return None
        for name, got, at in (("forward", rows, 0), ("prefill", first, 0)):
            added = _where(fields, got, text)
            if same(added, table[at : len(added)]):
                continue
            if same(added, 0 * added):
                return Hint("positions-ignored", f'{name} adds no positions for a model with positions="sinusoidal".')
            if any(same(added, n * table[: len(added)]) for n in (2, 3)):
                return Hint("positions-misplaced", f"{name} adds positions more than once: before every layer.")
            place = _place(added[0], table)
            if place is not None and place > 1 and same(added, table[place : place + len(added)]):
                return Hint(
                    "cache-position-reset", f"{name} gives the first token of a text the position of token {place + 1}."
                )
            return _another_table(name, added, table)
        decoded = asked.decode(TOKEN)
        chunk = asked.prefill(text[4:])
        found = _next(fields, decoded, chunk, text, table) or _later(subject, fields, table)
        if found is not None:
            return found
    return None


def _another_table(name: str, added: Array, table: Array, start: int = 0) -> Hint | None:
    """What rows are that come from a table of positions other than attention.py's, at these places."""
    n, d = added.shape
    at = np.arange(start, start + n)[:, None]
    own = 10000.0 ** (-np.arange(0, d, 2) / d)
    right = np.stack([np.sin(at * own), np.cos(at * own)], axis=-1).reshape(n, d)
    if not same(table[start : start + n], right):
        return None  # that table is not the usual one either
    if same(added, np.concatenate([right[:, 0::2], right[:, 1::2]], axis=1)):
        return Hint("positions-halves", f"{name} adds sines in the first half of the columns, cosines in the second.")
    if same(added, right.reshape(n, -1, 2)[:, :, ::-1].reshape(n, d)):
        return Hint("positions-sin-cos-swapped", f"{name} adds cosines in even columns, sines in odd ones.")
    if same(added, np.stack([np.sin((at + 1) * own), np.cos((at + 1) * own)], axis=-1).reshape(n, d)):
        return Hint(
            "positions-from-one", f"{name} adds the positions of the tokens that come next: its table begins at 1."
        )
    if same(added[:, 0], right[:, 0]) and np.abs(added).max() <= 1 + 1e-6 and (start or same(added[0], right[0])):
        seen = f"{name} adds positions of its own, with other frequencies than attention.py's"
        return Hint("positions-wrong-frequency", f"{seen}.")
    return None


def _later(subject: Asking, fields: Fields, table: Array) -> Hint | None:
    """Three tokens decoded one after the other: each stands one place further on."""
    asked = request(subject, fields, 8)
    if asked is None or asked.prefill(PROMPT) is None:
        return None
    rows = [asked.decode(TOKEN) for _ in range(3)]
    places = [None if row is None else _place(_where(fields, row[None], [TOKEN])[0], table) for row in rows]
    if places[0] == len(PROMPT) and places[1:] == [len(PROMPT)] * 2:
        seen = f"Every token decoded after a prompt of {len(PROMPT)} gets the position of token {len(PROMPT) + 1}"
        return Hint("cache-position-reset", f"{seen}: it does not move on.")
    return None


def _where(fields: Fields, rows: Array, tokens: list[int]) -> Array:
    """What was added to the embeddings, for each row."""
    embedding = fields["embedding"]
    return np.asarray(_solved(embedding, rows) - embedding[tokens[: len(rows)]])


def _next(fields: Fields, decoded: Array | None, chunk: Array | None, text: list[int], table: Array) -> Hint | None:
    """Where a decoded token and a later chunk stand; a whole prompt stands right."""
    if decoded is not None:
        added = _where(fields, decoded[None], [TOKEN])[0]
        if same(added, 0 * added):
            return Hint("positions-ignored", "Prefill adds positions to its tokens, and a decode step adds none.")
        if any(same(added, n * table[len(PROMPT)]) for n in (2, 3)):
            return Hint("positions-misplaced", "A decode step adds positions more than once: before every layer.")
        at = _place(added, table)
        if at is None:
            return _another_table("A decode step", added[None], table, len(PROMPT))
        if at != len(PROMPT):
            seen = f"After a prompt of {len(PROMPT)} tokens the next one gets the position of token {at + 1}."
            return Hint("cache-position-reset", seen)
    if chunk is not None:
        added = _where(fields, chunk, text[4:])
        if same(added, 0 * added):
            return Hint("positions-ignored", "The first chunk of a prompt gets positions, and a later one gets none.")
        at = _place(added[0], table)
        if at is not None and at != 4 and same(added, table[at : at + len(added)]):
            seen = f"A chunk that comes after 4 tokens begins with the position of token {at + 1}."
            return Hint("cache-chunk-misaligned", seen)
    return None


def _place(added: Array, table: Array) -> int | None:
    """The one row of the table that was added."""
    found = [i for i, row in enumerate(table) if same(added, row)]
    return found[0] if len(found) == 1 else None


# -- whether it is the cache that is read ------------------------------------------------------------------------------


def _unread(subject: Asking) -> Hint | None:
    """With another W_V from the decode step on, what is cached stays as it was; a recompute would not."""
    one = decoder(1)
    other = with_layer(one, 0, W_V=2 * one["layers"][0]["W_V"] + 1)
    before, after = step(subject, one), step(subject, one, other=other)
    recomputed = forward(subject, other, [*PROMPT, TOKEN])
    if before is None or after is None or recomputed is None or same(before, after) or not same(after, recomputed[-1]):
        return None
    seen = "With another W_V from the decode step on, its logits are those of a recompute: what is cached is not read."
    return Hint("cache-unused", seen)


def _overfull(subject: Asking) -> Hint | None:
    """Four tokens for two free places: they are refused, and every layer holds what it held."""
    asked = request(subject, decoder(), 5)
    if asked is None or asked.prefill(PROMPT) is None or asked.cache is None:
        return None
    given = asked.cache
    if asked.prefill([TOKEN, 7, 2, 0]) is not None:
        return None
    lengths = [subject.method(given, "keys", layer).value for layer in (0, 1)]
    held = [len(rows) for rows in lengths if isinstance(rows, np.ndarray)]
    if held and max(held) > len(PROMPT):
        seen = "A chunk of 4 tokens for 2 free places is refused, and layers hold"
        return Hint("cache-unbounded", f"{seen} {' and '.join(map(str, held))} tokens afterwards, not 3.")
    return None


def _step(subject: Asking) -> Hint | None:
    """A decode step beside the last row of forward, where nothing above says why they differ."""
    for fields, what in ((decoder(1), "one layer"), (decoder(2), "two layers")):
        row, rows = step(subject, fields), forward(subject, fields, [*PROMPT, TOKEN])
        if row is None or rows is None or same(row, rows[-1]):
            continue
        even = [{**layer, "W_Q": 0 * layer["W_Q"]} for layer in fields["layers"]]
        level = {**fields, "layers": even}
        why = ""
        if _agree(subject, level):
            why = " With W_Q = 0 they agree: look at the scores, their scale, and the keys."
        one_matrix = [{**layer, "W_K": layer["W_V"]} for layer in fields["layers"]]
        if why and _agree(subject, {**fields, "layers": one_matrix}):
            seen = "A decode step gives the last row of forward where W_K = W_V, and not otherwise: it scores values."
            return Hint("cache-keys-values-swapped", seen)
        seen = f"With {what}, the logits of a decode step differ from the last row of forward on the same tokens."
        return Hint(None, seen + why)
    return None


def _agree(subject: Asking, fields: Fields) -> bool:
    row, rows = step(subject, fields), forward(subject, fields, [*PROMPT, TOKEN])
    return row is not None and rows is not None and same(row, rows[-1])
