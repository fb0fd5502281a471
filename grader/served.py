"""The right attention, lent to a submission whose own is wrong: follow-through for the steps that build on it.

The functions run on the judge's side and only answers cross. What a submission asks is capped: it may be anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.values import Callback
from reference import attention

MAX_ENTRIES = 2**22


def stand_ins() -> dict[str, dict[str, Callback]]:
    """attention.py as `Subject.lend` takes it."""
    names = (
        "softmax",
        "project",
        "scaled_dot_product_attention",
        "self_attention",
        "causal_mask",
        "sinusoidal_positions",
    )
    return {"attention": {name: Callback(_polite(getattr(attention, name))) for name in names}}


def _polite(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever is asked wrongly becomes a ValueError in the submission, never a fault of the judge."""

    def serve(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        if any(not isinstance(v, np.ndarray | int | float | bool | type(None)) for v in values):
            raise ValueError(f"{function.__name__} takes arrays and numbers")
        if any(isinstance(v, np.ndarray) and v.size > MAX_ENTRIES for v in values):
            raise ValueError(f"{function.__name__} was asked for too large an array")
        if not _fits(function.__name__, args, kwargs):
            raise ValueError(f"{function.__name__} was asked for too large a result")
        try:
            with np.errstate(all="ignore"):
                return function(*args, **kwargs)
        except Exception as error:
            raise ValueError(f"{function.__name__}: {error}") from None

    return serve


def _fits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the result has at most MAX_ENTRIES entries, as far as the arguments say."""
    sizes = [*args, *kwargs.values()]
    if name in ("causal_mask", "sinusoidal_positions"):
        numbers = [abs(int(v)) for v in sizes if isinstance(v, int | float) and np.isfinite(v)]
        return (
            int(np.prod([float(n) for n in numbers[:2]] or [0.0])) <= MAX_ENTRIES
            and max(numbers, default=0) <= MAX_ENTRIES
        )
    if name == "project":
        X, *matrices = (v.shape for v in sizes if isinstance(v, np.ndarray) and v.ndim)
        return all(float(np.prod(X[:-1])) * W[-1] <= MAX_ENTRIES for W in matrices)
    rows = [v.shape for v in sizes[:2] if isinstance(v, np.ndarray) and v.ndim >= 2]
    if name == "scaled_dot_product_attention" and len(rows) == 2:
        batch = max(float(np.prod(shape[:-2])) for shape in rows)
        return bool(batch * rows[0][-2] * rows[1][-2] <= MAX_ENTRIES)
    if name == "self_attention" and rows:
        return bool(float(np.prod(rows[0][:-1])) * rows[0][-2] <= MAX_ENTRIES)
    return True
