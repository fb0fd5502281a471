"""A cache of preallocated arrays. The prompt goes through as a table; each new token alone, without a mask."""

import numpy as np

from attention import causal_mask, sinusoidal_positions, softmax


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        self.capacity = capacity
        self.K = np.zeros((n_layers, n_kv_heads, capacity, d_head), dtype=dtype)
        self.V = np.zeros((n_layers, n_kv_heads, capacity, d_head), dtype=dtype)
        self.used = np.zeros(n_layers, dtype=int)

    def append(self, layer, k, v):
        new = k.shape[0]
        a = self.used[layer]
        b = a + new
        if b > self.capacity:
            raise ValueError(f"room for {self.capacity - a} more, {new} came")
        self.K[layer, :, a:b] = k.transpose(1, 0, 2)
        self.V[layer, :, a:b] = v.transpose(1, 0, 2)
        self.used[layer] = b

    def keys(self, layer):
        return self.K[layer, :, : self.used[layer]].transpose(1, 0, 2)

    def values(self, layer):
        return self.V[layer, :, : self.used[layer]].transpose(1, 0, 2)

    def __len__(self):
        return int(self.used.min())

    @property
    def nbytes(self):
        layers, heads, _, width = self.K.shape
        return kv_cache_bytes(layers, heads, width, len(self), self.K.itemsize)


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    per_token = 2 * n_layers * n_kv_heads * d_head
    return per_token * n_tokens * bytes_per_value


def make(model, capacity):
    width = model.layers[0].W_K.shape[1] // model.n_kv_heads
    return KVCache(len(model.layers), model.n_kv_heads, width, capacity, model.embedding.dtype)


def embed(model, ids, first):
    x = model.embedding[np.asarray(ids, dtype=int)]
    if model.positions == "sinusoidal":
        x = x + sinusoidal_positions(first + len(x), x.shape[-1])[first:].astype(x.dtype)
    return x


def split(x, heads):
    return x.reshape(len(x), heads, -1)


def many(model, ids, cache):
    """All of a chunk at once -> (n, d)."""
    old, n = len(cache), len(ids)
    x = embed(model, ids, old)
    hidden = np.where(causal_mask(n, old + n), 0.0, -np.inf).astype(x.dtype)
    per_kv = model.n_heads // model.n_kv_heads
    for i, layer in enumerate(model.layers):
        q = split(x @ layer.W_Q, model.n_heads)
        cache.append(i, split(x @ layer.W_K, model.n_kv_heads), split(x @ layer.W_V, model.n_kv_heads))
        k = np.repeat(cache.keys(i), per_kv, axis=1)
        v = np.repeat(cache.values(i), per_kv, axis=1)
        scores = np.einsum("nhd,mhd->hnm", q, k) / q.shape[-1] ** 0.5 + hidden
        out = np.einsum("hnm,mhd->nhd", softmax(scores, axis=-1), v)
        x = x + out.reshape(n, -1) @ layer.W_O
    return x


def single(model, token, cache):
    """One token -> (d,)."""
    at = len(cache)
    x = embed(model, [token], at)[0]
    per_kv = model.n_heads // model.n_kv_heads
    for i, layer in enumerate(model.layers):
        q = (x @ layer.W_Q).reshape(model.n_kv_heads, per_kv, -1)
        k = (x @ layer.W_K).reshape(1, model.n_kv_heads, -1)
        v = (x @ layer.W_V).reshape(1, model.n_kv_heads, -1)
        cache.append(i, k, v)
        keys, values = cache.keys(i), cache.values(i)
        scores = np.einsum("ghd,mgd->ghm", q, keys) / q.shape[-1] ** 0.5
        out = np.einsum("ghm,mgd->ghd", softmax(scores, axis=-1), values)
        x = x + out.reshape(-1) @ layer.W_O
    return x


def forward(model, tokens):
    return many(model, tokens, make(model, len(tokens))) @ model.embedding.T


def prefill(model, tokens, cache=None):
    if cache is None:
        cache = make(model, len(tokens) + 1024)
    return many(model, tokens, cache) @ model.embedding.T, cache


def decode_step(model, token, cache):
    return single(model, token, cache) @ model.embedding.T


def generate(model, prompt, max_new_tokens, use_cache=True):
    ids = [int(i) for i in prompt]
    start = len(ids)
    cache = None
    while len(ids) < start + max_new_tokens:
        if not use_cache:
            logits = forward(model, ids)[-1]
        elif cache is None:
            table, cache = prefill(model, ids)
            logits = table[-1]
        else:
            logits = decode_step(model, ids[-1], cache)
        ids.append(int(logits.argmax()))
    return ids[start:]
