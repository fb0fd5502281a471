"""Known wrong measurements: every function of steps 3 to 8 with the decisions it takes, run in virtual time.

A scenario says what happens: how long each call takes, what fits, which inputs are used. The functions below read like the
right measurement, with a decision wherever a known fault takes another turn; what they give for a scenario is what a
submission with that fault gives when it meets the same scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.virtual_decoder import Decoder, Decoding, decoding, path_of
from harness.virtual_time import Device, Timing, Watched, timing
from reference.attention import Array, causal_mask, scaled_dot_product_attention, self_attention
from reference.variants import measured
from reference.variants.measured import FACTORS, OUTPUTS, SIGNED, STATISTICS, Attention
from reference.variants.space import Answer, Decision, Failed, Option, Probe, Space, Variant, decision


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
UNIT = decision("unit", *(Option(name, "wrong-unit") for name in list(FACTORS)[1:]))


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
    Option("dropped of the repeats", "timing-no-warmup"),
)
STATISTIC = decision("statistic", *(Option(name, "timing-not-median") for name in list(STATISTICS)[1:]))


def _time_attention(variant: Variant, probe: Probe) -> Answer:
    scenario: Timing = probe.args[0]
    device = Device(scenario.asynchronous)
    calls: Counter[int] = Counter()

    def attend(Q: Array, K: Array, V: Array) -> None:
        n = len(Q)
        device.work(scenario.cost(n, calls[n]))
        calls[n] += 1

    wait = device.synchronize if scenario.asynchronous else None
    values = measured.time_attention(
        variant, attend, scenario.ns, 1, scenario.warmup, scenario.repeats, device.clock, wait
    )
    if variant.pick("clock") == "ignored":
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


LENGTHS, TIMES = _axis("lengths"), _axis("times")
BASE = decision("base", Option("log2"), Option("log10"))


def _wrong(name: str, code: str, *options: str) -> Decision:
    return decision(name, *(Option(option, code) for option in options))


def _local_slopes(variant: Variant, probe: Probe) -> Answer:
    return (np.array(measured.local_slopes(variant, *probe.args)),)


def _fit_exponent(variant: Variant, probe: Probe) -> Answer:
    return (measured.fit_exponent(variant, *probe.args),)


_NOISY = ((2, 3, 7, 19, 50), (0.5, 0.9, 7.0, 30.0, 410.0))
_FLAT = ((3, 5, 12, 31), (2.0, 1.7, 4.0, 9.0))
INVERTED = Option("inverted", "fit-inverted")
LOCAL_SLOPES = Measurement(
    SPACE=(
        LENGTHS,
        TIMES,
        BASE,
        decision("direction", INVERTED),
        _wrong(
            "pairs",
            "fit-wrong-output",
            "reversed",
            "from the first",
            "over two steps",
            "over two steps, the first left out",
            "each point's own",
            "the length doubles",
            "ratios",
        ),
    ),
    PROBES=tuple(
        Probe(name, "experiments.local_slopes", args, size=10.0) for name, args in (("noisy", _NOISY), ("flat", _FLAT))
    ),
    predict=_local_slopes,
)
FIT_EXPONENT = Measurement(
    SPACE=(
        LENGTHS,
        TIMES,
        BASE,
        decision("direction", INVERTED, Option("reciprocal", "fit-inverted")),
        decision("output", *(Option(name, "fit-wrong-output") for name in OUTPUTS[1:])),
    ),
    PROBES=tuple(
        Probe(name, "experiments.fit_exponent", args, size=10.0) for name, args in (("noisy", _NOISY), ("flat", _FLAT))
    ),
    predict=_fit_exponent,
)


# -- score_bytes -----------------------------------------------------------------------------------------------------

BYTES = decision("unit", *(Option(name, "wrong-unit") for name in list(measured.BYTES)[1:]))
WHOLE = decision("whole", Option("cut"), Option("rounded"))  # how a number that is no whole one is given: no fault


def _score_bytes(variant: Variant, probe: Probe) -> Answer:
    return (measured.score_bytes(variant, *probe.args),)


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
    if scenario.far:
        return ("many calls" if variant.pick("calls") == "linear" else "few calls",)
    past = False

    def fits(n: int) -> bool:
        nonlocal past
        past = past or n > scenario.limit
        if n > scenario.threshold and scenario.raises:
            raise MemoryError
        return n <= scenario.threshold

    try:
        found = measured.largest_n(variant, fits, scenario.start, scenario.limit)
    except MemoryError:
        return Failed("MemoryError")
    return (found, past and scenario.threshold > scenario.limit)


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
    decoder = Decoder(scenario, Watched(device))
    held = SimpleNamespace(nbytes=0)  # bytes are asked about by a check of its own
    kv_cache = SimpleNamespace(
        prefill=lambda model, tokens: (decoder.forward(model, tokens), held),
        forward=decoder.forward,
        decode_step=decoder.decode_step,
    )
    wait = device.synchronize if scenario.asynchronous else None
    tokens = range(scenario.prompt)
    found = measured.decode_latencies(
        variant, kv_cache, None, tokens, scenario.new, scenario.use_cache, device.clock, wait
    )
    path = path_of(decoder.work, scenario.new)
    if variant.pick("clock") == "ignored":
        return (*UNREAD, path)
    return (found["prefill_s"], np.array(found["decode_s"]), path)


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
            "in every step",
            "the total",
        ),
        _wrong(
            "times",
            "decode-cumulative",
            "since the first step",
            "since the prefill",
            "average",
            "median",
            "total",
            "average with the prefill",
            "average with the prefill as a step",
            "running average",
        ),
        UNIT,
        decision("unit of", Option("the steps alone")),
        _wrong("cache", "cache-unused", "unused"),
        decision("recompute", Option("not done", "use-cache-ignored"), Option("twice", "speedup-faked")),
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
    given = (case.X, case.W_Q, case.W_K, case.W_V, case.permutation, case.positions, case.mask)
    with np.errstate(all="ignore"):
        return (measured.equivariance_gap(variant, over(case.attention), *given),)


MEASURE = decision(
    "measure", *(Option(name) for name in list(measured.GAPS)[1:])
)  # no code names it, nor hides the others


EQUIVARIANCE_GAP = Measurement(
    SPACE=(
        decision("gap", CONSTANT),
        MEASURE,
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
    given = (case.X, case.x_new, case.W_Q, case.W_K, case.W_V)
    return (measured.append_invariance_gap(variant, over(case.attention), *given),)


APPEND_INVARIANCE_GAP = Measurement(
    SPACE=(
        decision("gap", CONSTANT),
        MEASURE,
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
    mask = variant.pick("their mask") if causal else "right"
    scale = variant.pick("scale")
    parts = [
        (call.output - measured.theirs(mask, scale, call.scale, call.q, call.k, call.v, causal)).ravel()
        for call in calls
    ]
    return (SIGNED[variant.pick("statistic")](np.concatenate(parts)), seen)


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
        decision("statistic", *(Option(name, "sdpa-wrong-statistic") for name in list(SIGNED)[1:])),
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


def served(name: str, variant: Variant) -> Callable[..., Any]:
    """A function of experiments.py with these faults, over the modules attention and kv_cache that are imported when it runs."""
    function = getattr(measured, name)

    def serve(*args: Any, **kwargs: Any) -> Any:
        own = {"causal_mask": import_module("attention").causal_mask} if name == "append_invariance_gap" else {}
        return function(variant, *(_over[name]() if name in _over else ()), *args, **kwargs, **own)

    return serve


_over: dict[str, Callable[[], tuple[Any, ...]]] = {
    "compare_with_sdpa": lambda: (import_module("attention").scaled_dot_product_attention,),
    "equivariance_gap": lambda: (import_module("attention").self_attention,),
    "append_invariance_gap": lambda: (import_module("attention").self_attention,),
    "decode_latencies": lambda: (import_module("kv_cache"),),
}
