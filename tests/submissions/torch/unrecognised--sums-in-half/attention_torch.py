"""Attention on tensors."""

import math

import torch


def softmax(x, axis=-1):
    powers = torch.exp(x - x.amax(dim=axis, keepdim=True))
    total = torch.zeros_like(powers.select(axis, 0))
    for one in powers.unbind(axis):
        total = total + one
    return powers / total.unsqueeze(axis)


def project(X, W_Q, W_K, W_V):
    return X @ W_Q, X @ W_K, X @ W_V


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1])
    scores = (Q * scale) @ K.mT  # (..., n, m)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = softmax(scores)
    return weights @ V, weights


def self_attention(X, W_Q, W_K, W_V, mask=None):
    Q, K, V = project(X, W_Q, W_K, W_V)
    return scaled_dot_product_attention(Q, K, V, mask=mask)


def causal_mask(n_queries, n_keys=None):
    if n_keys is None:
        n_keys = n_queries
    # The queries are the last n_queries of n_keys positions, so the diagonal moves right by the difference.
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


def sinusoidal_positions(n, d):
    position = torch.arange(n, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = position * frequency
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=-1).reshape(n, d)
