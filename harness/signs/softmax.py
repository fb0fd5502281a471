"""Hints on softmax: its axis, its sums, how sharp it is, what it does to large scores, what it remembers.

Attention is looked at in the same way: with scores of one's choice, its weights are a softmax too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from harness.signs import (
    Hint,
    array,
    changed,
    fixed_axis,
    follows,
    narrowed,
    numbers,
    or_else,
    place,
    repeated,
    rows_sum,
    said,
    same,
    slope,
    sums,
    turned_inside,
)
from harness.subject import Asking, Outcome
from harness.values import Array, Handle

SOFTMAX = "attention.softmax"

Weigh = Callable[[Array], Outcome]
"""Asks for the weights of a table of scores, along its last axis."""


def named(subject: Asking) -> Iterator[Hint]:
    x, cube = numbers((3, 5), (2, 3, 4))
    again = [array(subject.call(SOFTMAX, x), x.shape) for _ in range(3)]
    if any(a is not None and b is not None and not repeated(a, b) for a, b in itertools.pairwise(again)):
        yield Hint("not-deterministic", "The same scores, asked again, get other weights.")
        return
    if _remembers_scores(subject):
        yield Hint("stale-result", "New scores in the same place get the weights of those asked before.")
        return
    outcome = subject.call(SOFTMAX, x)
    weights = array(outcome, x.shape)
    if changed(subject, SOFTMAX, x):
        yield Hint("input-mutated", "The array passed in is not the same after the call.")
    deep = array(subject.call(SOFTMAX, cube), cube.shape)
    if weights is None:
        if fixed_axis(outcome) and deep is not None and same(deep.sum(-1), np.ones((2, 3))):
            seen = f"Three dimensions work, two raise {said(outcome)}."
            yield Hint("softmax-positional-axis", seen, at=place(outcome))
        yield from _without_keepdims(subject)
        return
    if same(weights, x):
        yield Hint("softmax-not-applied", "What comes back is the input.")
        return
    hint = sums(weights) or sums_of_exponentials(weights, x)
    one_axis = _has_one_axis(subject, x, weights)
    if one_axis and hint is None:  # where axis 1 is the one, that is what a batch gets, and is told below
        yield from (h for h in _deeper(subject, cube, weights) if h.code != "softmax-positional-axis")
    if one_axis and (hint is None or hint.code == "softmax-wrong-axis"):
        which = "rows" if hint is None else "columns"
        yield Hint("softmax-ignores-axis", f"With axis=0 and with axis=1 it is the {which} that sum to 1.")
    elif hint:
        yield hint
    elif narrowed(outcome.value):
        yield Hint("narrow-arithmetic", "Every weight is a float32 number, and the scores are float64.")
    elif outcome.value.dtype == np.float32:
        yield Hint("wrong-dtype", "For float64 scores the weights come back as float32.")
    if same(weights.sum(-1), np.ones(3)):
        yield from _sharpness(weights, slope(weights, x))
        if not one_axis:
            yield from _deeper(subject, cube, weights)
            other = array(subject.call(SOFTMAX, x, axis=0), x.shape)
            if other is not None and same(other.sum(-1), np.ones(3)) and not same(other.sum(0), np.ones(5)):
                yield Hint("softmax-ignores-axis", "With axis=0 it is still the rows that sum to 1.")
    if hint is None or one_axis or hint.code in ("softmax-unnormalised", "softmax-epsilon", "softmax-plus-one"):
        yield from of_large_scores(lambda scores: subject.call(SOFTMAX, scores))


def _has_one_axis(subject: Asking, x: Array, weights: Array) -> bool:
    """Whether a table gets the same weights along whichever axis is asked for."""
    asked = [array(subject.call(SOFTMAX, x, axis=axis), x.shape) for axis in (0, 1)]
    return all(other is not None and same(other, weights) for other in asked)


def _deeper(subject: Asking, cube: Array, flat: Array) -> Iterator[Hint]:
    """Other numbers of dimensions than two, where two are right."""
    for x in (cube, cube.reshape(2, 3, 2, 2)):
        outcome = subject.call(SOFTMAX, x)
        deep = array(outcome, x.shape)
        if outcome.kind == "raised":
            seen = f"Two dimensions work, and {('three', 'four')[x.ndim - 3]} raise {said(outcome)}."
            yield Hint("batch-unsupported", seen, at=place(outcome))
            return
        if deep is None or same(deep.sum(-1), np.ones(x.shape[:-1])):
            continue
        if same(deep.sum(1), np.ones(x.sum(1).shape)):
            seen = "In two dimensions rows sum to 1; in three, axis 1 does and the last does not."
            yield Hint("softmax-positional-axis", seen)
        elif follows(deep.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])):
            yield Hint("batch-unsupported", "In two dimensions rows sum to 1; in three they do not.")
        return


def _sharpness(weights: Array, factor: float | None) -> Iterator[Hint]:
    """How much more weight a score gets that is 1 higher."""
    if np.isin(weights, (0.0, 1.0)).all():
        yield Hint("softmax-argmax", "Every row is a single 1 and zeros, for scores that are close to each other.")
    if factor is None or not 0 < factor < 100:
        return
    base = math.exp(factor)
    short = [math.floor(math.e * 10**digits) / 10**digits for digits in range(6, 13)]
    typed = next((b for b in (round(base, 6), *short) if abs(base / b - 1) < 1e-12 < abs(b / math.e - 1)), None)
    if typed is not None:
        yield Hint("softmax-wrong-base", f"Scores 1 apart get weights whose ratio is {typed:.13g}, not {math.e:.13g}.")


def sums_of_exponentials(weights: Array, x: Array) -> Hint | None:
    """What weights were divided by, where two of a row are to each other as exponentials of x."""
    if slope(weights, x) is None or not same(slope(weights, x), 1.0):
        return None
    sums, top = weights.sum(-1), x.max(-1)
    if same(weights, np.exp(x)) or same(weights.max(-1), np.ones(len(x))) or same(weights, np.exp(x - x.max())):
        return Hint("softmax-unnormalised", f"The exponentials come back undivided: row 0 sums to {sums[0]:.3f}.")
    for sign, which in ((-1, "the exponentials, not from their sum"), (1, "their sum, not from the exponentials")):
        if same(sums, np.exp(sign * top)):
            seen = f"Row 0 sums to {sums[0]:.3g}, which is exp({'-' if sign < 0 else ''}{top[0]:.3g}): the maximum "
            return Hint("softmax-sum-unshifted", f"{seen}was subtracted in {which}.")
    for exponentials in (np.exp(x - top[:, None]), np.exp(x)):
        divisors = exponentials.sum(-1)
        added = divisors * (1 / sums - 1)
        room = 8 * np.finfo(float).eps * float(divisors.max())
        if added.min() > 16 * room and np.ptp(added) <= room + 1e-6 * added.min():
            if same(added, np.ones(len(x))):
                return Hint("softmax-plus-one", f"Row 0 sums to {sums[0]:.3g}, as if 1 were added to its divisor.")
            return Hint("softmax-epsilon", f"Row sums are off 1 as if {added.mean():.3g} were added to each divisor.")
    return None


def _remembers_scores(subject: Asking) -> bool:
    """Whether other scores in the same array, its corners as they were, get the weights of the earlier ones.

    Among the rows of a taller table both get weights of their own. No check asks for tables of these shapes.
    """
    (x,) = numbers((3, 9))
    memory = subject.call("@array", x).value
    if not isinstance(memory, Handle):
        return False
    before = array(subject.call(SOFTMAX, memory), x.shape)
    y = turned_inside(x)
    subject.call("@set", memory, y)
    after = array(subject.call(SOFTMAX, memory), x.shape)
    among = array(subject.call(SOFTMAX, np.concatenate([y, x, y])), (9, 9))
    if before is None or after is None or among is None or not np.array_equal(before, after):
        return False
    return same(among[3:6], before) and not same(among[:3], after)


def described(subject: Asking) -> Iterator[Hint]:
    (x,) = numbers((3, 5))
    weights = array(subject.call(SOFTMAX, x), x.shape)
    if weights is None or not np.isfinite(weights).all():
        return
    if weights.min() < 0 or np.abs(weights.sum(-1) - 1).max() > 1e-3:
        yield Hint(None, rows_sum(weights), like="softmax-unnormalised")
    elif not follows(weights, x):
        seen = "Two weights of a row do not have the ratio e to the power of their scores' difference."
        yield Hint(None, seen, like="softmax-wrong-base")
    elif (factor := slope(weights, x)) is not None and abs(factor - 1) > 1e-3:
        seen = f"Scores 1 apart get weights whose ratio is {math.exp(factor):.4g}, not e."
        yield Hint(None, seen, like="softmax-wrong-base")


def _without_keepdims(subject: Asking) -> Iterator[Hint]:
    (x,) = numbers((3, 3))
    weights = array(subject.call(SOFTMAX, x), x.shape)
    for shifted in (x - x.max(-1, keepdims=True), x - x.max(-1), x):
        powers = np.exp(shifted)
        if weights is not None and same(weights, powers / powers.sum(-1)):
            yield Hint(
                "softmax-missing-keepdims", "A square table works, another fails: row i is divided by other rows' sums."
            )
            return


def of_large_scores(weigh: Weigh) -> Iterator[Hint]:
    """Large scores, low ones, and rows far apart."""

    def bad(*rows: tuple[float, float]) -> Array | None:
        """Which rows come back without being finite."""
        x = np.array(rows)
        outcome = weigh(x)
        if outcome.kind == "raised" and outcome.type.endswith("OverflowError"):
            return np.ones(len(x), bool)
        weights = array(outcome, x.shape)
        return None if weights is None else np.asarray(~np.isfinite(weights).all(-1))

    for row in ((1000.0, 1001.0), (0.0, 2000.0)):
        found = bad(row)
        if found is not None and found.any():
            yield Hint("softmax-overflow", f"For the scores {row[0]:g} and {row[1]:g} the weights are not finite.")
            return
    found = bad((-3000.0, -2999.0))
    if found is not None and found.any():
        seen = "For the scores -3000 and -2999 the weights are not finite, and for large positive ones they are."
        yield Hint("softmax-clamped-max", seen)
        return
    x = np.array([[0.0, 0.0], [5.0, 0.0]])
    weights = array(weigh(x), x.shape)
    if weights is not None and weights.min() > 0 and same(math.log(weights[0, 1] / weights[0, 0]), 5.0):
        seen = "Two equal scores in a row get unequal weights, and the difference is a score in another row."
        yield Hint("softmax-max-wrong-axis", seen)
        return
    found = bad((0.0, 1.0), (3000.0, 3001.0))
    if found is not None and found.tolist() == [True, False]:
        seen = "A row with the scores 0 and 1 is not finite once another row has 3000 and 3001."
        yield Hint("softmax-global-max", seen)


look = or_else(named, described)
