"""The lab's decoder, everything recomputed (chapter sections 7.3 and 7.6): no cache, no shortcut.

Results are in the dtype of the model's arrays. Shapes: n tokens, d model width, h query heads, h_kv key/value heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reference.attention import Array, causal_mask, scaled_dot_product_attention, sinusoidal_positions

Tokens = Sequence[int] | NDArray[np.integer[Any]]
Positions = Literal["none", "sinusoidal"]


@dataclass(frozen=True)
class Layer:
    W_Q: Array  # (d, h * d_head)
    W_K: Array  # (d, h_kv * d_head)
    W_V: Array  # (d, h_kv * d_head)
    W_O: Array  # (h * d_head, d)


@dataclass(frozen=True)
class Decoder:
    embedding: Array  # (vocab, d)
    layers: tuple[Layer, ...]
    n_heads: int
    n_kv_heads: int
    positions: Positions = "none"


def embed(model: Decoder, tokens: Tokens, start: int = 0) -> Array:
    """x = embedding[tokens] + PE[start : start + n] -> (n, d); `start` is the absolute position of the first token."""
    x: Array = model.embedding[np.asarray(tokens)]  # (n, d)
    if model.positions == "sinusoidal":
        n, d = x.shape
        x = x + sinusoidal_positions(start + n, d)[start:].astype(x.dtype)
    return x


def split_heads(x: Array, heads: int) -> Array:
    """(n, heads * d_head) -> (n, heads, d_head): heads are consecutive blocks of columns."""
    return x.reshape(len(x), heads, -1)


def multi_head_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of the last n positions to all m: (n, h, d_head), (m, h_kv, d_head) twice -> (n, h * d_head).

    Query head i reads key/value head i // (h / h_kv): MHA where h_kv = h, MQA where h_kv = 1, GQA between (7.6).
    """
    (n, h, _), (m, h_kv, _) = q.shape, k.shape
    group = h // h_kv
    mask = causal_mask(n, m)
    heads = [scaled_dot_product_attention(q[:, i], k[:, i // group], v[:, i // group], mask)[0] for i in range(h)]
    return np.concatenate(heads, axis=-1)  # h of (n, d_head) -> (n, h * d_head)


def logits_and_keys_and_values(model: Decoder, tokens: Tokens) -> tuple[Array, list[tuple[Array, Array]]]:
    """Logits (n, vocab), and each layer's K and V, both (n, h_kv, d_head)."""
    held = []
    x = embed(model, tokens)  # (n, d)
    for layer in model.layers:
        q = split_heads(x @ layer.W_Q, model.n_heads)  # (n, h, d_head)
        k = split_heads(x @ layer.W_K, model.n_kv_heads)  # (n, h_kv, d_head)
        v = split_heads(x @ layer.W_V, model.n_kv_heads)  # (n, h_kv, d_head)
        held.append((k, v))
        x = x + multi_head_attention(q, k, v) @ layer.W_O  # (n, h * d_head) @ (h * d_head, d) -> (n, d)
    return x @ model.embedding.T, held  # (n, d) @ (d, vocab) -> (n, vocab)


def forward(model: Decoder, tokens: Tokens) -> Array:
    """Logits (n, vocab) of tokens at absolute positions 0 … n-1."""
    return logits_and_keys_and_values(model, tokens)[0]


def keys_and_values(model: Decoder, tokens: Tokens) -> list[tuple[Array, Array]]:
    """Each layer's (K, V), both (n, h_kv, d_head): what a right cache holds after these tokens."""
    return logits_and_keys_and_values(model, tokens)[1]


def generate(model: Decoder, prompt: Tokens, max_new_tokens: int) -> list[int]:
    """The next `max_new_tokens` ids, greedy, the lowest id on ties."""
    tokens = [int(token) for token in prompt]
    for _ in range(max_new_tokens):
        tokens.append(int(np.argmax(forward(model, tokens)[-1])))  # argmax gives the lowest of equals
    return tokens[len(prompt) :]


def kv_cache_bytes(n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, bytes_per_value: int) -> int:
    """2 L h_kv d_head n_tokens bytes: the 2 is for K and V, and query heads do not count (7.6)."""
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value


def random_model(
    rng: np.random.Generator,
    *,
    n_layers: int = 2,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    d_head: int = 8,
    d: int | None = None,
    vocab: int = 40,
    positions: Positions = "sinusoidal",
    dtype: DTypeLike = np.float64,
) -> Decoder:
    """A decoder to ask questions of; `d` is n_heads * d_head unless given, and even where positions are sinusoidal.

    Scores are about standard normal in size, where a wrong scale, mask or head shows. A tied embedding favours the
    token just read, so plain random weights mostly repeat one token; here two things work against that. Keys resemble
    queries, so a token attends to its like; and the last layer takes away what it attends to, so the next token is
    seldom one that fills the context.
    """
    width = n_heads * d_head
    d = width if d is None else d
    group = n_heads // n_kv_heads
    embedding = rng.standard_normal((vocab, d))
    variance = 1.0 if positions == "none" else 1.5  # of an entry of x: a sinusoid adds 1/2
    layers = []
    for i in range(n_layers):
        to_unit = 1 / math.sqrt(d * variance)  # entries of q, k and v then have variance 1
        W_K = to_unit * rng.standard_normal((d, n_kv_heads * d_head))
        W_V = to_unit * rng.standard_normal((d, n_kv_heads * d_head))
        W_Q = 0.5 * _for_each_query_head(W_K, n_kv_heads, group)
        W_Q += math.sqrt(0.75) * to_unit * rng.standard_normal((d, width))
        W_O = math.sqrt(variance / 2 / width) * rng.standard_normal((width, d))
        if i == n_layers - 1:
            back_to_x = _for_each_query_head(W_V, n_kv_heads, group).T / to_unit  # (width, d), entries of variance 1
            W_O -= 4 * math.sqrt(variance * group / width) * back_to_x
        layers.append(Layer(W_Q.astype(dtype), W_K.astype(dtype), W_V.astype(dtype), W_O.astype(dtype)))
        variance *= 1.2  # W_O halves the variance, and an average over a few tokens leaves 0.4 of it
    return Decoder(embedding.astype(dtype), tuple(layers), n_heads, n_kv_heads, positions)


def _for_each_query_head(W: Array, n_kv_heads: int, group: int) -> Array:
    """(d, h_kv * d_head) -> (d, h * d_head): each key/value head's columns once for each query head that reads it."""
    heads = W.reshape(len(W), n_kv_heads, -1)  # (d, h_kv, d_head)
    return np.repeat(heads, group, axis=1).reshape(len(W), -1)
