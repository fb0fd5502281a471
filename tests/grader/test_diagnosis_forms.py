"""Faults in the forms that tutorials and forum answers give them, several at once too, are named by their codes and by no other."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.grader.test_diagnosis_students import attention, diagnosed, softmax, swap

Function = Callable[..., Any]


def plain(x: Any, axis: int = -1) -> Any:
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def shifted(x: Any, axis: int) -> Any:
    return np.exp(x - x.max(axis=axis, keepdims=True))


def by_transposes(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x))
    return (e.T / e.sum(-1)).T


SOFTMAXES: list[tuple[str, Function, set[str]]] = [
    ("exp over the raw sum", lambda x, axis=-1: shifted(x, axis) / np.exp(x).sum(axis, keepdims=True), {"softmax-sum-unshifted"}),
    ("raw exp over the sum", lambda x, axis=-1: np.exp(x) / shifted(x, axis).sum(axis, keepdims=True), {"softmax-sum-unshifted"}),
    ("1 +", lambda x, axis=-1: shifted(x, axis) / (1 + shifted(x, axis).sum(axis, keepdims=True)), {"softmax-plus-one"}),
    ("1 + raw", lambda x, axis=-1: np.exp(x) / (1 + np.exp(x).sum(axis, keepdims=True)), {"softmax-plus-one", "softmax-overflow"}),
    ("exp(-max) +", lambda x, axis=-1: shifted(x, axis) / (
        np.exp(-x.max(axis, keepdims=True)) + shifted(x, axis).sum(axis, keepdims=True)), {"softmax-plus-one"}),
    ("2.718", lambda x, axis=-1: 2.718 ** (x - x.max(axis, keepdims=True)) / (
        2.718 ** (x - x.max(axis, keepdims=True))).sum(axis, keepdims=True), {"softmax-wrong-base"}),
    ("2.7, raw", lambda x, axis=-1: 2.7**x / (2.7**x).sum(axis, keepdims=True), {"softmax-wrong-base", "softmax-overflow"}),
    ("epsilon over all", lambda x, axis=-1: np.exp(x - x.max()) / (np.exp(x - x.max()).sum() + 1e-9),
     {"softmax-epsilon", "softmax-whole-matrix"}),
    ("by transposes", by_transposes, {"softmax-ignores-axis", "softmax-global-max", "batch-unsupported"}),
    ("float32 on the way", lambda x, axis=-1: softmax(x.astype(np.float32), axis).astype(x.dtype), {"narrow-arithmetic"}),
    ("raw, axis 1", lambda x, axis=-1: plain(x, 1), {"softmax-overflow", "softmax-ignores-axis"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in SOFTMAXES], ids=[s[0] for s in SOFTMAXES])
def test_a_softmax_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a softmax does wrong is all that is named."""
    assert set(diagnosed("softmax", function)) == codes


def bare(
    scores: Function = lambda Q, K: Q @ K.transpose(-2, -1),
    normalise: Function = softmax,
    scale: Function = lambda Q: 1 / math.sqrt(Q.shape[-1]),
    hide: Function = lambda s, mask: np.where(mask, s, -1e9),
    give: Function = lambda output, weights: (output, weights),
) -> Function:
    """As tutorials write it: nothing of `scale=`."""

    def student(Q: Any, K: Any, V: Any, mask: Any = None, scale_: Any = None) -> Any:
        table = scores(Q, K) * scale(Q)
        if mask is not None:
            table = hide(table, mask)
        weights = normalise(table)
        return give(weights @ V, weights)

    return lambda Q, K, V, mask=None, scale=None: student(Q, K, V, mask, scale)


def unmasked(s: Any, mask: Any) -> Any:
    return s


def rows_of(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None, turned: bool = False) -> Any:
    """Loops over i and j."""
    (n, d), (m, _) = Q.shape, K.shape
    scores = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            scores[i, j] = Q[i] @ K[j] * (1 / math.sqrt(d) if scale is None else scale)
            if mask is not None and not (mask[j, i] if turned else mask[i, j]):
                scores[i, j] = -np.inf
    weights = softmax(scores)
    return weights @ V, weights


def rows_of_a_mask(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    scores = Q @ swap(K) * (1 / math.sqrt(Q.shape[-1]) if scale is None else scale)
    if mask is not None:
        for i in range(scores.shape[-2]):
            scores[..., i, :] = np.where(mask[..., i, :] if mask.ndim > 1 else mask[i], scores[..., i, :], -np.inf)
    weights = softmax(scores)
    return weights @ V, weights


def one_size(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    n = Q.shape[-2]
    if K.shape[-2] != n:
        raise ValueError("as many keys as queries")
    return attention()(Q, K, V, mask, scale)


def scores_returned(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    weights = Q @ swap(K) * (Q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        weights = np.where(mask, weights, -1e9)
    return softmax(weights) @ V, weights


def scores_averaged(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    scores = Q @ swap(K) * (Q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    return scores @ V, softmax(scores)


def first_weights(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    output, weights = attention()(Q, K, V, mask, scale)
    return (weights[0] @ V if Q.ndim > 2 else output), weights


def single_root(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    factor = 1 / np.sqrt(np.float32(Q.shape[-1])) if scale is None else scale
    return attention()(Q, K, V, mask, factor)


def squeezed(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    return tuple(np.squeeze(part) for part in attention()(Q, K, V, mask, scale))


T, IGNORED, BATCH = "transpose-permutation", "scale-ignored", "batch-unsupported"

ATTENTIONS: list[tuple[str, Function, set[str]]] = [
    ("K.transpose(-2, -1)", attention(scores=lambda Q, K: Q @ K.transpose(-2, -1)), {T}),
    ("and no scale=", bare(), {T, IGNORED}),
    ("and no scale", bare(scale=lambda Q: 1.0), {T, IGNORED, "scale-missing"}),
    ("and no mask", bare(scale=lambda Q: 1.0, hide=unmasked), {T, IGNORED, "scale-missing", "mask-ignored"}),
    ("and no maximum", bare(normalise=plain), {T, IGNORED, "softmax-overflow"}),
    ("and the output alone", bare(give=lambda o, w: o), {T, IGNORED, "weights-missing"}),
    ("and axis 0", bare(normalise=lambda s: softmax(s, 0)), {T, IGNORED, "softmax-wrong-axis"}),
    ("K.T, no scale, no mask, no scale=", bare(lambda Q, K: Q @ K.T, scale=lambda Q: 1.0, hide=unmasked),
     {BATCH, IGNORED, "scale-missing", "mask-ignored"}),
    ("K.T, no scale, no mask, no maximum, output alone", bare(
        lambda Q, K: Q @ K.T, plain, lambda Q: 1.0, unmasked, lambda o, w: o),
     {BATCH, IGNORED, "scale-missing", "mask-ignored", "softmax-overflow", "weights-missing"}),
    ("np.dot(Q, K.T), axis 1, True hides", bare(
        lambda Q, K: np.dot(Q, K.T), lambda s: softmax(s, 1), hide=lambda s, mask: np.where(mask, -1e9, s)),
     {BATCH, IGNORED, "softmax-positional-axis", "mask-inverted"}),
    ("by transposes", attention(normalise=lambda s: by_transposes(s)), {"softmax-global-max", BATCH}),
    ("mask[j, i]", lambda Q, K, V, mask=None, scale=None: rows_of(Q, K, V, mask, scale, True), {BATCH, "mask-transposed"}),
    ("mask[i, j]", rows_of, {BATCH, "mask-not-broadcast"}),
    ("mask[i]", rows_of_a_mask, {"mask-not-broadcast"}),
    ("as many keys as queries", one_size, {"square-only"}),
    ("scores for weights", scores_returned, {"softmax-not-applied"}),
    ("scores averaged", scores_averaged, {"softmax-not-applied"}),
    ("weights of the first item", first_weights, {"batch-mixed"}),
    ("root in float32", single_root, {"narrow-arithmetic"}),
    ("root in float32, output alone", lambda *a, **k: single_root(*a, **k)[0], {"narrow-arithmetic", "weights-missing"}),
    ("squeezed", squeezed, {"wrong-shape"}),
    ("0 times -inf", attention(mask=lambda s, mask: s + (~mask) * -np.inf), {"not-finite"}),
    ("mask * -1e9", attention(mask=lambda s, mask: s + mask * -1e9), {"mask-inverted"}),
    ("hard-coded width", attention(scale=lambda Q, K, V, s: 1 / 8 if s is None else s), {"scale-by-wrong-width"}),
    ("2.718 in attention", attention(normalise=lambda s: 2.718 ** (s - s.max(-1, keepdims=True)) / (
        2.718 ** (s - s.max(-1, keepdims=True))).sum(-1, keepdims=True)), {"softmax-wrong-base"}),
    ("maximum of the columns", attention(normalise=lambda s: np.exp(s - s.max(-2, keepdims=True))
     / np.exp(s - s.max(-2, keepdims=True)).sum(-1, keepdims=True)), {"softmax-max-wrong-axis"}),
    ("sum of the raw", attention(normalise=lambda s: shifted(s, -1) / np.exp(s).sum(-1, keepdims=True)), {"softmax-sum-unshifted"}),
    ("1 +", attention(normalise=lambda s: shifted(s, -1) / (1 + shifted(s, -1).sum(-1, keepdims=True))), {"softmax-plus-one"}),
    ("weights doubled in the output", attention(average=lambda w, V, Q, K, c: 2 * w @ V), {"unrecognised"}),
    ("four: no scale, True hides, 1 +, weights first", attention(
        scale=lambda Q, K, V, s: 1.0 if s is None else s, mask=lambda s, mask: np.where(mask, -np.inf, s),
        normalise=lambda s: shifted(s, -1) / (1 + shifted(s, -1).sum(-1, keepdims=True)), give=lambda o, w: (w, o)),
     {"scale-missing", "mask-inverted", "softmax-plus-one", "output-order"}),
    ("four: 1/d_k, no maximum, -1e4, K averaged", attention(
        scale=lambda Q, K, V, s: 1 / Q.shape[-1] if s is None else s, mask=lambda s, mask: np.where(mask, s, -1e4),
        normalise=plain, average=lambda w, V, Q, K, c: w @ K),
     {"scale-by-dk", "softmax-overflow", "values-swapped"}),
    ("unknown mask, no scale", attention(
        scale=lambda Q, K, V, s: 1.0 if s is None else s, mask=lambda s, mask: np.where(mask, s, s.min(-1, keepdims=True) - 3)),
     {"scale-missing"}),
    ("keys summed over the batch", attention(
        scale=lambda Q, K, V, s: 1.0 if s is None else s,
        scores=lambda Q, K: Q @ swap(K) if Q.ndim < 3 else Q @ swap(K.sum(0, keepdims=True))), {"scale-missing", "batch-mixed"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in ATTENTIONS], ids=[s[0] for s in ATTENTIONS])
def test_an_attention_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What an attention does wrong is all that is named, also where nothing explains all of it."""
    assert set(diagnosed("sdpa", function)) == codes


def table(frequency: Function, n: int, d: int) -> Any:
    angles = np.outer(np.arange(n), frequency(np.arange(d // 2), d))
    out = np.zeros((n, d))
    out[:, ::2], out[:, 1::2] = np.sin(angles), np.cos(angles)
    return out


def zeros_first(n: int, d: int) -> Any:
    out = table(lambda i, d: 10000.0 ** (-2 * i / d), n, d)
    out[0] = 0
    return out


FREQUENCIES: list[tuple[str, Function]] = [
    ("a // b", lambda i, d: np.exp(i * (-np.log(10000.0) / d // 2))),
    ("10000 ** 2 * i / d", lambda i, d: 1 / (10000.0**2 * i / d + 1)),
    ("2 * i // d", lambda i, d: 10000.0 ** -(2.0 * i // d)),
    ("log2", lambda i, d: 2.0 ** (-2 * i / d)),
    ("linear", lambda i, d: 1 / (i + 1)),
    ("i over half", lambda i, d: 10000.0 ** (-i / max(d // 2 - 1, 1))),
    ("2 pi", lambda i, d: 2 * np.pi * 10000.0 ** (-2 * i / d)),
]


@pytest.mark.parametrize("frequency", [f[1] for f in FREQUENCIES], ids=[f[0] for f in FREQUENCIES])
def test_any_rule_for_the_frequencies_is_seen_in_the_row_of_position_one(frequency: Function) -> None:
    """Whatever the rule, the table's other rows confirm that frequencies alone are wrong."""
    assert diagnosed("positions", lambda n, d: table(frequency, n, d)) == ("positions-wrong-frequency",)


def test_a_row_of_zeros_does_not_hide_what_else_is_wrong() -> None:
    """No code says that position 0 has zeros; the frequencies are named all the same."""
    assert set(diagnosed("positions", zeros_first)) == {"unrecognised"}


MASKS: list[tuple[str, Function, set[str]]] = [
    ("floats", lambda n, n_keys=None: np.tri(n, n_keys or n, (n_keys or n) - n), {"wrong-dtype"}),
    ("floats, upper left", lambda n, n_keys=None: np.tri(n, n_keys or n), {"wrong-dtype", "causal-mask-upper-left"}),
    ("triu of floats", lambda n, n_keys=None: np.triu(np.ones((n, n_keys or n)), 1), {
        "wrong-dtype", "causal-mask-upper-left", "causal-mask-inverted"}),
    ("to be added", lambda n, n_keys=None: np.where(np.tri(n, n_keys or n, (n_keys or n) - n) == 1, 0.0, -np.inf), {"wrong-dtype"}),
    ("to be added, triu * -1e9", lambda n, n_keys=None: np.triu(np.ones((n, n_keys or n)), 1 + (n_keys or n) - n) * -1e9, {"wrong-dtype"}),
    ("square", lambda n, n_keys=None: np.tri(n, dtype=bool), {"wrong-shape"}),
    ("a batch axis", lambda n, n_keys=None: np.tri(n, n_keys or n, (n_keys or n) - n, dtype=bool)[None], {"wrong-shape"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in MASKS], ids=[s[0] for s in MASKS])
def test_a_causal_mask_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a causal mask does wrong is all that is named."""
    assert set(diagnosed("causal_mask", function)) == codes
