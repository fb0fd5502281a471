"""Attention as a formula with its decisions left open, in the order of the computation.

The families `sdpa`, `project` and `self_attention` are made of it. Each function below reads like the right formula and
asks the variant where students are known to part from it. Shapes: n queries, m keys, d_k key width, d_v value width,
... leading batch axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants import softmax as softmax_family
from reference.variants.softmax import Axis, Predicted, base_of, slope_of, softmax
from reference.variants.space import NARROW, Answer, Decision, Option, Probe, Space, Variant, decision

Array = NDArray[Any]

LARGE_FILLS = {
    "-1e9": -1e9,
    "-1e10": -1e10,
    "-1e20": -1e20,
    "-1e30": -1e30,
    "the dtype's minimum": -1.7976931348623157e308,
}
FILLS = (-1000.0, -50.0)

DEFAULT_SCALE = decision(
    "default scale",
    Option("1", "scale-missing"),
    Option("1/d_k", "scale-by-dk"),
    Option("sqrt(d_k)", "scale-inverted"),
    Option("1/sqrt(n)", "scale-by-wrong-width"),
    Option("1/sqrt(m)", "scale-by-wrong-width"),
    Option("1/sqrt(d_v)", "scale-by-wrong-width"),
    Option("1/sqrt(Q.shape[0])", "scale-by-wrong-width"),
    Option("1/sqrt(Q.shape[1])", "scale-by-wrong-width"),
    Option("1/sqrt(Q.shape[2])", "scale-by-wrong-width"),
    Option("1/sqrt(K.shape[0])", "scale-by-wrong-width", common=False),
    Option("1/sqrt(K.shape[1])", "scale-by-wrong-width", common=False),
    Option("1/sqrt(V.shape[1])", "scale-by-wrong-width", common=False),
    Option("1/sqrt(Q.size)", "scale-by-wrong-width", common=False),
    Option("a constant", "scale-by-wrong-width", common=False, alone=True, examples=(0.125, 3**-0.5)),
)

VALUES = decision(
    "averaged",
    Option("K", "values-swapped"),
    Option("Q", "values-swapped"),
)

PRODUCT: Space = (
    decision("exchanged", Option("K and V", "values-swapped"), Option("Q and V", "values-swapped", common=False)),
    decision("roles", Option("K Q^T", "scores-transposed")),
    decision("transposed by", Option("transpose(-2, -1)", "transpose-permutation")),
    decision(
        "sizes",
        Option("n = m alone", "square-only"),
        Option("n keys scored", "square-only"),
        Option("n = m = d_k = d_v alone", "square-only", common=False),
    ),
    decision(
        "scale given",
        Option("ignored", "scale-ignored"),
        Option("multiplied onto the default", "scale-compounded"),
        Option("divided by", "scale-inverted"),
    ),
    decision(
        "scaled",
        Option("the weights", "scale-after-softmax"),
        Option("the output alone", "scale-after-softmax"),
    ),
    decision(
        "axis",
        Option("-2", "softmax-wrong-axis"),
        Option("0", "softmax-wrong-axis"),
        Option("1", "softmax-positional-axis"),
        Option("2", "softmax-positional-axis"),
        Option("all", "softmax-whole-matrix"),
        Option("each matrix", "softmax-whole-matrix"),
        Option("all but the first", "batch-unsupported", common=False),
    ),
    decision(
        "weights used",
        Option("transposed", "weights-transposed"),
        Option("the scores", "softmax-not-applied"),
    ),
    decision(
        "weights returned",
        Option("transposed, and used so", "weights-transposed"),
        Option("the scores", "softmax-not-applied"),
        Option("the scores before the mask", "softmax-not-applied"),
        Option("Q K^T", "softmax-not-applied"),
    ),
    decision("dropped", Option("axes of size 1", "wrong-shape")),
    decision("returned", Option("the output alone", "weights-missing"), Option("weights first", "output-order")),
)

BATCH: Space = (
    decision(
        "dimensions",
        Option("three alone", "softmax-positional-axis"),
        Option("four alone", "softmax-positional-axis", common=False),
        Option("K.swapaxes(1, 2)", "softmax-positional-axis", common=False),
    ),
    decision(
        "batch",
        Option("fails", "batch-unsupported"),
        Option("fails for two axes", "batch-unsupported"),
        Option("K.T", "batch-unsupported"),
        Option("first item alone", "batch-unsupported"),
        Option("last item alone", "batch-unsupported", common=False),
        Option("np.dot for the scores", "batch-unsupported"),
        Option("np.dot throughout", "batch-unsupported"),
        Option("np.dot with K.T for the scores", "batch-unsupported", common=False),
        Option("np.dot with K.T throughout", "batch-unsupported", common=False),
        Option("K.swapaxes(0, 1)", "softmax-positional-axis", common=False),
    ),
    decision(
        "items",
        *(
            Option(f"{what} of the {which}", "batch-mixed", common=which == "first")
            for what in ("keys", "values", "keys and values", "mask")
            for which in ("first", "last", "previous", "next", "mirrored")
        ),
        Option("weights of the first", "batch-mixed"),
        Option("weights of the first, for the output alone", "batch-mixed"),
        Option("queries of the first", "batch-mixed", common=False),
        Option("keys of the sum", "batch-mixed", common=False),  # einsum("bnd,cmd->bnm")
        Option("values of the sum", "batch-mixed", common=False),
    ),
    # No fault: where there are two batch axes, the one along which items are mixed.
    decision("mixed along", Option("the second batch axis")),
)

MASK: Space = (
    decision(
        "mask",
        Option("ignored", "mask-ignored"),
        Option("multiplies the scores", "mask-multiplied"),
        Option("added", "mask-added"),
        Option("added before the scale", "mask-added"),
        Option("zeroes weights", "mask-after-softmax"),
        Option("zeroes weights for the output alone", "mask-after-softmax"),
        Option("zeroes the returned weights alone", "mask-after-softmax"),
        Option("puts -inf in the weights", "mask-after-softmax", common=False),
        Option("times -inf, added", "not-finite"),
        Option("fails", "raised"),
        Option("fill", "mask-finite-fill", examples=FILLS),
        Option("fill before the scale", "mask-finite-fill", examples=FILLS),
        Option("lowered by", "mask-finite-fill", examples=(-50.0,)),
        Option("lowered before the scale by", "mask-finite-fill", examples=(-50.0,)),
    ),
    decision("polarity", Option("True hides", "mask-inverted")),
    decision(
        "mask layout",
        Option("swapped axes", "mask-transposed"),
        Option("mask.T", "mask-transposed"),
        Option("mask[j, i]", "mask-transposed"),
        Option("mask[i]", "mask-not-broadcast"),
        Option("if mask:", "mask-not-broadcast"),
        Option("scores[mask]", "mask-not-broadcast"),
        Option("the shape of the scores alone", "mask-not-broadcast"),
        Option("(n, m) alone", "mask-not-broadcast"),
        Option("two axes alone", "mask-not-broadcast"),
        Option("as many axes as the scores alone", "mask-not-broadcast", common=False),
        Option("mask[None]", "mask-not-broadcast", common=False),
        Option("mask[:, None]", "mask-not-broadcast", common=False),
    ),
    # No fault: what hides a score, and how a weight is zeroed, part only where something is not finite.
    decision("hidden by", *(Option(name) for name in LARGE_FILLS), Option("-1e9 added")),
    decision("zeroed by", Option("replacement")),
)

PROJECTION: Space = (
    decision(
        "projection",
        Option("X W_Q^T, X W_K^T, X W_V^T", "projection-transposed"),
        Option("X W_Q^T", "projection-transposed", common=False),
        Option("X W_K^T", "projection-transposed", common=False),
        Option("X W_V^T", "projection-transposed", common=False),
    ),
)

# Of the softmax's options, these are right along the last axis, or can't be told from failing on a batch.
_UNSEEN = ("the axis asked for", "put back last", "put back as one column")
SOFTMAX: Space = tuple(
    Decision(d.name, tuple(option for option in d.options if option.name not in _UNSEEN))
    for d in softmax_family.DECISIONS
)

SPACE: Space = (*PRODUCT, DEFAULT_SCALE, VALUES, *SOFTMAX, *BATCH, *MASK, NARROW)

# What is known of a group of calls that nothing explains, once what comes before is explained.
GIVEN_UP = {
    "batches": ("batch", Option("fails", "batch-unsupported")),
    "masks to broadcast": ("mask layout", Option("the shape of the scores alone", "mask-not-broadcast")),
}


def seen(calls: Iterable[tuple[Answer | None, Array]]) -> dict[str, frozenset[str]]:
    """What shows in the answers to calls without a mask, each with its values: by decision, what it may be.

    Where no table is answered and every batch of one number of axes is, it is that number which is asked for; what is answered
    then shows the rest, as a table would.
    """
    asked = [(answer, values) for answer, values in calls if answer is not None]
    axes = {values.ndim for answer, values in asked if isinstance(answer, tuple)}
    if 2 in axes or len(axes) != 1 or {values.ndim for _, values in asked} != {2, 3, 4}:
        return _computed((answer, values) for answer, values in asked if values.ndim == 2)
    alone = {3: "three alone", 4: "four alone"}[axes.pop()]
    return {**_computed(asked), "dimensions": frozenset({alone})}


def _computed(calls: Iterable[tuple[Answer, Array]]) -> dict[str, frozenset[str]]:
    """What shows in what was computed of such calls.

    One result is the output. Rows that sum to 1 are divided by their sums, and an output that is the average of the values by
    the weights returned is made so: whatever else comes to the same is made of two faults that undo each other.
    """
    answered = [(answer, values) for answer, values in calls if isinstance(answer, tuple)]
    if answered and all(len(answer) == 1 for answer, _ in answered):
        masks = {option.name for d in MASK if d.name == "mask" for option in d.options}
        return {
            "returned": frozenset({"the output alone"}),
            "weights returned": frozenset({"right"}),
            "mask": frozenset(masks - {"zeroes the returned weights alone"}),
        }
    pairs = [(*answer, values) for answer, values in answered if len(answer) == 2]
    if not pairs or len(pairs) < len(answered):
        return {}
    left = {"returned": frozenset({"right"})}
    if not all(_fit(*pair) for pair in pairs):
        pairs = [(output, weights, values) for weights, output, values in pairs]
        left = {"returned": frozenset({"weights first"})}
        if not all(_fit(*pair) for pair in pairs):
            return {}
    with np.errstate(all="ignore"):
        rows = all(np.abs(weights.sum(-1) - 1).max() < 1e-14 for _, weights, _ in pairs)
        averaged = all(np.abs(output - weights @ values).max() < 1e-12 for output, weights, values in pairs)
    if rows:
        left |= {
            "axis": frozenset({"right", "1", "2", "all but the first"}),
            "divided by": frozenset({"right"}),
            "not shifted": frozenset({"right"}),
            "scaled": frozenset({"right", "the output alone"}),
            "weights": frozenset({"right", "all on the largest score"}),
            "weights returned": frozenset({"right"}),
        }
    if averaged:
        left |= {
            "averaged": frozenset({"right"}),
            "weights used": frozenset({"right"}),
            "scaled": left.get("scaled", frozenset({"right", "the weights"})) - {"the output alone"},
        }
    return left


def _fit(output: Any, weights: Any, values: Array) -> bool:
    return (
        isinstance(output, np.ndarray)
        and isinstance(weights, np.ndarray)
        and weights.ndim == output.ndim == values.ndim
        and weights.dtype.kind == output.dtype.kind == "f"
        and weights.shape[:-2] == values.shape[:-2]
        and weights.shape[-1] == values.shape[-2]
        and output.shape == (*weights.shape[:-1], values.shape[-1])
    )


def group(probe: Probe) -> str:
    """Plain calls come before masked ones, full masks before those to be broadcast, and tables before batches."""
    first, mask = probe.args[0], probe.kwargs.get("mask")
    if first.ndim > 2:
        return "batches" if mask is None else "batches with masks"
    if probe.size > 1:
        return "extremes" if mask is None else "extremes with masks"
    if mask is not None:
        return "masks to broadcast" if mask.ndim < 2 or mask.shape[0] < first.shape[0] else "masks"
    return "tables"


def project(v: Variant, X: Array, W_Q: Array, W_K: Array, W_V: Array) -> tuple[Array, Array, Array]:
    """Q = X W_Q, K = X W_K, V = X W_V, as the variant has them."""
    turned = v.pick("projection")
    return (
        X @ (W_Q.T if "W_Q^T" in turned else W_Q),
        X @ (W_K.T if "W_K^T" in turned else W_K),
        X @ (W_V.T if "W_V^T" in turned else W_V),
    )


def attend(
    v: Variant,
    Q: Array,
    K: Array,
    V: Array,
    mask: Array | None = None,
    scale: float | None = None,
    X: Array | None = None,
    part: int | None = None,
) -> Any:
    """softmax(Q K^T * scale) V with a mask, as the variant has it -> (output, weights), or what it returns instead.

    `X`, where the queries were projected from one, is what some variants average or take a width from. With `part` 1 the
    output need not be what the variant returns: fewer decisions lie behind the weights.
    """
    result = _attend(v, Q, K, V, mask, scale, X, part, "right")
    if mask is not None and v.pick("mask") == "right" and not all(np.isfinite(part).all() for part in result):
        # Only here can one tell what a submission hides with: -inf - -inf is NaN, where -1e9 - -1e9 is 0.
        hidden_by = v.pick("hidden by")
        if hidden_by != "right":
            result = _attend(v, Q, K, V, mask, scale, X, part, hidden_by)
    return result[0] if len(result) == 1 else result


def _attend(
    v: Variant,
    Q: Array,
    K: Array,
    V: Array,
    mask: Array | None,
    scale: float | None,
    X: Array | None,
    part: int | None,
    hidden_by: str,
) -> tuple[Array, ...]:
    exchanged = v.pick("exchanged")
    if exchanged == "K and V":
        K, V = V, K
    elif exchanged == "Q and V":
        Q, V = V, Q
    if X is None:
        _check_sizes(v, Q, K, V)
    _check_dimensions(v, Q)
    batch = v.pick("batch") if Q.ndim > 2 else "right"
    if batch in ("first item alone", "last item alone"):
        item = 0 if batch == "first item alone" else -1
        mask = mask[item] if mask is not None and mask.ndim == Q.ndim else mask
        Q, K, V = Q[item], K[item], V[item]
    items = v.pick("items") if Q.ndim > 2 and batch in ("right", "fails for two axes") else "right"
    if items != "right":
        Q, K, V, mask = _mixed(v, items, Q, K, V, mask)

    product = _product(v, Q, K, batch)  # (..., n, m)
    amount = scale_of(v, Q, K, V, scale, X)
    scaled = v.pick("scaled")
    visible = _visible(v, mask, product.shape) if mask is not None and v.pick("mask") != "ignored" else None

    scores = product
    if visible is not None:
        scores = _hide(v, scores, visible, before_scale=True, hidden_by=hidden_by)
    if scaled == "right":
        scores = scores * amount
    unmasked = scores
    if visible is not None:
        scores = _hide(v, scores, visible, before_scale=False, hidden_by=hidden_by)
    weights = softmax(v, scores, _axis(v, scores.ndim))
    used = weights
    if visible is not None:
        used, weights = _zero(v, weights, visible)
    if scaled == "the weights":
        used, weights = used * amount, weights * amount
    if items.startswith("weights"):
        used = _other_item(used, "first", -used.ndim)
        weights = weights if items.endswith("output alone") else used

    returned = v.pick("returned")
    shown = v.pick("weights returned")
    if shown == "transposed, and used so":
        used = weights = np.swapaxes(used, -1, -2)
    elif shown != "right":
        weights = {"the scores": scores, "the scores before the mask": unmasked}.get(shown, product)
    if (part == 1 and returned == "right") or (part == 0 and returned == "weights first"):
        return _squeezed(v, weights, weights)

    averaging = v.pick("weights used")
    if averaging != "right":
        used = scores if averaging == "the scores" else np.swapaxes(used, -1, -2)
    values = {"K": K, "Q": Q, "X": X}.get(v.pick("averaged"), V)
    assert values is not None
    output = np.dot(used, values) if batch.startswith("np.dot") and batch.endswith("throughout") else used @ values
    if scaled == "the output alone":
        output = output * amount
    if returned == "the output alone":
        return _squeezed(v, output)
    return _squeezed(v, *((weights, output) if returned == "weights first" else (output, weights)))


def _squeezed(v: Variant, *results: Array) -> tuple[Array, ...]:
    if any(1 in result.shape for result in results) and v.pick("dropped") != "right":
        return tuple(np.squeeze(result) for result in results)
    return results


def _check_sizes(v: Variant, Q: Array, K: Array, V: Array) -> None:
    if Q.shape[-2] != K.shape[-2]:
        sizes = v.pick("sizes")
        if sizes.endswith("alone") or (sizes == "n keys scored" and Q.shape[-2] > K.shape[-2]):
            raise ValueError("as many keys as queries")
    if len({*Q.shape[-2:], *K.shape[-2:], *V.shape[-2:]}) > 1 and v.pick("sizes") == "n = m = d_k = d_v alone":
        raise ValueError("Q, K and V of one size")


def _check_dimensions(v: Variant, Q: Array) -> None:
    dimensions = v.pick("dimensions")
    if (dimensions == "three alone" and Q.ndim != 3) or (dimensions == "four alone" and Q.ndim != 4):
        raise ValueError(f"{dimensions}: {Q.ndim} axes")
    if dimensions == "K.swapaxes(1, 2)" and Q.ndim == 2:
        raise ValueError("there is no axis 2")
    if Q.ndim > 2 and v.pick("batch") in ("fails", "fails for two axes" if Q.ndim > 3 else "fails"):
        raise ValueError(f"too many axes: {Q.ndim}")


def _mixed(
    v: Variant, items: str, Q: Array, K: Array, V: Array, mask: Array | None
) -> tuple[Array, Array, Array, Array | None]:
    """Queries, keys, values or mask taken from another item of the batch, or summed over all of them."""
    what, _, which = items.partition(" of the ")
    if what == "weights":
        return Q, K, V, mask  # comes later
    axis = -3 if K.ndim > 3 and v.pick("mixed along") != "right" else -K.ndim
    if what == "mask":
        return Q, K, V, mask if mask is None or mask.ndim < -axis else _other_item(mask, which, axis)
    return (
        _other_item(Q, which, axis) if "queries" in what else Q,
        _other_item(K, which, axis) if "keys" in what else K,
        _other_item(V, which, axis) if "values" in what else V,
        mask,
    )


def _other_item(x: Array, which: str, axis: int) -> Array:
    size = x.shape[axis]
    if which == "sum":
        return np.repeat(x.sum(axis=axis, keepdims=True), size, axis=axis)
    index = {
        "first": np.zeros(size, int),
        "last": np.full(size, size - 1),
        "previous": np.arange(-1, size - 1),
        "next": np.arange(1, size + 1) % size,
        "mirrored": np.arange(size)[::-1],
    }[which]
    other: Array = np.take(x, index % size, axis=axis)
    return other


def _product(v: Variant, Q: Array, K: Array, batch: str) -> Array:
    """Q K^T: (..., n, d_k), (..., m, d_k) -> (..., n, m)."""
    left, right = (K, Q) if v.pick("roles") == "K Q^T" else (Q, K)
    if v.pick("transposed by") != "right":
        right = np.transpose(right, (-2, -1))  # fails beyond two axes
    elif batch in ("K.T", "np.dot with K.T for the scores", "np.dot with K.T throughout"):
        right = right.T
    elif batch == "K.swapaxes(0, 1)":
        right = np.swapaxes(right, 0, 1)
    elif Q.ndim > 2 and v.pick("dimensions") == "K.swapaxes(1, 2)":
        right = np.swapaxes(right, 1, 2)
    else:
        right = np.swapaxes(right, -1, -2)
    product: Array = np.dot(left, right) if batch.startswith("np.dot") else left @ right
    n, m = Q.shape[-2], K.shape[-2]
    if n < m and v.pick("sizes") == "n keys scored":
        product[..., n:] = 0.0
    return product


def scale_of(v: Variant, Q: Array, K: Array, V: Array, scale: float | None, X: Array | None) -> float:
    """What the scores are multiplied by."""
    if scale is None:
        return _default_scale(v, Q, K, V, X)
    given = v.pick("scale given")
    if given == "ignored":
        return _default_scale(v, Q, K, V, X)
    if given == "multiplied onto the default":
        return scale * _default_scale(v, Q, K, V, X)
    return 1 / scale if given == "divided by" else scale


def _default_scale(v: Variant, Q: Array, K: Array, V: Array, X: Array | None) -> float:
    d_k: int = Q.shape[-1]
    default = v.pick("default scale")
    if default == "right":
        return 1 / math.sqrt(d_k)
    if default == "1":
        return 1.0
    if default == "1/d_k":
        return 1 / d_k
    if default == "sqrt(d_k)":
        return math.sqrt(d_k)
    if default == "a constant":
        return float(v.value("default scale"))
    width = default.removeprefix("1/sqrt(").removesuffix(")")
    if "shape" in width:
        array = {"Q": Q, "K": K, "V": V, "X": X}[width[0]]
        assert array is not None
        return 1 / math.sqrt(int(array.shape[int(width[-2])]))
    d_model = X.shape[-1] if X is not None else 0
    sizes = {"n": Q.shape[-2], "m": K.shape[-2], "d_v": V.shape[-1], "d_model": d_model, "Q.size": Q.size}
    return 1 / math.sqrt(sizes[width])


def _visible(v: Variant, mask: Array, shape: tuple[int, ...]) -> Array:
    """The mask as it meets the scores of `shape`: True where a query may attend."""
    if v.pick("mask") == "fails":
        raise TypeError("no mask is taken")
    layout = v.pick("mask layout")
    if layout == "if mask:" and mask.size > 1:
        raise ValueError("the truth value of an array is ambiguous")
    fits = {
        "the shape of the scores alone": mask.shape == shape,
        "(n, m) alone": mask.shape == shape[-2:],
        "two axes alone": mask.ndim == 2,
        "as many axes as the scores alone": mask.ndim == len(shape),
    }
    if not fits.get(layout, True):
        raise ValueError(f"mask of shape {mask.shape}")
    if layout == "mask[i]":
        n, rows = shape[-2], mask.shape[-2] if mask.ndim > 1 else len(mask)
        if rows < n:
            raise IndexError(f"row {rows} of a mask of {rows}")
        mask = mask if mask.ndim > 1 else mask[:n, None]
    elif layout == "mask[j, i]":
        if mask.shape != shape or shape[-2] != shape[-1]:
            raise IndexError(f"mask of shape {mask.shape}")
        mask = mask.T
    elif layout == "scores[mask]":
        full = np.zeros(shape, bool)
        full[mask] = True
        mask = full
    elif layout == "swapped axes":
        mask = np.swapaxes(mask, -1, -2)
    elif layout == "mask.T":
        mask = mask.T
    elif layout == "mask[None]":
        mask = mask[None]
    elif layout == "mask[:, None]":
        mask = mask[:, None]
    return ~mask if v.pick("polarity") == "True hides" else mask


def _hide(v: Variant, scores: Array, visible: Array, *, before_scale: bool, hidden_by: str) -> Array:
    """What the mask does to the scores, before they are scaled or after."""
    how = v.pick("mask")
    if "before the scale" in how:
        if not before_scale:
            return scores
        how = {"added before the scale": "added", "fill before the scale": "fill"}.get(how, "lowered by")
    elif before_scale:
        return scores
    if how == "right":
        if hidden_by == "-1e9 added":
            return scores + np.where(visible, 0.0, -1e9)
        return np.where(visible, scores, LARGE_FILLS.get(hidden_by, -np.inf))
    if how == "multiplies the scores":
        return scores * visible
    if how == "added":
        return scores + visible
    if how == "fill":
        return np.where(visible, scores, v.value("mask"))
    if how == "times -inf, added":
        return scores + np.where(visible, np.nan, -np.inf)  # 0 times -inf is NaN
    if how == "lowered by":
        return scores + np.where(visible, 0.0, v.value("mask"))
    return scores


def _zero(v: Variant, weights: Array, visible: Array) -> tuple[Array, Array]:
    """What the mask does to the weights, (those that average, those returned)."""
    how = v.pick("mask")
    if how == "puts -inf in the weights":
        filled = np.where(visible, weights, -np.inf)
        return filled, filled
    if "zeroes" not in how:
        return weights, weights
    replaced = not np.isfinite(weights).all() and v.pick("zeroed by") == "replacement"
    zeroed = np.where(visible, weights, 0.0) if replaced else weights * visible
    if how == "zeroes weights for the output alone":
        return zeroed, weights
    return (weights, zeroed) if how == "zeroes the returned weights alone" else (zeroed, zeroed)


def _axis(v: Variant, ndim: int) -> Axis:
    axis = v.pick("axis")
    if axis == "right":
        return -1
    if axis == "all":
        return None
    if axis == "each matrix":
        return (-2, -1)
    return tuple(range(1, ndim)) if axis == "all but the first" else int(axis)


def constant_scale(v: Variant, weights: Any, predicted: Predicted) -> tuple[float, ...]:
    """The constant that the scores behind `weights` are multiplied by, if it is one over the root of a whole number."""
    option = Option("a constant", "scale-by-wrong-width")
    found = slope_of(v, "default scale", option.at, weights, predicted)
    width = round(found**-2) if found and 1e-3 < found < 1 else 0
    return (width**-0.5,) if width and abs(found * width**0.5 - 1) < 1e-9 else ()


def ladder_fill(v: Variant, scores: Array, scale: float, weights: Array, hidden: int) -> float | None:
    """The fill behind `weights` (rows, 2) over raw `scores` (rows, 2), where the key `hidden` of every row is hidden.

    A hidden weight is to a visible one as base^(fill - visible score): rows with a visible score near the fill show it.
    """
    how, seen = v.pick("mask"), 1 - hidden
    factor = scale if v.pick("scaled") == "right" else 1.0
    scores = scores * factor
    if v.pick("weights") == "the scores themselves":
        found = weights[0, hidden] - (scores[0, hidden] if "lowered" in how else 0.0)
    else:
        with np.errstate(all="ignore"):
            ratio = np.log(weights[:, hidden] / weights[:, seen]) / math.log(base_of(v))
        legible = np.flatnonzero(np.isfinite(ratio) & (np.abs(ratio) < 600))
        if not legible.size:
            return None
        row = legible[np.argmin(np.abs(ratio[legible]))]
        found = ratio[row] + scores[row, seen] - (scores[row, hidden] if "lowered" in how else 0.0)
    return float(found) / (factor if "before the scale" in how else 1.0)


def table_fill(weights: Array, at_30: Array, at_40: Array) -> float | None:
    """The fill behind `weights`, a table that the same variant gives as `at_30` with fill -30 and as `at_40` with -40.

    The logarithm of a hidden weight falls evenly with the fill; a visible one in its row tells what the row sum does.
    """
    if not weights.shape == at_30.shape == at_40.shape:
        return None
    with np.errstate(all="ignore"):
        observed, first, second = np.log(weights), np.log(at_30), np.log(at_40)
    fall = second - first
    if not (np.isfinite(fall).all() and np.isfinite(observed).all()):
        return None
    row, hidden = np.unravel_index(np.argmin(fall), fall.shape)
    seen = np.argmax(fall[row])
    slope = (fall[row, hidden] - fall[row, seen]) / -10.0
    if slope < 1e-3:
        return None
    return float(-30.0 + ((observed - first)[row, hidden] - (observed - first)[row, seen]) / slope)


def plausible_fills(how: str, found: list[float | None]) -> tuple[float, ...]:
    """Fills as a student may have typed them; 0 and, where it is added, -1 have codes of their own."""
    kept: list[float] = []
    for raw in found:
        if raw is None or not np.isfinite(raw) or raw > 1 or abs(raw) < 1e-12:
            continue
        if "lowered" not in how or (raw < 0 and abs(raw + 1) > 1e-9):
            kept += [float(f"{raw:.6g}"), raw]
    return tuple(dict.fromkeys(kept))


def table_of(answer: Answer | None, shape: tuple[int, ...]) -> Array | None:
    """The first array of that shape in an answer; None where there is none."""
    parts = answer if isinstance(answer, tuple) else ()
    return next((part for part in parts if isinstance(part, np.ndarray) and part.shape == shape), None)


def weights_of(v: Variant, answer: Answer | None) -> Any:
    """The weights in an answer, or the output where the variant returns nothing else; None where it failed."""
    if not isinstance(answer, tuple):
        return None
    return answer[1] if len(answer) > 1 and v.pick("returned") == "right" else answer[0]
