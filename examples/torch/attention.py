"""Attention from the chapter's equation: softmax(Q Kᵀ / sqrt(d_k)) V."""

import math

import numpy as np


def softmax(x, axis=-1):
    largest = x.max(axis=axis, keepdims=True)
    powers = np.exp(x - largest)
    return powers / powers.sum(axis=axis, keepdims=True)


def project(X, W_Q, W_K, W_V):
    return X @ W_Q, X @ W_K, X @ W_V


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1])
    scores = Q @ K.swapaxes(-1, -2) * scale  # (..., n, m)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights @ V, weights


def self_attention(X, W_Q, W_K, W_V, mask=None):
    Q, K, V = project(X, W_Q, W_K, W_V)
    return scaled_dot_product_attention(Q, K, V, mask=mask)


def causal_mask(n_queries, n_keys=None):
    if n_keys is None:
        n_keys = n_queries
    # The queries are the last n_queries of n_keys positions, so the diagonal moves right by the difference.
    return np.tri(n_queries, n_keys, k=n_keys - n_queries, dtype=bool)


def sinusoidal_positions(n, d):
    position = np.arange(n)[:, None]
    frequency = 10000.0 ** -(np.arange(0, d, 2) / d)
    table = np.zeros((n, d))
    table[:, 0::2] = np.sin(position * frequency)
    table[:, 1::2] = np.cos(position * frequency)
    return table
