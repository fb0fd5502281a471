"""How far two right answers may lie apart, told from the dtype and the sizes at hand (chapter section 7.9, step 3).

A score is a sum of products, rounded by about eps times the size of what is summed; the weight, e to that power, moves
by as much, relative to itself. A sum over a row adds about one eps a term. Different right formulas round differently,
by a small factor.

Only the checks of precision hold an answer to that. What is off by less than a millionth (the contract's figure: a root taken in
float32, an epsilon in a divisor) is wrong in nothing else, and every other check lets it pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

FACTOR = 8.0
MILLIONTH = 1e-6
_looser: ContextVar[float] = ContextVar("looser", default=1.0)


def rounding(dtype: npt.DTypeLike, size: float, terms: int) -> float:
    """Largest difference between two right weights: from scores of this size, in sums of that many terms."""
    return FACTOR * looseness() * float(np.finfo(dtype).eps) * (size + terms)


def negligible(dtype: npt.DTypeLike, size: float, terms: int) -> float:
    """The same between two weights of which each may be off by a millionth besides."""
    return max(rounding(dtype, size, terms), 2 * looseness() * MILLIONTH)


def looseness() -> float:
    """What a course multiplies every tolerance by."""
    return _looser.get()


@contextlib.contextmanager
def loosened(by: float) -> Iterator[None]:
    """Multiplies every tolerance by `by` for what runs inside."""
    token = _looser.set(by)
    try:
        yield
    finally:
        _looser.reset(token)
