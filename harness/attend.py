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
    if _turned(asked.value, output, weights):
        raise asked.fail(
            f"the weights {weights} came first, the output {output} second", "(output, weights)", "output-order"
        )
    out, w = asked.arrays(("output", "weights"), (output, weights), like)
    return out, w


def output_of(
    asked: Asked, output: tuple[int, ...], weights: tuple[int, ...], like: npt.DTypeLike | None = None
) -> Array:
    """The output, whatever stands beside it: what the weights are that come back is judged by the checks of these."""
    value = asked.value
    if isinstance(value, np.ndarray) and value.shape == output:
        return asked.one(value, "the output", output, like)
    if _turned(value, output, weights):
        return asked.one(value[1], "the output", output, like)
    out, _ = asked.arrays(("output", "weights"), (output, weights), like, finite=False)
    asked.finite(out, "output")
    return out


def _turned(value: Any, output: tuple[int, ...], weights: tuple[int, ...]) -> bool:
    """Whether these are the weights and the output, in this order."""
    if not isinstance(value, tuple | list) or output == weights:
        return False
    return [v.shape if isinstance(v, np.ndarray) else None for v in value] == [weights, output]


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


def blend(
    subject: Subject,
    Q: Array,
    K: Array,
    V: Array,
    *,
    like: npt.DTypeLike | None = None,
    echo: bool = False,
    **named: Any,
) -> tuple[Asked, Array]:
    """scaled_dot_product_attention, and its output alone."""
    asked = ask(subject, SDPA, Q, K, V, echo=echo, **named)
    return asked, output_of(asked, (*Q.shape[:-1], V.shape[-1]), (*Q.shape[:-1], K.shape[-2]), like)


def weigh(
    subject: Subject, Q: Array, K: Array, V: Array, *, like: npt.DTypeLike | None = None, **named: Any
) -> tuple[Asked, Array, Array]:
    """Attention as its output shows it: the call, the output (..., n, d_v), and the weights that it was made with.

    An identity matrix stands beside V, and so the weights stand beside the output. What is returned as weights is judged
    by the checks of the returned weights alone.
    """
    identity = np.broadcast_to(np.eye(K.shape[-2], dtype=V.dtype), (*V.shape[:-1], K.shape[-2]))
    asked, both = blend(subject, Q, K, np.concatenate([V, identity], axis=-1), like=like, **named)
    return asked, both[..., : V.shape[-1]], both[..., V.shape[-1] :]


def self_attend(
    subject: Subject, X: Array, W_Q: Array, W_K: Array, W_V: Array, *, like: npt.DTypeLike | None = None, **named: Any
) -> tuple[Asked, Array, Array]:
    """self_attention: the call, the output (..., n, d_v) and the weights (..., n, n)."""
    asked = ask(subject, SELF, X, W_Q, W_K, W_V, **named)
    output, weights = pair(asked, (*X.shape[:-1], W_V.shape[-1]), (*X.shape[:-1], X.shape[-2]), like)
    return asked, output, weights


def self_output(
    subject: Subject, X: Array, W_Q: Array, W_K: Array, W_V: Array, *, like: npt.DTypeLike | None = None, **named: Any
) -> tuple[Asked, Array]:
    """self_attention, and its output alone."""
    asked = ask(subject, SELF, X, W_Q, W_K, W_V, **named)
    return asked, output_of(asked, (*X.shape[:-1], W_V.shape[-1]), (*X.shape[:-1], X.shape[-2]), like)


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


def follows(asked: Asked, output: Array) -> None:
    """Raises Fail where every query gets the same output, which no check that compares a submission with itself would see."""
    if output.shape[-2] > 1 and np.ptp(output, axis=-2).max() == 0:
        raise asked.fail("every query gets the same output", "outputs that depend on the queries", got=output)


def sum_to_one(asked: Asked, weights: Array, axis: int, tolerance: float, what: str = "row") -> None:
    """Raises Fail unless no weight is below 0 and along `axis` they sum to 1."""
    if weights.min() < 0:
        raise asked.fail(f"a weight is {weights.min():.4g}", "weights of 0 or more", got=weights)
    sums = weights.astype(np.float64).sum(axis=axis)
    if np.abs(sums - 1).max() > tolerance:
        worst = float(sums.flat[np.abs(sums - 1).argmax()])
        raise asked.fail(f"a {what} sums to {told_apart(worst, 1.0)[0]}", f"every {what} sums to 1", got=weights)
