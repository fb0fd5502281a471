"""softmax(x, axis): what is subtracted, what is raised, what the result is divided by, and over which axis.

`softmax` below is shared with the families that call it; `predict` adds the decisions about the argument `axis`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants.space import NARROW, Answer, Option, Probe, Space, Variant, attempt, decision, narrowed

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None

DECISIONS: Space = (
    decision(
        "weights",
        Option("all on the largest score", "softmax-argmax"),
        Option("the scores themselves", "softmax-not-applied"),
    ),
    decision(
        "base",
        Option("2", "softmax-wrong-base"),
        Option("10", "softmax-wrong-base"),
        Option("near e", "softmax-wrong-base", common=False, alone=True, examples=(2.718, 2.7)),
    ),
    decision(
        "subtracted",
        Option("nothing", "softmax-overflow"),
        Option("the row mean", "softmax-overflow"),
        Option("the row minimum", "softmax-overflow", common=False),
        Option("one maximum for all", "softmax-global-max"),
        Option("one maximum a matrix", "softmax-global-max", common=False),
        Option("max(0, row maximum)", "softmax-clamped-max"),
    ),
    decision(
        "maximum over",
        Option("axis -1", "softmax-max-wrong-axis"),
        Option("axis -2", "softmax-max-wrong-axis"),
        Option("axis 0", "softmax-max-wrong-axis"),
        Option("axis 1", "softmax-max-wrong-axis", common=False),
        Option("the axis asked for", "softmax-max-wrong-axis", common=False),
    ),
    decision(
        "divided by",
        Option("nothing", "softmax-unnormalised"),
        Option("the sum plus 1", "softmax-plus-one"),
        Option("the sum plus exp(-max)", "softmax-plus-one"),
        Option("the sum plus epsilon", "softmax-epsilon", common=False, examples=(1e-3, 1e-8)),
    ),
    decision(
        "not shifted",
        Option("what is summed", "softmax-sum-unshifted"),
        Option("what is divided", "softmax-sum-unshifted"),
    ),
    decision(
        "reduced axis",
        Option("dropped from the sum", "softmax-missing-keepdims"),
        Option("dropped from the maximum", "softmax-missing-keepdims"),
        Option("dropped from both", "softmax-missing-keepdims"),
        Option("put back last", "softmax-missing-keepdims"),
        Option("put back second", "softmax-missing-keepdims", common=False),
        Option("put back as one column", "softmax-missing-keepdims", common=False),
        Option("by .T for the sum", "batch-unsupported"),
        Option("by .T for the maximum", "batch-unsupported", common=False),
        Option("by .T for both", "batch-unsupported"),
    ),
    # No faults of their own: what is subtracted where all entries are summed, and ways of writing the quotient that
    # part only where it is not finite.
    decision("maximum", Option("a row")),
    decision("quotient", Option("in Python floats"), Option("through logarithms"), Option("NaN made 0")),
)


def softmax(v: Variant, x: Array, axis: Axis, asked: int = -1) -> Array:
    """exp(x - max) / sum along `axis`, as the variant has it; `asked` is the axis that the caller meant."""
    weights = v.pick("weights")
    if weights == "the scores themselves":
        return x
    if weights == "all on the largest score":
        return _largest(x, axis)
    divided_by = v.pick("divided by")
    unshifted = "right" if divided_by == "nothing" else v.pick("not shifted")
    reduced = v.pick("reduced axis") if isinstance(axis, int) else "right"
    plain = divided_by == unshifted == reduced == "right"
    amount = _subtracted(v, x, axis, asked, reduced, divided=divided_by != "nothing", cancels=plain)
    lifted = x if unshifted == "what is divided" else x - amount
    powers = _powers(v, lifted)
    if divided_by == "nothing":
        return powers
    summed = powers if unshifted == "right" else _powers(v, x if unshifted == "what is summed" else x - amount)
    total: Array = np.asarray(np.sum(summed, axis=axis, keepdims=True))
    if divided_by == "the sum plus epsilon":
        total = total + v.value("divided by")
    elif divided_by != "right":
        total = total + (1.0 if divided_by == "the sum plus 1" else _powers(v, -np.asarray(amount)))
    total = _reduced(total, axis, reduced, of_sum=True)
    quotient = powers / total
    if not np.isfinite(quotient).all():
        written = v.pick("quotient")
        if written == "in Python floats" and ((np.isinf(powers) & np.isfinite(lifted)).any() or (total == 0).any()):
            raise ArithmeticError("math.exp overflows, and a float is not divided by zero")
        if written == "through logarithms":
            return np.exp(lifted - np.log(total))
        if written == "NaN made 0":
            return np.nan_to_num(quotient, posinf=np.inf)
    return quotient


def base_of(v: Variant) -> float:
    """The number that is raised to the power of a score."""
    base = v.pick("base")
    return math.e if base == "right" else v.value("base") if base == "near e" else float(base)


def _powers(v: Variant, x: Array) -> Array:
    powers: Array = np.exp(x) if v.pick("base") == "right" else base_of(v) ** x
    return powers


def _largest(x: Array, axis: Axis) -> Array:
    """1 at the first of the largest entries along `axis` (of all entries, where that is not one axis), 0 elsewhere."""
    if not isinstance(axis, int):
        largest: Array = np.arange(x.size).reshape(x.shape) == np.argmax(x)
        return largest.astype(float)
    one_hot: Array = np.zeros(x.shape)
    np.put_along_axis(one_hot, np.argmax(x, axis=axis, keepdims=True), 1.0, axis=axis)
    return one_hot


def _subtracted(
    v: Variant, x: Array, axis: Axis, asked: int, reduced: str, *, divided: bool, cancels: bool
) -> Array | float:
    # where nothing is divided there is no other axis to differ from
    over = v.pick("maximum over") if divided else "right"
    if over != "right":
        axis = asked if over == "the axis asked for" else int(over.removeprefix("axis "))
    elif not isinstance(axis, int) and v.pick("maximum") == "a row":
        axis = asked
    elif cancels and np.abs(x).max() < 100 and _in_matrix(axis, x.ndim):
        return _maximum(x, axis)  # whatever a row has subtracted cancels, and nothing overflows
    what = v.pick("subtracted")
    if what == "nothing":
        return 0.0
    if what == "one maximum for all":
        return _maximum(x, None)
    if what == "one maximum a matrix":
        return _maximum(x, tuple(range(x.ndim))[-2:])
    if what == "the row mean":
        amount = np.mean(x, axis=axis, keepdims=True)
    elif what == "the row minimum":
        amount = np.min(x, axis=axis, keepdims=True)
    else:
        amount = _maximum(x, axis)
    if what == "max(0, row maximum)":
        amount = np.maximum(0.0, amount)
    return amount if over != "right" else _reduced(amount, axis, reduced, of_sum=False)


def _in_matrix(axis: Axis, ndim: int) -> bool:
    """Whether `axis` lies in the last two: one maximum a matrix is then one amount for all that is summed."""
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return all((a if a < 0 else a - ndim) >= -2 for a in axes)


def _maximum(x: Array, axis: Axis) -> Array:
    maximum: Array = np.max(x, axis=axis, keepdims=True)
    return maximum


def _reduced(values: Array, axis: Axis, reduced: str, *, of_sum: bool) -> Array:
    """A sum or a maximum in the shape that it has after the reduction, as the variant keeps the reduced axis or not."""
    other = "the maximum" if of_sum else "the sum"
    if reduced == "right" or reduced.endswith(other):
        return values
    dropped: Array = np.squeeze(values, axis=axis)
    if reduced == "put back last":
        return dropped[..., None]
    if reduced == "put back second":
        return dropped[:, None]
    if reduced == "put back as one column":
        return dropped.reshape(-1, 1)
    if reduced.startswith("by .T"):  # (e.T / sum).T
        return dropped.T[..., None]
    return dropped


Predicted = Callable[[Variant], Any]
"""The weights that a variant gives for the same call, or whatever else it answers."""


def number(v: Variant, name: str, weights: Any, predicted: Predicted) -> tuple[float, ...]:
    """The number that an option of a softmax carries, as it shows in `weights`."""
    if name == "base":
        slope = slope_of(v, name, lambda t: Option("near e", "softmax-wrong-base", value=math.e**t), weights, predicted)
        bases = () if slope is None else (float(f"{math.e**slope:.6g}"), math.e**slope)
        # further from e it is the scores that are multiplied by something
        return tuple(dict.fromkeys(base for base in bases if 2.5 < base < 3 and abs(base - math.e) > 1e-9))
    return epsilon(v, name, weights, predicted)


def slope_of(
    v: Variant, name: str, option: Callable[[float], Option], weights: Any, predicted: Predicted
) -> float | None:
    """The t of `option(t)` where the logarithms of two weights that share a sum part by t times what they part by at 1."""
    once, twice = (predicted(v.but(name, option(t))) for t in (1.0, 2.0))
    if not all(isinstance(table, np.ndarray) and table.ndim == 2 for table in (once, twice, weights)):
        return None
    if not once.shape == twice.shape == weights.shape:
        return None
    with np.errstate(all="ignore"):
        for axis in (-1, -2):
            first, second, seen = (np.diff(np.log(table), axis=axis).ravel() for table in (once, twice, weights))
            legible = np.isfinite(seen) & (np.abs(second - 2 * first) < 1e-9) & (np.abs(first) > 1e-3)
            if legible.any():
                at = int(np.argmax(np.abs(first) * legible))
                return float(seen[at] / first[at])
    return None


def epsilon(v: Variant, name: str, weights: Any, predicted: Predicted) -> tuple[float, ...]:
    """The constant in the row sums behind `weights`.

    With S the sum, a weight is e / (S + epsilon): S itself shows in how the weight falls from epsilon 0 to epsilon 1.
    """
    option = Option("the sum plus epsilon", "softmax-epsilon", examples=(1.0,))
    without, with_one = (predicted(v.but(name, option.at(value))) for value in (0.0, 1.0))
    if not (isinstance(without, np.ndarray) and np.shape(weights) == without.shape):
        return ()
    with np.errstate(all="ignore"):
        fall = with_one / without
        found = fall / (1 - fall) * (without / weights - 1)
    found = found[np.isfinite(found)]
    if not found.size or np.median(found) < 1e-15 or np.ptp(found) > 1e-2 * np.median(found) + 1e-12:
        return ()  # no one constant
    raw = float(np.median(found))
    if abs(raw - 1) < 1e-9:
        return ()  # has a code of its own
    return tuple(dict.fromkeys((float(f"{raw:.1g}"), float(f"{raw:.3g}"), raw)))


MOST_WRONG = 4  # in the first probe: what a softmax does wrong shows in any

SPACE: Space = (
    decision(
        "axes",
        Option("two alone", "batch-unsupported"),
        Option("two at most", "batch-unsupported"),
    ),
    decision(
        "axis by default",
        Option("0", "softmax-wrong-axis"),
        Option("-2", "softmax-wrong-axis", common=False),
        Option("1", "softmax-positional-axis"),
        Option("all", "softmax-whole-matrix"),
    ),
    decision(
        "axis",
        Option("always -1", "softmax-ignores-axis"),
        Option("always 0", "softmax-ignores-axis"),
        Option("always 1", "softmax-ignores-axis"),
        Option("always -2", "softmax-ignores-axis", common=False),
        Option("always all", "softmax-whole-matrix"),
        Option("always each matrix", "softmax-whole-matrix", common=False),
        Option("always all but the first", "softmax-ignores-axis", common=False),
    ),
    *DECISIONS,
    NARROW,
)

GIVEN_UP: dict[str, tuple[str, Option]] = {}


def group(probe: Probe) -> str:
    """Tables come before what has more axes, and what is computed anywhere before what overflows."""
    (x,) = probe.args
    axis = probe.kwargs.get("axis", -1)
    if probe.size > 1:
        return "extremes"
    return "batch" if x.ndim > 2 else "another axis" if axis not in (-1, 1) else "tables"


def predict(v: Variant, probe: Probe) -> Answer:
    """What `softmax` of the variant answers."""
    return narrowed(v, attempt(_softmax, v, *probe.args, **probe.kwargs))


def _softmax(v: Variant, x: Array, axis: int | None = None) -> Array:
    if x.ndim > 2 and v.pick("axes") != "right":
        raise ValueError("not more than two axes")
    if x.ndim < 2 and v.pick("axes") == "two alone":
        raise ValueError("not fewer than two axes")
    used: Axis = axis
    asked = -1 if axis is None else axis
    ignores = v.pick("axis")
    if ignores == "always all":
        used = None
    elif ignores == "always each matrix":
        used = tuple(range(-min(x.ndim, 2), 0))
    elif ignores == "always all but the first":
        used = tuple(range(1, x.ndim))
    elif ignores != "right":
        used = int(ignores.split()[-1])
    elif axis is None:
        default = v.pick("axis by default")
        used = -1 if default == "right" else None if default == "all" else int(default)
    return softmax(v, x, used, asked)


def read(v: Variant, decision: str, observations: Mapping[str, Answer]) -> tuple[float, ...]:
    """The epsilon of the row sums, or the base."""
    for probe in PROBES:
        seen = observations.get(probe.name)
        if probe.size == 1 and isinstance(seen, tuple):
            found = number(v, decision, seen[0], partial(_weights, probe=probe))
            if found:
                return found
    return ()


def _weights(v: Variant, probe: Probe) -> Any:
    answer = predict(v, probe)
    return answer[0] if isinstance(answer, tuple) else None


def probes(seed: int) -> tuple[Probe, ...]:
    """Calls that tell the options apart. Sizes are equal where a wrong shape must not fail, unequal where it must."""
    rng = np.random.default_rng(seed)
    square, unequal, cube = rng.standard_normal((3, 3)), rng.standard_normal((4, 6)), rng.standard_normal((3, 3, 3))
    batch, row = rng.standard_normal((2, 3, 5)), rng.standard_normal(4)
    small = rng.standard_normal((3, 4))
    far = small + np.array([[1500.0], [-1500.0], [0.0]])
    above = small + np.array([[0.0, 2500.0, 0.0, 0.0]])
    cubes = np.stack([small, small[::-1]]) + np.array([1500.0, -1500.0])[:, None, None]

    def probe(name: str, x: Array, size: float = 1.0, **axis: int) -> Probe:
        return Probe(name, "attention.softmax", (x,), axis, size)

    return (
        probe("square, axis -1", square, axis=-1),
        probe("square, axis 0", square, axis=0),
        probe("cube, axis 1", cube, axis=1),
        probe("square, no axis given", square),
        probe("cube, axis -1", cube, axis=-1),
        probe("cube, axis 0", cube, axis=0),
        probe("unequal sizes, axis -1", unequal, axis=-1),
        probe("unequal sizes, axis 0", unequal, axis=0),
        probe("unequal sizes, axis 1", unequal, axis=1),
        probe("a batch, no axis given", batch),
        probe("a batch, axis -1", batch, axis=-1),
        probe("a batch, axis -2", batch, axis=-2),
        probe("a batch, axis 2", batch, axis=2),
        probe("one row, no axis given", row),
        probe("one row, axis 0", row, axis=0),
        probe("one number", rng.standard_normal((1, 1)), axis=-1),
        probe("one column of one number", rng.standard_normal((3, 1)), axis=-1),
        probe("all scores high", small + 5000.0, 5e3, axis=-1),
        probe("all scores low", small - 3000.0, 5e3, axis=-1),
        probe("rows far apart", far, 5e3, axis=-1),
        probe("matrices far apart", cubes, 5e3, axis=-1),
        probe("one score far above", above, 5e3, axis=-1),
        probe("columns far apart, axis 0", far.T.copy(), 5e3, axis=0),
        probe("one row of high scores", row + 5000.0, 5e3, axis=-1),
    )


PROBES = probes(0)
