"""A cache of growing lists of chunks; the layers are written once, for one token or for many, and forward apart."""

import math

import numpy as np

import attention


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        self.limit, self.dtype = capacity, np.dtype(dtype)
        self.empty = np.zeros((0, n_kv_heads, d_head), self.dtype)
        self.stored = [{"k": [self.empty], "v": [self.empty]} for _ in range(n_layers)]

    def count(self, layer):
        return sum(map(len, self.stored[layer]["k"]))

    def append(self, layer, k, v):
        if self.count(layer) + len(k) > self.limit:
            raise ValueError("cache is full")
        self.stored[layer]["k"].append(np.array(k, dtype=self.dtype))
        self.stored[layer]["v"].append(np.array(v, dtype=self.dtype))

    def keys(self, layer):
        return np.concatenate(self.stored[layer]["k"])

    def values(self, layer):
        return np.concatenate(self.stored[layer]["v"])

    def __len__(self):
        return min(self.count(layer) for layer in range(len(self.stored)))

    @property
    def nbytes(self):
        tokens = len(self)
        return sum(self.keys(i)[:tokens].nbytes + self.values(i)[:tokens].nbytes for i in range(len(self.stored)))


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    return math.prod((2, n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value))


def width_of(model):
    return model.layers[0].W_K.shape[1] // model.n_kv_heads


def start_of(model, tokens, past):
    x = model.embedding[list(map(int, tokens))]
    if model.positions != "sinusoidal":
        return x
    table = attention.sinusoidal_positions(past + len(x), x.shape[1])
    return x + table[past : past + len(x)].astype(x.dtype)


def heads_of(model, layer, x):
    dh = width_of(model)
    Q, K, V = attention.project(x, layer.W_Q, layer.W_K, layer.W_V)
    return Q.reshape(-1, model.n_heads, dh), K.reshape(-1, model.n_kv_heads, dh), V.reshape(-1, model.n_kv_heads, dh)


def mix(model, Q, K, V, mask):
    share = model.n_heads // model.n_kv_heads
    results = []
    for head in range(model.n_heads):
        result, _ = attention.scaled_dot_product_attention(Q[:, head], K[:, head // share], V[:, head // share], mask=mask)
        results.append(result)
    return np.hstack(results)


def forward(model, tokens):
    x = start_of(model, tokens, 0)
    mask = attention.causal_mask(len(x))
    for layer in model.layers:
        Q, K, V = heads_of(model, layer, x)
        x = x + mix(model, Q, K, V, mask) @ layer.W_O
    return x @ model.embedding.T


def extend(model, tokens, cache):
    past = len(cache)
    x = start_of(model, tokens, past)
    mask = attention.causal_mask(len(x), past + len(x))
    for number, layer in enumerate(model.layers):
        Q, K, V = heads_of(model, layer, x)
        cache.append(number, K, V)
        x = x + mix(model, Q, cache.keys(number), cache.values(number), mask) @ layer.W_O
    return x @ model.embedding.T


def prefill(model, tokens, cache=None):
    if cache is None:
        cache = KVCache(len(model.layers), model.n_kv_heads, width_of(model), 100_000, model.embedding.dtype)
    logits = extend(model, tokens, cache)
    return logits, cache


def decode_step(model, token, cache):
    return extend(model, [token], cache)[-1]


def best(logits):
    return int(np.argmax(logits))


def generate(model, prompt, max_new_tokens, use_cache=True):
    prompt, new = list(prompt), []
    if max_new_tokens == 0:
        return new
    if use_cache:
        logits, cache = prefill(model, prompt)
        new.append(best(logits[-1]))
        for _ in range(max_new_tokens - 1):
            new.append(best(decode_step(model, new[-1], cache)))
        return new
    for _ in range(max_new_tokens):
        new.append(best(forward(model, prompt + new)[-1]))
    return new
