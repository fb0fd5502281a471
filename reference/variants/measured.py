"""The functions of experiments.py as a variant has them: the right measurement, with a decision wherever a known fault
takes another turn.

They take what the lab's functions take, after the variant. So they run on the judge's scenarios, for the search to predict by,
and in the place of a submission's own, for a check to be asked whether it would fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from reference.attention import Array, causal_mask, scaled_dot_product_attention
from reference.variants.space import Variant

Attention = Callable[..., tuple[Array, Array]]
Clock = Callable[[], float]
Synchronize = Callable[[], object]

FACTORS = {"right": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9, "minutes": 1 / 60}


# -- virtual time ----------------------------------------------------------------------------------------------------


def _seconds(variant: Variant, clock: Clock, synchronize: Synchronize | None, work: Callable[[], object]) -> float:
    """Seconds of `work`; what is queued is waited for before each reading."""
    waits = variant.pick("synchronise") if synchronize is not None else "never"
    wait = synchronize or (lambda: None)
    if waits in ("right", "not at the end"):
        wait()
    start = clock()
    work()
    if waits in ("right", "not at the start"):
        wait()
    return clock() - start


def _trimmed(samples: Sequence[float]) -> list[float]:
    """What lies between the quartiles."""
    low, high = np.percentile(samples, [25, 75])
    return [s for s in samples if low <= s <= high]


def _or_all(some: Sequence[float], samples: Sequence[float]) -> Sequence[float]:
    return some if len(some) else samples


STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "right": lambda samples: float(np.median(samples)),
    "mean": lambda samples: float(np.mean(samples)),
    "minimum": min,
    "sum": sum,
    "maximum": max,
    "first": lambda samples: samples[0],
    "last": lambda samples: samples[-1],
    "middle of the unsorted": lambda samples: samples[len(samples) // 2],
    "above the median": lambda samples: sorted(samples)[min(len(samples) // 2 + 1, len(samples) - 1)],
    "below the median": lambda samples: sorted(samples)[max(len(samples) // 2 - 1, 0)],
    "mean without the extremes": lambda samples: float(np.mean(_or_all(sorted(samples)[1:-1], samples))),
    "mean without the first": lambda samples: float(np.mean(_or_all(samples[1:], samples))),
    "mean without the largest": lambda samples: float(np.mean(_or_all(sorted(samples)[:-1], samples))),
    "mean without the least": lambda samples: float(np.mean(_or_all(sorted(samples)[1:], samples))),
    "mean between the quartiles": lambda samples: float(np.mean(_trimmed(samples))),
    "median without the first": lambda samples: float(np.median(_or_all(samples[1:], samples))),
    "median, divided by the repeats": lambda samples: float(np.median(samples)) / len(samples),
    "mean, divided by the repeats": lambda samples: float(np.mean(samples)) / len(samples),
    "upper quartile": lambda samples: float(np.percentile(samples, 75)),
    "lower quartile": lambda samples: float(np.percentile(samples, 25)),
    "geometric mean": lambda samples: float(np.exp(np.mean(np.log(np.maximum(samples, 1e-300))))),
}


def time_attention(
    variant: Variant,
    attend: Callable[..., object],
    ns: Sequence[int],
    d: int = 64,
    warmup: int = 3,
    repeats: int = 5,
    clock: Clock | None = None,
    synchronize: Synchronize | None = None,
) -> list[float]:
    clock = _clock(variant, clock)
    inputs = {n: np.random.default_rng(n).standard_normal((3, n, d)) for n in ns}
    warm_up = variant.pick("warm-up")
    values = []
    if warm_up == "last length only":
        for _ in range(warmup):
            attend(*inputs[ns[-1]])
    for n in ns:
        untimed = {"right": warmup, "one call": 1, "two calls": 2, "one call too few": warmup - 1}.get(warm_up, 0)
        if warm_up == "first length only" and n == ns[0]:
            untimed = warmup
        for _ in range(untimed):
            attend(*inputs[n])
        timed = repeats + (warmup if warm_up == "timed" else 0)
        samples = [_seconds(variant, clock, synchronize, lambda n=n: attend(*inputs[n])) for _ in range(timed)]  # type: ignore[misc]
        if warm_up == "dropped of the repeats":
            samples = samples[min(warmup, repeats - 1) :]
        values.append(STATISTICS[variant.pick("statistic")](samples) * FACTORS[variant.pick("unit")])
    return values


def _clock(variant: Variant, clock: Clock | None) -> Clock:
    """The clock that is read: another one than was given gives seconds of which nothing can be said."""
    import time

    return clock if clock is not None and variant.pick("clock") == "right" else time.perf_counter


# -- local_slopes and fit_exponent -----------------------------------------------------------------------------------

BASES = {"right": math.e, "log2": 2.0, "log10": 10.0}


def _axes(variant: Variant, ns: Sequence[float], seconds: Sequence[float]) -> tuple[Array, Array, float]:
    """Lengths and times as they stand on their axes, and the base that the times are logged to (e where they are not)."""
    x, y = np.array(ns, float), np.array(seconds, float)
    how = {"lengths": variant.pick("lengths"), "times": variant.pick("times")}
    bases = {axis: BASES.get(name, math.e) for axis, name in how.items()}
    if (how["lengths"] == "not logged") != (how["times"] == "not logged"):
        bases = dict.fromkeys(
            bases, BASES[variant.pick("base")]
        )  # of the one axis that is logged: any, and no second fault
    x = x if how["lengths"] == "not logged" else np.log(x) / math.log(bases["lengths"])
    y = y if how["times"] == "not logged" else np.log(y) / math.log(bases["times"])
    return x, y, bases["times"]


def _slope(x: Array, y: Array, weights: Array | None = None) -> float:
    w = np.ones_like(x) if weights is None else weights
    dx = x - np.average(x, weights=w)
    return float(np.sum(w * dx * (y - np.average(y, weights=w))) / np.sum(w * dx * dx))


def local_slopes(variant: Variant, ns: Sequence[float], seconds: Sequence[float]) -> list[float]:
    x, y, base = _axes(variant, ns, seconds)
    if variant.pick("direction") == "inverted":
        x, y = y, x
    pairs = variant.pick("pairs")
    if pairs == "reversed":
        x, y = x[::-1], y[::-1]
    if pairs == "from the first":
        return [float(s) for s in (y[1:] - y[0]) / (x[1:] - x[0])]
    if pairs == "over two steps" and len(x) > 2:
        return [float(s) for s in np.gradient(y, x)[:-1]]
    if pairs == "over two steps, the first left out" and len(x) > 2:
        return [float(s) for s in np.gradient(y, x)[1:]]
    if pairs == "each point's own":
        return [float(s) for s in (y / x)[1:]]
    if pairs == "the length doubles":
        return [float(s) for s in np.diff(y) / (math.log(2) / math.log(base))]
    if pairs == "ratios":
        return [b / a / (m / n) for a, b, n, m in zip(seconds, seconds[1:], ns, ns[1:], strict=False)]
    return [float(s) for s in np.diff(y) / np.diff(x)]


def fit_exponent(variant: Variant, ns: Sequence[float], seconds: Sequence[float]) -> float:
    x, y, base = _axes(variant, ns, seconds)
    direction = variant.pick("direction")
    if direction == "inverted":
        x, y = y, x
    output = variant.pick("output")
    found = _OUTPUTS[output](x, y, np.array(ns, float), np.array(seconds, float))
    if output == "constant before the power":
        found = base**found if abs(found) < 300 else math.inf
    return 1 / found if direction == "reciprocal" else found


def _intercept(x: Array, y: Array) -> float:
    return float(np.mean(y) - _slope(x, y) * np.mean(x))


def _local(x: Array, y: Array) -> Array:
    local: Array = np.diff(y) / np.diff(x)
    return local


def _between_all(x: Array, y: Array) -> list[float]:
    return [float((y[j] - y[i]) / (x[j] - x[i])) for i in range(len(x)) for j in range(i + 1, len(x))]


def _parabola(x: Array, y: Array, power: int) -> float:
    return float(np.linalg.lstsq(np.vander(x, 3), y, rcond=None)[0][2 - power])


_OUTPUTS: dict[str, Callable[[Array, Array, Array, Array], float]] = {
    "right": lambda x, y, n, t: _slope(x, y),
    "intercept": lambda x, y, n, t: _intercept(x, y),
    "constant before the power": lambda x, y, n, t: _intercept(x, y),
    "mean of the local slopes": lambda x, y, n, t: float(np.mean(_local(x, y))),
    "median of the local slopes": lambda x, y, n, t: float(np.median(_local(x, y))),
    "first to last": lambda x, y, n, t: float((y[-1] - y[0]) / (x[-1] - x[0])),
    "the last two": lambda x, y, n, t: float(_local(x, y)[-1]),
    "without the first": lambda x, y, n, t: _slope(x[1:], y[1:]) if len(x) > 2 else _slope(x, y),
    "without the last": lambda x, y, n, t: _slope(x[:-1], y[:-1]) if len(x) > 2 else _slope(x, y),
    "through the origin": lambda x, y, n, t: float(x @ y / (x @ x)),
    "weighted by length": lambda x, y, n, t: _slope(x, y, n),
    "weighted by the square of length": lambda x, y, n, t: _slope(x, y, n * n),
    "weighted by time": lambda x, y, n, t: _slope(x, y, t),
    "weighted by the square of time": lambda x, y, n, t: _slope(x, y, t * t),
    "correlation": lambda x, y, n, t: float(np.corrcoef(x, y)[0, 1]),
    "two counts of points": lambda x, y, n, t: _slope(x, y) * len(x) / (len(x) - 1),
    "mean of all slopes": lambda x, y, n, t: float(np.mean(_between_all(x, y))),
    "median of all slopes": lambda x, y, n, t: float(np.median(_between_all(x, y))),
    "a parabola's square term": lambda x, y, n, t: _parabola(x, y, 2),
    "a parabola's linear term": lambda x, y, n, t: _parabola(x, y, 1),
    "a parabola's constant": lambda x, y, n, t: _parabola(x, y, 0),
}
OUTPUTS = tuple(_OUTPUTS)


# -- score_bytes -----------------------------------------------------------------------------------------------------

BYTES = {
    "right": 1.0, "bits": 8.0, "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9,
}  # fmt: skip


def _in_unit(variant: Variant, number: float) -> float:
    unit = variant.pick("unit")
    if unit in ("right", "bits"):
        return number * BYTES[unit]
    whole = variant.pick("whole")
    scaled = number * BYTES[unit]
    return float({"right": scaled, "cut": math.floor(scaled), "rounded": round(scaled)}[whole])


def score_bytes(variant: Variant, n: int, itemsize: int = 2, heads: int = 1) -> float:
    sizes = {
        "right": n * n,
        "n": n,
        "triangle": n * (n + 1) // 2,
        "n(n-1)/2": n * (n - 1) // 2,
        "cube": n**3,
        "half": n * n / 2,
    }
    item = {"right": itemsize, "ignored": 1, "two": 2, "four": 4, "eight": 8}[variant.pick("itemsize")]
    head = {"right": heads, "ignored": 1, "squared": heads * heads}[variant.pick("heads")]
    factor = {"right": 1, "two": 2, "three": 3, "four": 4}[variant.pick("factor")]
    return _in_unit(variant, float(sizes[variant.pick("table")] * item * head * factor))


# -- largest_n -------------------------------------------------------------------------------------------------------


def largest_n(variant: Variant, fits: Callable[[int], object], start: int = 128, limit: int = 2**24) -> int:
    """The largest n by halving, so that every n stands in for a search of its own kind; what is wrong is done to the result."""
    escapes = variant.pick("MemoryError") == "escapes"

    def holds(n: int) -> bool:
        try:
            return bool(fits(n))
        except MemoryError:
            if escapes:
                raise
            return False

    if variant.pick("calls") == "linear":
        n = start
        while n <= limit and holds(n):
            n += 1
        top = n - 1
    else:
        top = _halved(holds, start, limit)
    bounds = variant.pick("limit")
    if bounds in ("ignored", "asked past") and top == limit:
        high = 2 * limit
        while holds(high):
            high *= 2
        beyond = _halved(holds, limit, high)
        top = beyond if bounds == "ignored" else top
    if bounds == "excluded":
        top = max(min(top, limit - 1), start) if top >= start else top
    if top < start:
        below = variant.pick("start")
        if below == "right":
            return 0
        top = start if below == "never asked" else _halved(holds, 1, start)
    result = variant.pick("result")
    if result == "first that fails":
        top += 1
    elif result == "first that fails, up to the limit":
        top = min(top + 1, limit)
    elif result == "one less":
        top -= 1
    elif result.startswith("doubled") and top >= start:
        top = start * 2 ** int(math.log2(top / start) + 1e-12) * (2 if result == "doubled once more" else 1)
    return top


def _halved(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest n from low to high that holds, or low - 1."""
    if not holds(low):
        return low - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


# -- decode_latencies ------------------------------------------------------------------------------------------------


def decode_latencies(
    variant: Variant,
    kv_cache: Any,
    model: Any,
    prompt: Sequence[int],
    max_new_tokens: int,
    use_cache: bool,
    clock: Clock | None = None,
    synchronize: Synchronize | None = None,
) -> dict[str, Any]:
    """Over a module kv_cache.py."""
    clock = _clock(variant, clock)
    tokens = [int(token) for token in prompt]
    cached = use_cache
    if use_cache and variant.pick("cache") == "unused":
        cached = False
    elif not use_cache and variant.pick("recompute") == "not done":
        cached = True
    twice = not cached and variant.pick("recompute") == "twice"
    kept: dict[str, Any] = {}

    def first() -> None:
        if cached:
            kept["logits"], kept["cache"] = kv_cache.prefill(model, tokens)
        else:
            kept["logits"] = kv_cache.forward(model, tokens)

    def step() -> None:
        if cached:
            kept["logits"] = kv_cache.decode_step(model, tokens[-1], kept["cache"])
            return
        for _ in range(2 if twice else 1):
            kept["logits"] = kv_cache.forward(model, tokens)

    prefill_s = _seconds(variant, clock, synchronize, first)
    decode_s = []
    for _ in range(max_new_tokens):
        logits = np.asarray(kept["logits"])
        tokens.append(int(np.argmax(logits[-1] if logits.ndim == 2 else logits)))
        decode_s.append(_seconds(variant, clock, synchronize, step))
    held = int(kept["cache"].nbytes) if "cache" in kept else 0
    prefill_s, decode_s = _told(variant, prefill_s, decode_s)
    return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": held}


def _told(variant: Variant, prefill_s: float, decode_s: list[float]) -> tuple[float, list[float]]:
    """The seconds as they are given."""
    mixed = variant.pick("prefill")
    whole = prefill_s + sum(decode_s)
    if mixed in ("also in the first step", "only in the first step"):
        decode_s[0] += prefill_s
    elif mixed == "is the first step":
        decode_s = [prefill_s, *decode_s[:-1]]
    elif mixed == "before the first step":
        decode_s = [prefill_s, *decode_s]
    elif mixed == "with the first step":
        prefill_s += decode_s[0]
    elif mixed == "in every step":
        decode_s = [prefill_s + s for s in decode_s]
    elif mixed == "the total":
        prefill_s = whole
    if mixed in ("only in the first step", "missing"):
        prefill_s = 0.0
    times = variant.pick("times")
    if times == "since the first step":
        decode_s = list(np.cumsum(decode_s))
    elif times == "since the prefill":
        decode_s = list(np.cumsum(decode_s) + prefill_s)
    elif times == "average":
        decode_s = [float(np.mean(decode_s))] * len(decode_s)
    elif times == "median":
        decode_s = [float(np.median(decode_s))] * len(decode_s)
    elif times == "total":
        decode_s = [float(np.sum(decode_s))] * len(decode_s)
    elif times == "average with the prefill":
        decode_s = [(prefill_s + float(np.sum(decode_s))) / len(decode_s)] * len(decode_s)
    elif times == "average with the prefill as a step":
        decode_s = [(prefill_s + float(np.sum(decode_s))) / (len(decode_s) + 1)] * len(decode_s)
    elif times == "running average":
        decode_s = list(np.cumsum(decode_s) / np.arange(1, len(decode_s) + 1))
    factor = FACTORS[variant.pick("unit")]
    prefill_s *= factor if variant.pick("unit of") == "right" else 1.0
    return prefill_s, [s * factor for s in decode_s]


# -- the gaps --------------------------------------------------------------------------------------------------------


def equivariance_gap(
    variant: Variant,
    self_attention: Attention,
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    permutation: Sequence[int] | Array,
    positions: Array | None = None,
    mask: Array | None = None,
) -> float:
    """Over a self_attention."""
    if variant.pick("gap") == "constant":
        return float(variant.value("gap"))
    order = np.asarray(permutation)
    P = 0.0 if positions is None else positions
    shuffled_x, shuffled_mask = X[order] + P, mask
    if positions is not None and variant.pick("positions") == "travel":
        shuffled_x = (X + P)[order]
    if mask is not None:
        travels = variant.pick("mask")
        shuffled_mask = mask[order] if travels in ("travels", "its rows travel") else mask
        if travels in ("travels", "its columns travel"):
            shuffled_mask = shuffled_mask[:, order]
    output, _ = self_attention(X + P, W_Q, W_K, W_V, mask=mask)
    shuffled, _ = self_attention(shuffled_x, W_Q, W_K, W_V, mask=shuffled_mask)
    back = variant.pick("un-shuffle")
    undone = {"right": np.argsort(order), "left out": np.arange(len(X)), "shuffled again": order}[back]
    return GAPS[variant.pick("measure")](shuffled[undone] - output)


GAPS: dict[str, Callable[[Array], float]] = {
    "right": lambda gap: float(np.max(np.abs(gap))),
    "mean": lambda gap: float(np.mean(np.abs(gap))),
    "signed": lambda gap: float(np.max(gap)),
    "signed, reversed": lambda gap: float(np.max(-gap)),
    "norm": lambda gap: float(np.sqrt(np.sum(gap**2))),
    "sum": lambda gap: float(np.sum(np.abs(gap))),
}


def append_invariance_gap(
    variant: Variant,
    self_attention: Attention,
    X: Array,
    x_new: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    causal_mask: Callable[..., Array] = causal_mask,
) -> float:
    """Over a self_attention, and a causal_mask."""
    if variant.pick("gap") == "constant":
        return float(variant.value("gap"))
    n, causal = len(X), variant.pick("causal")
    short = None if causal in ("neither run", "only the longer run") else causal_mask(n)
    long = None if causal in ("neither run", "only the shorter run") else causal_mask(n + 1)
    before, _ = self_attention(X, W_Q, W_K, W_V, mask=short)
    after, _ = self_attention(np.concatenate([X, x_new]), W_Q, W_K, W_V, mask=long)
    return GAPS[variant.pick("measure")](after[:n] - before)


# -- compare_with_sdpa -----------------------------------------------------------------------------------------------

SIGNED: dict[str, Callable[[Array], float]] = {
    "right": lambda diff: float(np.max(np.abs(diff))),
    "mean": lambda diff: float(np.mean(np.abs(diff))),
    "largest signed": lambda diff: float(np.max(diff)),
    "largest signed, reversed": lambda diff: float(np.max(-diff)),
    "mean signed": lambda diff: float(np.mean(diff)),
    "mean signed, reversed": lambda diff: float(np.mean(-diff)),
    "absolute mean": lambda diff: float(abs(np.mean(diff))),
    "mean square": lambda diff: float(np.mean(diff**2)),
    "largest square": lambda diff: float(np.max(diff**2)),
    "root mean square": lambda diff: float(np.sqrt(np.mean(diff**2))),
    "sum": lambda diff: float(np.sum(np.abs(diff))),
    "norm": lambda diff: float(np.sqrt(np.sum(diff**2))),
    "median": lambda diff: float(np.median(np.abs(diff))),
    "smallest": lambda diff: float(np.min(np.abs(diff))),
}


def scale_of(how: str, ours: float | None, n: int, d: int) -> float | None:
    """The scale of the other side."""
    root = math.sqrt(d)
    return {"right": ours, "only ours": None, "1/d": 1 / d, "none": 1.0, "times sqrt(d)": root, "half": 0.5 / root,
            "double": 2 / root, "sqrt of n": 1 / math.sqrt(n)}[how]  # fmt: skip


def theirs(how: str, scale: str, ours: float | None, q: Array, k: Array, v: Array, causal: bool) -> Array:
    """What the other side gives: in the place of torch, with this mask and this scale."""
    n, d = q.shape[-2:]
    tril = causal_mask(n)
    mask = {
        "right": tril,
        "inverted, hidden rows 0": ~tril,
        "inverted, hidden rows NaN": ~tril,
        "upper triangle": tril.T,
    }[how]
    with np.errstate(all="ignore"):
        output, _ = scaled_dot_product_attention(
            q, k, v, mask=mask if causal else None, scale=scale_of(scale, ours, k.shape[-2], d)
        )
    return np.nan_to_num(output, nan=0.0) if how == "inverted, hidden rows 0" else output


def compare_with_sdpa(
    variant: Variant,
    attention: Attention,
    shapes: Iterable[Sequence[int]],
    dtype: str = "float32",
    causal: bool = False,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Over a scaled_dot_product_attention; the other side is the reference's, which rounds as torch does."""
    rng = np.random.default_rng(seed)
    rows = []
    width = {"right": dtype}.get(variant.pick("dtype"), variant.pick("dtype"))
    for shape in shapes:
        batch, heads, n, d = shape
        given = (batch, heads, d, n) if variant.pick("inputs") != "right" else (batch, heads, n, d)
        q, k, v = (rng.standard_normal(given).astype(width) for _ in range(3))
        tril = causal_mask(q.shape[-2])
        seen = {"right": tril, "inverted": ~tril}[variant.pick("our mask")] if causal else None
        options = {"scale": 0.5 / math.sqrt(d)} if variant.pick("scale") == "only ours" else {}
        with np.errstate(all="ignore"):
            ours, _ = attention(q, k, v, mask=seen, **options)
        how = variant.pick("comparison")
        if how == "constant":
            found = variant.value("comparison")
        elif how == "with itself":
            found = 0.0
        else:
            other = theirs(variant.pick("their mask"), variant.pick("scale"), None, q, k, v, causal)
            found = SIGNED[variant.pick("statistic")]((np.asarray(ours, float) - other.astype(float)).ravel())
        rows.append({"shape": tuple(shape), "max_abs_diff": found, "backend": "MATH"})
    return rows
