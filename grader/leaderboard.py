"""Columns of a leaderboard that a rubric may ask for, from what was measured outside of the submission's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.growth import growth

if TYPE_CHECKING:
    from grader.report import Judged

Curves = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Column:
    """`check` measures the curves that `value` is made of (None where they are not there); `order` says what is better."""

    check: str
    order: str
    value: Callable[[Curves], float | None]


def _speed_up(curves: Curves) -> float | None:
    """How many times longer the last token takes without the cache."""
    cached, recomputed = curves.get("cached", {}), curves.get("recomputed", {})
    last = max(set(cached) & set(recomputed), default=0)
    return recomputed[last] / cached[last] if last and cached[last] > 0 else None


def _exponent(curves: Curves) -> float | None:
    """The power of n that attention's CPU time grows with."""
    seconds = {n: s for n, s in curves.get("seconds", {}).items() if s > 0}
    return growth(sorted(seconds), [seconds[n] for n in sorted(seconds)]).exponent if len(seconds) > 2 else None


COLUMNS = {
    "speed-up": Column("step8.cost.decode", "desc", _speed_up),
    "exponent": Column("step5.cost.attention", "asc", _exponent),
}


def needed(names: Iterable[str]) -> frozenset[str]:
    """The checks that measure for these columns."""
    return frozenset(COLUMNS[name].check for name in names)


def rows(names: Sequence[str], judged: Iterable[Judged]) -> tuple[tuple[str, float | str, str], ...]:
    """Name, value and order of every column that was measured."""
    curves = {j.check.id: dict(j.result.curves) for j in judged}
    values = {name: COLUMNS[name].value(curves.get(COLUMNS[name].check, {})) for name in names}
    return tuple((name, round(value, 2), COLUMNS[name].order) for name, value in values.items() if value is not None)
