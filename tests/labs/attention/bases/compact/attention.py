"""Attention from scratch."""
import math

import numpy as np


def softmax(x, axis=-1):
    z = x - x.max(axis=axis, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=axis, keepdims=True)


def project(X, W_Q, W_K, W_V):
    return X @ W_Q, X @ W_K, X @ W_V


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    d_k = Q.shape[-1]
    if scale is None:
        scale = 1 / math.sqrt(d_k)
    S = Q @ K.swapaxes(-1, -2) * scale
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    A = softmax(S)
    return A @ V, A


def self_attention(X, W_Q, W_K, W_V, mask=None):
    Q, K, V = project(X, W_Q, W_K, W_V)
    return scaled_dot_product_attention(Q, K, V, mask=mask)


def causal_mask(n_queries, n_keys=None):
    if n_keys is None:
        n_keys = n_queries
    return np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)


def sinusoidal_positions(n, d):
    pos = np.arange(n)[:, None]
    freq = 1 / 10000 ** (np.arange(0, d, 2) / d)
    P = np.zeros((n, d))
    P[:, ::2] = np.sin(pos * freq)
    P[:, 1::2] = np.cos(pos * freq)
    return P
