"""Hints on experiments.py: what the measurements of steps 3 to 8 give where time, memory and errors are known.

They are asked in virtual time, and over the submission's own attention with errors added to it; nothing here knows what
attention should give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.checks.step3_sdpa import ERROR, FLOAT32_BOUND, spoil
from harness.checks.step4_gaps import gap_inputs, one_slot_off
from harness.checks.step7_append import by_length
from harness.own_attention import OwnAttention, over_own_attention
from harness.signs import Hint, pair, same
from harness.signs import attention as signs_attention
from harness.subject import Asking, Subject
from harness.values import Array, Callback
from harness.virtual_decoder import Decoding, decode_latencies
from harness.virtual_time import Timing, time_attention

UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds", 1 / 60: "minutes"}
NS = [10, 20, 50, 200]
SQUARES = [1e-6 * n**2 for n in NS]
UNEVEN = [0.5, 0.9, 7.0, 410.0]  # seconds that no power law gives
UNLOGGED: list[tuple[str, Array, Array]] = [
    ("times by lengths", np.array(NS), np.array(UNEVEN)),
    ("times by log n", np.log(NS), np.array(UNEVEN)),
    ("log times by n", np.array(NS), np.log(UNEVEN)),
]


def _numbers(value: Any, count: int) -> Array | None:
    """A list of that many floats as an array, else None."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != count:
        return None
    plain = [v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in value]
    return np.array(plain, float) if all(type(v) in (int, float) for v in plain) else None


def _float(value: Any) -> float | None:
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return float(value) if type(value) in (int, float) else None


# -- step 3 -----------------------------------------------------------------------------------------------------------

COMPARE = "experiments.compare_with_sdpa"
ROW = (1, 2, 5, 4)
STATISTICS: dict[str, Callable[[Array], float]] = {
    "mean absolute": lambda error: np.abs(error).mean(),
    "largest signed": lambda error: error.max(),
    "mean": lambda error: error.mean(),
    "absolute mean": lambda error: abs(error.mean()),
    "mean square": lambda error: np.square(error).mean(),
    "root mean square": lambda error: np.sqrt(np.square(error).mean()),
    "summed": lambda error: np.abs(error).sum(),
    "Euclidean": lambda error: np.sqrt(np.square(error).sum()),
    "median": lambda error: np.median(np.abs(error)),
    "smallest": lambda error: np.abs(error).min(),
}


def _difference(subject: Subject, shape: tuple[int, ...], **options: Any) -> float | None:
    """max_abs_diff of one row."""
    rows = subject.call(COMPARE, [shape], **options).value
    row = rows[0] if isinstance(rows, list | tuple) and len(rows) == 1 else None
    return _float(row.get("max_abs_diff")) if isinstance(row, dict) else None


def _compare_with_sdpa(subject: Asking) -> Iterator[Hint]:
    rows = [_difference(subject, (1, 1, 6, d)) for d in (1, 4, 16)]
    apart = [gap for gap in rows if gap is not None]
    if len(apart) == 3 and apart[0] < 1e-5 < 1e-3 < min(apart[1:]) and not _attention_is_odd(subject):
        # at d = 1 the scale is 1, however it is made: rows that agree there alone differ by their scale
        seen = f"The difference is rounding at d = 1, where the scale is 1, and {apart[2]:.2g} at d = 16."
        yield Hint("sdpa-scale-mismatch", seen)
        return
    with over_own_attention(subject) as (borrower, attention):
        right = _difference(borrower, ROW, dtype="float64")
        if right is None:
            return
        found = []
        for factor in (1.0, -1.0):
            attention.spoil = partial(spoil, factor=factor)
            found.append(_difference(borrower, ROW, dtype="float64"))
        attention.spoil = None
        if found == [right, right]:
            seen = (
                f"The difference stays {right:.3g} when errors of up to {ERROR} are added to what your attention gives."
            )
            yield Hint("sdpa-self-comparison", seen)
        elif right < 1e-9:
            yield from _statistic(found)
        yield from _masks(subject, borrower, attention)


def _statistic(found: Sequence[float | None]) -> Iterator[Hint]:
    """Which statistic of known errors was reported, of these and of their opposites."""
    if None in found or same(found, [ERROR, ERROR]):
        return
    error = spoil(np.zeros(ROW))
    for name, statistic in STATISTICS.items():
        for sign in (1, -1):
            if same(found, [statistic(sign * error), statistic(-sign * error)]):
                seen = f"With errors of up to {ERROR} added to your outputs, {found[0]:.4g} is reported: the {name} difference."
                yield Hint("sdpa-wrong-statistic", seen)
                return


def _masks(subject: Asking, borrower: Subject, attention: OwnAttention) -> Iterator[Hint]:
    """Where the two sides agree without a mask and not under one, whose mask is the other way round."""
    attention.calls.clear()
    free, causal = _difference(borrower, ROW), _difference(borrower, ROW, causal=True)
    if free is None or causal is None or not free <= FLOAT32_BOUND:
        return
    if attention.calls and all(call.mask is None for call in attention.calls):
        yield Hint(None, "With causal=True your attention is given no mask.")
        return
    if causal <= FLOAT32_BOUND or _attention_is_odd(subject):
        return
    for turned, empty in ((_transposed, None), (np.logical_not, _last_row_zero)):
        attention.turn, attention.spoil = turned, empty
        other = _difference(borrower, ROW, causal=True)
        attention.turn = attention.spoil = None
        if other is not None and other <= FLOAT32_BOUND:
            yield Hint(
                "sdpa-mask-inverted", "With causal=True the sides agree once one of the two masks is turned round."
            )
            return
    if not np.isfinite(causal):
        yield Hint(
            None, "With causal=True the difference is not finite: one side has a row that may attend to nothing."
        )


def _transposed(mask: Array) -> Array:
    return np.swapaxes(mask, -1, -2)


def _last_row_zero(output: Array) -> Array:
    """What torch gives a query that may attend to nothing, as the last one under a causal mask turned round."""
    visible: Array = (np.arange(output.shape[-2]) < output.shape[-2] - 1)[:, None]
    return np.where(visible, output, 0.0)


def _attention_is_odd(subject: Asking) -> bool:
    """Whether attention itself gives a hint: then a difference from torch's says nothing of the comparison."""
    return any(True for family in ("softmax", "sdpa", "causal_mask") for _ in signs_attention.FAMILIES[family](subject))


# -- steps 4 and 7 ----------------------------------------------------------------------------------------------------

GAP = "experiments.equivariance_gap"


def _equivariance_gap(subject: Asking) -> Iterator[Hint]:
    if any(True for family in ("softmax", "sdpa") for _ in signs_attention.FAMILIES[family](subject)):
        return
    yield from _order(subject)
    X, *W = gap_inputs(5)
    permutation = np.roll(np.arange(5), 1)
    positions = np.arange(20.0).reshape(5, 4) / 7
    causal = np.tri(5, dtype=bool)
    with over_own_attention(subject) as (borrower, attention):
        gaps = {_float(borrower.call(GAP, x, *W, permutation).value) for x in (X, 2 * X + 1)}
        attention.spoil = one_slot_off
        gaps |= {_float(borrower.call(GAP, x, *W, permutation).value) for x in (X, 2 * X + 1)}
        attention.spoil = None
        if len(gaps) == 1 and None not in gaps:
            seen = f"The gap is {gaps.pop():.3g} for all inputs, with 1 added to the outputs of one slot as well."
            yield Hint("gap-constant", seen)
            return
        attention.calls.clear()
        borrower.call(GAP, X, *W, permutation, positions=positions)
        if _given(attention, (X + positions)[permutation]) and not _given(attention, X[permutation] + positions):
            seen = "Attention is given (X + positions)[permutation]: every position goes with its token."
            yield Hint("equivariance-positions-travel", seen)
        attention.calls.clear()
        borrower.call(GAP, X, *W, permutation, mask=causal)
        for turned in (causal[permutation][:, permutation], causal[permutation], causal[:, permutation]):
            if any(isinstance(call.mask, np.ndarray) and np.array_equal(call.mask, turned) for call in attention.calls):
                seen = "With the shuffled tokens attention is given a shuffled mask: it goes with the tokens."
                yield Hint("equivariance-mask-travels", seen)
                return


def _given(attention: OwnAttention, tokens: Array) -> bool:
    """Whether self_attention was asked about these tokens."""
    firsts = [call.arrays[0] for call in attention.calls]
    return any(isinstance(X, np.ndarray) and X.shape == tokens.shape and same(X, tokens) for X in firsts)


def _order(subject: Asking) -> Iterator[Hint]:
    """Three tokens moved on in a circle, two exchanged, none moved: undoing differs from doing in the first alone."""
    X, *W = gap_inputs(3)
    orders = ([0, 1, 2], [1, 0, 2], [1, 2, 0])
    found = [_float(subject.call(GAP, X, *W, np.array(order)).value) for order in orders]
    gaps: list[float] = [gap for gap in found if gap is not None]
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


def _append_invariance_gap(subject: Asking) -> Iterator[Hint]:
    X, *W = gap_inputs(5)
    x_new = np.ones((1, 4))
    with over_own_attention(subject) as (borrower, attention):
        plain = _float(borrower.call("experiments.append_invariance_gap", X, x_new, *W).value)
        masks = [call.mask for call in attention.calls]
        if any(mask is None for mask in masks):
            runs = "no run" if not any(mask is not None for mask in masks) else "only one of the two runs"
            yield Hint("invariance-not-causal", f"Attention is given a mask in {runs}.")
            return
        attention.spoil = by_length
        off = _float(borrower.call("experiments.append_invariance_gap", X, x_new, *W).value)
        if plain is not None and plain == off:
            yield Hint("gap-constant", f"The gap stays {plain:.3g} when 1 is added to the longer run's outputs.")


# -- step 5 -----------------------------------------------------------------------------------------------------------


def _time_attention(subject: Asking) -> Iterator[Hint]:
    """Calls of 1, 2 and 4 s: all alike, then queued, then slow at first, then unlike each other."""

    def timed(seconds: Sequence[float], warmup: int, repeats: int, queued: bool = False) -> Array | None:
        costs = {n: tuple(size * s for s in seconds) for n, size in sizes.items()}
        scenario = Timing(tuple(sizes), warmup, repeats, queued, costs)
        return _numbers(time_attention(subject, scenario).outcome.value, len(sizes))

    sizes = {3: 1.0, 5: 2.0, 8: 4.0}
    right = np.array(list(sizes.values()))
    alike = timed((1.0,) * 7, 2, 5)
    if alike is None:
        return
    if not same(alike, right):
        yield from _factor(alike / right, {5.0: "the sum of the 5 timed calls"})
        return
    queued = timed((1.0,) * 3, 2, 1, queued=True)
    if queued is not None and not same(queued, right):
        seen = f"A call that queues 1 s of work, done when synchronize() returns, comes out as {queued[0]:.3g} s."
        yield Hint("timing-not-synchronised", seen)
    cold = timed((16.0, 16.0, 16.0, 1.0), 3, 1)
    if cold is not None and not same(cold, right):
        seen = f"With warmup=3, and 3 slow calls of 16 s at each length before calls of 1 s, {cold[0]:.3g} s comes out."
        yield Hint("timing-no-warmup", seen)
        return
    unlike = (3.0, 11.0, 2.0, 5.0, 7.0)
    uneven = timed(unlike, 0, 5)
    if uneven is None or same(uneven, 5 * right):
        return
    told = {
        np.mean(unlike): "mean",
        min(unlike): "least",
        max(unlike): "largest",
        unlike[0]: "first",
        unlike[-1]: "last",
    }
    for value, name in told.items():
        if same(uneven, value * right):
            yield Hint("timing-not-median", f"Of calls of 3, 11, 2, 5 and 7 s the {name} comes out, {value:.3g} s.")
            return
    yield Hint(None, f"Calls of 3, 11, 2, 5 and 7 s come out as {uneven[0]:.3g} s; their median is 5.")


def _factor(ratios: Array, sums: dict[float, str]) -> Iterator[Hint]:
    """What all times are too large or too small by."""
    if not same(ratios, np.full_like(ratios, ratios[0])):
        return
    for factor, unit in UNITS.items():
        if same(ratios[0], factor):
            yield Hint("wrong-unit", f"A call of 1 s comes out as {factor:.4g}: in {unit}.")
            return
    for factor, what in sums.items():
        if same(ratios[0], factor):
            yield Hint("timing-not-median", f"A call of 1 s comes out as {factor:g}: {what}.")
            return
    yield Hint(None, f"Where every call takes 1 s, {ratios[0]:.4g} comes out.")


def _fit_exponent(subject: Asking) -> Iterator[Hint]:
    square, uneven = (_float(subject.call("experiments.fit_exponent", NS, times).value) for times in (SQUARES, UNEVEN))
    if square is None or uneven is None:
        return
    if same(square, 0.5):
        yield Hint("fit-inverted", "For seconds that grow as n² the exponent comes out as 1/2.")
        return
    x, y = np.log(NS), np.log(UNEVEN)
    for axes, across, up in UNLOGGED:
        if same(uneven, np.polyfit(across, up, 1)[0]):
            yield Hint("fit-not-loglog", f"The number is the slope of {axes}.")
            return
    slope, constant = np.polyfit(x, y, 1)
    steps = np.diff(y) / np.diff(x)
    numbers = {
        "the constant of the line, not its slope": constant,
        "the constant of the line (in log10), not its slope": constant / np.log(10),
        "the constant of the line (in log2), not its slope": constant / np.log(2),
        "e to the constant of the line, not its slope": np.exp(constant),
        "the mean of the slopes from point to point; longer stretches should count more": steps.mean(),
        "the median of the slopes from point to point": np.median(steps),
        "the slope from the first point to the last; those between do not count": (y[-1] - y[0]) / (x[-1] - x[0]),
        "the slope from ln n to log10 of the times": slope / np.log(10),
        "the slope from log10 of n to ln of the times": slope * np.log(10),
        "the slope from ln n to log2 of the times": slope / np.log(2),
        "the slope from log2 of n to ln of the times": slope * np.log(2),
    }
    for what, number in numbers.items():
        if same(uneven, number):
            yield Hint("fit-wrong-output", f"For times that are no power law the number is {what}.")
            return


def _local_slopes(subject: Asking) -> Iterator[Hint]:
    square, uneven = (
        _numbers(subject.call("experiments.local_slopes", NS, times).value, 3) for times in (SQUARES, UNEVEN)
    )
    if square is None or uneven is None:
        return
    if same(square, [0.5] * 3):
        yield Hint("fit-inverted", "For seconds that grow as n² every slope comes out as 1/2.")
        return
    for axes, across, up in UNLOGGED:
        if same(uneven, np.diff(up) / np.diff(across)):
            yield Hint("fit-not-loglog", f"The slopes are those of {axes}.")
            return


# -- step 6 -----------------------------------------------------------------------------------------------------------


def _score_bytes(subject: Asking) -> Iterator[Hint]:
    left_out = {200: "heads", 300: "itemsize", 60: "a factor n"}
    got = subject.call("experiments.score_bytes", 10, itemsize=2, heads=3).value
    if isinstance(got, int | float) and got in left_out:
        seen = f"score_bytes(10, itemsize=2, heads=3) is {got:g}, and 3 · 10 · 10 · 2 is 600"
        yield Hint("memory-formula", f"{seen}: {left_out[int(got)]} is left out.")
    for factor, unit in {8.0: "bits", 2.0**-10: "KiB", 2.0**-20: "MiB", 1e-3: "kB", 1e-6: "MB"}.items():
        many = _float(subject.call("experiments.score_bytes", 3 * 2**20, itemsize=2, heads=3).value)
        if many is not None and same(many, factor * 6 * 9 * 2.0**40):
            yield Hint("wrong-unit", f"The number comes out in {unit}.")
            return


def _largest_n(subject: Asking) -> Iterator[Hint]:
    got = subject.call("experiments.largest_n", Callback(lambda n: n <= 1000), start=8, limit=5000).value
    if got == 1001:
        yield Hint("search-off-by-one", "Where every n up to 1000 fits, largest_n gives 1001.")
    elif got == 512:
        yield Hint("search-off-by-one", "Where every n up to 1000 fits, largest_n gives 512, the last doubling.")
    elif got == 999:
        yield Hint("search-off-by-one", "Where every n up to 1000 fits, largest_n gives 999.")


# -- step 8 -----------------------------------------------------------------------------------------------------------

PREFILL, STEPS = 64.0, (1.0, 2.0, 4.0)


def _decode_latencies(subject: Asking) -> Iterator[Hint]:
    """A prefill of 64 s and steps of 1, 2 and 4 s."""
    scenarios = [
        Decoding(4, 3, True, queued, (PREFILL, 128.0, 256.0, 512.0), (*STEPS, 8.0)) for queued in (False, True)
    ]
    read = []
    for decoded in decode_latencies(subject, scenarios):
        value = decoded.outcome.value
        if not isinstance(value, dict) or decoded.work != [("pass", PREFILL), *(("step", s) for s in STEPS)]:
            return
        prefill, steps = _float(value.get("prefill_s")), _numbers(value.get("decode_s"), 3)
        if prefill is None or steps is None:
            return
        read.append(np.array([prefill, *steps]))
    found, queued = read
    right = np.array([PREFILL, *STEPS])
    if same(found, right):
        if not same(queued, right):
            seen = "A prefill of 64 s that is queued, and done when synchronize() returns, comes out as"
            seen += f" {queued[0]:.3g} s, the first step as {queued[1]:.3g}."
            yield Hint("timing-not-synchronised", seen)
        return
    ratios = found / right
    if same(ratios, np.full(4, ratios[0])):
        yield from _factor(ratios, {})
        return
    steps = np.array(STEPS)
    mixed = {
        "prefill is counted in the first step as well": [PREFILL, PREFILL + 1, 2, 4],
        "prefill is counted in the first step": [0, PREFILL + 1, 2, 4],
        "prefill is given as the first step": [PREFILL, PREFILL, 1, 2],
        "the first step is counted in prefill_s": [PREFILL + 1, *STEPS],
        "prefill's time is missing": [0, *STEPS],
    }
    ran = {
        "counted from the first step on": np.cumsum(steps),
        "counted from the prefill on": np.cumsum(steps) + PREFILL,
        "one average repeated": np.full(3, steps.mean()),
        "averages so far": np.cumsum(steps) / [1, 2, 3],
    }
    told = f"A prefill of 64 s and steps of 1, 2 and 4 s come out as {found[0]:.4g} and {', '.join(f'{s:.4g}' for s in found[1:])}"
    for what, numbers in mixed.items():
        if same(found, numbers):
            yield Hint("decode-prefill-mixed", f"{told}: {what}.")
            return
    for what, times in ran.items():
        if same(found[1:], times):
            yield Hint("decode-cumulative", f"{told}: {what}.")
            return
    yield Hint(None, f"{told}.")


FAMILIES: dict[str, Callable[[Asking], Iterator[Hint]]] = {
    "compare_with_sdpa": _compare_with_sdpa,
    "equivariance_gap": _equivariance_gap,
    "append_invariance_gap": _append_invariance_gap,
    "time_attention": _time_attention,
    "fit_exponent": _fit_exponent,
    "local_slopes": _local_slopes,
    "score_bytes": _score_bytes,
    "largest_n": _largest_n,
    "decode_latencies": _decode_latencies,
}
