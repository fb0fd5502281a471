"""Hints on kv_cache.py and experiments.py, by questions that anybody could ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import signs_attention, signs_decode
from harness.signs import Hint, numbers, pair, same
from harness.signs_decode import decoder
from harness.subject import Asking
from harness.values import Callback, Dtype, Handle

_sdpa = signs_attention.FAMILIES["sdpa"]

# -- cache ------------------------------------------------------------------------------------------------------------


def _cache(subject: Asking) -> Iterator[Hint]:
    yield from signs_decode.apart(subject)
    yield from _cache_alone(subject)
    yield from _kv_cache_bytes(subject)
    made = subject.keep("@model", decoder())
    if not made.ok:
        return
    ids = subject.call("kv_cache.generate", made.value, [1, 2, 3], 5)
    if ids.ok and isinstance(ids.value, list | tuple) and len(ids.value) != 5:
        yield Hint(
            "generate-off-by-one", f"generate gives {len(ids.value)} ids where 5 are asked, after a prompt of 3."
        )
    ahead = list(_looks_ahead(subject, made.value))
    yield from ahead
    filled = subject.keep("kv_cache.prefill", made.value, [1, 2, 3])
    if filled.ok and isinstance(filled.value, tuple | list) and len(filled.value) == 2:
        yield from _one_step(subject, made.value, filled.value[1])
    if not ahead:
        yield from signs_decode.hints(subject)


def _kv_cache_bytes(subject: Asking) -> Iterator[Hint]:
    number = subject.call("kv_cache.kv_cache_bytes", 2, 3, 5, 7, 4)
    if number.ok and isinstance(number.value, int | float) and number.value != 1680:
        yield Hint("cache-bytes-formula", f"kv_cache_bytes(2, 3, 5, 7, 4) is {number.value:g}; 2·2·3·5·7·4 is 1680.")


def _looks_ahead(subject: Asking, model: Handle) -> Iterator[Hint]:
    """Two prompts with the same first token."""
    for name in ("forward", "prefill"):
        one, other = (subject.keep(f"kv_cache.{name}", model, [1, last]).value for last in (2, 7))
        if name == "prefill":
            one, other = (v[0] if isinstance(v, tuple | list) and len(v) == 2 else None for v in (one, other))
        if np.shape(one) == np.shape(other) == (2, 9) and not same(one[0], other[0]):
            held = subject.keep("kv_cache.prefill", model, [1, 2]).value
            alone = (
                name == "prefill" and subject.call("@len", held[1]).value == 2
            )  # forward's are right, two are stored
            code = "cache-prefill-unmasked" if alone else None
            yield Hint(code, f"In {name}, the first token's logits change with the token after it.")
            return


def _one_step(subject: Asking, model: Handle, cache: Any) -> Iterator[Hint]:
    """A prompt of three tokens and one decoded: what the cache held before is there after, and one token more."""
    if not isinstance(cache, Handle):
        return
    length, before, deep = subject.call("@len", cache), *(subject.method(cache, "keys", i) for i in (0, 1))
    step = subject.call("kv_cache.decode_step", model, 4, cache)
    longer, after, deeper = subject.call("@len", cache), *(subject.method(cache, "keys", i) for i in (0, 1))
    if not step.ok or length.value != 3:
        return
    if longer.value == 3 and same(after.value, before.value) and same(deeper.value, deep.value):
        yield Hint("cache-not-appended", "After a prompt of 3 tokens and a decoded one, the cache holds 3.")
    elif longer.value == 5 and len(after.value) == 5:
        yield Hint("cache-appended-twice", "After a prompt of 3 tokens and a decoded one, the cache holds 5.")
    elif (
        np.shape(before.value)[:1] == (3,)
        and np.shape(after.value)[:1] == (4,)
        and not same(after.value[:3], before.value)
    ):
        if same(after.value[1:], before.value):
            yield Hint("cache-prepended", "A decoded token's key stands in front of the prompt's.")
        else:
            yield Hint("cache-overwritten", "A decoded token changed the keys that the prompt had stored.")


def _cache_alone(subject: Asking) -> Iterator[Hint]:
    made = subject.keep("kv_cache.KVCache", 1, 2, 3, 4, Dtype("float32"))
    if not made.ok or not isinstance(made.value, Handle):
        return
    cache = made.value
    k, v = (a.astype(np.float32) for a in numbers((3, 2, 3), (3, 2, 3)))
    kept = subject.keep("@tensor", k)
    if not kept.ok or not subject.method(cache, "append", 0, kept.value, v).ok:
        return
    before = subject.method(cache, "keys", 0).value
    if not isinstance(before, np.ndarray) or before.shape != k.shape:
        return
    if same(before, v):
        yield Hint("cache-keys-values-swapped", "The cache's keys are the values that were appended.")
        return
    if before.dtype != np.float32:
        yield Hint("cache-wrong-dtype", f"A cache of float32 gives keys of {before.dtype}.")
    subject.call("@set", kept.value, k + 1)
    if not same(subject.method(cache, "keys", 0).value, before):
        yield Hint(
            "cache-aliases-input", "The cache's keys change when the array that was appended changes afterwards."
        )
        return
    fill = subject.method(cache, "append", 0, k[:1], v[:1])
    if fill.kind == "raised" and fill.type.endswith("ValueError"):
        other = subject.keep("kv_cache.KVCache", 1, 2, 3, 4, Dtype("float32")).value
        four = np.concatenate([k, k])[:4]
        if not subject.method(other, "append", 0, four, four).ok:
            yield Hint("cache-capacity-off-by-one", "A cache for 4 tokens takes 3 and refuses the fourth.")
    elif fill.ok:
        more = subject.method(cache, "append", 0, k, v)
        if more.ok and np.shape(subject.method(cache, "keys", 0).value)[:1] == (7,):
            yield Hint("cache-unbounded", "A cache for 4 tokens takes 7.")
        elif more.kind == "raised" and not more.type.endswith("ValueError"):
            yield Hint("cache-capacity-off-by-one", f"A full cache raises {more.type.split('.')[-1]}, not ValueError.")


# -- experiments ------------------------------------------------------------------------------------------------------


def _score_bytes(subject: Asking) -> Iterator[Hint]:
    left_out = {200: "heads", 300: "itemsize", 60: "a factor n"}
    got = subject.call("experiments.score_bytes", 10, itemsize=2, heads=3).value
    if isinstance(got, int | float) and got in left_out:
        seen = f"score_bytes(10, itemsize=2, heads=3) is {got:g}, and 3 · 10 · 10 · 2 is 600"
        yield Hint("memory-formula", f"{seen}: {left_out[int(got)]} is left out.")


def _fit_exponent(subject: Asking) -> Iterator[Hint]:
    ns = [10, 20, 50, 200]
    got = subject.call("experiments.fit_exponent", ns, [1e-6 * n**2 for n in ns]).value
    if isinstance(got, float) and same(got, 0.5):
        yield Hint("fit-inverted", "For seconds that grow as n² the exponent comes out as 1/2.")


def _local_slopes(subject: Asking) -> Iterator[Hint]:
    ns = [10, 20, 50, 200]
    got = subject.call("experiments.local_slopes", ns, [1e-6 * n**2 for n in ns]).value
    if isinstance(got, list | tuple | np.ndarray) and same(list(got), [0.5] * 3):
        yield Hint("fit-inverted", "For seconds that grow as n² every slope comes out as 1/2.")


def _largest_n(subject: Asking) -> Iterator[Hint]:
    got = subject.call("experiments.largest_n", Callback(lambda n: n <= 1000), start=8, limit=5000).value
    if got == 1001:
        yield Hint("search-off-by-one", "Where every n up to 1000 fits, largest_n gives 1001.")
    elif got == 512:
        yield Hint("search-off-by-one", "Where every n up to 1000 fits, largest_n gives 512, the last doubling.")


def _equivariance_gap(subject: Asking) -> Iterator[Hint]:
    """Three tokens moved on in a circle, two exchanged, none moved: undoing differs from doing in the first alone."""
    X, *W = numbers((3, 4), (4, 4), (4, 4), (4, 4))
    orders = ([0, 1, 2], [1, 0, 2], [1, 2, 0])
    found = [subject.call("experiments.equivariance_gap", X, *W, np.array(order)).value for order in orders]
    gaps: list[float] = [gap for gap in found if isinstance(gap, float)]
    if len(gaps) != 3 or gaps[0] > 1e-9 or gaps[2] < 1e-6:
        return
    plain, moved = (
        pair(subject.call("attention.self_attention", rows, *W), (3, 4), (3, 3)) for rows in (X, X[orders[2]])
    )
    if gaps[1] < 1e-9:
        seen = "Two tokens exchanged leave no gap, and three moved on in a circle do: the order is undone by the same order."
    else:
        seen = "Without a shuffle there is no gap, and with any there is one: the outputs are not put back in order."
    if plain and moved and same(moved[0], plain[0][orders[2]]):  # attention itself is equivariant
        yield Hint("equivariance-not-unshuffled", seen)


def _compare_with_sdpa(subject: Asking) -> Iterator[Hint]:
    """At d = 1 the scale is 1, however it is made: rows that agree there alone differ by their scale."""
    rows = subject.call("experiments.compare_with_sdpa", [(1, 1, 6, d) for d in (1, 4, 16)]).value
    found = [row.get("max_abs_diff") for row in rows if isinstance(row, dict)] if isinstance(rows, list | tuple) else []
    apart: list[float] = [gap for gap in found if isinstance(gap, float)]
    if len(apart) != 3 or any(True for _ in _sdpa(subject)):
        return
    if apart[0] < 1e-5 < 1e-3 < min(apart[1:]):
        seen = f"The difference is rounding at d = 1, where the scale is 1, and {apart[2]:.2g} at d = 16."
        yield Hint("sdpa-scale-mismatch", seen)


FAMILIES = {
    "cache": _cache,
    "kv_cache_bytes": _kv_cache_bytes,
    "equivariance_gap": _equivariance_gap,
    "compare_with_sdpa": _compare_with_sdpa,
    "score_bytes": _score_bytes,
    "fit_exponent": _fit_exponent,
    "local_slopes": _local_slopes,
    "largest_n": _largest_n,
}
