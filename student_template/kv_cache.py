"""A KV cache for the decoder of model.py: step 8. Read model.py first: it says what the decoder computes.

Decoding token by token, the keys and values of earlier tokens never change (step 7 showed why): they are kept, and
only the new token is run. `prefill` runs a prompt and fills the cache, `decode_step` runs one more token. (section 7.6)

Heads are consecutive blocks of columns: x @ W_Q is (n, n_heads * d_head), and head h owns the columns from h * d_head
up to (h + 1) * d_head. Query head i reads key/value head i // (n_heads // n_kv_heads).

This file is NumPy. If you want torch instead, set BACKEND = "torch": the model's arrays, k, v and the logits are
tensors then.
"""

import numpy as np
from attention import causal_mask, scaled_dot_product_attention, sinusoidal_positions


class KVCache:
    """Keys and values of the tokens seen so far, for every layer.

    n_layers, n_kv_heads, d_head   the model's sizes
    capacity                       the most tokens it can hold
    dtype                          what K and V are stored as ("float32", np.float32, …)
    """

    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        raise NotImplementedError(
            "Write KVCache.__init__: make room for capacity tokens of K and V in every layer; nothing is stored yet."
        )

    def append(self, layer, k, v):
        """Copies k and v, both (n_new, n_kv_heads, d_head), behind what this layer holds, cast to the cache's dtype.

        Raises ValueError, and stores nothing, where they do not fit. Filling the cache exactly is fine.
        """
        raise NotImplementedError("Write KVCache.append: copy k and v in behind the tokens that this layer holds.")

    def keys(self, layer):
        """This layer's keys, (length, n_kv_heads, d_head), oldest first: what was appended, and no unused room."""
        raise NotImplementedError("Write KVCache.keys: the stored keys of one layer.")

    def values(self, layer):
        """This layer's values, (length, n_kv_heads, d_head), oldest first."""
        raise NotImplementedError("Write KVCache.values: the stored values of one layer.")

    def __len__(self):
        """How many tokens are stored in every layer. In the middle of a pass layers differ: it is the least of them."""
        raise NotImplementedError("Write KVCache.__len__: the least of the layers' lengths.")

    @property
    def nbytes(self):
        """Bytes of K and V of those len(cache) tokens (the room that is still free does not count)."""
        raise NotImplementedError("Write KVCache.nbytes: bytes of K and V held for len(cache) tokens.")


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    """The size of a KV cache, an int.

    bytes = 2 × L × h_kv × d_head × n_tokens × bytes per value                      (section 7.6)
    """
    raise NotImplementedError("Write kv_cache_bytes: the formula of section 7.6.")


def forward(model, tokens):
    """Logits (n, vocab), everything computed afresh. `tokens` is a list, tuple or array of ids, at least one."""
    raise NotImplementedError(
        "Write forward: what model.py says, for tokens at positions 0 to n-1, with a causal mask."
    )


def prefill(model, tokens, cache=None):
    """Runs the tokens that follow those in the cache, and stores their K and V. Returns (logits (n, vocab), cache).

    Without a cache one is made, with room for these tokens and at least 1024 more. A cache that is given is continued
    in place and returned, an empty one too, so that a long prompt may arrive in chunks: a chunk's tokens stand at
    positions len(cache), len(cache) + 1, … and see all that is in the cache. A chunk that does not fit raises
    ValueError and leaves every layer as it was.
    """
    raise NotImplementedError(
        "Write prefill: run the prompt, append every layer's K and V to the cache, return (logits, cache)."
    )


def decode_step(model, token, cache):
    """Runs one more token against the cache. Returns its logits (vocab,); the cache holds exactly one token more.

    Raises ValueError, and changes nothing, where the cache is full.
    """
    raise NotImplementedError(
        "Write decode_step: run one token at position len(cache), append its K and V, return its logits."
    )


def generate(model, prompt, max_new_tokens, use_cache=True):
    """A list of `max_new_tokens` new ids: each time the one with the largest logit, the lowest id on ties.

    use_cache=True prefills once and decodes step by step; use_cache=False runs `forward` on the whole prefix for every
    token. Both give the same ids. `prompt` is left as it was.
    """
    raise NotImplementedError("Write generate: greedy decoding, with the cache or by recomputing the whole prefix.")
