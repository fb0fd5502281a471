"""One attention head, one function a formula (chapter sections 7.2, 7.4 and 7.5).

Results are in the floating dtype of the inputs: float64 in, float64 out. Shapes: n queries, m keys, d model width,
d_k key width, d_v value width, ... any leading batch axes. Nothing passed in is changed.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, any shape -> same (7.2, step 4)."""
    # The maximum cancels in the quotient; without it exp overflows. x - max itself may overflow to -inf: exp is then 0.
    with np.errstate(over="ignore"):
        exp_x = np.exp(x - np.max(x, axis=axis, keepdims=True))
    weights: Array = exp_x / np.sum(exp_x, axis=axis, keepdims=True)
    return weights


def project(X: Array, W_Q: Array, W_K: Array, W_V: Array) -> tuple[Array, Array, Array]:
    """Q = X W_Q, K = X W_K, V = X W_V: (..., n, d) -> (..., n, d_k), (..., n, d_k), (..., n, d_v) (7.2, step 1)."""
    return X @ W_Q, X @ W_K, X @ W_V


def scaled_dot_product_attention(
    Q: Array, K: Array, V: Array, mask: Array | None = None, scale: float | None = None
) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d_k)) V -> output (..., n, d_v), weights (..., n, m) (7.2, steps 2 to 5).

    `mask` is boolean, broadcastable to (..., n, m), True where a query may attend; `scale` replaces 1 / sqrt(d_k).
    A row whose mask allows nothing is undefined.
    """
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1])  # a Python float: float32 scores stay float32
    scores = Q @ np.swapaxes(K, -1, -2) * scale  # (..., n, d_k) @ (..., d_k, m) -> (..., n, m)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)  # exp(-inf) is exactly 0
    weights = softmax(scores)  # (..., n, m), every row sums to 1
    return weights @ V, weights  # (..., n, m) @ (..., m, d_v) -> (..., n, d_v)


def self_attention(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Attention of X (..., n, d) to itself -> output (..., n, d_v), weights (..., n, n) (7.2)."""
    Q, K, V = project(X, W_Q, W_K, W_V)
    return scaled_dot_product_attention(Q, K, V, mask=mask)


def causal_mask(n_queries: int, n_keys: int | None = None) -> NDArray[np.bool_]:
    """True where key j is not after query i -> bool (n_queries, n_keys) (7.5); the queries are the last positions."""
    n_keys = n_queries if n_keys is None else n_keys
    i = np.arange(n_keys - n_queries, n_keys)[:, None]  # (n_queries, 1): absolute positions of the queries
    j = np.arange(n_keys)[None, :]  # (1, n_keys)
    return j <= i


def sinusoidal_positions(n: int, d: int) -> NDArray[np.float64]:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos(the same) -> float64 (n, d), d even (7.4)."""
    pos = np.arange(n)[:, None]  # (n, 1)
    two_i = np.arange(0, d, 2)[None, :]  # (1, d/2)
    angles = pos / 10000.0 ** (two_i / d)  # (n, d/2)
    PE = np.empty((n, d))
    PE[:, 0::2] = np.sin(angles)
    PE[:, 1::2] = np.cos(angles)
    return PE


def rope(x: Array, positions: Array) -> Array:
    """Rotate each pair (2i, 2i+1) of x (..., n, d_k) by positions (n,) * 10000^(-2i/d_k) -> (..., n, d_k) (7.4)."""
    d_k = x.shape[-1]
    theta = 10000.0 ** (-np.arange(0, d_k, 2) / d_k)  # (d_k/2,)
    angles = np.asarray(positions)[:, None] * theta  # (n, d_k/2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]  # (..., n, d_k/2)
    rotated = np.empty_like(x)
    rotated[..., 0::2] = cos * even - sin * odd
    rotated[..., 1::2] = sin * even + cos * odd
    return rotated
