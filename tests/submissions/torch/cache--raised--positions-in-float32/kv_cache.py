"""A cache of tensors."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_torch import causal_mask, sinusoidal_positions

BACKEND = "torch"
ROOM = 1024  # tokens that a cache made by prefill can still take


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        self.capacity = capacity
        self.stored = [0] * n_layers
        self.k = torch.zeros(n_layers, capacity, n_kv_heads, d_head, dtype=dtype)
        self.v = torch.zeros_like(self.k)

    def append(self, layer, k, v):
        begin = self.stored[layer]
        end = begin + k.shape[0]
        if end > self.capacity:
            raise ValueError(f"{end} tokens do not fit in a cache for {self.capacity}")
        self.k[layer, begin:end] = k
        self.v[layer, begin:end] = v
        self.stored[layer] = end

    def keys(self, layer):
        return self.k[layer, : self.stored[layer]]

    def values(self, layer):
        return self.v[layer, : self.stored[layer]]

    def __len__(self):
        return min(self.stored)

    @property
    def nbytes(self):
        n_layers, _, n_kv_heads, d_head = self.k.shape
        return kv_cache_bytes(n_layers, n_kv_heads, d_head, len(self), self.k.element_size())


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value


def heads(x, count):
    """(n, count * d_head) -> (count, n, d_head)"""
    return x.reshape(x.shape[0], count, -1).transpose(0, 1)


def run(model, tokens, cache):
    """Runs tokens that follow those in the cache; returns their logits."""
    before = len(cache)
    n = len(tokens)
    if before + n > cache.capacity:
        raise ValueError(f"{n} more tokens do not fit: {before} of {cache.capacity} places are taken")
    x = model.embedding[torch.as_tensor([int(token) for token in tokens], device=model.embedding.device)]
    if model.positions == "sinusoidal":
        x = x + sinusoidal_positions(before + n, x.shape[-1])[before:].to(x.device, torch.promote_types(x.dtype, torch.float32))
    mask = causal_mask(n, before + n).to(x.device)
    shared_by = model.n_heads // model.n_kv_heads
    for index, layer in enumerate(model.layers):
        q = heads(x @ layer.W_Q, model.n_heads)
        k = heads(x @ layer.W_K, model.n_kv_heads)
        v = heads(x @ layer.W_V, model.n_kv_heads)
        cache.append(index, k.transpose(0, 1), v.transpose(0, 1))
        all_k = cache.keys(index).transpose(0, 1).repeat_interleave(shared_by, dim=0)
        all_v = cache.values(index).transpose(0, 1).repeat_interleave(shared_by, dim=0)
        mixed = scaled_dot_product_attention(q, all_k.to(q), all_v.to(q), attn_mask=mask)
        x = x + mixed.transpose(0, 1).reshape(n, -1) @ layer.W_O
    return x @ model.embedding.T


def empty_cache(model, capacity):
    d_head = model.layers[0].W_K.shape[1] // model.n_kv_heads
    return KVCache(len(model.layers), model.n_kv_heads, d_head, capacity, model.layers[0].W_K.dtype)


def forward(model, tokens):
    return run(model, tokens, empty_cache(model, len(tokens)))


def prefill(model, tokens, cache=None):
    if cache is None:
        cache = empty_cache(model, len(tokens) + ROOM)
    return run(model, tokens, cache), cache


def decode_step(model, token, cache):
    return run(model, [token], cache)[0]


def generate(model, prompt, max_new_tokens, use_cache=True):
    tokens = [int(token) for token in prompt]
    if max_new_tokens == 0:
        return []
    if use_cache:
        logits, cache = prefill(model, tokens, empty_cache(model, len(tokens) + max_new_tokens))
    else:
        logits = forward(model, tokens)
    new = [int(logits[-1].argmax())]
    while len(new) < max_new_tokens:
        if use_cache:
            last = decode_step(model, new[-1], cache)
        else:
            last = forward(model, tokens + new)[-1]
        new.append(int(last.argmax()))
    return new
