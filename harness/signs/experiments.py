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
from harness.virtual_decoder import Decoded, Decoding, decode_latencies
from harness.virtual_time import Timing, time_attention

UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds", 1 / 60: "minutes"}
NS = [10, 20, 50, 200]
SQUARES = [1e-6 * n**2 for n in NS]
UNEVEN = [0.5, 0.9, 7.0, 410.0]  # seconds that no power law gives
UNLOGGED: list[tuple[str, Array, Array]] = [
    ("times by lengths", np.array(NS), np.array(UNEVEN)),
    ("times by log n", np.log(NS), np.array(UNEVEN)),
    ("log times by n", np.array(NS), np.log(UNEVEN)),
    ("times by log2 of n", np.log2(NS), np.array(UNEVEN)),
    ("log2 of the times by n", np.array(NS), np.log2(UNEVEN)),
    ("times by log10 of n", np.log10(NS), np.array(UNEVEN)),
    ("log10 of the times by n", np.array(NS), np.log10(UNEVEN)),
]


def _numbers(value: Any, count: int) -> Array | None:
    """A list of that many floats as an array, else None."""
    if isinstance(value, np.ndarray):
        return value.astype(float) if value.shape == (count,) and value.dtype.kind in "fiu" else None
    if not isinstance(value, list | tuple) or len(value) != count:
        return None
    plain = [_float(v) for v in value]
    return None if None in plain else np.array(plain, float)


def _float(value: Any) -> float | None:
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if type(value) is int:
        return float(value) if abs(value) < 2**1000 else None
    return value if type(value) is float else None


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
    """All calls alike, then queued, then slow at first, then unlike each other: each tells one decision, whatever the others."""

    def timed(seconds: Sequence[float], warmup: int, repeats: int, queued: bool = False) -> Array | None:
        """What comes out at each length, over what a call of 1 s takes there."""
        costs = {n: tuple(size * s for s in seconds) for n, size in sizes.items()}
        scenario = Timing(tuple(sizes), warmup, repeats, queued, costs)
        found = _numbers(time_attention(subject, scenario).outcome.value, len(sizes))
        return None if found is None else found / np.array(list(sizes.values()))

    sizes = {3: 1.0, 5: 2.0, 8: 4.0}
    alike, fewer, again = timed((1.0,) * 7, 2, 5), timed((1.0,) * 5, 2, 3), timed((1.0,) * 7, 2, 5)
    if alike is None or fewer is None or again is None:
        return
    # exactly: another clock may have counted for long, and a call then changes little of its reading
    if not np.array_equal(alike, again, equal_nan=True):
        seen = f"The same calls come out as {alike[0]:.9g} s and, asked again, as {again[0]:.9g} s"
        seen += ": another clock is read than the one given."
        yield Hint("timing-wrong-clock", seen)
        return
    if not same(alike, np.full(3, alike[0])) or not same(fewer, np.full(3, fewer[0])):
        told = ", ".join(f"{seconds:.4g}" for seconds in alike * list(sizes.values()))
        yield Hint(None, f"Calls of 1, 2 and 4 s, all alike at each length, come out as {told} s.")
        return
    per_call, unit = _repeats(float(alike[0]), float(fewer[0]))
    yield from per_call
    yield from _unit(unit)
    queued = timed((1.0,) * 3, 2, 1, queued=True)
    if queued is not None and unit and not same(queued / unit, np.ones(3)):
        seen = f"A call that queues 1 s of work, done when synchronize() returns, comes out as {queued[0]:.6g}"
        seen += " s." if unit == 1 else f", and {unit:.6g} where nothing is queued."
        yield Hint("timing-not-synchronised", seen)
    cold = timed((16.0, 16.0, 16.0, 1.0), 3, 1)
    if cold is not None and unit and not same(cold / unit, np.ones(3)):
        seen = f"With warmup=3, and 3 slow calls of 16 s at each length before calls of 1 s, {cold[0]:.6g} comes out"
        yield Hint("timing-no-warmup", f"{seen}." if unit == 1 else f"{seen}, and {unit:.6g} where none is slow.")
    if not per_call and unit:
        yield from _statistic_of_times(timed(UNLIKE, 0, len(UNLIKE)), unit)


UNLIKE = (2.0, 33.0, 1.0, 20.0, 7.0, 4.0, 12.0)  # neither the first, the last nor the middle one is their median


def _statistic_of_times(found: Array | None, unit: float) -> Iterator[Hint]:
    """What is made of unlike calls, where calls that are alike come out right but for a unit."""
    middle = float(np.median(UNLIKE))
    if found is None or same(found / unit, np.full(3, middle)):
        return
    value = float(found[0]) / unit
    listed = ", ".join(f"{s:g}" for s in UNLIKE[:-1])
    names = {float(np.mean(UNLIKE)): "mean", min(UNLIKE): "least", max(UNLIKE): "largest"}
    what = next((f", the {name}" for number, name in names.items() if same(value, number)), "")
    seen = f"Calls of {listed} and {UNLIKE[-1]:g} s come out as {value:.4g} s{what}; their median is {middle:g}."
    yield Hint("timing-not-median" if min(UNLIKE) <= value <= max(UNLIKE) else None, seen)


def _repeats(five: float, three: float) -> tuple[list[Hint], float]:
    """What 5 and 3 calls of 1 s that come out unlike each other say, and what one call of 1 s comes out as."""
    if same(five, three):
        return [], five
    told = f"Where every call takes 1 s, {five:.4g} comes out of 5 repeats and {three:.4g} of 3"
    ways = {"they are added up": 1.0, "one time is divided by the number of repeats": -1.0}
    for what, power in ways.items():
        if same(five / three, (5 / 3) ** power):
            return [Hint("timing-not-median", f"{told}: {what}.")], five / 5**power
    if same(five / three, 7 / 5):  # 2 calls warm up
        return [Hint("timing-not-median", f"{told}: they are added up, those that warm up as well.")], five / 7
    return [Hint(None, f"{told}.")], 0.0


def _unit(factor: float) -> Iterator[Hint]:
    """What all times are too large or too small by."""
    if factor and not same(factor, 1.0):
        unit = next((name for number, name in UNITS.items() if same(factor, number)), None)
        seen = f"Where every call takes 1 s, {factor:.6g} comes out"
        yield Hint("wrong-unit", f"{seen}: in {unit}.") if unit else Hint(None, f"{seen}.")


def _fit_exponent(subject: Asking) -> Iterator[Hint]:
    square, uneven = (_float(subject.call("experiments.fit_exponent", NS, times).value) for times in (SQUARES, UNEVEN))
    if square is None or uneven is None:
        return
    if same(square, 0.5):
        yield Hint("fit-inverted", "For seconds that grow as n² the exponent comes out as 1/2.")
        return
    for axes, across, up in UNLOGGED:
        if same(uneven, np.polyfit(across, up, 1)[0]):
            yield Hint("fit-not-loglog", f"The number is the slope of {axes}.")
            return
    x, y = np.log(NS), np.log(UNEVEN)
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
        "the slope between the last two points": steps[-1],
        "the slope of the line without the first point": np.polyfit(x[1:], y[1:], 1)[0],
        "the slope of the line without the last point": np.polyfit(x[:-1], y[:-1], 1)[0],
        "the slope of the line through the origin: it has no constant": x @ y / (x @ x),
        "the correlation, which says how well a line fits and not how steep it is": np.corrcoef(x, y)[0, 1],
        "the slope with two counts of points, n and n - 1": slope * len(x) / (len(x) - 1),
        "the slope from ln n to log10 of the times": slope / np.log(10),
        "the slope from log10 of n to ln of the times": slope * np.log(10),
        "the slope from ln n to log2 of the times": slope / np.log(2),
        "the slope from log2 of n to ln of the times": slope * np.log(2),
        "a coefficient of a parabola, not of a line": next(
            (c for degree in (2, 3) for c in np.polyfit(x, y, degree) if same(uneven, c)), slope
        ),
    }
    if same(uneven, slope):
        return
    for what, number in numbers.items():
        if same(uneven, number):
            yield Hint("fit-wrong-output", f"For times that are no power law the number is {what}.")
            return
    if not same(square, 2.0):
        return
    seen = (
        f"For {', '.join(f'{t:g} s at n = {n}' for n, t in zip(NS, UNEVEN, strict=True))} the exponent is {uneven:.4g}"
    )
    if abs(uneven - _of_raw_values(np.array(NS, float), np.array(UNEVEN))) < 1e-3:
        what = (
            "the power law fits the seconds themselves best, so that the longest decide alone, and not their logarithms"
        )
        yield Hint("fit-not-loglog", f"{seen}: {what}.")
    elif abs(uneven - slope) > 0.01:
        line = "the least-squares line over all the logarithms has the slope"
        yield Hint("fit-wrong-output", f"{seen}; {line} {slope:.4g}.")
    else:
        yield Hint(None, f"{seen}; the slope is {slope:.7g}.")


def _of_raw_values(n: Array, seconds: Array) -> float:
    """The exponent of the c · n^p whose squared distance to the seconds is least."""

    def distance(p: float) -> float:
        power = (n / n.max()) ** p
        return float(np.square(seconds - power * (power @ seconds) / (power @ power)).sum())

    best, step = 0.0, 8.0
    while step > 1e-6:
        best = min((best - step, best, best + step), key=distance)
        step /= 1.5
    return best


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
    x, y = np.log(NS), np.log(UNEVEN)
    right = np.diff(y) / np.diff(x)
    if same(uneven, right):
        return
    numbers = {
        "in another order": right[::-1],
        "from the first point on, not from one point to the next": (y[1:] - y[0]) / (x[1:] - x[0]),
        "log seconds over log n at each point, not their growth": (y / x)[1:],
        "log2 of the growth in time, as though every length were twice the one before": np.diff(y) / np.log(2),
        "growth in time over growth in length, without logarithms": np.exp(np.diff(y) - np.diff(x)),
        **{
            f"those between a logarithm to base {b} of n and one to base {a} of the times": right
            * np.log(v)
            / np.log(u)
            for a, u in LOGS.items()
            for b, v in LOGS.items()
            if a != b
        },
    }
    for what, slopes in numbers.items():
        if same(uneven, slopes):
            yield Hint("fit-wrong-output", f"For times that are no power law the slopes are {what}.")
            return
    if same(square, [2.0] * 3):
        found, wanted = (", ".join(f"{s:.4g}" for s in slopes) for slopes in (uneven, right))
        seen = f"For times that are no power law the slopes come out as {found}; from each point to the next they are {wanted}."
        yield Hint("fit-wrong-output", seen)


LOGS = {"e": np.e, "2": 2.0, "10": 10.0}


# -- step 6 -----------------------------------------------------------------------------------------------------------


LARGE = {"n": 3 * 2**20, "itemsize": 2, "heads": 3}
POWERS = {"n": 2, "itemsize": 1, "heads": 1}
SIZES = {"bits": 8.0, "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9}


def _score_bytes(subject: Asking) -> Iterator[Hint]:
    """One argument doubled at a time says to which power it counts; what is left is a factor, or a unit."""

    def asked(**changed: int) -> float | None:
        given = {**LARGE, **changed}
        return _float(subject.call("experiments.score_bytes", given.pop("n"), **given).value)

    whole = asked()
    grown = {name: asked(**{name: 2 * value}) for name, value in LARGE.items()}
    if not whole or not all(grown.values()):
        return
    powers = {name: np.log2((value or 0.0) / whole) for name, value in grown.items()}
    counts = {name: round(float(power)) for name, power in powers.items() if np.isfinite(power)}
    for name, right in POWERS.items():
        if counts.get(name, right) != right:
            times = {0: "does not change", 1: "doubles", 2: "grows four times", 3: "grows eight times"}
            told = times.get(counts[name], f"grows {2.0 ** counts[name]:g} times")
            yield Hint("memory-formula", f"With {name} twice as large the number {told}, expected {times[right]}.")
    left = whole / np.prod([float(LARGE[name]) ** counts.get(name, right) for name, right in POWERS.items()])
    unit = next((name for name, size in SIZES.items() if abs(left / size - 1) < 1e-5), None)
    if unit:
        yield Hint("wrong-unit", f"The number comes out in {unit}.")
    elif abs(left - 1) > 1e-5:
        yield Hint(
            "memory-formula", f"The number is {left:.4g} times that of heads tables of n · n scores of itemsize bytes."
        )


def _largest_n(subject: Asking) -> Iterator[Hint]:
    def found(up_to: int) -> float | None:
        return _float(subject.call("experiments.largest_n", Callback(lambda n: n <= up_to), start=8, limit=5000).value)

    wrong = {1001.0: "", 512.0: ", the last doubling", 1024.0: ", the first doubling that does not", 999.0: ""}
    got = found(1000)
    if got is not None and got in wrong:
        yield Hint("search-off-by-one", f"Where every n up to 1000 fits, largest_n gives {got:g}{wrong[got]}.")
    none = found(5)
    if none:
        yield Hint("search-bounds", f"Where not even start=8 fits, largest_n gives {none:g}, expected 0.")
    for up_to in (10**6, 5000):
        all_fit = found(up_to)
        if got == 1000 and all_fit is not None and all_fit != 5000:
            yield Hint(
                "search-bounds", f"Where every n up to {up_to} fits, largest_n with limit=5000 gives {all_fit:g}."
            )
            return


# -- step 8 -----------------------------------------------------------------------------------------------------------

PREFILL, STEPS = 64.0, (1.0, 2.0, 4.0)
MIXED: dict[str, Callable[[float, Array], list[float]]] = {
    "": lambda prefill, steps: [prefill, *steps],
    "prefill is counted in the first step as well": lambda prefill, steps: [prefill, prefill + steps[0], *steps[1:]],
    "prefill is counted in the first step": lambda prefill, steps: [0.0, prefill + steps[0], *steps[1:]],
    "prefill is given as the first step": lambda prefill, steps: [prefill, prefill, *steps[:-1]],
    "the first step is counted in prefill_s": lambda prefill, steps: [prefill + steps[0], *steps],
    "prefill is counted in every step": lambda prefill, steps: [prefill, *(prefill + steps)],
    "prefill_s is the time of everything together": lambda prefill, steps: [prefill + steps.sum(), *steps],
    "prefill's time is missing": lambda prefill, steps: [0.0, *steps],
}
RAN: dict[str, Callable[[float, Array], Array]] = {
    "": lambda prefill, steps: steps,
    "the steps are counted from the first one on": lambda prefill, steps: np.cumsum(steps),
    "the steps are counted from the prefill on": lambda prefill, steps: np.cumsum(steps) + prefill,
    "the steps are averages so far": lambda prefill, steps: np.cumsum(steps) / np.arange(1, len(steps) + 1),
}


def _decode_latencies(subject: Asking) -> Iterator[Hint]:
    """A prefill of 64 s and steps of 1, 2 and 4 s, at once and queued; then passes without a cache, whose sums tell them apart."""
    scenarios = [
        Decoding(4, 3, True, queued, (PREFILL, 128.0, 256.0, 512.0), (*STEPS, 8.0)) for queued in (False, True)
    ]
    scenarios.append(Decoding(4, 3, False, False, tuple(2.0**i for i in range(24)), (0.5,)))
    once, queued, without = decode_latencies(subject, scenarios)
    found, later = _times(once), _times(queued)
    if found is not None:
        yield from _steps(found, once)
        if later is not None and once.work == queued.work and not same(found, later):
            seen = (
                f"A prefill of {_taken(once)[0]:g} s that is queued, and done when synchronize() returns, comes out as"
            )
            yield Hint("timing-not-synchronised", f"{seen} {later[0]:.4g}, and {found[0]:.4g} where nothing is queued.")
    passes = _times(without)
    if passes is not None and without.path == "passes":
        counts = [bin(int(seconds)).count("1") for seconds in passes[1:]]
        apart = bin(sum(int(seconds) for seconds in passes[1:])).count("1")
        if min(counts) > 1 and apart == sum(counts):
            yield Hint(
                "speedup-faked", f"Without a cache the time of every step is that of {min(counts)} passes or more."
            )


def _times(decoded: Decoded) -> Array | None:
    """The prefill's time and those of three steps, by the clock that was given."""
    value = decoded.outcome.value
    if not isinstance(value, dict) or not decoded.readings:
        return None
    prefill, steps = _float(value.get("prefill_s")), _numbers(value.get("decode_s"), 3)
    return None if prefill is None or steps is None else np.array([prefill, *steps])


def _taken(decoded: Decoded) -> Array:
    """What the prefill and the three steps after it took: the last ones, as untimed work may come before."""
    seconds = [seconds for _, seconds in decoded.work[-4:]]
    return np.array(seconds if len(seconds) == 4 else [PREFILL, *STEPS])


def _steps(found: Array, decoded: Decoded) -> Iterator[Hint]:
    """What the times of one prefill and three steps are, of the ways known to get them wrong."""
    right = _taken(decoded)
    if same(found, right):
        return
    listed = [", ".join(f"{seconds:.4g}" for seconds in times[1:]) for times in (right, found)]
    told = f"A prefill of {right[0]:g} s and steps of {listed[0]} s come out as {found[0]:.4g} and {listed[1]}"
    if found[1] and same(found[1:], np.full(3, found[1])):
        yield Hint("decode-cumulative", f"{told}: one number for all the steps.")
        return
    for factor, unit in ((1.0, ""), *UNITS.items()):
        for what, mix in MIXED.items():
            for ran, run in RAN.items():
                mixed = np.array(mix(right[0], right[1:]))
                if not same(found / factor, [mixed[0], *run(mixed[0], mixed[1:])]):
                    continue
                if unit:
                    yield Hint("wrong-unit", f"{told}: in {unit}.")
                if what:
                    yield Hint("decode-prefill-mixed", f"{told}: {what}.")
                if ran:
                    yield Hint("decode-cumulative", f"{told}: {ran}.")
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
