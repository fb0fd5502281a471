"""Known wrong measurements: every function of steps 3 to 8 with the decisions it takes, run in virtual time.

A scenario says what happens: how long each call takes, what fits, which inputs are used. The functions below read like the
right measurement, with a decision wherever a known fault takes another turn; what they give for a scenario is what a
submission with that fault gives when it meets the same scenario.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.virtual_decoder import Decoding, decoding
from harness.virtual_time import Device, Timing, timing
from reference.attention import Array, causal_mask, scaled_dot_product_attention, self_attention
from reference.variants.space import Answer, Decision, Failed, Option, Probe, Space, Variant, decision

Attention = Callable[..., tuple[Array, Array]]


@dataclass(frozen=True)
class Measurement:
    """A family of faults in one function, in the form that the search for an explanation takes."""

    SPACE: Space
    PROBES: tuple[Probe, ...]
    predict: Callable[[Variant, Probe], Answer]
    read: Callable[[Variant, str, Mapping[str, Answer]], Iterable[float]] = lambda variant, decision, observations: ()


# -- virtual time ----------------------------------------------------------------------------------------------------

UNREAD = ("the clock was not read",)  # all that can be said of such numbers; what was called still counts
CLOCK = decision("clock", Option("ignored", "timing-wrong-clock"))
SYNCHRONISE = decision(
    "synchronise",
    Option("never", "timing-not-synchronised"),
    Option("not at the end", "timing-not-synchronised"),
    Option("not at the start", "timing-not-synchronised"),
)
_FACTORS = {"right": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9, "minutes": 1 / 60}
UNIT = decision("unit", *(Option(name, "wrong-unit") for name in list(_FACTORS)[1:]))


def _seconds(variant: Variant, device: Device, work: Callable[[], None]) -> float:
    """Seconds of `work` by the device's clock; what is queued is waited for before each reading."""
    wait = variant.pick("synchronise") if device.asynchronous else "right"
    if wait in ("right", "not at the end"):
        device.synchronize()
    start = device.clock()
    work()
    if wait in ("right", "not at the start"):
        device.synchronize()
    return device.clock() - start


# -- time_attention --------------------------------------------------------------------------------------------------


WARM_UP = decision(
    "warm-up",
    Option("none", "timing-no-warmup"),
    Option("timed", "timing-no-warmup"),  # among the samples
    Option("first length only", "timing-no-warmup"),
    Option("last length only", "timing-no-warmup"),
    Option("one call", "timing-no-warmup"),
    Option("two calls", "timing-no-warmup", common=False),
    Option("one call too few", "timing-no-warmup", common=False),
)
_STATISTICS: dict[str, Callable[[list[float]], float]] = {
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
    "mean without the extremes": lambda samples: float(np.mean(sorted(samples)[1:-1] if len(samples) > 2 else samples)),
    "mean without the first": lambda samples: float(np.mean(samples[1:] if len(samples) > 1 else samples)),
    "standard deviation": lambda samples: float(np.std(samples)),
}
STATISTIC = decision("statistic", *(Option(name, "timing-not-median") for name in list(_STATISTICS)[1:]))


def _time_attention(variant: Variant, probe: Probe) -> Answer:
    scenario: Timing = probe.args[0]
    device = Device(scenario.asynchronous)
    calls: Counter[int] = Counter()

    def attend(n: int) -> None:
        device.work(scenario.cost(n, calls[n]))
        calls[n] += 1

    clock = variant.pick("clock")
    warm_up = variant.pick("warm-up")
    values = []
    if warm_up == "last length only":
        for _ in range(scenario.warmup):
            attend(scenario.ns[-1])
    for n in scenario.ns:
        first = n == scenario.ns[0]
        untimed = {
            "right": scenario.warmup,
            "one call": 1,
            "two calls": 2,
            "one call too few": scenario.warmup - 1,
        }.get(warm_up, 0)
        if warm_up == "first length only" and first:
            untimed = scenario.warmup
        for _ in range(untimed):
            attend(n)
        timed = scenario.repeats + (scenario.warmup if warm_up == "timed" else 0)
        samples = [_seconds(variant, device, lambda n=n: attend(n)) for _ in range(timed)]  # type: ignore[misc]
        if clock == "right":
            values.append(_STATISTICS[variant.pick("statistic")](samples) * _FACTORS[variant.pick("unit")])
    if clock == "ignored":
        return (*UNREAD, np.array([calls[n] for n in scenario.ns]))
    return (np.array(values),)


TIME_ATTENTION = Measurement(
    SPACE=(CLOCK, WARM_UP, SYNCHRONISE, STATISTIC, UNIT),
    PROBES=tuple(
        Probe(name, "experiments.time_attention", (scenario,), size=100.0)
        for name, scenario in (
            ("three lengths", timing(1, (4, 6, 9), 4, 5, False)),
            ("three lengths on a device", timing(2, (4, 6, 9), 4, 5, True)),
            ("one repeat on a device", timing(3, (5, 7), 3, 1, True)),
            ("seven repeats", timing(4, (8, 3), 3, 7, False)),
        )
    ),
    predict=_time_attention,
)


# -- local_slopes and fit_exponent -----------------------------------------------------------------------------------


def _axis(name: str) -> Decision:
    bases = tuple(Option(f"log{base}", "fit-wrong-output", common=False) for base in (2, 10))
    return decision(name, Option("not logged", "fit-not-loglog"), *bases)


_BASES = {"right": math.e, "log2": 2.0, "log10": 10.0}
LENGTHS, TIMES = _axis("lengths"), _axis("times")


def _logged(variant: Variant, axis: str, numbers: Sequence[float]) -> tuple[Array, float]:
    """The numbers as they stand on that axis, and the base they are logged to (e where they are not)."""
    how = variant.pick(axis)
    if how == "not logged":
        return np.array(numbers, float), math.e
    return np.log(np.array(numbers, float)) / math.log(_BASES[how]), _BASES[how]


def _slope(x: Array, y: Array) -> float:
    dx = x - np.mean(x)
    return float(np.sum(dx * (y - np.mean(y))) / np.sum(dx * dx))


def _local_slopes(variant: Variant, probe: Probe) -> Answer:
    ns, seconds = probe.args
    x, _ = _logged(variant, "lengths", ns)
    y, _ = _logged(variant, "times", seconds)
    if variant.pick("direction") == "inverted":
        x, y = y, x
    return (np.diff(y) / np.diff(x),)


def _fit_exponent(variant: Variant, probe: Probe) -> Answer:
    ns, seconds = probe.args
    x, _ = _logged(variant, "lengths", ns)
    y, base = _logged(variant, "times", seconds)
    direction = variant.pick("direction")
    if direction == "inverted":
        x, y = y, x
    output = variant.pick("output")
    slope = _slope(x, y)
    intercept = float(np.mean(y) - slope * np.mean(x))
    local = np.diff(y) / np.diff(x)
    found = {
        "right": slope,
        "intercept": intercept,
        "constant before the power": base**intercept if abs(intercept) < 300 else math.inf,
        "mean of the local slopes": float(np.mean(local)),
        "median of the local slopes": float(np.median(local)),
    }[output]
    return (1 / found if direction == "reciprocal" else found,)


_NOISY = ((2, 3, 7, 19, 50), (0.5, 0.9, 7.0, 30.0, 410.0))
_FLAT = ((3, 5, 12, 31), (2.0, 1.7, 4.0, 9.0))
INVERTED = Option("inverted", "fit-inverted")
LOCAL_SLOPES = Measurement(
    SPACE=(LENGTHS, TIMES, decision("direction", INVERTED)),
    PROBES=tuple(
        Probe(name, "experiments.local_slopes", args, size=10.0) for name, args in (("noisy", _NOISY), ("flat", _FLAT))
    ),
    predict=_local_slopes,
)
FIT_EXPONENT = Measurement(
    SPACE=(
        LENGTHS,
        TIMES,
        decision("direction", INVERTED, Option("reciprocal", "fit-inverted")),
        decision(
            "output",
            Option("intercept", "fit-wrong-output"),
            Option("constant before the power", "fit-wrong-output"),
            Option("mean of the local slopes", "fit-wrong-output"),
            Option("median of the local slopes", "fit-wrong-output"),
        ),
    ),
    PROBES=tuple(
        Probe(name, "experiments.fit_exponent", args, size=10.0) for name, args in (("noisy", _NOISY), ("flat", _FLAT))
    ),
    predict=_fit_exponent,
)


# -- score_bytes -----------------------------------------------------------------------------------------------------

_BYTES = {
    "right": 1.0, "bits": 8.0, "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9,
}  # fmt: skip
BYTES = decision("unit", *(Option(name, "wrong-unit") for name in list(_BYTES)[1:]))
WHOLE = decision("whole", Option("cut"), Option("rounded"))  # how a number that is no whole one is given: no fault


def _in_unit(variant: Variant, number: float) -> float:
    unit = variant.pick("unit")
    if unit in ("right", "bits"):
        return number * _BYTES[unit]
    whole = variant.pick("whole")
    scaled = number * _BYTES[unit]
    return float({"right": scaled, "cut": math.floor(scaled), "rounded": round(scaled)}[whole])


def _score_bytes(variant: Variant, probe: Probe) -> Answer:
    n, itemsize, heads = probe.args
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
    return (_in_unit(variant, float(sizes[variant.pick("table")] * item * head * factor)),)


def _wrong(name: str, code: str, *options: str) -> Decision:
    return decision(name, *(Option(option, code) for option in options))


SCORE_BYTES = Measurement(
    SPACE=(
        _wrong("table", "memory-formula", "n", "triangle", "n(n-1)/2", "cube", "half"),
        _wrong("itemsize", "memory-formula", "ignored", "two", "four", "eight"),
        _wrong("heads", "memory-formula", "ignored", "squared"),
        _wrong("factor", "memory-formula", "two", "three", "four"),
        BYTES,
        WHOLE,
    ),
    PROBES=tuple(
        Probe(f"n = {args[0]}", "experiments.score_bytes", args, size=0.0)
        for args in ((7_001, 5, 3), (98_304, 4, 7), (30_000, 3, 11), (1_000_003, 16, 1))
    ),
    predict=_score_bytes,
)


# -- largest_n -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """fits(n) is true up to `threshold`; above it is false, or a MemoryError. `far`: too far to be asked one by one."""

    start: int
    limit: int
    threshold: int
    raises: bool = False
    far: bool = False

    @property
    def largest(self) -> int:
        return min(self.threshold, self.limit) if self.threshold >= self.start else 0


def _largest_n(variant: Variant, probe: Probe) -> Answer:
    scenario: Search = probe.args[0]
    start, limit, threshold = scenario.start, scenario.limit, scenario.threshold
    if scenario.far:
        return ("many calls" if variant.pick("calls") == "linear" else "few calls",)
    if scenario.raises and variant.pick("MemoryError") == "escapes":
        return Failed("MemoryError")
    bounds = variant.pick("limit")
    past = threshold > limit and bounds in ("ignored", "asked past")
    top = {"ignored": threshold, "excluded": max(min(threshold, limit - 1), start)}.get(bounds, min(threshold, limit))
    if threshold < start:
        below = variant.pick("start")
        if below == "right":
            return (0, past)
        top = start if below == "never asked" else threshold
    result = variant.pick("result")
    if result == "first that fails":
        top += 1
    elif result == "first that fails, up to the limit":
        top = min(top + 1, limit)
    elif result == "one less":
        top -= 1
    elif result.startswith("doubled") and top >= start:
        top = start * 2 ** int(math.log2(top / start) + 1e-12) * (2 if result == "doubled once more" else 1)
    return (top, past)


_SEARCHES = {
    "in between": Search(4, 64, 39),
    "one above the start": Search(5, 90, 6),
    "below a doubling": Search(6, 200, 47),
    "all fit": Search(5, 43, 300),
    "all fit, a doubling": Search(4, 64, 250),
    "nothing fits": Search(12, 60, 7),
    "memory runs out": Search(6, 80, 37, raises=True),
    "far": Search(128, 2**20, 52_345, far=True),
}
LARGEST_N = Measurement(
    SPACE=(
        decision(
            "result",
            Option("first that fails", "search-off-by-one"),
            Option("first that fails, up to the limit", "search-off-by-one"),
            Option("one less", "search-off-by-one"),
            Option("doubled", "search-off-by-one"),
            Option("doubled once more", "search-off-by-one"),
        ),
        _wrong("start", "search-bounds", "never asked", "from below"),
        _wrong("limit", "search-bounds", "ignored", "excluded", "asked past"),
        _wrong("MemoryError", "search-memoryerror", "escapes"),
        _wrong("calls", "search-linear", "linear"),
    ),
    PROBES=tuple(Probe(name, "experiments.largest_n", (search,)) for name, search in _SEARCHES.items()),
    predict=_largest_n,
)


# -- decode_latencies ------------------------------------------------------------------------------------------------


def _decode_latencies(variant: Variant, probe: Probe) -> Answer:
    scenario: Decoding = probe.args[0]
    device = Device(scenario.asynchronous)
    passes, steps = iter(scenario.passes), iter(scenario.steps)
    path = "steps" if scenario.use_cache else "passes"
    if scenario.use_cache and variant.pick("cache") == "unused":
        path = "passes"
    elif not scenario.use_cache and variant.pick("recompute") == "not done":
        path = "steps"
    if variant.pick("clock") == "ignored":
        return (*UNREAD, path)
    prefill_s = _seconds(variant, device, lambda: device.work(next(passes)))
    decode_s = [
        _seconds(variant, device, lambda: device.work(next(steps if path == "steps" else passes)))
        for _ in range(scenario.new)
    ]
    mixed = variant.pick("prefill")
    if mixed in ("also in the first step", "only in the first step"):
        decode_s[0] += prefill_s
    elif mixed == "is the first step":
        decode_s = [prefill_s, *decode_s[:-1]]
    elif mixed == "before the first step":
        decode_s = [prefill_s, *decode_s]
    elif mixed == "with the first step":
        prefill_s += decode_s[0]
    if mixed in ("only in the first step", "missing"):
        prefill_s = 0.0
    times = variant.pick("times")
    if times == "since the first step":
        decode_s = list(np.cumsum(decode_s))
    elif times == "since the prefill":
        decode_s = list(np.cumsum(decode_s) + prefill_s)
    elif times == "average":
        decode_s = [float(np.mean(decode_s))] * len(decode_s)
    elif times == "running average":
        decode_s = list(np.cumsum(decode_s) / np.arange(1, len(decode_s) + 1))
    factor = _FACTORS[variant.pick("unit")]
    prefill_s *= factor if variant.pick("unit of") == "right" else 1.0
    return (prefill_s, np.array(decode_s) * factor, path)


DECODE_LATENCIES = Measurement(
    SPACE=(
        CLOCK,
        # nothing is queued when a step begins, if the one before it was waited for: a wait left out there is no fault
        _wrong("synchronise", "timing-not-synchronised", "never", "not at the end"),
        _wrong(
            "prefill",
            "decode-prefill-mixed",
            "also in the first step",
            "only in the first step",
            "is the first step",
            "before the first step",
            "with the first step",
            "missing",
        ),
        _wrong("times", "decode-cumulative", "since the first step", "since the prefill", "average", "running average"),
        UNIT,
        decision("unit of", Option("the steps alone")),
        _wrong("cache", "cache-unused", "unused"),
        _wrong("recompute", "use-cache-ignored", "not done"),
    ),
    PROBES=tuple(
        Probe(name, "experiments.decode_latencies", (scenario,), size=100.0)
        for name, scenario in (
            ("with a cache", decoding(11, 5, 4, True, False)),
            ("without a cache", decoding(12, 4, 3, False, False)),
            ("with a cache, on a device", decoding(13, 3, 5, True, True)),
            ("without a cache, on a device", decoding(14, 4, 4, False, True)),
        )
    ),
    predict=_decode_latencies,
)


# -- attention that treats slots or hidden tokens as it should not, so that a gap has something to show --------------

_SLOTS = np.random.default_rng(7).standard_normal((64, 16))
LEAK = 0.25


def by_slot(Q: Array, K: Array, V: Array, mask: Array | None = None, scale: float | None = None) -> tuple[Array, Array]:
    """Right but for a vector that each slot adds to its output."""
    output, weights = scaled_dot_product_attention(Q, K, V, mask=mask, scale=scale)
    return output + _SLOTS[: output.shape[-2], : output.shape[-1]], weights


def leaky(Q: Array, K: Array, V: Array, mask: Array | None = None, scale: float | None = None) -> tuple[Array, Array]:
    """Right but for a share of every value, hidden or not."""
    output, weights = scaled_dot_product_attention(Q, K, V, mask=mask, scale=scale)
    return output + LEAK * np.mean(V, axis=-2, keepdims=True), weights


ATTENTIONS: dict[str, Attention] = {"right": scaled_dot_product_attention, "by slot": by_slot, "leaky": leaky}


def over(attention: str) -> Attention:
    """`self_attention` over one of ATTENTIONS."""

    def run(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None) -> tuple[Array, Array]:
        return ATTENTIONS[attention](X @ W_Q, X @ W_K, X @ W_V, mask=mask)

    return run if attention != "right" else self_attention


def _constant(variant: Variant, decision: str, observations: Mapping[str, Answer]) -> Iterable[float]:
    """A gap that is the same in every run can be read from any."""
    for answer in observations.values():
        if not isinstance(answer, Failed) and isinstance(answer[0], float):
            return (answer[0],)
    return ()


CONSTANT = Option("constant", "gap-constant", examples=(0.0, 0.3289))


@dataclass(frozen=True)
class Shuffle:
    """One equivariance_gap, over one of ATTENTIONS."""

    X: Array
    W_Q: Array
    W_K: Array
    W_V: Array
    permutation: Array
    positions: Array | None
    mask: Array | None
    attention: str


def shuffle(seed: int, n: int, attention: str, positions: bool = False, causal: bool = False) -> Shuffle:
    """Draw the inputs; the permutation is not its own inverse."""
    rng = np.random.default_rng(seed)
    X, W_Q, W_K, W_V = rng.standard_normal((n, 6)), *rng.standard_normal((3, 6, 5)) / 2
    permutation = np.concatenate([np.roll(np.arange(3), -1), 3 + rng.permutation(n - 3)])
    P = rng.standard_normal((n, 6)) if positions else None
    return Shuffle(X, W_Q, W_K, W_V, permutation, P, causal_mask(n) if causal else None, attention)


def _equivariance_gap(variant: Variant, probe: Probe) -> Answer:
    case: Shuffle = probe.args[0]
    if variant.pick("gap") == "constant":
        return (variant.value("gap"),)
    X, permutation, mask, P = case.X, case.permutation, case.mask, 0.0 if case.positions is None else case.positions
    attention = over(case.attention)
    shuffled_x, shuffled_mask = X[permutation] + P, mask
    if case.positions is not None:
        shuffled_x = (X + P)[permutation] if variant.pick("positions") == "travel" else shuffled_x
    if mask is not None:
        travels = variant.pick("mask")
        shuffled_mask = mask[permutation] if travels in ("travels", "its rows travel") else mask
        if travels in ("travels", "its columns travel"):
            shuffled_mask = shuffled_mask[:, permutation]
    with np.errstate(all="ignore"):
        output, _ = attention(X + P, case.W_Q, case.W_K, case.W_V, mask=mask)
        shuffled, _ = attention(shuffled_x, case.W_Q, case.W_K, case.W_V, mask=shuffled_mask)
    back = variant.pick("un-shuffle")
    order = {"right": np.argsort(permutation), "left out": np.arange(len(X)), "shuffled again": permutation}[back]
    return (float(np.max(np.abs(shuffled[order] - output))),)


EQUIVARIANCE_GAP = Measurement(
    SPACE=(
        decision("gap", CONSTANT),
        _wrong("un-shuffle", "equivariance-not-unshuffled", "left out", "shuffled again"),
        _wrong("positions", "equivariance-positions-travel", "travel"),
        _wrong("mask", "equivariance-mask-travels", "travels", "its rows travel", "its columns travel"),
    ),
    PROBES=tuple(
        Probe(name, "experiments.equivariance_gap", (case,), size=10.0)
        for name, case in (
            ("plain", shuffle(21, 6, "right")),
            ("slots", shuffle(22, 7, "by slot")),
            ("positions", shuffle(23, 6, "right", positions=True)),
            ("positions and slots", shuffle(24, 5, "by slot", positions=True)),
            ("causal", shuffle(25, 7, "right", causal=True)),
            ("causal and slots", shuffle(26, 6, "by slot", causal=True)),
            ("both", shuffle(27, 6, "right", positions=True, causal=True)),
        )
    ),
    predict=_equivariance_gap,
    read=_constant,
)


@dataclass(frozen=True)
class Append:
    """One append_invariance_gap, over one of ATTENTIONS."""

    X: Array
    x_new: Array
    W_Q: Array
    W_K: Array
    W_V: Array
    attention: str


def append(seed: int, n: int, attention: str) -> Append:
    rng = np.random.default_rng(seed)
    W_Q, W_K, W_V = rng.standard_normal((3, 6, 5)) / 2
    return Append(rng.standard_normal((n, 6)), rng.standard_normal((1, 6)), W_Q, W_K, W_V, attention)


def _append_invariance_gap(variant: Variant, probe: Probe) -> Answer:
    case: Append = probe.args[0]
    if variant.pick("gap") == "constant":
        return (variant.value("gap"),)
    n = len(case.X)
    attention, causal = over(case.attention), variant.pick("causal")
    short = None if causal in ("neither run", "only the longer run") else causal_mask(n)
    long = None if causal in ("neither run", "only the shorter run") else causal_mask(n + 1)
    before, _ = attention(case.X, case.W_Q, case.W_K, case.W_V, mask=short)
    after, _ = attention(np.concatenate([case.X, case.x_new]), case.W_Q, case.W_K, case.W_V, mask=long)
    return (float(np.max(np.abs(after[:n] - before))),)


APPEND_INVARIANCE_GAP = Measurement(
    SPACE=(
        decision("gap", CONSTANT),
        _wrong("causal", "invariance-not-causal", "neither run", "only the longer run", "only the shorter run"),
    ),
    PROBES=tuple(
        Probe(name, "experiments.append_invariance_gap", (case,), size=10.0)
        for name, case in (
            ("right", append(31, 6, "right")),
            ("leaky", append(32, 5, "leaky")),
            ("one token", append(33, 1, "leaky")),
        )
    ),
    predict=_append_invariance_gap,
    read=_constant,
)


# -- compare_with_sdpa -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One call of the judge's attention during compare_with_sdpa: what it was given, and the output it gave."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    scale: float | None
    output: Array


def mask_kind(mask: Array | None, n: int) -> str:
    """What a mask (of any shape that broadcasts to (n, n)) says: "none", "causal", "inverted" or "other"."""
    if mask is None or (mask.dtype == bool and bool(np.all(mask))):
        return "none"
    causal = causal_mask(n)
    if mask.dtype != bool or mask.shape[-2:] != (n, n):
        return "other"
    if bool(np.all(mask == causal)):
        return "causal"
    return "inverted" if bool(np.all(mask == ~causal)) or bool(np.all(mask == causal.T)) else "other"


_SIGNED: dict[str, Callable[[Array], float]] = {
    "right": lambda diff: float(np.max(np.abs(diff))),
    "mean": lambda diff: float(np.mean(np.abs(diff))),
    "largest signed": lambda diff: float(np.max(diff)),
    "largest signed, reversed": lambda diff: float(np.max(-diff)),
    "mean signed": lambda diff: float(np.mean(diff)),
    "mean signed, reversed": lambda diff: float(np.mean(-diff)),
    "absolute mean": lambda diff: float(abs(np.mean(diff))),
    "mean square": lambda diff: float(np.mean(diff**2)),
    "root mean square": lambda diff: float(np.sqrt(np.mean(diff**2))),
    "sum": lambda diff: float(np.sum(np.abs(diff))),
    "norm": lambda diff: float(np.sqrt(np.sum(diff**2))),
    "median": lambda diff: float(np.median(np.abs(diff))),
    "smallest": lambda diff: float(np.min(np.abs(diff))),
}


def _compare_with_sdpa(variant: Variant, probe: Probe) -> Answer:
    """The difference of one row, and the mask that attention saw. `probe.args`: the row's `Compared` calls, causal or not."""
    calls, causal = probe.args
    seen = "none"
    if causal:
        seen = {"right": "causal", "inverted": "inverted"}[variant.pick("our mask")]
    if variant.pick("comparison") == "constant":
        return (variant.value("comparison"), seen)
    if variant.pick("comparison") == "with itself":
        return (0.0, seen)
    theirs = variant.pick("their mask") if causal else "right"
    how = variant.pick("scale")
    parts = []
    for call in calls:
        d = call.q.shape[-1]
        ours = call.scale
        scale = {
            "right": ours, "only ours": None, "1/d": 1 / d, "none": 1.0, "times sqrt(d)": math.sqrt(d), "half": 0.5 / math.sqrt(d),
            "double": 2 / math.sqrt(d), "sqrt of n": 1 / math.sqrt(call.k.shape[-2]),
        }[how]  # fmt: skip
        tril = causal_mask(call.q.shape[-2])
        mask = {
            "right": tril,
            "inverted, hidden rows 0": ~tril,
            "inverted, hidden rows NaN": ~tril,
            "upper triangle": tril.T,
        }[theirs]
        with np.errstate(all="ignore"):
            output, _ = scaled_dot_product_attention(call.q, call.k, call.v, mask=mask if causal else None, scale=scale)
        if theirs == "inverted, hidden rows 0":
            output = np.nan_to_num(output, nan=0.0)
        parts.append((call.output - output).ravel())
    return (_SIGNED[variant.pick("statistic")](np.concatenate(parts)), seen)


COMPARE_WITH_SDPA = Measurement(
    SPACE=(
        decision(
            "comparison",
            Option("with itself", "sdpa-self-comparison"),
            Option("constant", "sdpa-self-comparison", examples=(0.5,)),
        ),
        _wrong("our mask", "sdpa-mask-inverted", "inverted"),
        _wrong(
            "their mask", "sdpa-mask-inverted", "inverted, hidden rows 0", "inverted, hidden rows NaN", "upper triangle"
        ),
        _wrong(
            "scale", "sdpa-scale-mismatch", "only ours", "1/d", "none", "times sqrt(d)", "half", "double", "sqrt of n"
        ),
        decision("statistic", *(Option(name, "sdpa-wrong-statistic") for name in list(_SIGNED)[1:])),
    ),
    PROBES=(),  # made of what the judge's attention was given
    predict=_compare_with_sdpa,
    read=_constant,
)

MEASUREMENTS: dict[str, Measurement] = {
    "compare_with_sdpa": COMPARE_WITH_SDPA,
    "equivariance_gap": EQUIVARIANCE_GAP,
    "append_invariance_gap": APPEND_INVARIANCE_GAP,
    "time_attention": TIME_ATTENTION,
    "local_slopes": LOCAL_SLOPES,
    "fit_exponent": FIT_EXPONENT,
    "score_bytes": SCORE_BYTES,
    "largest_n": LARGEST_N,
    "decode_latencies": DECODE_LATENCIES,
}
