"""From verdicts to points: a step's points are split over its checks by weight, in whole hundredths of a point.

Whole hundredths add up without rounding: a full mark is exactly the sum of the rubric's points.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache


def hundredths(points: float) -> int:
    """Points as a whole number of hundredths."""
    return round(points * 100)


def split(points: float, weights: Sequence[float]) -> list[int]:
    """The hundredths of a point that each check is worth: in proportion to the weights, and adding up to `points`.

    What is left over after rounding down goes to those that lost most by it, the earlier ones first.
    """
    return [*_split(points, tuple(weights))]


@cache
def _split(points: float, weights: tuple[float, ...]) -> tuple[int, ...]:
    total = sum(Fraction(w) for w in weights)
    if not total:
        return (0,) * len(weights)
    whole = hundredths(points)
    exact = [whole * Fraction(w) / total for w in weights]
    shares = [int(e) for e in exact]
    losers = sorted(range(len(exact)), key=lambda i: (shares[i] - exact[i], i))
    for i in losers[: whole - sum(shares)]:
        shares[i] += 1
    return tuple(shares)
