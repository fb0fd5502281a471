"""Hints on a decode step: where it looks and where it stands, read from how its logits follow what is changed on purpose.

A decoder is a set of arrays, so a question can change one of them between prefill and decode: the cache then holds what the
old ones gave. Everything is compared with the submission's own answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness import signs_attention
from harness.signs import Hint, numbers, same
from harness.subject import Asking
from harness.values import Array, Dtype, Handle

PROMPT, TOKEN = [1, 5, 3], 4
VOCABULARY, WIDTH, KV_HEADS, D_HEAD = 9, 8, 2, 2


def decoder(n_layers: int = 2, positions: str = "none", **silent: float) -> dict[str, Any]:
    """A decoder's fields; `silent` gives matrices a factor, W_V=0 for one that attends to no avail."""
    embedding, *matrices = numbers((VOCABULARY, WIDTH), *[(8, 8), (8, 4), (8, 4), (8, 8)] * n_layers)
    names = ("W_Q", "W_K", "W_V", "W_O")
    layers = [
        {name: w / 3 * silent.get(name, 1.0) for name, w in zip(names, matrices[i : i + 4], strict=True)}
        for i in range(0, 4 * n_layers, 4)
    ]
    return {"embedding": embedding, "layers": layers, "n_heads": 4, "n_kv_heads": KV_HEADS, "positions": positions}


def with_layer(fields: dict[str, Any], index: int, **matrices: Array) -> dict[str, Any]:
    """The same decoder with some matrices of one layer put in their places."""
    layers = [dict(layer) for layer in fields["layers"]]
    layers[index] |= matrices
    return {**fields, "layers": layers}


def hints(subject: Asking) -> Iterator[Hint]:
    """What a decode step gives away, the first thing that explains it; nothing where it does not run.

    Nothing either where attention itself gives a hint: what is built on it then says nothing of the cache.
    """
    if not _grows_by_one(subject):
        return  # what is stored or not is said elsewhere
    attention = (signs_attention.FAMILIES[name] for name in ("softmax", "sdpa", "causal_mask"))
    if any(True for family in attention for _ in family(subject)):
        return
    for look in (_itself, _layers, _places):
        found = look(subject)
        if found is not None:
            yield found
            return


def _grows_by_one(subject: Asking) -> bool:
    model, cache, _ = filled(subject, decoder())
    if cache is None or not _logits(subject.call("kv_cache.decode_step", model, TOKEN, cache).value, 1):
        return False
    return bool(subject.call("@len", cache).value == len(PROMPT) + 1)


def filled(
    subject: Asking, fields: dict[str, Any], prompt: Sequence[int] = PROMPT
) -> tuple[Any, Handle | None, Array | None]:
    """A kept decoder, the cache that prefill gives for the prompt, and its logits."""
    made = subject.keep("@model", fields)
    if not made.ok:
        return None, None, None
    outcome = subject.keep("kv_cache.prefill", made.value, list(prompt))
    value = outcome.value if outcome.ok else None
    if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[1], Handle):
        return made.value, None, None
    return made.value, value[1], value[0] if _logits(value[0], 2) else None


def _logits(value: Any, axes: int) -> bool:
    shape = np.shape(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else ()
    return len(shape) == axes and shape[-1] == VOCABULARY


def step(
    subject: Asking,
    prefilled: dict[str, Any],
    decoding: dict[str, Any] | None = None,
    prompt: Sequence[int] = PROMPT,
    token: int = TOKEN,
) -> Array | None:
    """The logits of one decode step of a second decoder over the cache that a first one filled."""
    model, cache, _ = filled(subject, prefilled, prompt)
    if cache is None:
        return None
    if decoding is not None:
        other = subject.keep("@model", decoding)
        model = other.value if other.ok else None
    value = subject.call("kv_cache.decode_step", model, token, cache).value
    return value.astype(np.float64) if _logits(value, 1) else None


def _itself(subject: Asking) -> Hint | None:
    """With another W_V in decode alone, a step that attends to itself moves; it moves with each token of the prompt anyway."""
    one = decoder(1)
    other = with_layer(one, 0, W_V=2 * one["layers"][0]["W_V"] + 1)
    before, after = step(subject, one), step(subject, one, other)
    if before is None or after is None or not same(before, after):
        return None
    prompts = [[*PROMPT[:i], 7, *PROMPT[i + 1 :]] for i in range(len(PROMPT))]
    moved = [step(subject, one, prompt=prompt) for prompt in prompts]
    moved += [step(subject, one, token=7), step(subject, other, one)]
    if any(found is None or same(found, before) for found in moved):
        return None  # it does not look where it should for another reason
    seen = "With another W_V in the decode step its logits stay the same: the new token's own value is not looked at."
    return Hint("cache-missing-self", seen)


def _layers(subject: Asking) -> Hint | None:
    """With another W_V (or W_K) of the second layer in prefill alone, that layer's cache holds other rows, and a step moves."""
    two = decoder(2)
    before = step(subject, two)
    alone = step(subject, decoder(1))
    if alone is None or not same(alone, _forward(subject, decoder(1))):
        return None  # one layer is wrong already
    for matrix, name in (("W_V", "values"), ("W_K", "keys")):
        first, second = (with_layer(two, i, **{matrix: 2 * two["layers"][i][matrix] + 1}) for i in (0, 1))
        after, by_first = step(subject, second, two), step(subject, first, two)
        (_, one, _), (_, another, _) = filled(subject, two), filled(subject, second)
        if before is None or after is None or by_first is None or one is None or another is None:
            return None
        held = [subject.method(cache, name, 1).value for cache in (one, another)]
        if same(before, after) and not same(before, by_first) and not same(*held):
            seen = f"A decode step stays the same whatever {name} the second layer's cache holds."
            return Hint("cache-layer-mixed", seen)
    return None


def _forward(subject: Asking, fields: dict[str, Any]) -> Array | None:
    """The last row of the submission's own recompute of prompt and token."""
    made = subject.keep("@model", fields)
    value = subject.call("kv_cache.forward", made.value, [*PROMPT, TOKEN]).value if made.ok else None
    return np.asarray(value)[-1] if _logits(value, 2) else None


def _places(subject: Asking) -> Hint | None:
    """With W_V = 0 attention adds nothing: a token's logits show its embedding and the position that was added to it."""
    fields = decoder(1, "sinusoidal", W_V=0.0)
    _, _, prompt = filled(subject, fields)
    decoded = step(subject, fields)
    if prompt is None or decoded is None:
        return None
    embedding = fields["embedding"]
    added = [_solved(embedding, logits) - embedding[token] for logits, token in zip(prompt, PROMPT, strict=True)]
    last = _solved(embedding, decoded) - embedding[TOKEN]
    if any(same(a, b) for a, b in ((added[0], added[1]), (added[1], added[2]))):
        return None  # prefill tells no positions apart
    for i, place in enumerate(added):
        if same(last, place):
            return Hint(
                "cache-position-reset", f"After a prompt of 3 tokens the next one gets the position of token {i + 1}."
            )
    if same(last, np.zeros(WIDTH)):
        return Hint("positions-ignored", "Prefill adds positions to its tokens, and a decode step adds none.")
    return None


def _solved(embedding: Array, logits: Array) -> Array:
    """x where logits = embedding x."""
    return np.linalg.lstsq(embedding, logits.astype(np.float64), rcond=None)[0]


def apart(subject: Asking) -> Iterator[Hint]:
    """Two layers and two caches share nothing: what is appended to one leaves the other as it was."""
    first, second = numbers((2, KV_HEADS, D_HEAD), (2, KV_HEADS, D_HEAD))
    for layer, other, what in ((0, True, "another cache"), (1, False, "the second layer")):
        caches = [subject.keep("kv_cache.KVCache", 2, KV_HEADS, D_HEAD, 8, Dtype("float64")).value for _ in range(2)]
        if not all(isinstance(cache, Handle) for cache in caches):
            return
        one, another = caches[0], caches[1 if other else 0]
        if not subject.method(one, "append", 0, first, first).ok:
            return
        before = subject.method(one, "keys", 0).value
        if not isinstance(before, np.ndarray) or not same(before, first):
            return
        if not subject.method(another, "append", layer, second, second).ok:
            return
        if not same(subject.method(one, "keys", 0).value, first):
            yield Hint("cache-shared-state", f"What one layer of a cache holds changes when {what} is appended to.")
            return
