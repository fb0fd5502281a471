"""Faults as students write them, none of them taken from the space of variants, are named by their codes and by no other."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from grader.diagnosis import explain, families
from reference.variants.space import attempt

Function = Callable[..., Any]


def swap(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def diagnosed(family: str, function: Function) -> tuple[str, ...]:
    """The codes found for a function, called with copies of every probe of a family."""
    module = families()[family]
    answers = {p.name: attempt(function, *deepcopy(p.args), **deepcopy(dict(p.kwargs))) for p in module.PROBES}
    return explain(module, answers).codes


def attention(
    scores: Function = lambda Q, K: Q @ swap(K),
    scale: Function = lambda Q, K, V, scale: Q.shape[-1] ** -0.5 if scale is None else scale,
    mask: Function = lambda scores, mask: np.where(mask, scores, -np.inf),
    normalise: Function = softmax,
    weigh: Function = lambda weights, mask: weights,
    average: Function = lambda weights, V, Q, K, scale: weights @ V,
    give: Function = lambda output, weights: (output, weights),
) -> Function:
    """A student's attention with some of its lines written otherwise."""

    def sdpa(Q: Any, K: Any, V: Any, mask_: Any = None, factor: Any = None) -> Any:
        factor = scale(Q, K, V, factor)
        table = scores(Q, K) * factor
        if mask_ is not None:
            table = mask(table, mask_)
        weights = normalise(table)
        if mask_ is not None:
            weights = weigh(weights, mask_)
        return give(average(weights, V, Q, K, factor), weights)

    return lambda Q, K, V, mask=None, scale=None: sdpa(Q, K, V, mask, scale)


# --- softmax ----------------------------------------------------------------------------------------------------------


def python_rows(x: Any, axis: int = -1) -> Any:
    rows = np.moveaxis(np.asarray(x, float), axis, -1)
    out = np.empty_like(rows)
    for index in np.ndindex(rows.shape[:-1]):
        powers = [math.exp(value) for value in rows[index].tolist()]
        total = sum(powers)
        out[index] = [power / total for power in powers]
    return np.moveaxis(out, -1, axis)


def python_rows_one_max(x: Any, axis: int = -1) -> Any:
    return python_rows(x - np.max(x), axis)


def log_sum_exp_unshifted(x: Any, axis: int = -1) -> Any:
    return np.exp(x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True)))


def nan_hidden(x: Any, axis: int = -1) -> Any:
    e = np.exp(x)
    w = e / np.sum(e, axis=axis, keepdims=True)
    return np.where(np.isnan(w), 0, w)


def one_hot(x: Any, axis: int = -1) -> Any:
    return (x == np.max(x, axis=axis, keepdims=True)).astype(float)


def tempered(x: Any, axis: int = -1, base: float = 2.0, epsilon: float = 0.0) -> Any:
    e = base ** (x - np.max(x, axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + epsilon)


def rows_of_a_table(x: Any, axis: int = -1) -> Any:
    _n, _m = x.shape
    return softmax(x, axis)


def max_last(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sum_last(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_with(subtracted: Function, total: Function) -> Function:
    def student(x: Any, axis: int = -1) -> Any:
        e = np.exp(x - subtracted(x, axis))
        return e / total(e, axis)

    return student


def row_max(x: Any, axis: int) -> Any:
    return np.max(x, axis=axis, keepdims=True)


def row_sum(e: Any, axis: int) -> Any:
    return np.sum(e, axis=axis, keepdims=True)


SOFTMAXES: list[tuple[str, Function, set[str]]] = [
    ("right", softmax, set()),
    (
        "right, by logarithms",
        lambda x, axis=-1: np.exp(x - np.expand_dims(np.logaddexp.reduce(x, axis=axis), axis)),
        set(),
    ),
    ("right, in float32 inside", lambda x, axis=-1: softmax(x.astype(np.float32), axis), set()),
    ("right, some way below the maximum", softmax_with(lambda x, axis: row_max(x, axis) + 5.0, row_sum), set()),
    ("no maximum", softmax_with(lambda x, axis: 0.0, row_sum), {"softmax-overflow"}),
    ("math.exp in loops", python_rows, {"softmax-overflow"}),
    ("logarithm of a plain sum", log_sum_exp_unshifted, {"softmax-overflow"}),
    ("NaN replaced by zero", nan_hidden, {"softmax-overflow"}),
    (
        "mean subtracted",
        softmax_with(lambda x, axis: np.mean(x, axis=axis, keepdims=True), row_sum),
        {"softmax-overflow"},
    ),
    (
        "minimum subtracted",
        softmax_with(lambda x, axis: np.min(x, axis=axis, keepdims=True), row_sum),
        {"softmax-overflow"},
    ),
    ("x.max()", softmax_with(lambda x, axis: x.max(), row_sum), {"softmax-global-max"}),
    ("x.max() in loops", python_rows_one_max, {"softmax-global-max"}),
    (
        "maximum with initial=0",
        softmax_with(lambda x, axis: np.max(x, axis=axis, keepdims=True, initial=0), row_sum),
        {"softmax-clamped-max"},
    ),
    ("maximum of the last axis", max_last, {"softmax-max-wrong-axis"}),
    ("sum of the last axis", sum_last, {"softmax-ignores-axis", "softmax-max-wrong-axis"}),
    (
        "maximum of the columns",
        softmax_with(lambda x, axis: x.max(axis=0, keepdims=True), row_sum),
        {"softmax-max-wrong-axis"},
    ),
    ("no keepdims", softmax_with(row_max, lambda e, axis: e.sum(axis=axis)), {"softmax-missing-keepdims"}),
    (
        "no keepdims anywhere",
        softmax_with(lambda x, axis: x.max(axis=axis), lambda e, axis: e.sum(axis=axis)),
        {"softmax-missing-keepdims"},
    ),
    (
        "axis put back at the end",
        softmax_with(lambda x, axis: x.max(axis=axis)[..., None], lambda e, axis: e.sum(axis=axis)[..., None]),
        {"softmax-missing-keepdims"},
    ),
    ("e / e.sum()", softmax_with(lambda x, axis: x.max(), lambda e, axis: e.sum()), {"softmax-whole-matrix"}),
    ("row maximum, e / e.sum()", softmax_with(row_max, lambda e, axis: e.sum()), {"softmax-whole-matrix"}),
    ("default axis 0", lambda x, axis=0: softmax(x, axis), {"softmax-wrong-axis"}),
    ("axis unused", lambda x, axis=-1: softmax(x, -1), {"softmax-ignores-axis"}),
    ("axis always 1", lambda x, axis=-1: softmax(x, 1), {"softmax-ignores-axis"}),
    ("axis always 0", lambda x, axis=-1: softmax(x, 0), {"softmax-ignores-axis"}),
    ("one hot", one_hot, {"softmax-argmax"}),
    ("epsilon 1e-9", lambda x, axis=-1: tempered(x, axis, math.e, 1e-9), {"softmax-epsilon"}),
    ("epsilon 1e-5", lambda x, axis=-1: tempered(x, axis, math.e, 1e-5), {"softmax-epsilon"}),
    ("epsilon 1", lambda x, axis=-1: tempered(x, axis, math.e, 1.0), {"softmax-plus-one"}),
    ("base 2", tempered, {"softmax-wrong-base"}),
    ("base 10", lambda x, axis=-1: tempered(x, axis, 10.0), {"softmax-wrong-base"}),
    ("not divided", lambda x, axis=-1: np.exp(x - row_max(x, axis)), {"softmax-unnormalised"}),
    ("not divided, not shifted", lambda x, axis=-1: np.exp(x), {"softmax-unnormalised", "softmax-overflow"}),
    ("x itself", lambda x, axis=-1: x.copy(), {"softmax-not-applied"}),
    ("tables alone", rows_of_a_table, {"batch-unsupported"}),
    (
        "base 2, no maximum",
        lambda x, axis=-1: 2.0**x / row_sum(2.0**x, axis),
        {"softmax-wrong-base", "softmax-overflow"},
    ),
    (
        "epsilon, one maximum",
        lambda x, axis=-1: np.exp(x - x.max()) / (row_sum(np.exp(x - x.max()), axis) + 1e-6),
        {"softmax-epsilon", "softmax-global-max"},
    ),
    ("sigmoid", lambda x, axis=-1: 1 / (1 + np.exp(-x)), {"unrecognised"}),
    ("divided by the sum of scores", lambda x, axis=-1: x / row_sum(x, axis), {"unrecognised"}),
    ("clipped at 50", lambda x, axis=-1: softmax(np.clip(x, -50, 50), axis), {"unrecognised"}),
    ("zeros", lambda x, axis=-1: np.zeros_like(x), {"unrecognised"}),
    ("uniform", lambda x, axis=-1: np.full(x.shape, 1 / x.shape[axis]), {"unrecognised"}),
    ("nothing returned", lambda x, axis=-1: None, {"unrecognised"}),
]


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in SOFTMAXES], ids=[s[0] for s in SOFTMAXES])
def test_a_softmax_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a softmax does wrong, in any style, is all that is named."""
    assert set(diagnosed("softmax", function)) == codes


# --- scaled dot-product attention -------------------------------------------------------------------------------------


def unpacked(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    _n, _d_k = Q.shape
    return attention()(Q, K, V, mask, scale)


def item_by_item(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    if Q.ndim == 2:
        return attention()(Q, K, V, mask, scale)
    b, n, _ = Q.shape
    masks = [None] * b if mask is None else np.broadcast_to(mask, (b, n, K.shape[1]))
    pairs = [attention()(Q[i], K[i], V[i], masks[i], scale) for i in range(b)]
    return np.stack([o for o, _ in pairs]), np.stack([w for _, w in pairs])


def items_share_keys(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    if Q.ndim > 2:
        K = np.broadcast_to(K[0], K.shape)
    return attention()(Q, K, V, mask, scale)


def triple_loop(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    (n, d_k), m = Q.shape, len(K)
    weights = np.zeros((n, m))
    for i in range(n):
        row = []
        for j in range(m):
            score = sum(Q[i, c] * K[j, c] for c in range(d_k)) / math.sqrt(d_k)
            row.append(-math.inf if mask is not None and not mask[i, j] else score)
        top = max(row)
        e = [math.exp(s - top) for s in row]
        weights[i] = [x / sum(e) for x in e]
    return weights @ V, weights


def torch_habit(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    scores = Q @ swap(K) / math.sqrt(Q.shape[-1]) if scale is None else Q @ swap(K) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    w = softmax(scores)
    return w @ V, w


def truth_of_mask(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
    if mask:
        return attention()(Q, K, V, mask, scale)
    return attention()(Q, K, V, None, scale)


def index_by_mask(fill: float) -> Function:
    def hide(scores: Any, mask: Any) -> Any:
        scores[~mask] = fill
        return scores

    return hide


def filled(fill: float) -> Function:
    return attention(mask=lambda s, mask: np.where(mask, s, fill))


def filled_before_scale(fill: float) -> Function:
    def sdpa(Q: Any, K: Any, V: Any, mask: Any = None, scale: Any = None) -> Any:
        scores = Q @ swap(K)
        if mask is not None:
            scores = np.where(mask, scores, fill)
        w = softmax(scores / math.sqrt(Q.shape[-1]) if scale is None else scores * scale)
        return w @ V, w

    return sdpa


def scaled_by(default: Function) -> Function:
    return attention(scale=lambda Q, K, V, scale: default(Q, K, V) if scale is None else scale)


def normalised(axis: Any) -> Function:
    def student(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return e / np.sum(e, axis=axis, keepdims=True)

    return attention(normalise=student)


def renormalised(w: Any, mask: Any) -> Any:
    w = w * mask
    return w / w.sum(axis=-1, keepdims=True)


def dot(Q: Any, K: Any) -> Any:
    return np.dot(Q, swap(K))


def unmasked(s: Any, mask: Any) -> Any:
    return s


ATTENTIONS: list[tuple[str, Function, set[str]]] = [
    ("right", attention(), set()),
    ("right, queries scaled", lambda Q, K, V, mask=None, scale=None: attention()(
        Q * (Q.shape[-1] ** -0.5 if scale is None else scale), K, V, mask, 1.0), set()),
    ("right, -1e9 filled", filled(-1e9), set()),
    ("right, -1e30 filled before the scale", filled_before_scale(-1e30), set()),
    ("right, lowest float filled", filled(float(np.finfo(np.float32).min)), set()),
    ("right, -1e4 added", attention(mask=lambda s, mask: s + (1.0 - mask) * -1e4), set()),
    ("right, logarithm of the mask added", attention(mask=lambda s, mask: s + np.log(mask)), set()),
    ("right, renormalised", attention(mask=unmasked, weigh=renormalised), set()),
    ("right, einsum", attention(scores=lambda Q, K: np.einsum("...id,...jd->...ij", Q, K)), set()),
    ("right, lists", attention(give=lambda output, weights: [output, weights]), set()),
    ("axis=0", normalised(0), {"softmax-wrong-axis"}),
    ("axis=-2", normalised(-2), {"softmax-wrong-axis"}),
    ("axis=1", normalised(1), {"softmax-positional-axis"}),
    ("axis=2", normalised(2), {"softmax-positional-axis"}),
    ("axis=None", normalised(None), {"softmax-whole-matrix"}),
    ("axis=(-2, -1)", normalised((-2, -1)), {"softmax-whole-matrix"}),
    ("row maximum, total of all", attention(normalise=lambda s: np.exp(s - s.max(-1, keepdims=True))
     / np.exp(s - s.max(-1, keepdims=True)).sum()), {"softmax-whole-matrix"}),
    ("K.transpose(0, 2, 1)", attention(scores=lambda Q, K: Q @ K.transpose(0, 2, 1)), {"softmax-positional-axis"}),
    ("K.swapaxes(1, 2)", attention(scores=lambda Q, K: Q @ K.swapaxes(1, 2)), {"softmax-positional-axis"}),
    ("no maximum", attention(normalise=lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True)), {"softmax-overflow"}),
    ("scores.max()", attention(normalise=lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(-1, keepdims=True)),
     {"softmax-global-max"}),
    ("sum without keepdims", attention(normalise=lambda s: np.exp(s - s.max(-1, keepdims=True))
     / np.exp(s - s.max(-1, keepdims=True)).sum(-1)), {"softmax-missing-keepdims"}),
    ("one hot", attention(normalise=lambda s: np.eye(s.shape[-1])[s.argmax(-1)]), {"softmax-argmax"}),
    ("raw scores", attention(normalise=lambda s: s), {"softmax-not-applied"}),
    ("raw scores, -1e9", attention(normalise=lambda s: s, mask=lambda s, mask: np.where(mask, s, -1e9)), {"softmax-not-applied"}),
    ("epsilon", attention(normalise=lambda s: tempered(s, -1, math.e, 1e-6)), {"softmax-epsilon"}),
    ("not divided", attention(normalise=lambda s: np.exp(s - s.max(-1, keepdims=True))), {"softmax-unnormalised"}),
    ("no scale", scaled_by(lambda Q, K, V: 1.0), {"scale-missing"}),
    ("1/d_k", scaled_by(lambda Q, K, V: 1 / K.shape[-1]), {"scale-by-dk"}),
    ("times sqrt(d_k)", scaled_by(lambda Q, K, V: math.sqrt(Q.shape[-1])), {"scale-inverted"}),
    ("sqrt(n)", scaled_by(lambda Q, K, V: Q.shape[-2] ** -0.5), {"scale-by-wrong-width"}),
    ("sqrt(len(K))", scaled_by(lambda Q, K, V: len(K) ** -0.5), {"scale-by-wrong-width"}),
    ("sqrt(d_v)", scaled_by(lambda Q, K, V: V.shape[-1] ** -0.5), {"scale-by-wrong-width"}),
    ("sqrt(Q.shape[1])", scaled_by(lambda Q, K, V: Q.shape[1] ** -0.5), {"scale-by-wrong-width"}),
    ("weights scaled", lambda Q, K, V, mask=None, scale=None: (lambda o, w, c: (o * c, w * c))(
        *attention()(Q, K, V, mask, 1.0), Q.shape[-1] ** -0.5 if scale is None else scale), {"scale-after-softmax"}),
    ("output scaled", lambda Q, K, V, mask=None, scale=None: (lambda o, w, c: (o * c, w))(
        *attention()(Q, K, V, mask, 1.0), Q.shape[-1] ** -0.5 if scale is None else scale), {"scale-after-softmax"}),
    ("scale unused", attention(scale=lambda Q, K, V, scale: Q.shape[-1] ** -0.5), {"scale-ignored"}),
    ("scale on top", attention(scale=lambda Q, K, V, scale: Q.shape[-1] ** -0.5 * (1 if scale is None else scale)),
     {"scale-compounded"}),
    ("divided by scale", attention(scale=lambda Q, K, V, scale: 1 / (Q.shape[-1] ** 0.5 if scale is None else scale)),
     {"scale-inverted"}),
    ("scores of K", attention(scores=lambda Q, K: K @ swap(Q)), {"scores-transposed"}),
    ("W.T @ V", attention(average=lambda w, V, Q, K, c: swap(w) @ V), {"weights-transposed"}),
    ("weights @ K", attention(average=lambda w, V, Q, K, c: w @ K), {"values-swapped"}),
    ("weights @ Q", attention(average=lambda w, V, Q, K, c: w @ Q), {"values-swapped"}),
    ("K and V exchanged", lambda Q, V, K, mask=None, scale=None: attention()(Q, K, V, mask, scale), {"values-swapped"}),
    ("a shape of two", unpacked, {"batch-unsupported"}),
    ("K.T", attention(scores=lambda Q, K: Q @ K.T), {"batch-unsupported"}),
    ("einsum of two axes", attention(scores=lambda Q, K: np.einsum("id,jd->ij", Q, K)), {"batch-unsupported"}),
    ("np.dot", attention(scores=dot), {"batch-unsupported"}),
    ("np.dot twice", attention(scores=dot, average=lambda w, V, Q, K, c: np.dot(w, V)), {"batch-unsupported"}),
    ("one batch axis at most", item_by_item, {"batch-unsupported"}),
    ("keys of the first item", items_share_keys, {"batch-mixed"}),
    ("output alone", attention(give=lambda output, weights: output), {"weights-missing"}),
    ("weights first", attention(give=lambda output, weights: (weights, output)), {"output-order"}),
    ("mask unused", attention(mask=unmasked), {"mask-ignored"}),
    ("True hides", attention(mask=lambda s, mask: np.where(mask, -np.inf, s)), {"mask-inverted"}),
    ("True hides, -1e9 added", attention(mask=lambda s, mask: s + mask * -1e9), {"mask-inverted"}),
    ("weights zeroed", attention(mask=unmasked, weigh=lambda w, mask: w * mask), {"mask-after-softmax"}),
    ("weights replaced", attention(mask=unmasked, weigh=lambda w, mask: np.where(mask, w, 0)), {"mask-after-softmax"}),
    ("scores times mask", attention(mask=lambda s, mask: s * mask), {"mask-multiplied"}),
    ("0 filled", filled(0.0), {"mask-multiplied"}),
    ("mask added", attention(mask=lambda s, mask: s + mask), {"mask-added"}),
    ("mask - 1 added", attention(mask=lambda s, mask: s + (mask.astype(float) - 1)), {"mask-added"}),
    ("mask added before the scale", lambda Q, K, V, mask=None, scale=None: attention()(
        Q, K, V, None, scale) if mask is None else attention(
        scores=lambda Q, K: Q @ swap(K) + mask)(Q, K, V, None, scale), {"mask-added"}),
    ("if mask:", truth_of_mask, {"mask-not-broadcast"}),
    ("scores[~mask] = -inf", attention(mask=index_by_mask(-np.inf)), {"mask-not-broadcast"}),
    ("scores[~mask] = -1e9", attention(mask=index_by_mask(-1e9)), {"mask-not-broadcast"}),
    ("mask of two axes", attention(mask=lambda s, mask: np.where(np.einsum("nm->nm", mask), s, -np.inf)), {"mask-not-broadcast"}),
    ("mask reshaped", attention(mask=lambda s, mask: np.where(mask.reshape(s.shape), s, -np.inf)), {"mask-not-broadcast"}),
    ("-1e4 filled", filled(-1e4), {"mask-finite-fill"}),
    ("-1e5 filled", filled(-1e5), {"mask-finite-fill"}),
    ("-9999 filled", filled(-9999.0), {"mask-finite-fill"}),
    ("-65504 filled", filled(-65504.0), {"mask-finite-fill"}),
    ("-100 filled", filled(-100.0), {"mask-finite-fill"}),
    ("-1 filled", filled(-1.0), {"mask-finite-fill"}),
    ("1e-9 filled", filled(1e-9), {"mask-finite-fill"}),
    ("-1e4 filled before the scale", filled_before_scale(-1e4), {"mask-finite-fill"}),
    ("-20 filled before the scale", filled_before_scale(-20.0), {"mask-finite-fill"}),
    ("-100 added", attention(mask=lambda s, mask: s - 100.0 * ~mask), {"mask-finite-fill"}),
    ("-10 added", attention(mask=lambda s, mask: s + np.where(mask, 0, -10)), {"mask-finite-fill"}),
    ("mask transposed", attention(mask=lambda s, mask: np.where(mask.T, s, -np.inf)), {"mask-transposed"}),
    ("mask axes swapped", attention(mask=lambda s, mask: np.where(swap(mask), s, -np.inf)), {"mask-transposed"}),
    ("no scale, axis 0", attention(scale=lambda Q, K, V, s: 1.0 if s is None else s, normalise=lambda s: softmax(s, 0)),
     {"scale-missing", "softmax-wrong-axis"}),
    ("no maximum, -20 filled", attention(
        mask=lambda s, mask: np.where(mask, s, -20), normalise=lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True)),
     {"softmax-overflow", "mask-finite-fill"}),
    ("weights zeroed, 1/d_k", attention(scale=lambda Q, K, V, s: 1 / Q.shape[-1] if s is None else s, mask=unmasked,
     weigh=lambda w, mask: w * mask), {"mask-after-softmax", "scale-by-dk"}),
    ("True hides, output alone", attention(mask=lambda s, mask: np.where(mask, -1e9, s), give=lambda o, w: o),
     {"mask-inverted", "weights-missing"}),
    ("torch's masked_fill", torch_habit, {"raised"}),
    ("scores times log(m)", scaled_by(lambda Q, K, V: math.log(len(K) + 1) / Q.shape[-1] ** 0.5), {"unrecognised"}),
    ("zeros", lambda Q, K, V, mask=None, scale=None: (np.zeros_like(Q), np.zeros(Q.shape[:-1] + K.shape[-2:-1])), {"unrecognised"}),
    ("the first argument", lambda Q, K, V, mask=None, scale=None: Q, {"unrecognised"}),
    ("nothing returned", lambda Q, K, V, mask=None, scale=None: None, {"unrecognised"}),
    ("always an error", lambda Q, K, V, mask=None, scale=None: Q.nothing, {"unrecognised"}),
    ("uniform weights", lambda Q, K, V, mask=None, scale=None: attention()(Q * 0, K, V, mask, 1.0), {"unrecognised"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in ATTENTIONS], ids=[s[0] for s in ATTENTIONS])
def test_an_attention_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What an attention does wrong, in any style, is all that is named."""
    assert set(diagnosed("sdpa", function)) == codes


def test_loops_for_two_axes_and_a_full_mask_are_named_by_their_codes() -> None:
    """Plain loops over i and j ignore `scale`, and know neither batches nor a mask to be broadcast."""
    found = set(diagnosed("sdpa", triple_loop))
    assert found == {"batch-unsupported", "mask-not-broadcast", "scale-ignored"}


# --- self-attention, projections, masks, positions --------------------------------------------------------------------


def on_top(project: Function, attend: Function) -> Function:
    return lambda X, W_Q, W_K, W_V, mask=None: attend(*project(X, W_Q, W_K, W_V), mask)


def right_projection(X: Any, W_Q: Any, W_K: Any, W_V: Any) -> Any:
    return X @ W_Q, X @ W_K, X @ W_V


SELF_ATTENTIONS: list[tuple[str, Function, set[str]]] = [
    ("right", on_top(right_projection, attention()), set()),
    ("renormalised", on_top(right_projection, attention(mask=unmasked, weigh=renormalised)), set()),
    ("W_Q and W_K exchanged", on_top(lambda X, q, k, v: (X @ k, X @ q, X @ v), attention()), {"scores-transposed"}),
    ("W_K and W_V exchanged", on_top(lambda X, q, k, v: (X @ q, X @ v, X @ k), attention()), {"values-swapped"}),
    ("X averaged", on_top(lambda X, q, k, v: (X @ q, X @ k, X), attention()), {"values-unprojected"}),
    ("matrices transposed", on_top(lambda X, q, k, v: (X @ q.T, X @ k.T, X @ v.T), attention()), {"projection-transposed"}),
    ("d_model", lambda X, q, k, v, mask=None: attention()(X @ q, X @ k, X @ v, mask, X.shape[-1] ** -0.5), {"scale-by-wrong-width"}),
    ("mask not passed on", lambda X, q, k, v, mask=None: attention()(X @ q, X @ k, X @ v), {"mask-ignored"}),
    ("output alone", on_top(right_projection, attention(give=lambda output, weights: output)), {"weights-missing"}),
    ("-1e4 filled", on_top(right_projection, filled(-1e4)), {"mask-finite-fill"}),
    ("-1e4 filled before the scale", on_top(right_projection, filled_before_scale(-1e4)), {"mask-finite-fill"}),
    ("no maximum", on_top(right_projection, attention(normalise=python_rows)), {"softmax-overflow"}),
    ("X averaged, no scale", lambda X, q, k, v, mask=None: attention()(X @ q, X @ k, X, mask, 1.0),
     {"values-unprojected", "scale-missing"}),
    ("always an error", lambda X, q, k, v, mask=None: X.nothing, {"unrecognised"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in SELF_ATTENTIONS], ids=[s[0] for s in SELF_ATTENTIONS])
def test_a_self_attention_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a self-attention does wrong, in any style, is all that is named."""
    assert set(diagnosed("self_attention", function)) == codes


PROJECTIONS: list[tuple[str, Function, set[str]]] = [
    ("right", right_projection, set()),
    ("right, a list", lambda X, *W: [np.einsum("...nd,dk->...nk", X, w) for w in W], set()),
    (
        "right, fused",
        lambda X, q, k, v: np.split(X @ np.hstack([q, k, v]), [q.shape[1], 2 * q.shape[1]], axis=-1),
        set(),
    ),
    ("transposed", lambda X, *W: tuple(X @ w.T for w in W), {"projection-transposed"}),
    ("keys transposed", lambda X, q, k, v: (X @ q, X @ k.T, X @ v), {"projection-transposed"}),
    ("two axes", lambda X, *W: tuple(np.einsum("nd,dk->nk", X, w) for w in W), {"batch-unsupported"}),
    ("K, Q, V", lambda X, q, k, v: (X @ k, X @ q, X @ v), {"scores-transposed"}),
    ("Q, V, K", lambda X, q, k, v: (X @ q, X @ v, X @ k), {"values-swapped"}),
    ("X for V", lambda X, q, k, v: (X @ q, X @ k, X), {"values-unprojected"}),
    ("W_K twice", lambda X, q, k, v: (X @ q, X @ k, X @ k), {"values-swapped"}),
    ("queries scaled", lambda X, q, k, v: (X @ q / q.shape[1] ** 0.5, X @ k, X @ v), {"unrecognised"}),
]


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in PROJECTIONS], ids=[s[0] for s in PROJECTIONS])
def test_a_projection_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a projection does wrong is all that is named."""
    assert set(diagnosed("project", function)) == codes


MASKS: list[tuple[str, Function, set[str]]] = [
    ("right", lambda n, n_keys=None: np.tri(n, n_keys or n, (n_keys or n) - n, dtype=bool), set()),
    ("right, the last rows", lambda n, n_keys=None: np.tril(np.ones((n_keys or n, n_keys or n), bool))[-n:], set()),
    (
        "strict",
        lambda n, n_keys=None: np.tri(n, n_keys or n, (n_keys or n) - n - 1, dtype=bool),
        {"causal-mask-strict"},
    ),
    (
        "one ahead",
        lambda n, n_keys=None: np.tri(n, n_keys or n, (n_keys or n) - n + 1, dtype=bool),
        {"causal-mask-lookahead"},
    ),
    ("all True", lambda n, n_keys=None: np.ones((n, n_keys or n), bool), {"causal-mask-lookahead"}),
    (
        "triu, k=1",
        lambda n, n_keys=None: np.triu(np.ones((n, n_keys or n), bool), 1 + (n_keys or n) - n),
        {"causal-mask-inverted"},
    ),
    (
        "triu",
        lambda n, n_keys=None: np.triu(np.ones((n, n_keys or n)), (n_keys or n) - n) == 1,
        {"causal-mask-inverted"},
    ),
    ("upper left", lambda n, n_keys=None: np.tri(n, n_keys or n, dtype=bool), {"causal-mask-upper-left"}),
    ("first rows", lambda n, n_keys=None: np.tri(n_keys or n, dtype=bool)[:n], {"causal-mask-upper-left"}),
    (
        "triu without an offset",
        lambda n, n_keys=None: np.triu(np.ones((n, n_keys or n), bool), 1),
        {"causal-mask-inverted", "causal-mask-upper-left"},
    ),
    ("all False", lambda n, n_keys=None: np.zeros((n, n_keys or n), bool), {"unrecognised"}),
    ("n_keys unused", lambda n, n_keys=None: np.tri(n, dtype=bool), {"wrong-shape"}),
]


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in MASKS], ids=[s[0] for s in MASKS])
def test_a_causal_mask_is_named_by_its_codes(function: Function, codes: set[str]) -> None:
    """What a causal mask does wrong is all that is named."""
    assert set(diagnosed("causal_mask", function)) == codes


def waves(
    exponent: Function, start: int = 0, base: float = 10000.0, first: Function = np.sin, second: Function = np.cos
) -> Function:
    def positions(n: int, d: int) -> Any:
        table = np.zeros((n, d))
        for p in range(n):
            for c in range(d):
                angle = (p + start) / base ** exponent(c, d)
                table[p, c] = first(angle) if c % 2 == 0 else second(angle)
        return table

    return positions


def in_halves(n: int, d: int) -> Any:
    angles = np.arange(n)[:, None] * np.exp(-math.log(10000.0) * np.arange(0, d, 2) / d)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def pair(c: int, d: int) -> float:
    return (c - c % 2) / d


POSITIONS: list[tuple[str, Function, set[str]]] = [
    ("right", waves(pair), set()),
    ("right, float32", lambda n, d: waves(pair)(n, d).astype(np.float32), set()),
    ("halves", in_halves, {"positions-halves"}),
    ("cosine first", waves(pair, first=np.cos, second=np.sin), {"positions-sin-cos-swapped"}),
    ("from one", waves(pair, start=1), {"positions-from-one"}),
    ("i for 2i", waves(lambda c, d: (c // 2) / d), {"positions-wrong-frequency"}),
    ("the column", waves(lambda c, d: c / d), {"positions-wrong-frequency"}),
    ("the column doubled", waves(lambda c, d: 2 * c / d), {"positions-wrong-frequency"}),
    ("d/2 for d", waves(lambda c, d: pair(c, d) * 2), {"positions-wrong-frequency"}),
    ("base 1000", waves(pair, base=1000.0), {"positions-wrong-frequency"}),
    ("base 500000", waves(pair, base=5e5), {"positions-wrong-frequency"}),
    ("one frequency", waves(lambda c, d: 0.0), {"positions-wrong-frequency"}),
    ("multiplied", waves(lambda c, d: -pair(c, d)), {"positions-wrong-frequency"}),
    ("i / (d/2 - 1)", waves(lambda c, d: (c - c % 2) / max(d - 2, 1)), {"positions-wrong-frequency"}),
    ("from one, base 100000", waves(pair, start=1, base=1e5), {"positions-from-one", "positions-wrong-frequency"}),
    ("halves from one", lambda n, d: in_halves(n + 1, d)[1:], {"positions-halves", "positions-from-one"}),
    ("zeros", lambda n, d: np.zeros((n, d)), {"unrecognised"}),
    ("sines alone", waves(pair, second=np.sin), {"unrecognised"}),
]


@pytest.mark.parametrize(("function", "codes"), [s[1:] for s in POSITIONS], ids=[s[0] for s in POSITIONS])
def test_positions_are_named_by_their_codes(function: Function, codes: set[str]) -> None:
    """What a table of positions does wrong is all that is named."""
    assert set(diagnosed("positions", function)) == codes
