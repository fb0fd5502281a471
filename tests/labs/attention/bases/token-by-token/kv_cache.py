"""Slow and right: one query at a time, and generate feeds whole texts token by token, with the cache and without."""

import numpy as np


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        self.capacity = capacity
        nothing = np.zeros((0, n_kv_heads, d_head), dtype)
        self.pairs = [(nothing, nothing)] * n_layers

    def append(self, layer, k, v):
        old_k, old_v = self.pairs[layer]
        if len(old_k) + len(k) > self.capacity:
            raise ValueError("the cache is full")
        both = ((old_k, k), (old_v, v))
        self.pairs[layer] = tuple(np.concatenate([old, new.astype(old.dtype)]) for old, new in both)

    def keys(self, layer):
        return self.pairs[layer][0]

    def values(self, layer):
        return self.pairs[layer][1]

    def __len__(self):
        return min(len(k) for k, _ in self.pairs)

    @property
    def nbytes(self):
        return sum(k[: len(self)].nbytes + v[: len(self)].nbytes for k, v in self.pairs)


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value


def positions(start, n, d):
    angles = np.arange(start, start + n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d)


def attend(q, k, v, start):
    """(n, h, d_head), (m, h_kv, d_head) twice -> (n, h * d_head); query i is token start + i."""
    n, count, width = q.shape
    group = count // k.shape[1]
    out = np.zeros_like(q)
    for i in range(n):
        for h in range(count):
            scores = k[: start + i + 1, h // group] @ q[i, h] / width**0.5
            weights = np.exp(scores - scores.max())
            out[i, h] = weights / weights.sum() @ v[: start + i + 1, h // group]
    return out.reshape(n, -1)



def new_cache(model, capacity):
    layer = model.layers[0]
    width = layer.W_K.shape[1] // model.n_kv_heads
    return KVCache(len(model.layers), model.n_kv_heads, width, capacity, layer.W_K.dtype)


def extend(model, tokens, cache):
    start, n = len(cache), len(tokens)
    if start + n > cache.capacity:
        raise ValueError("the cache is full")
    x = model.embedding[np.asarray(tokens)]
    if model.positions == "sinusoidal":
        x = x + positions(start, n, x.shape[1]).astype(x.dtype)
    for i, layer in enumerate(model.layers):
        q = (x @ layer.W_Q).reshape(n, model.n_heads, -1)
        k, v = ((x @ W).reshape(n, model.n_kv_heads, -1) for W in (layer.W_K, layer.W_V))
        cache.append(i, k, v)
        x = x + attend(q, cache.keys(i), cache.values(i), start) @ layer.W_O
    return x @ model.embedding.T


def forward(model, tokens):
    return extend(model, tokens, new_cache(model, len(tokens)))


def prefill(model, tokens, cache=None):
    if cache is None:
        cache = new_cache(model, len(tokens) + 1024)
    return extend(model, tokens, cache), cache


def decode_step(model, token, cache):
    return extend(model, [token], cache)[0]


def generate(model, prompt, max_new_tokens, use_cache=True):
    ids = []
    text = list(prompt)
    room = len(prompt) + max_new_tokens
    cache = new_cache(model, room)
    while len(ids) < max_new_tokens:
        if not use_cache:
            cache, text = new_cache(model, room), list(prompt) + ids
        for token in text:
            last = decode_step(model, token, cache)
        ids.append(int(np.argmax(last)))
        text = ids[-1:]
    return ids
