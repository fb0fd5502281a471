"""Asks attention.py, and says whether what came can be weights at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.expect import Asked, ask, told_apart
from harness.subject import Subject
from harness.values import Array

SOFTMAX = "attention.softmax"
PROJECT = "attention.project"
SDPA = "attention.scaled_dot_product_attention"
SELF = "attention.self_attention"
CAUSAL = "attention.causal_mask"
POSITIONS = "attention.sinusoidal_positions"


def pair(
    asked: Asked, output: tuple[int, ...], weights: tuple[int, ...], like: npt.DTypeLike | None = None
) -> tuple[Array, Array]:
    """Output and weights, of these shapes. Says so when they came in the other order."""
    value = asked.value
    if isinstance(value, tuple | list) and len(value) == 2 and output != weights:
        shapes = tuple(v.shape if isinstance(v, np.ndarray) else None for v in value)
        if shapes == (weights, output):
            raise asked.fail(
                f"the weights {weights} came first, the output {output} second", "(output, weights)", "output-order"
            )
    out, w = asked.arrays(("output", "weights"), (output, weights), like)
    return out, w


def attend(
    subject: Subject,
    Q: Array,
    K: Array,
    V: Array,
    *,
    like: npt.DTypeLike | None = None,
    echo: bool = False,
    **named: Any,
) -> tuple[Asked, Array, Array]:
    """scaled_dot_product_attention: the call, the output (..., n, d_v) and the weights (..., n, m)."""
    asked = ask(subject, SDPA, Q, K, V, echo=echo, **named)
    output, weights = pair(asked, (*Q.shape[:-1], V.shape[-1]), (*Q.shape[:-1], K.shape[-2]), like)
    return asked, output, weights


def self_attend(
    subject: Subject, X: Array, W_Q: Array, W_K: Array, W_V: Array, *, like: npt.DTypeLike | None = None, **named: Any
) -> tuple[Asked, Array, Array]:
    """self_attention: the call, the output (..., n, d_v) and the weights (..., n, n)."""
    asked = ask(subject, SELF, X, W_Q, W_K, W_V, **named)
    output, weights = pair(asked, (*X.shape[:-1], W_V.shape[-1]), (*X.shape[:-1], X.shape[-2]), like)
    return asked, output, weights


def apart(a: Array, b: Array) -> float:
    """Largest absolute difference, in float64."""
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0))


def largest(values: Array) -> float:
    """Largest absolute value, and 1 at least."""
    return max(1.0, float(np.abs(values).max(initial=0.0)))


def size_of(Q: Array, K: Array, scale: float | None = None) -> float:
    """Size of what is summed in a score: the largest sum of |q| |k|, times the scale."""
    products = np.abs(Q.astype(np.float64)) @ np.swapaxes(np.abs(K.astype(np.float64)), -1, -2)
    return float(products.max()) * (Q.shape[-1] ** -0.5 if scale is None else abs(scale))


def answer_to_scores(asked: Asked, weights: Array) -> None:
    """Raises Fail for weights that no scores can have led to: all the same, or beyond 0 to 1.

    For checks that compare a submission with itself, which an answer that is always the same would pass.
    """
    if weights.size > 1 and np.ptp(weights) == 0:
        raise asked.fail(
            f"every weight is {weights.flat[0]:.4g}, though the scores differ",
            "weights that depend on the scores",
            got=weights,
        )
    if weights.min() < 0 or weights.max() > 1 + 1e-3:
        raise asked.fail(f"weights run from {weights.min():.4g} to {weights.max():.4g}", "between 0 and 1", got=weights)


def sum_to_one(asked: Asked, weights: Array, axis: int, tolerance: float, what: str = "row") -> None:
    """Raises Fail unless no weight is below 0 and along `axis` they sum to 1."""
    if weights.min() < 0:
        raise asked.fail(f"a weight is {weights.min():.4g}", "weights of 0 or more", got=weights)
    sums = weights.astype(np.float64).sum(axis=axis)
    if np.abs(sums - 1).max() > tolerance:
        worst = float(sums.flat[np.abs(sums - 1).argmax()])
        raise asked.fail(f"a {what} sums to {told_apart(worst, 1.0)[0]}", f"every {what} sums to 1", got=weights)
