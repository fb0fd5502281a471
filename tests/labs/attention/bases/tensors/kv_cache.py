"""The cache in torch, with its own attention: SDPA, and heads repeated for the groups."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from attention import sinusoidal_positions

BACKEND = "torch"


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        self.blocks = torch.zeros(n_layers, 2, capacity, n_kv_heads, d_head, dtype=dtype)
        self.filled = [0] * n_layers

    def append(self, layer, k, v):
        begin, end = self.filled[layer], self.filled[layer] + len(k)
        if end > self.blocks.shape[2]:
            raise ValueError("the cache has no room for this")
        self.blocks[layer, 0, begin:end].copy_(k)
        self.blocks[layer, 1, begin:end].copy_(v)
        self.filled[layer] = end

    def keys(self, layer):
        return self.blocks[layer, 0, : self.filled[layer]]

    def values(self, layer):
        return self.blocks[layer, 1, : self.filled[layer]]

    def __len__(self):
        return min(self.filled)

    @property
    def nbytes(self):
        return self.blocks[:, :, : len(self)].numel() * self.blocks.element_size()


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    return 2 * bytes_per_value * n_tokens * n_layers * n_kv_heads * d_head


def run(model, tokens, cache):
    ids = torch.as_tensor([int(t) for t in tokens])
    past, n = len(cache), len(ids)
    x = model.embedding[ids]
    if model.positions == "sinusoidal":
        table = torch.as_tensor(sinusoidal_positions(past + n, x.shape[1])).to(x)
        x = x + table[past:]
    visible = torch.ones(n, past + n, dtype=torch.bool).tril(diagonal=past)
    for i, layer in enumerate(model.layers):
        q = (x @ layer.W_Q).view(n, model.n_heads, -1).transpose(0, 1)
        cache.append(i, (x @ layer.W_K).view(n, model.n_kv_heads, -1), (x @ layer.W_V).view(n, model.n_kv_heads, -1))
        group = model.n_heads // model.n_kv_heads
        k = cache.keys(i).transpose(0, 1).repeat_interleave(group, dim=0)
        v = cache.values(i).transpose(0, 1).repeat_interleave(group, dim=0)
        out = scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + out.transpose(0, 1).reshape(n, -1) @ layer.W_O
    return x @ model.embedding.T


def new_cache(model, capacity):
    d_head = model.layers[0].W_K.shape[1] // model.n_kv_heads
    return KVCache(len(model.layers), model.n_kv_heads, d_head, capacity, model.embedding.dtype)


def forward(model, tokens):
    return run(model, tokens, new_cache(model, len(tokens)))


def prefill(model, tokens, cache=None):
    cache = new_cache(model, len(tokens) + 1024) if cache is None else cache
    return run(model, tokens, cache), cache


def decode_step(model, token, cache):
    return run(model, [token], cache)[0]


def generate(model, prompt, max_new_tokens, use_cache=True):
    context = [int(t) for t in prompt]
    new = []
    cache = new_cache(model, len(context) + max_new_tokens)
    feed = context
    for _ in range(max_new_tokens):
        logits = run(model, feed, cache) if use_cache else forward(model, context + new)
        new.append(int(torch.argmax(logits[-1])))
        feed = new[-1:]
    return new
