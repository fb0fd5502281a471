"""How a cost grows with n: its exponent on log-log axes with an interval, and whether the range shows what kind it is.

Fixed costs bend the line down at small n, and memory that falls out of a cache bends it up at large n; a busy machine moves
any point. So a kind is named only where the slopes between neighbouring lengths agree on it as far as they are to be believed,
and none where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

# Student's t: half-width of a 95% interval in standard errors, for 1, 2, … degrees of freedom
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
LINEAR, QUADRATIC, MORE = "at most linear", "quadratic", "more than quadratic"


@dataclass(frozen=True)
class Growth:
    """`exponent` is the least-squares slope of log seconds on log n, within `low` to `high`; `slopes` the local ones.

    `doubts` say of each slope by how much it may be off, as far as measuring again has shown it.
    """

    ns: tuple[int, ...]
    seconds: tuple[float, ...]
    exponent: float
    low: float
    high: float
    slopes: tuple[float, ...]
    doubts: tuple[float, ...] = ()

    @property
    def kind(self) -> str | None:
        """LINEAR, QUADRATIC or MORE, by the longest lengths; None where fixed costs or memory hide it."""
        if len(self.slopes) < 3:
            return None
        last, off = self.slopes[-3:], (self.doubts or (0.0,) * len(self.slopes))[-3:]
        least = [slope - doubt for slope, doubt in zip(last, off, strict=True)]
        most = [slope + doubt for slope, doubt in zip(last, off, strict=True)]
        if min(last) >= 0.75 and max(last) <= 1.35 and max(most) <= 1.6 and last[-1] - last[0] < 0.4:
            return LINEAR  # a constant with n² under it rises faster, from one doubling to the next
        if min(least) >= 2.1 and min(last[-2:]) >= 2.5 and sum(last) / 3 >= 2.75:
            return MORE  # memory that runs out of one cache after another is not as steep for as long
        if all(1.7 <= slope <= 2.5 for slope in last[-2:]) and last[-1] - last[-2] < 0.4 and last[-1] - last[0] < 0.8:
            return QUADRATIC if min(least[-2:]) >= 1.4 and max(most[-2:]) <= 2.75 else None
        return None

    def told(self) -> str:
        """The plain sentences that a student reads."""
        doubts = self.doubts or (0.0,) * len(self.slopes)
        told = [f"{s:.2f} ± {d:.2f}" if d else f"{s:.2f}" for s, d in zip(self.slopes, doubts, strict=True)]
        slopes = ", ".join(told)
        text = (
            f"CPU time from n = {self.ns[0]} to {self.ns[-1]} grows as n to the {self.exponent:.2f} (95% interval "
            f"{self.low:.2f} to {self.high:.2f}); slopes from one length to the next: {slopes}."
        )
        sure = [*zip(self.slopes, doubts, strict=True)]
        fixed = list(takewhile(lambda it: it[0] < 1.6 and it[0] + it[1] < 2, sure))
        memory = list(takewhile(lambda it: it[0] > 2.2 and it[0] - it[1] > 2, reversed(sure)))
        if self.kind == LINEAR:
            return f"{text} That is no more than linear."
        if self.kind == MORE:
            return f"{text} That is more than quadratic."
        if fixed:
            text += f" Up to n = {self.ns[len(fixed)]} fixed costs show: a slope below 2."
        if memory and len(memory) < len(self.slopes):
            text += f" From n = {self.ns[-1 - len(memory)]} on memory traffic shows: a slope above 2."
        if self.kind is None and not fixed and not memory and (max(doubts) > 0.2 or self.high - self.low > 0.6):
            text += " They scatter too much to say what kind of growth it is: measure again when nothing else runs."
        return text


def growth(ns: Sequence[int], seconds: Sequence[float], spreads: Sequence[float] = ()) -> Growth:
    """The growth of at least three positive times.

    `spreads` may say for each by what factor, 1 or more, it came out longer when it was measured again.
    """
    x, y = ([math.log(value) for value in values] for values in (ns, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    off = sum((b - mean_y - exponent * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    free = len(x) - 2
    half = _T[min(free, len(_T)) - 1] * math.sqrt(off / free / spread)
    slopes = tuple((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(zip(x, y, strict=True)))
    wide = [math.log(factor) for factor in spreads]
    doubts = tuple(sum(w) / (b - a) for w, (a, b) in zip(pairwise(wide), pairwise(x), strict=True)) if wide else ()
    return Growth(tuple(ns), tuple(seconds), exponent, exponent - half, exponent + half, slopes, doubts)
