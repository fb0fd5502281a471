"""The decoder with a KV cache (chapter section 7.6): keys and values of earlier tokens are kept, not recomputed.

The plain form: arrays of the full capacity, and one counter for each layer. Results equal those of
`reference.decoder` up to rounding.
"""

import numpy as np
from numpy.typing import DTypeLike

from reference.attention import Array
from reference.decoder import Decoder, Tokens, embed, kv_cache_bytes, multi_head_attention, split_heads


class KVCache:
    """Keys and values of every layer, for at most `capacity` tokens, held in `dtype`."""

    def __init__(self, n_layers: int, n_kv_heads: int, d_head: int, capacity: int, dtype: DTypeLike) -> None:
        self.capacity = capacity
        self._keys = np.zeros((n_layers, capacity, n_kv_heads, d_head), dtype)
        self._values = np.zeros((n_layers, capacity, n_kv_heads, d_head), dtype)
        self._lengths = [0] * n_layers

    def append(self, layer: int, k: Array, v: Array) -> None:
        """Copy in k and v (n_new, h_kv, d_head), cast to the dtype; ValueError past capacity, nothing stored."""
        start, stop = self._lengths[layer], self._lengths[layer] + len(k)
        if stop > self.capacity:
            raise ValueError(f"layer {layer} holds {start} of {self.capacity} tokens: {len(k)} more do not fit")
        self._keys[layer, start:stop] = k
        self._values[layer, start:stop] = v
        self._lengths[layer] = stop

    def keys(self, layer: int) -> Array:
        """That layer's keys so far -> (length, h_kv, d_head)."""
        return self._keys[layer, : self._lengths[layer]]

    def values(self, layer: int) -> Array:
        """That layer's values so far -> (length, h_kv, d_head)."""
        return self._values[layer, : self._lengths[layer]]

    def __len__(self) -> int:
        return min(self._lengths)  # tokens that every layer holds

    @property
    def nbytes(self) -> int:
        """Bytes of K and V for those len(cache) tokens; unused capacity does not count."""
        n_layers, _, n_kv_heads, d_head = self._keys.shape
        return kv_cache_bytes(n_layers, n_kv_heads, d_head, len(self), self._keys.itemsize)


def prefill(model: Decoder, tokens: Tokens, cache: KVCache | None = None) -> tuple[Array, KVCache]:
    """Logits (n, vocab) of n tokens that follow those in the cache, which is continued in place and returned.

    Without a cache, one with room for 1024 more tokens is made; ValueError, nothing stored, when the n do not fit.
    """
    if cache is None:  # not `cache or …`: an empty cache is falsy
        d_head = model.layers[0].W_K.shape[1] // model.n_kv_heads
        capacity = len(tokens) + 1024
        cache = KVCache(len(model.layers), model.n_kv_heads, d_head, capacity, model.embedding.dtype)
    start = len(cache)  # before any layer appends: the absolute position of the first new token
    x = embed(model, tokens, start)  # (n, d)
    for i, layer in enumerate(model.layers):
        q = split_heads(x @ layer.W_Q, model.n_heads)  # (n, h, d_head): new tokens alone
        k = split_heads(x @ layer.W_K, model.n_kv_heads)  # (n, h_kv, d_head)
        v = split_heads(x @ layer.W_V, model.n_kv_heads)  # (n, h_kv, d_head)
        cache.append(i, k, v)  # all layers hold the same tokens: layer 0 refuses before anything is stored
        x = x + multi_head_attention(q, cache.keys(i), cache.values(i)) @ layer.W_O  # (n, d)
    return x @ model.embedding.T, cache  # (n, vocab)


def decode_step(model: Decoder, token: int, cache: KVCache) -> Array:
    """Logits (vocab,) after one more token, which the cache then holds; ValueError, nothing stored, when it is full."""
    logits: Array = prefill(model, [token], cache)[0][-1]
    return logits


def generate(model: Decoder, prompt: Tokens, max_new_tokens: int) -> list[int]:
    """The next `max_new_tokens` ids, greedy, the lowest id on ties: each token goes through the model once."""
    if max_new_tokens == 0:
        return []
    logits, cache = prefill(model, prompt)
    new_tokens = [int(np.argmax(logits[-1]))]
    while len(new_tokens) < max_new_tokens:
        new_tokens.append(int(np.argmax(decode_step(model, new_tokens[-1], cache))))
    return new_tokens
