"""Hints on a KVCache alone: what it gives back of what was appended, how it counts, and when it is full."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.checks.step8_cache import refused
from harness.signs import Hint, numbers, same
from harness.subject import Asking
from harness.values import Array, Dtype, Handle

HEADS, WIDTH = 2, 3
LONG = 300  # tokens: more than any window that looks large enough


def new(subject: Asking, capacity: int, n_layers: int = 2, dtype: str = "float64") -> Handle | None:
    value = subject.keep("kv_cache.KVCache", n_layers, HEADS, WIDTH, capacity, Dtype(dtype)).value
    return value if isinstance(value, Handle) else None


def length(subject: Asking, cache: Handle) -> int | None:
    value = subject.call("@len", cache).value
    return value if type(value) is int else None


def held(subject: Asking, cache: Handle, layer: int = 0) -> tuple[Array, Array] | None:
    """keys(layer) and values(layer), whatever their shapes."""
    keys, values = (subject.method(cache, name, layer).value for name in ("keys", "values"))
    return (keys, values) if isinstance(keys, np.ndarray) and isinstance(values, np.ndarray) else None


def put(subject: Asking, cache: Handle, layer: int, k: Array, v: Array | None = None) -> bool:
    return subject.method(cache, "append", layer, k, -k if v is None else v).ok


def storage(subject: Asking) -> Iterator[Hint]:
    """What is wrong with what a cache gives back: whether it copies, and beside that the first thing that explains it."""
    for look in (_born_empty, _copies, _two_appends, _layers, _apart, _many_appends):
        found = look(subject)
        if found is not None:
            yield found
            if look is not _copies:
                return


def sound(subject: Asking) -> bool:
    """Whether a cache of float64 gives back what it was given, as it was given: a decoder can then be looked at."""
    cache = new(subject, 8)
    parts = numbers((3, HEADS, WIDTH), (1, HEADS, WIDTH))
    if cache is None or not all(put(subject, cache, layer, part) for part in parts for layer in (0, 1)):
        return False
    rows = np.concatenate(parts)
    both = [held(subject, cache, layer) for layer in (0, 1)]
    return length(subject, cache) == 4 and all(
        pair is not None and same(pair[0], rows) and same(pair[1], -rows) for pair in both
    )


def accounts(subject: Asking) -> Iterator[Hint]:
    """What is wrong with dtype, length, bytes and capacity, where what is given back is right."""
    for look in (_dtype, _length, _bytes, _capacity):
        found = look(subject)
        if found is not None:
            yield found


# -- what is given back ------------------------------------------------------------------------------------------------


def _born_empty(subject: Asking) -> Hint | None:
    """Two tokens for one cache, and the length of the next one; of a number of layers that nobody else has asked for."""
    (k,) = numbers((2, HEADS, WIDTH))
    one = new(subject, 2_000, 5)
    before = length(subject, one) if one is not None else None
    if one is None or before is None or not all(put(subject, one, layer, k) for layer in range(5)):
        return None
    another = new(subject, 2_001, 5)
    after = length(subject, another) if another is not None else None
    if not after:
        return None
    if (before, after) == (2_000, 2_001):
        return Hint("cache-length-wrong", f"A new cache for {after} tokens has length {after}, where it holds none.")
    seen = f"A new cache has length {after}"
    if after == before + 2:
        return Hint("cache-shared-state", f"{seen}: it holds what another cache was given.")
    return Hint(None, f"{seen} before anything was appended to it.")


def _two_appends(subject: Asking) -> Hint | None:
    """Two tokens, two more, and one: what keys and values are after each."""
    cache = new(subject, 8, 1)
    parts = numbers((2, HEADS, WIDTH), (2, HEADS, WIDTH), (1, HEADS, WIDTH))
    if cache is None:
        return None
    given: list[Array] = []
    for part in parts:
        if not put(subject, cache, 0, part):
            return None
        given.append(part)
        both = held(subject, cache)
        if both is None:
            return None
        for name, rows, sign in zip(("keys", "values"), both, (1, -1), strict=True):
            if not same(rows, sign * np.concatenate(given)) or rows.dtype != np.float64:
                found = _explained(name, rows, [sign * part for part in given])
                if len(given) == 2 and same(rows, sign * given[1]):  # the last two, or the last append: one more tells
                    found = _window_or_not(subject, cache, name, sign, parts[1:]) or found
                return found
    return None


def _window_or_not(subject: Asking, cache: Handle, name: str, sign: int, parts: list[Array]) -> Hint | None:
    both = held(subject, cache) if put(subject, cache, 0, parts[1]) else None
    if both is None or not same(both[name == "values"], sign * np.concatenate(parts)[-2:]):
        return None
    return Hint("cache-truncated", f"{name}(0) holds the last 2 of what was appended.")


def _explained(name: str, rows: Array, given: list[Array]) -> Hint:
    """What rows are that should be all that was given, in order; values are the negated keys."""
    right, last, n = np.concatenate(given), given[-1], sum(map(len, given))
    appended = " and ".join(str(len(part)) for part in given)
    shape = rows.shape[1:]
    if same(rows, -right):
        other = "values" if name == "keys" else "keys"
        return Hint("cache-keys-values-swapped", f"The cache's {name} are the {other} that were appended.")
    if len(rows) == 0:
        return Hint("cache-not-appended", f"After appends of {appended} tokens {name}(0) holds nothing.")
    if rows.dtype != np.float64 and rows.shape == right.shape and np.allclose(rows, right, rtol=0.02, atol=0.02):
        return Hint("cache-wrong-dtype", f"A cache of float64 gives {name} of {rows.dtype}.")
    if len(given) == 2 and rows.shape in ((2, 2 * HEADS, WIDTH), (2, HEADS, 2 * WIDTH)):
        seen = (
            f"After appends of 2 and 2 tokens {name}(0) has shape {rows.shape}, where (4, {HEADS}, {WIDTH}) is right."
        )
        return Hint("cache-wrong-axis", seen)
    if shape != (HEADS, WIDTH):
        return Hint(None, f"After appends of {appended} tokens {name}(0) has shape {rows.shape}.")
    if len(rows) == 8 > n and same(rows[:n], right):
        seen = f"After appends of {appended} tokens {name}(0) has 8 rows, its capacity: the rest was never filled."
        return Hint("cache-padding-attended", seen)
    if any(same(rows, twice) for twice in (np.concatenate([part, part]) for part in (right, last))) or same(
        rows, np.repeat(right, 2, axis=0)
    ):
        return Hint(
            "cache-appended-twice", f"After an append of {len(last)} tokens {name}(0) holds each of them twice."
        )
    if len(given) > 1:
        old = np.concatenate(given[:-1])
        if same(rows, np.concatenate([last, old])):
            return Hint("cache-prepended", f"What is appended last stands first in {name}(0).")
        for at in range(len(old)):
            if same(rows[:at], old[:at]) and same(rows[at : at + len(last)], last):
                seen = f"After appends of {appended} tokens, the last ones stand in rows {at} to {at + len(last) - 1} of {name}(0)"
                return Hint("cache-overwritten", f"{seen}, over what was there.")
        if len(rows) == n and same(rows[len(old) :], last):  # what was there was right before
            seen = f"After appends of {appended} tokens the first rows of {name}(0) are others than before the last append."
            return Hint("cache-overwritten", seen)
    for which, part in (("last", right[-len(rows) :]), ("first", right[: len(rows)])):
        if len(rows) < n and same(rows, part):
            seen = f"After appends of {appended} tokens {name}(0) holds the {which} {len(rows)}."
            return Hint("cache-truncated", seen)
    return Hint(None, f"After appends of {appended} tokens {name}(0) is not what was appended, in order.")


def _layers(subject: Asking) -> Hint | None:
    """Three layers with a token each: what each gives back."""
    cache = new(subject, 4, 3)
    parts = numbers(*[(1, HEADS, WIDTH)] * 3)
    if cache is None or not all(put(subject, cache, i, part) for i, part in enumerate(parts)):
        return None
    both = [held(subject, cache, i) for i in range(3)]
    rows = [pair[0] for pair in both if pair is not None]
    if len(rows) < 3 or all(same(a, b) for a, b in zip(rows, parts, strict=True)):
        return None
    if all(same(a, b) for a, b in zip(rows, reversed(parts), strict=True)):
        return Hint(
            "cache-layer-mixed",
            "Of three layers, keys(0) gives what was appended to the last, and keys(2) to the first.",
        )
    for i, which in ((0, "first"), (2, "last")):
        if same(rows[i], parts[i]) and not any(len(r) for j, r in enumerate(rows) if j != i):
            return Hint("cache-layer-mixed", f"Only what is appended to the {which} layer is stored.")
    if all(same(a, np.concatenate(parts)) for a in rows):
        return Hint("cache-shared-state", "Three layers with a token each give back three: they share one store.")
    return None


def _apart(subject: Asking) -> Hint | None:
    """Two layers and two caches share nothing: what is appended to one leaves the other as it was."""
    first, second = numbers((2, HEADS, WIDTH), (2, HEADS, WIDTH))
    for layer, other, what in ((0, True, "another cache"), (1, False, "the second layer")):
        caches = [new(subject, 8) for _ in range(2)]
        one, another = caches[0], caches[1 if other else 0]
        if one is None or another is None or not put(subject, one, 0, first):
            return None
        if not put(subject, another, layer, second):
            return None
        both = held(subject, one)
        if both is None or same(both[0], first):
            continue
        rows = both[0]
        if not other and len(rows) == 4 and same(rows[:2], first) and not same(rows[2:], second):
            seen = "keys(0) has 2 more rows when the second layer is appended to: layers are counted together."
            return Hint("cache-length-wrong", seen)
        if any(same(rows[i : i + 2], second) for i in range(len(rows))):
            return Hint("cache-shared-state", f"What one layer of a cache holds changes when {what} is appended to.")
    return None


def _many_appends(subject: Asking) -> Hint | None:
    """A long text in chunks of 50."""
    cache = new(subject, LONG, 1)
    (rows,) = numbers((LONG, HEADS, WIDTH))
    if cache is None or not all(put(subject, cache, 0, rows[i : i + 50]) for i in range(0, LONG, 50)):
        return None
    both = held(subject, cache)
    got = both[0] if both is not None else rows
    if len(got) < LONG and any(same(got, rows[part]) for part in (slice(-len(got), None), slice(len(got)))):
        which = "last" if same(got, rows[-len(got) :]) else "first"
        return Hint("cache-truncated", f"Of {LONG} appended tokens the cache gives back the {which} {len(got)}.")
    if got.shape == rows.shape and not same(got, rows):
        wrong = [i for i in range(LONG) if not same(got[i], rows[i])]
        seen = f"Of {LONG} tokens appended in chunks of 50, rows {wrong[0]} to {wrong[-1]} are others than what was appended there."
        return Hint("cache-overwritten", seen)
    return None


def _copies(subject: Asking) -> Hint | None:
    cache = new(subject, 4)
    k, v = numbers((3, HEADS, WIDTH), (3, HEADS, WIDTH))
    kept = [subject.keep("@tensor", rows).value for rows in (k, v)]
    if cache is None or not subject.method(cache, "append", 0, *kept).ok:
        return None
    before = held(subject, cache)
    for rows, handle in zip((k, v), kept, strict=True):
        subject.call("@set", handle, rows + 1)
    after = held(subject, cache)
    if before is None or after is None or not same(before[0], k) or not same(before[1], v):
        return None
    for name, old, now in zip(("keys", "values"), before, after, strict=True):
        if same(now, old + 1):
            seen = f"The cache's {name} change when the array that was appended changes afterwards."
            return Hint("cache-aliases-input", seen)
    return None


# -- how it casts, counts, and ends ------------------------------------------------------------------------------------


def _dtype(subject: Asking) -> Hint | None:
    (k,) = numbers((1, HEADS, WIDTH))
    for asked, given in (
        ("float32", "float32"),
        ("float16", "float32"),
        ("float64", "float32"),
        ("float32", "float64"),
    ):
        cache = new(subject, 4, 1, asked)
        both = held(subject, cache) if cache is not None and put(subject, cache, 0, k.astype(given)) else None
        for name, rows in zip(("keys", "values"), both or (), strict=False):
            if rows.dtype != np.dtype(asked):
                return Hint("cache-wrong-dtype", f"A cache of {asked} gives {name} of {rows.dtype} for {given}.")
    return None


def _filled(subject: Asking, layers: tuple[int, ...], capacity: int, dtype: str = "float64") -> Handle | None:
    """A cache with so many tokens in each layer, which it gives back rightly."""
    cache = new(subject, capacity, len(layers), dtype)
    if cache is None:
        return None
    for layer, n in enumerate(layers):
        (k,) = numbers((n, HEADS, WIDTH))
        if not put(subject, cache, layer, k.astype(dtype)):
            return None
    for layer, n in enumerate(layers):
        both = held(subject, cache, layer)
        if both is None or any(rows.shape != (n, HEADS, WIDTH) or str(rows.dtype) != dtype for rows in both):
            return None
    return cache


def _length(subject: Asking) -> Hint | None:
    together = _together(subject)
    if together is not None:
        return together
    for layers in ((4, 1), (1, 4, 2)):
        cache = _filled(subject, layers, 8)
        got = length(subject, cache) if cache is not None else None
        if got is not None and got != min(layers):
            held_by = " and ".join(map(str, layers)) if len(layers) == 2 else "1, 4 and 2"
            return Hint("cache-length-wrong", f"len(cache) is {got} where its layers hold {held_by} tokens.")
    return None


def _together(subject: Asking) -> Hint | None:
    """As many tokens for each layer are given back; four for one and one for the other are counted together."""
    if _filled(subject, (2, 2), 8) is None:
        return None
    cache = new(subject, 8)
    k, v = numbers((4, HEADS, WIDTH), (1, HEADS, WIDTH))
    if cache is None or not put(subject, cache, 0, k):
        return None
    first = held(subject, cache, 0)
    if first is None or not put(subject, cache, 1, v):
        return None
    second = held(subject, cache, 1)
    if second is None or (len(first[0]), len(second[0])) == (4, 1) or same(second[0], k):
        return None
    seen = f"After 4 tokens keys(0) has {len(first[0])} rows, and after one for the second layer keys(1) has {len(second[0])}"
    return Hint("cache-length-wrong", f"{seen}: layers are not counted each by itself.")


def _bytes(subject: Asking) -> Hint | None:
    for layers, dtype in (((3, 3), "float64"), ((4, 1), "float64"), ((1, 4), "float64"), ((3, 3), "float32")):
        cache = _filled(subject, layers, 8, dtype)
        tokens = min(layers)
        if cache is None or length(subject, cache) != tokens:
            continue
        got = subject.call("@attr", cache, "nbytes").value
        right = 2 * 2 * tokens * HEADS * WIDTH * np.dtype(dtype).itemsize
        if isinstance(got, int | float) and not isinstance(got, bool) and got != right:
            what = f"nbytes is {got:g} for {tokens} tokens in 2 layers of {HEADS} x {WIDTH} {dtype}, where {right} is right"
            whole = f": the capacity of 8 tokens is counted, not the {tokens} held" if got * tokens == right * 8 else ""
            return Hint("cache-bytes-formula", f"{what}{whole}.")
    return None


def _capacity(subject: Asking) -> Hint | None:
    """A cache for 4 tokens is given one after the other, then three where there is room for two."""
    cache, rows = new(subject, 4, 1), numbers((9, HEADS, WIDTH))[0]
    if cache is None:
        return None
    taken = 0
    for i in range(9):
        outcome = subject.method(cache, "append", 0, rows[i : i + 1], -rows[i : i + 1])
        if not outcome.ok:
            if outcome.kind != "raised":
                return None
            if taken == 4 and not refused(outcome):
                seen = f"A full cache raises {outcome.type.split('.')[-1]}, not ValueError"
                return _in_part(subject, rows, f"{seen}. ") or Hint("cache-capacity-off-by-one", f"{seen}.")
            break
        taken += 1
    if taken in (3, 5):
        seen = "takes 3 and refuses the fourth" if taken == 3 else "takes a fifth"
        return Hint("cache-capacity-off-by-one", f"A cache for 4 tokens {seen}.")
    if taken == 9:
        return _never_full(subject, cache, rows)
    return (_in_part(subject, rows) or _layers_full(subject)) if taken == 4 else None


def _never_full(subject: Asking, cache: Handle, rows: Array) -> Hint | None:
    """A cache for 4 tokens took 9 without an error: what became of them."""
    both = held(subject, cache)
    kept = both[0] if both is not None else rows[:0]
    what = ""
    if len(kept) == 4:
        what = ", and writes the later ones over what it holds"
        for part, words in ((slice(-4, None), ", and keeps the last 4"), (slice(4), ", and drops what does not fit")):
            what = words if same(kept, rows[part]) else what
    return Hint(
        "cache-unbounded", f"A cache for 4 tokens takes 9 without an error{what}: no ValueError says that it is full."
    )


def _in_part(subject: Asking, rows: Array, so_far: str = "") -> Hint | None:
    cache = new(subject, 4, 1)
    if cache is None or not put(subject, cache, 0, rows[:2]) or put(subject, cache, 0, rows[2:5]):
        return None
    both, counted = held(subject, cache), length(subject, cache)
    if both is not None and (len(both[0]), len(both[1]), counted) != (2, 2, 2):
        seen = f"An append of 3 tokens with room for 2 raises, and the cache holds {max(map(len, both))} tokens afterwards, not 2."
        return Hint("cache-unbounded", so_far + seen)
    return None


def _layers_full(subject: Asking) -> Hint | None:
    """Two full layers: each refuses one token more."""
    cache = new(subject, 2)
    (rows,) = numbers((2, HEADS, WIDTH))
    if cache is None or not all(put(subject, cache, layer, rows) for layer in (0, 1)) or _together(subject) is not None:
        return None
    taken = [put(subject, cache, layer, rows[:1]) for layer in (1, 0)][::-1]
    if taken in ([True, False], [False, True]):
        which = ("first", "second") if taken[0] else ("second", "first")
        return Hint(
            "cache-unbounded", f"Of two full layers the {which[1]} refuses one token more, and the {which[0]} takes it."
        )
    return None
