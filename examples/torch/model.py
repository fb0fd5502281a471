"""The decoder that step 8 runs. Given: do not edit it.

For tokens at absolute positions 0 … n-1 it computes

    x = embedding[tokens]                       (n, d); plus sinusoidal_positions(n, d) where positions == "sinusoidal"
    x = x + concat(causal attention of each head) @ W_O          once a layer
    logits = x @ embedding.T                    (n, vocab)

Query head i reads key/value head i // (n_heads // n_kv_heads). Heads are consecutive blocks of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """The four matrices of one layer."""

    W_Q: Any  # (d, n_heads * d_head)
    W_K: Any  # (d, n_kv_heads * d_head)
    W_V: Any  # (d, n_kv_heads * d_head)
    W_O: Any  # (n_heads * d_head, d)


@dataclass(frozen=True)
class Decoder:
    """A decoder without feed-forward layers or norms: what step 8 needs and no more."""

    embedding: Any  # (vocab, d)
    layers: tuple[Layer, ...]
    n_heads: int
    n_kv_heads: int
    positions: str = "none"  # "none" or "sinusoidal"
