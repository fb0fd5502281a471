"""Attention and the decoder in float16, bfloat16 or float32, as torch computes them: sums in float32, every result rounded.

NumPy has no bfloat16, and its float16 sums in float16. So numbers lie in float32 here and are rounded to the dtype after
each operation. Several legal orders of operations differ in what they round; the worst of their errors against float64,
times a small factor (and a course's own, `looser`), is how far a right answer may lie from the reference.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reference import attention, decoder
from reference.attention import Array
from reference.bounds import Bound
from reference.decoder import Decoder, Layer

DTYPES = ("float32", "float16", "bfloat16")
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# The sums of float16 and bfloat16 are exact beside what is rounded; those of float32 are not, and their order is free.
FACTOR = {"float32": 16.0, "float16": 4.0, "bfloat16": 4.0}
TILE = 32  # keys a step where a running sum is kept


def rounded(x: Array, dtype: str) -> Array:
    """The nearest values of `dtype`, as float32."""
    x = np.asarray(x, np.float32)
    if dtype == "float32":
        return x
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32)
    with np.errstate(over="ignore"):
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), bits.view(np.float32), x)


def softmax(x: Array, dtype: str, looser: float = 1.0) -> float:
    """Largest difference that is allowed for softmax(x) along the last axis."""
    wide = attention.softmax(x.astype(np.float64))
    worst = max(_weights_error(weights, wide) for weights in _softmaxes(x, dtype))
    return looser * FACTOR[dtype] * max(worst, EPS[dtype])


def scaled_dot_product_attention(
    Q: Array, K: Array, V: Array, mask: Array | None, dtype: str, looser: float = 1.0
) -> Bound:
    """Largest differences that are allowed for scaled_dot_product_attention of these values."""
    Q_, K_, V_ = _all_wide(Q, K, V)
    wide = attention.scaled_dot_product_attention(Q_, K_, V_, mask)
    output, weights = 0.0, EPS[dtype]
    for w in _all_weights(Q, K, mask, dtype):
        output = max(output, _largest(rounded(w @ V, dtype) - wide[0]))
        weights = max(weights, _weights_error(w, wide[1]))
    return _bound(output, weights, V, dtype, looser)


def self_attention(
    X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None, dtype: str, looser: float = 1.0
) -> Bound:
    """Largest differences that are allowed for self_attention: the projections are rounded too."""
    X_, *W = _all_wide(X, W_Q, W_K, W_V)
    wide = attention.self_attention(X_, W[0], W[1], W[2], mask)
    Q, K, V = (rounded(X @ W, dtype) for W in (W_Q, W_K, W_V))
    output, weights = 0.0, EPS[dtype]
    for w in _all_weights(Q, K, mask, dtype):
        output = max(output, _largest(rounded(w @ V, dtype) - wide[0]))
        weights = max(weights, _weights_error(w, wide[1]))
    return _bound(output, weights, V, dtype, looser)


def logits(model: Decoder, tokens: Sequence[int], dtype: str, looser: float = 1.0) -> tuple[Array, float]:
    """The decoder's logits (n, vocab) in float64, and how far a run in `dtype` may lie from them.

    The model's weights are values of `dtype`.
    """
    right = decoder.forward(_wide(model), tokens)
    worst = max(_largest(_forward(model, tokens, dtype, fused) - right) for fused in (False, True))
    return right, looser * FACTOR[dtype] * max(worst, EPS[dtype] * _largest(right))


def representable(model: Decoder, dtype: str) -> Decoder:
    """The model with its weights rounded to values of `dtype`."""
    layers = tuple(Layer(*(rounded(W, dtype) for W in (x.W_Q, x.W_K, x.W_V, x.W_O))) for x in model.layers)
    return replace(model, embedding=rounded(model.embedding, dtype), layers=layers)


# -- legal orders of operations ---------------------------------------------------------------------------------------


def _all_weights(Q: Array, K: Array, mask: Array | None, dtype: str) -> Iterator[Array]:
    """Attention weights (..., n, m): scaled before or after the product, or half on either side."""
    scale = np.float32(1 / math.sqrt(Q.shape[-1]))
    root = np.sqrt(scale)
    K_T = np.swapaxes(K, -1, -2)
    for scores in (
        rounded(rounded(Q @ K_T, dtype) * scale, dtype),
        rounded(rounded(Q * scale, dtype) @ K_T, dtype),
        rounded(rounded(Q * root, dtype) @ rounded(K_T * root, dtype), dtype),
    ):
        yield from _softmaxes(scores if mask is None else np.where(mask, scores, np.float32(-np.inf)), dtype)


def _softmaxes(scores: Array, dtype: str) -> Iterator[Array]:
    """In float32 and rounded at the end; rounded throughout; by logarithms; with a running sum that is rounded."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    yield rounded(powers / powers.sum(axis=-1, keepdims=True), dtype)
    shifted = rounded(shifted, dtype)
    powers = rounded(np.exp(shifted), dtype)
    yield rounded(powers / rounded(powers.sum(axis=-1, keepdims=True), dtype), dtype)
    with np.errstate(invalid="ignore"):
        logs = rounded(np.log(rounded(powers.sum(axis=-1, keepdims=True), dtype)), dtype)
        yield rounded(np.exp(rounded(shifted - logs, dtype)), dtype)
    total = np.zeros((*scores.shape[:-1], 1), np.float32)
    for start in range(0, scores.shape[-1], TILE):
        tile = rounded(powers[..., start : start + TILE].sum(axis=-1, keepdims=True), dtype)
        total = rounded(total + tile, dtype)
    yield rounded(powers / total, dtype)


def _forward(model: Decoder, tokens: Sequence[int], dtype: str, fused: bool) -> Array:
    """Logits with every result rounded; `fused` keeps the attention of a head in float32, as a fused kernel does."""

    def r(x: Array) -> Array:
        return rounded(x, dtype)

    n = len(tokens)
    x = model.embedding[np.asarray(tokens)]
    if model.positions == "sinusoidal":
        x = r(x + r(attention.sinusoidal_positions(n, x.shape[1])))
    mask = attention.causal_mask(n)
    group = model.n_heads // model.n_kv_heads
    for layer in model.layers:
        q = decoder.split_heads(r(x @ layer.W_Q), model.n_heads)
        k = decoder.split_heads(r(x @ layer.W_K), model.n_kv_heads)
        v = decoder.split_heads(r(x @ layer.W_V), model.n_kv_heads)
        heads = []
        for i in range(model.n_heads):
            Q, K, V = q[:, i], k[:, i // group], v[:, i // group]
            if fused:
                heads.append(r(attention.scaled_dot_product_attention(Q, K, V, mask)[0]))
            else:
                scores = np.where(mask, r(r(Q @ K.T) * np.float32(Q.shape[-1] ** -0.5)), np.float32(-np.inf))
                powers = r(np.exp(r(scores - scores.max(axis=-1, keepdims=True))))
                heads.append(r(r(powers / r(powers.sum(axis=-1, keepdims=True))) @ V))
        x = r(x + r(np.concatenate(heads, axis=-1) @ layer.W_O))
    return r(x @ model.embedding.T)


# -- errors -----------------------------------------------------------------------------------------------------------


def _wide(model: Decoder) -> Decoder:
    def wide(a: Array) -> Array:
        return a.astype(np.float64)

    layers = tuple(Layer(wide(x.W_Q), wide(x.W_K), wide(x.W_V), wide(x.W_O)) for x in model.layers)
    return replace(model, embedding=wide(model.embedding), layers=layers)


def _all_wide(*arrays: Array) -> list[Any]:
    return [a.astype(np.float64) for a in arrays]


def _bound(output: float, weights: float, V: Array, dtype: str, looser: float) -> Bound:
    factor = looser * FACTOR[dtype]
    return Bound(factor * max(output, EPS[dtype] * _largest(V)), factor * weights)


def _weights_error(weights: Array, wide: Array) -> float:
    return max(_largest(weights - wide), _largest(weights.sum(axis=-1, dtype=np.float64) - 1))


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a)))
