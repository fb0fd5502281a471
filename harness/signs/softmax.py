"""Hints on softmax: its axis, its sums, how sharp it is, what it does to large scores, what it remembers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from harness.signs import (
    Hint,
    array,
    changed,
    fixed_axis,
    follows,
    numbers,
    or_else,
    rows_sum,
    same,
    slope,
    sums,
    turned_inside,
)
from harness.subject import Asking
from harness.values import Array, Handle

SOFTMAX = "attention.softmax"


def named(subject: Asking) -> Iterator[Hint]:
    x, cube = numbers((3, 5), (2, 3, 4))
    again = [array(subject.call(SOFTMAX, x), x.shape) for _ in range(3)]
    if any(a is not None and b is not None and not same(a, b) for a, b in itertools.pairwise(again)):
        yield Hint("not-deterministic", "The same scores, asked again, get other weights.")
        return
    if _remembers_scores(subject):
        yield Hint("stale-result", "New scores in the same place get the weights of those asked before.")
        return
    outcome = subject.call(SOFTMAX, x)
    weights = array(outcome, x.shape)
    if changed(subject, SOFTMAX, x):
        yield Hint("input-mutated", "The array passed in is not the same after the call.")
    if weights is None:
        deep = array(subject.call(SOFTMAX, cube), cube.shape)
        if fixed_axis(outcome) and deep is not None and same(deep.sum(-1), np.ones((2, 3))):
            yield Hint("softmax-positional-axis", f"Three dimensions work, two do not: {outcome.text[:80]}.")
        yield from _without_keepdims(subject)
        return
    if same(weights, x):
        yield Hint("softmax-not-applied", "What comes back is the input.")
        return
    hint = sums(weights) or _unnormalised(weights, x)
    yield from [hint] if hint else []
    if not same(weights.sum(-1), np.ones(3)):
        return
    yield from _sharpness(weights, slope(weights, x))
    deep = array(subject.call(SOFTMAX, cube), cube.shape)
    if deep is not None and not same(deep.sum(-1), np.ones((2, 3))) and same(deep.sum(1), np.ones((2, 4))):
        yield Hint(
            "softmax-positional-axis", "In two dimensions rows sum to 1; in three, axis 1 does and the last does not."
        )
    other = array(subject.call(SOFTMAX, x, axis=0), x.shape)
    if other is not None and same(other.sum(-1), np.ones(3)) and not same(other.sum(0), np.ones(5)):
        yield Hint("softmax-ignores-axis", "With axis=0 it is still the rows that sum to 1.")
    yield from _stability(subject)


def _sharpness(weights: Array, factor: float | None) -> Iterator[Hint]:
    if np.isin(weights, (0.0, 1.0)).all():
        yield Hint("softmax-argmax", "Every row is a single 1 and zeros, for scores that are close to each other.")
    for base in (2, 10):
        if factor is not None and same(factor, math.log(base)):
            yield Hint("softmax-wrong-base", f"Scores 1 apart get weights whose ratio is {base}, not e.")


def _unnormalised(weights: Array, x: Array) -> Hint | None:
    if slope(weights, x) is None or not same(slope(weights, x), 1.0):
        return None
    sums = weights.sum(-1)
    if same(weights, np.exp(x)) or same(weights.max(-1), np.ones(3)) or same(weights, np.exp(x - x.max())):
        return Hint("softmax-unnormalised", f"The exponentials come back undivided: row 0 sums to {sums[0]:.3f}.")
    for exponentials in (np.exp(x - x.max(-1, keepdims=True)), np.exp(x)):
        divisors = exponentials.sum(-1)
        added = divisors * (1 / sums - 1)
        room = 8 * np.finfo(float).eps * float(divisors.max())
        if added.min() > 16 * room and np.ptp(added) <= room + 1e-6 * added.min():
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
        yield Hint(None, rows_sum(weights))
    elif not follows(weights, x):
        yield Hint(
            None, "Two weights of a row do not stand to each other as e to the power of their scores' difference."
        )
    elif (factor := slope(weights, x)) is not None and abs(factor - 1) > 1e-3:
        yield Hint(None, f"Scores 1 apart get weights whose ratio is {math.exp(factor):.4g}, not e.")


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


def _stability(subject: Asking) -> Iterator[Hint]:
    def bad(*rows: tuple[float, float]) -> Array | None:
        """Which rows come back without being finite."""
        x = np.array(rows)
        outcome = subject.call(SOFTMAX, x)
        if outcome.kind == "raised" and outcome.type.endswith("OverflowError"):
            return np.ones(len(x), bool)
        weights = array(outcome, x.shape)
        return None if weights is None else np.asarray(~np.isfinite(weights).all(-1))

    for row in ((1000.0, 1001.0), (0.0, 2000.0)):
        found = bad(row)
        if found is not None and found.any():
            yield Hint("softmax-overflow", f"softmax([{row[0]:g}, {row[1]:g}]) is not finite.")
            return
    found = bad((-3000.0, -2999.0))
    if found is not None and found.any():
        yield Hint("softmax-clamped-max", "softmax([-3000, -2999]) is not finite, and large positive scores are fine.")
        return
    x = np.array([[0.0, 0.0], [5.0, 0.0]])
    weights = array(subject.call(SOFTMAX, x), x.shape)
    if weights is not None and weights.min() > 0 and same(math.log(weights[0, 1] / weights[0, 0]), 5.0):
        yield Hint(
            "softmax-max-wrong-axis", "Two equal scores in a row get unequal weights, by what stands in another row."
        )
        return
    found = bad((0.0, 1.0), (3000.0, 3001.0))
    if found is not None and found.tolist() == [True, False]:
        yield Hint("softmax-global-max", "A row at 0 and 1 is not finite once another row stands at 3000.")


look = or_else(named, described)
