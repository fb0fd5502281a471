import numpy as np
from numpy import einsum, exp, newaxis


def _match(q, k):
    return einsum("...id,...jd->...ij", q, k)


def _blend(w, v):
    return einsum("...ij,...jc->...ic", w, v)


def _hide(table, mask):
    if mask is None:
        return table
    return table + np.where(mask, 0, -np.inf).astype(table.dtype)


def softmax(x, axis=-1):
    top = np.amax(x, axis=axis, keepdims=True)
    up = exp(np.subtract(x, top))
    return np.divide(up, np.add.reduce(up, axis=axis, keepdims=True))


def project(X, W_Q, W_K, W_V):
    return tuple(np.dot(X, W) for W in (W_Q, W_K, W_V))


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    factor = Q.shape[-1] ** -0.5 if scale is None else scale
    w = softmax(_hide(_match(Q * factor, K), mask))
    return _blend(w, V), w


def self_attention(X, W_Q, W_K, W_V, mask=None):
    return scaled_dot_product_attention(*project(X, W_Q, W_K, W_V), mask=mask)


def causal_mask(n_queries, n_keys=None):
    n_keys = n_queries if n_keys is None else n_keys
    where = np.arange(n_keys)
    return where[newaxis, :] <= where[n_keys - n_queries :, newaxis]


def sinusoidal_positions(n, d):
    column = np.arange(d)
    angle = np.outer(np.arange(n), 10000.0 ** (-(column - column % 2) / d))
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))
