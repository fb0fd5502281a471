"""The softmax a tile at a time, with a running maximum and sum."""

import math

import torch

TILE = 64


def softmax(x, axis=-1):
    if x.shape[axis] <= TILE:
        return torch.softmax(x, dim=axis)
    top = torch.full_like(x.narrow(axis, 0, 1), -torch.inf)
    total = torch.zeros_like(top)
    for tile in x.split(TILE, dim=axis):
        new = torch.maximum(top, tile.amax(dim=axis, keepdim=True))
        shift = torch.where(torch.isneginf(new), torch.zeros_like(new), new)
        total = total * torch.exp(top - shift) + torch.exp(tile - shift).sum(dim=axis, keepdim=True)
        top = new
    return torch.exp(x - top) / total


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
