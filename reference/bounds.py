"""How far a right answer may lie from the reference: the error of the worst of several legal formulations.

Each formulation runs in the dtype of the inputs and is compared with the formula in float64, its row sums with 1; the
worst of them, times a small factor, is the bound. On a small table all of them may happen to round alike, so the bound
is never less than one rounding of the largest sum that goes into a score.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reference import attention

Array = NDArray[Any]

FACTOR = 8.0
TILE = 2  # keys a step of the online softmax: small, so that small tables have several


@dataclass(frozen=True)
class Bound:
    """Largest absolute difference allowed in an output and in its weights."""

    output: float
    weights: float


def product(X: Array, W: Array, factor: float = FACTOR) -> float:
    """For X @ W: summed as it comes, by einsum, and backwards."""
    wide = _wide(X) @ _wide(W)
    ways = (X @ W, np.einsum("...nd,de->...ne", X, W), X[..., ::-1] @ W[::-1])
    least = _eps(X) * _largest(_absolute(X) @ _absolute(W))
    return factor * max(least, *(_largest(way - wide) for way in ways))


def softmax(x: Array, axis: int = -1, factor: float = FACTOR) -> float:
    """For softmax(x, axis)."""
    x = np.moveaxis(x, axis, -1)
    wide = attention.softmax(_wide(x))
    worst = max(_weights_error(way(x), wide) for way in (_plain, _logs, _online, _backwards))
    return factor * max(worst, _eps(x) * (1 + _largest(x)))


def scaled_dot_product_attention(
    Q: Array, K: Array, V: Array, mask: Array | None = None, scale: float | None = None, factor: float = FACTOR
) -> Bound:
    """For scaled_dot_product_attention of the same arguments."""
    wide = attention.scaled_dot_product_attention(_wide(Q), _wide(K), _wide(V), mask, scale)
    size = _largest(_absolute(Q) @ np.swapaxes(_absolute(K), -1, -2)) * abs(_scale(Q, scale))
    return _bound(((weights @ V, weights) for weights in _all_weights(Q, K, mask, scale)), wide, size, V, factor)


def self_attention(
    X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None, factor: float = FACTOR
) -> Bound:
    """For self_attention of the same arguments; also with W_Q and W_K merged, and with W_V applied last."""
    wide = attention.self_attention(_wide(X), _wide(W_Q), _wide(W_K), _wide(W_V), mask)
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V

    def ways() -> Iterator[tuple[Array, Array]]:
        scale = _scale(Q, None)
        for weights in (*_all_weights(Q, K, mask, None), *_all_weights(X @ (W_Q @ W_K.T), X, mask, scale)):
            yield weights @ V, weights
            yield (weights @ X) @ W_V, weights

    size = _largest(_absolute(X) @ _absolute(W_Q) @ np.swapaxes(_absolute(X) @ _absolute(W_K), -1, -2)) * _scale(
        Q, None
    )
    return _bound(ways(), wide, size, _absolute(X) @ _absolute(W_V), factor)


def sinusoidal_positions(n: int, d: int, dtype: DTypeLike = np.float64, factor: float = FACTOR) -> float:
    """For a table of this dtype, its angles computed in that dtype: divided, multiplied, or by exp of a log."""
    wide = attention.sinusoidal_positions(n, d)
    pos = np.arange(n, dtype=dtype)[:, None]
    exponents = (np.arange(0, d, 2) / d).astype(dtype)
    base = np.asarray(10000.0, dtype)
    ways = (pos / base**exponents, pos * base**-exponents, pos * np.exp(-exponents * np.log(base)))
    errors = (max(_largest(np.sin(a) - wide[:, 0::2]), _largest(np.cos(a) - wide[:, 1::2])) for a in ways)
    return factor * max(float(np.finfo(dtype).eps) * n, *errors)


# -- legal formulations ---------------------------------------------------------------------------------------------


def _all_weights(Q: Array, K: Array, mask: Array | None, scale: float | None) -> Iterator[Array]:
    """Attention weights (..., n, m) by every formulation."""
    scale = _scale(Q, scale)
    root = math.sqrt(abs(scale))
    K_T = np.swapaxes(K, -1, -2)
    scores = _masked(Q @ K_T * scale, mask)
    yield from (_plain(scores), _logs(scores), _online(scores), _backwards(scores))
    yield _plain(_masked((Q * scale) @ K_T, mask))
    yield _plain(_masked((Q * math.copysign(root, scale)) @ (K_T * root), mask))
    yield _plain(_masked(Q[..., ::-1] @ K_T[..., ::-1, :] * scale, mask))
    yield _plain(_masked(np.einsum("...nd,...md->...nm", Q, K) * scale, mask))


def _masked(scores: Array, mask: Array | None) -> Array:
    return scores if mask is None else np.where(mask, scores, np.asarray(-np.inf, scores.dtype))


def _plain(scores: Array) -> Array:
    return attention.softmax(scores)


def _logs(scores: Array) -> Array:
    """exp(s - log sum exp s): the sum's rounding is of the size of the scores."""
    with np.errstate(invalid="ignore"):
        return np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))  # type: ignore[no-any-return]


def _online(scores: Array) -> Array:
    """One tile of keys after the other, with a running maximum and sum."""
    top = np.full((*scores.shape[:-1], 1), -np.inf, scores.dtype)
    total = np.zeros_like(top)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, scores.shape[-1], TILE):
            tile = scores[..., start : start + TILE]
            new = np.maximum(top, tile.max(axis=-1, keepdims=True))
            seen = np.where(np.isneginf(new), 0, 1)  # nothing shown so far: there is no maximum to subtract
            shift = np.where(seen, new, 0).astype(scores.dtype)
            total = total * np.exp(top - shift) + np.exp(tile - shift).sum(axis=-1, keepdims=True)
            top = new
        return np.exp(scores - top) / total  # type: ignore[no-any-return]


def _backwards(scores: Array) -> Array:
    """Row sums taken one term after the other, from the last."""
    with np.errstate(over="ignore"):
        exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / np.cumsum(exp[..., ::-1], axis=-1)[..., -1:]  # type: ignore[no-any-return]


# -- errors -----------------------------------------------------------------------------------------------------------


def _bound(
    ways: Iterator[tuple[Array, Array]], wide: tuple[Array, Array], size: float, V: Array, factor: float
) -> Bound:
    """`size` is that of the largest sum in a score: one rounding of it is the least that a bound can be."""
    output, weights = 0.0, 0.0
    for o, w in ways:
        output, weights = max(output, _largest(o - wide[0])), max(weights, _weights_error(w, wide[1]))
    least = _eps(V) * (1 + size)
    return Bound(factor * max(output, least * _largest(V)), factor * max(weights, least))


def _weights_error(weights: Array, wide: Array) -> float:
    return max(_largest(weights - wide), _largest(weights.sum(axis=-1) - 1))


def _scale(Q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(Q.shape[-1]) if scale is None else scale


def _eps(a: Array) -> float:
    return float(np.finfo(a.dtype).eps)


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a)))


def _absolute(a: Array) -> Array:
    return np.abs(_wide(a))


def _wide(a: Array) -> Array:
    return a.astype(np.float64)
