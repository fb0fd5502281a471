"""Hints: what a submission's own outputs give away, without knowing the right ones.

Rows that do not sum to 1 while columns do; a weight wherever the mask hides; two keys whose weights stand to each other
as no scaling by 1/sqrt(d_k) would have it. A hint is given only where the observation proves it; a correct submission
gets none. Each function below looks at one family of functions, by questions that anybody could ask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.check import CheckResult
from harness.messages import MESSAGES
from harness.subject import Asking, Call, Outcome
from harness.values import Array, Handle

SOFTMAX = "attention.softmax"
PROJECT = "attention.project"
SDPA = "attention.scaled_dot_product_attention"
SELF = "attention.self_attention"
GENERAL = {"raised", "missing", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "unrecognised"}
MASK = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], bool)
LOPSIDED = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], bool)  # not its own transpose


@dataclass(frozen=True)
class Hint:
    """What was seen, and the code of the catalogue that it proves (None where it proves none)."""

    code: str | None
    seen: str

    def __str__(self) -> str:
        look = MESSAGES[self.code].look if self.code in MESSAGES else ""
        return " ".join(text for text in (self.seen, look) if text)


class Hints:
    """The hints on one submission; each family is looked at once, when first asked for."""

    def __init__(self, subject: Asking) -> None:
        self._subject = subject
        self._found: dict[str, list[Hint]] = {}

    def of(self, family: str) -> list[Hint]:
        if family not in self._found:
            look = FAMILIES.get(family)
            with np.errstate(all="ignore"):
                self._found[family] = list(look(self._subject)) if look else []
        return self._found[family]

    def on(self, result: CheckResult) -> Hint | None:
        """The hint that belongs to a failed check: first what it is about, then anything of its families."""
        code = result.failure.code if result.failure else None
        if code is not None and code not in GENERAL and code in MESSAGES:
            return Hint(code, MESSAGES[code].says)
        if result.failure is not None and "NotImplementedError" in result.failure.seen:
            return None
        found = [hint for family in result.check.families for hint in self.of(family)]
        return next((hint for hint in found if hint.code in result.check.about), found[0] if found else None)


# -- asking, and comparing --------------------------------------------------------------------------------------------


def _array(outcome: Outcome, shape: tuple[int, ...]) -> Array | None:
    value = outcome.value
    if outcome.ok and isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in "fb":
        return value.astype(np.float64) if value.dtype.kind == "f" else value
    return None


def _pair(outcome: Outcome, output: tuple[int, ...], weights: tuple[int, ...]) -> tuple[Array, Array] | None:
    value = outcome.value
    if not outcome.ok or not isinstance(value, tuple | list) or len(value) != 2:
        return None
    first, second = (_array(Outcome("value", v), s) for v, s in zip(value, (output, weights), strict=True))
    return None if first is None or second is None else (first, second)


def _same(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, rtol=1e-6, atol=1e-9))


def _changed(subject: Asking, name: str, *args: Array) -> bool:
    outcome = subject.ask(Call(name, args, echo=True))[0]
    return outcome.ok and any(not np.array_equal(a, b) for a, b in zip(args, outcome.echo, strict=True))


def _numbers(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape) for shape in shapes]


def _slope(weights: Array, scores: Array) -> float | None:
    """c where the weights of every row stand to each other as exp(c · score) does, else None."""
    if not np.isfinite(weights).all() or weights.min() <= 0:
        return None
    logs = np.log(weights[:, 1:] / weights[:, :1])
    apart = scores[:, 1:] - scores[:, :1]
    slope = float((logs * apart).sum() / (apart * apart).sum())
    return slope if _same(logs, slope * apart) else None


def _sums(weights: Array) -> Hint | None:
    """What row sums and column sums say of the axis."""
    if not np.isfinite(weights).all() or _same(weights.sum(-1), np.ones(weights.shape[:-1])):
        return None
    rows = f"rows sum to {', '.join(f'{s:.3f}' for s in weights.sum(-1).ravel()[:3])}"
    if _same(weights.sum(-2), np.ones((*weights.shape[:-2], weights.shape[-1]))):
        return Hint("softmax-wrong-axis", f"The columns sum to 1, the {rows}.")
    if _same(weights.sum(), 1.0):
        return Hint("softmax-whole-matrix", f"All entries together sum to 1, the {rows}.")
    return None


# -- softmax ----------------------------------------------------------------------------------------------------------


def _softmax(subject: Asking) -> Iterator[Hint]:
    x, cube = _numbers((3, 5), (2, 3, 4))
    outcome = subject.call(SOFTMAX, x)
    weights = _array(outcome, x.shape)
    if _changed(subject, SOFTMAX, x):
        yield Hint("input-mutated", "The array passed in is not the same after the call.")
    if weights is None:
        yield from _without_keepdims(subject)
        return
    if _same(weights, x):
        yield Hint("softmax-not-applied", "What comes back is the input.")
        return
    if not _same(weights.sum(-1), np.ones(3)):
        hint = _sums(weights) or _unnormalised(weights, x)
        yield from [hint] if hint else []
        return
    yield from _sharpness(weights, _slope(weights, x))
    deep = _array(subject.call(SOFTMAX, cube), cube.shape)
    if deep is not None and not _same(deep.sum(-1), np.ones((2, 3))) and _same(deep.sum(1), np.ones((2, 4))):
        yield Hint(
            "softmax-positional-axis", "In two dimensions rows sum to 1; in three, axis 1 does and the last does not."
        )
    other = _array(subject.call(SOFTMAX, x, axis=0), x.shape)
    if other is not None and _same(other, weights):
        yield Hint("softmax-ignores-axis", "axis=0 and axis=-1 give the same result.")
    yield from _stability(subject)


def _sharpness(weights: Array, slope: float | None) -> Iterator[Hint]:
    if np.isin(weights, (0.0, 1.0)).all():
        yield Hint("softmax-argmax", "Every row is a single 1 and zeros, for scores that are close to each other.")
    for base in (2, 10):
        if slope is not None and _same(slope, math.log(base)):
            yield Hint("softmax-wrong-base", f"Scores 1 apart get weights whose ratio is {base}, not e.")


def _unnormalised(weights: Array, x: Array) -> Hint | None:
    if _slope(weights, x) is None or not _same(_slope(weights, x), 1.0):
        return None
    sums = weights.sum(-1)
    if _same(weights, np.exp(x)) or _same(weights.max(-1), np.ones(3)) or _same(weights, np.exp(x - x.max())):
        return Hint("softmax-unnormalised", f"The exponentials come back undivided: row 0 sums to {sums[0]:.3f}.")
    for exponentials in (np.exp(x - x.max(-1, keepdims=True)), np.exp(x)):
        added = exponentials.sum(-1) * (1 / sums - 1)
        if added[0] > 0 and _same(added, np.full(3, added[0])):
            return Hint("softmax-epsilon", f"Row sums are off 1 as if {added[0]:.3g} were added to each divisor.")
    return None


def _without_keepdims(subject: Asking) -> Iterator[Hint]:
    (x,) = _numbers((3, 3))
    weights = _array(subject.call(SOFTMAX, x), x.shape)
    for shifted in (x - x.max(-1, keepdims=True), x - x.max(-1), x):
        powers = np.exp(shifted)
        if weights is not None and _same(weights, powers / powers.sum(-1)):
            yield Hint(
                "softmax-missing-keepdims", "A square table works, another fails: row i is divided by other rows' sums."
            )
            return


def _stability(subject: Asking) -> Iterator[Hint]:
    def bad(*rows: tuple[float, float]) -> Array | None:
        """Which rows come back without being finite."""
        x = np.array(rows)
        outcome = subject.call(SOFTMAX, x)
        if outcome.kind == "raised" and outcome.type.endswith("OverflowError"):
            return np.ones(len(x), bool)
        weights = _array(outcome, x.shape)
        return None if weights is None else np.asarray(~np.isfinite(weights).all(-1))

    for row in ((1000.0, 1001.0), (0.0, 2000.0)):
        found = bad(row)
        if found is not None and found.any():
            yield Hint("softmax-overflow", f"softmax([{row[0]:g}, {row[1]:g}]) is not finite.")
            return
    found = bad((-3000.0, -2999.0))
    if found is not None and found.any():
        yield Hint("softmax-clamped-max", "softmax([-3000, -2999]) is not finite, and large positive scores are fine.")
        return
    x = np.array([[0.0, 0.0], [5.0, 0.0]])
    weights = _array(subject.call(SOFTMAX, x), x.shape)
    if weights is not None and weights.min() > 0 and _same(math.log(weights[0, 1] / weights[0, 0]), 5.0):
        yield Hint(
            "softmax-max-wrong-axis", "Two equal scores in a row get unequal weights, by what stands in another row."
        )
        return
    found = bad((0.0, 1.0), (3000.0, 3001.0))
    if found is not None and found.tolist() == [True, False]:
        yield Hint("softmax-global-max", "A row at 0 and 1 is not finite once another row stands at 3000.")


# -- projections ------------------------------------------------------------------------------------------------------


def _project(subject: Asking) -> Iterator[Hint]:
    X, W_Q, W_K, W_V = _numbers((4, 6), (6, 6), (6, 6), (6, 6))
    outcome = subject.call(PROJECT, X, W_Q, W_K, W_V)
    if not outcome.ok or not isinstance(outcome.value, tuple | list) or len(outcome.value) != 3:
        return
    Q, K, V = outcome.value
    if _same(Q, X @ W_Q.T) or _same(K, X @ W_K.T) or _same(V, X @ W_V.T):
        yield Hint("projection-transposed", "The projection is X·Wᵀ: seen with square matrices.")
    if _same(K, X @ W_V) and _same(V, X @ W_K):
        yield Hint("values-swapped", "K comes from W_V and V from W_K.")
    if _same(Q, X @ W_K) and _same(K, X @ W_Q):
        yield Hint("scores-transposed", "Q comes from W_K and K from W_Q.")
    if _same(V, X):
        yield Hint("values-unprojected", "V is X itself.")


# -- attention --------------------------------------------------------------------------------------------------------


def _sdpa(subject: Asking) -> Iterator[Hint]:
    n, m, d_k, d_v = 3, 5, 6, 2
    Q, K, V = _numbers((n, d_k), (m, d_k), (m, d_v))
    outcome = subject.call(SDPA, Q, K, V)
    yield from _form(outcome, (n, d_v), (n, m))
    if _changed(subject, SDPA, Q, K, V):
        yield Hint("input-mutated", "Q, K or V is not the same after the call.")
    found = _pair(outcome, (n, d_v), (n, m))
    if found is None:
        yield from _square(subject)
        return
    output, weights = found
    again = _pair(subject.call(SDPA, Q, K, V), (n, d_v), (n, m))
    if again is not None and not _same(again[1], weights):
        yield Hint("not-deterministic", "The same call twice gives two results.")
        return
    scores = Q @ K.T
    hint = _sums(weights)
    if hint:
        yield hint
    slope = _slope(weights, scores)
    yield from _scale(weights, slope, scores, {"n": n, "m": m, "d_v": d_v}, d_k)
    if hint is None:
        yield from _square(subject)
    if _same(output, weights @ V / math.sqrt(d_k)):
        yield Hint("scale-after-softmax", "The output is weights @ V divided by sqrt(d_k).")
    elif not _same(output, weights @ V) and ((output > V.max(0)) | (output < V.min(0))).any():
        yield Hint(None, "An output lies outside the range of the values: it is no weighted average of them.")
    yield from _explicit_scale(subject, Q, K, V, slope)
    yield from _overflow(subject)
    if hint is None:
        yield from _mask(subject, Q, K, V, weights, slope)
        yield from _batch(subject)


def _form(outcome: Outcome, output: tuple[int, ...], weights: tuple[int, ...]) -> Iterator[Hint]:
    if _array(outcome, output) is not None:
        yield Hint("weights-missing", "One array comes back: the output, without the weights.")
    if _pair(outcome, weights, output) is not None:
        yield Hint("output-order", "The weights come first and the output second.")


def _scale(weights: Array, slope: float | None, scores: Array, others: dict[str, int], d_k: int) -> Iterator[Hint]:
    """What the scores were multiplied by, read from the ratios of weights."""
    if np.isin(weights, (0.0, 1.0)).all() and _same(weights.sum(-1), np.ones(len(weights))):
        yield Hint("softmax-argmax", "Every row of the weights is a single 1 and zeros.")
    ratio = weights / scores
    if _same(ratio, np.full_like(ratio, ratio[0, 0])) and ratio[0, 0] > 0:
        yield Hint("softmax-not-applied", "The weights are the scores themselves, negative ones too.")
    if slope is None:
        return
    root = math.sqrt(d_k)
    says = f"Two keys' weights say that scores were multiplied by {slope:.4g}, where 1/sqrt(d_k) is {1 / root:.4g}"
    sums = weights.sum(-1)
    if _same(slope, 1.0) and _same(sums, np.full_like(sums, 1 / root)):
        yield Hint("scale-after-softmax", f"Every row sums to {sums[0]:.4g}, which is 1/sqrt(d_k).")
    elif _same(slope, 1.0):
        yield Hint("scale-missing", f"{says}: the raw scores.")
    elif _same(slope, 1 / d_k):
        yield Hint("scale-by-dk", f"{says}: it is 1/d_k.")
    elif _same(slope, root):
        yield Hint("scale-inverted", f"{says}: it is sqrt(d_k).")
    else:
        for name, size in others.items():
            if _same(slope, 1 / math.sqrt(size)):
                yield Hint("scale-by-wrong-width", f"{says}: it is 1/sqrt({name}).")


def _square(subject: Asking) -> Iterator[Hint]:
    """What shows where all tables are square: transposes, and other matrices in the place of V."""
    Q, K, V = _numbers((6, 6), (6, 6), (6, 6))
    found = _pair(subject.call(SDPA, Q, K, V), (6, 6), (6, 6))
    if found is None:
        return
    output, weights = found
    scores = Q @ K.T
    if _slope(weights, scores) is None and _slope(weights, scores.T) is not None:
        yield Hint("scores-transposed", "On a square table the weight of i on j follows the score of j with i.")
    yield from _averaged(output, weights, V, {"K": K, "Q": Q})


def _averaged(output: Array, weights: Array, V: Array, others: dict[str, Array]) -> Iterator[Hint]:
    if _same(output, weights @ V):
        return
    if _same(output, weights.T @ V):
        yield Hint("weights-transposed", "The output is the transposed weights times V.")
    for name, matrix in others.items():
        if _same(output, weights @ matrix):
            yield Hint("values-swapped", f"The output is weights @ {name}, not weights @ V.")


def _explicit_scale(subject: Asking, Q: Array, K: Array, V: Array, slope: float | None) -> Iterator[Hint]:
    found = _pair(subject.call(SDPA, Q, K, V, scale=0.3), (len(Q), V.shape[1]), (len(Q), len(K)))
    given = None if found is None else _slope(found[1], Q @ K.T)
    if given is None or slope is None or _same(given, 0.3):
        return
    if _same(given, slope):
        yield Hint("scale-ignored", "scale=0.3 gives the same weights as no scale.")
    elif _same(given, 0.3 * slope):
        yield Hint("scale-compounded", f"scale=0.3 multiplies the scores by {given:.4g}: the default comes on top.")


def _overflow(subject: Asking) -> Iterator[Hint]:
    """One query and two keys, so that any maximum but the row's own is that of the row as well."""
    Q, K, V = np.array([[2000.0]]), np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])
    outcome = subject.call(SDPA, Q, K, V)
    found = _pair(outcome, (1, 1), (1, 2))
    overflowed = outcome.kind == "raised" and outcome.type.endswith("OverflowError")
    if overflowed or (found is not None and not np.isfinite(found[1]).all()):
        yield Hint("softmax-overflow", "For scores 0 and 2000 the weights are not finite.")


def _mask(subject: Asking, Q: Array, K: Array, V: Array, free: Array, slope: float | None) -> Iterator[Hint]:
    shapes = (len(Q), V.shape[1]), (len(Q), len(K))
    outcome = subject.call(SDPA, Q, K, V, mask=MASK)
    if outcome.kind == "raised" and "truth value of an array" in outcome.text:
        yield Hint("mask-not-broadcast", "The mask is asked for one truth value (`if mask:`), and an array has none.")
        return
    yield from _turned_mask(subject)
    found = _pair(outcome, *shapes)
    if found is None:
        return
    weights = found[1]
    hidden = ~MASK
    if _same(weights, free):
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")
        return
    if not weights[MASK].any() and (weights[hidden] > 0).all():
        yield Hint("mask-inverted", "Weights are 0 exactly where the mask is True.")
        return
    if not weights[hidden].any():
        if _same(weights[MASK], free[MASK]):
            yield Hint(
                "mask-after-softmax", f"Visible weights are those without a mask: row 0 sums to {weights[0].sum():.3f}."
            )
        yield from _more_masks(subject, Q, K, V)
    elif slope is not None and weights.min() > 0:
        if _same(_hidden_against_visible(weights), _hidden_against_visible(free) - 1.0):
            yield Hint(
                "mask-added", "A hidden score is only 1 lower than without a mask: the mask was added to the scores."
            )
        elif _slope(weights, np.where(MASK, Q @ K.T, 0.0)) is not None:
            yield Hint("mask-multiplied", "Hidden keys weigh as much as a score of 0 does.")


def _turned_mask(subject: Asking) -> Iterator[Hint]:
    found = _pair(subject.call(SDPA, *_numbers((4, 6), (4, 6), (4, 3)), mask=LOPSIDED), (4, 3), (4, 4))
    if found is not None and np.array_equal(found[1] > 0, LOPSIDED.T):
        yield Hint("mask-transposed", "Weights are above 0 exactly where the transposed mask is True.")


def _hidden_against_visible(weights: Array) -> Array:
    """For every row: log of the first hidden weight over the first visible one."""
    rows = np.arange(len(weights))
    return np.asarray(np.log(weights[rows, MASK.argmin(1)] / weights[rows, MASK.argmax(1)]))


def _more_masks(subject: Asking, Q: Array, K: Array, V: Array) -> Iterator[Hint]:
    for mask in (MASK[:1], MASK[0]):
        if subject.call(SDPA, Q, K, V, mask=mask).kind == "raised":
            yield Hint(
                "mask-not-broadcast", f"A mask of shape {mask.shape} raises, one of shape {MASK.shape} does not."
            )
            break
    low = np.array([[1000.0]]), np.array([[-1000.0], [-1000.0]]), np.array([[1.0], [2.0]])
    found = _pair(subject.call(SDPA, *low, mask=np.array([[True, False]])), (1, 1), (1, 2))
    if found is not None and found[1][0, 1] > 0:
        yield Hint("mask-finite-fill", f"Among scores of -1e6 a hidden key gets the weight {found[1][0, 1]:.3g}.")


def _batch(subject: Asking) -> Iterator[Hint]:
    """A batch of two against its items, asked one by one."""
    Q, K, V = _numbers((2, 3, 6), (2, 5, 6), (2, 5, 2))
    outcome = subject.call(SDPA, Q, K, V)
    if outcome.kind == "raised":
        yield Hint("batch-unsupported", f"A batch raises {outcome.type.split('.')[-1]}, each of its items does not.")
        return
    found = _pair(outcome, (2, 3, 2), (2, 3, 5))
    if found is None:
        return
    weights = found[1]

    def item(i: int, j: int) -> Array | None:
        alone = _pair(subject.call(SDPA, Q[i], K[j], V[j]), (3, 2), (3, 5))
        return None if alone is None else alone[1]

    if _same(weights[0], item(0, 0)) and _same(weights[1], item(1, 1)):
        return
    if _same(weights.sum(1), np.ones((2, 5))):
        yield Hint("softmax-positional-axis", "In a batch axis 1 of the weights sums to 1, not the last axis.")
    elif _same(weights[0], item(0, 1)) or _same(weights[1], item(1, 0)):
        yield Hint("batch-mixed", "An item of a batch gets the weights that another item's keys would give.")
    else:
        yield Hint("batch-unsupported", "An item of a batch gets other weights than it gets alone.")


def _self_attention(subject: Asking) -> Iterator[Hint]:
    X, W_Q, W_K, W_V = _numbers((4, 6), (6, 6), (6, 6), (6, 6))
    outcome = subject.call(SELF, X, W_Q, W_K, W_V)
    yield from _form(outcome, (4, 6), (4, 4))
    if _changed(subject, SELF, X, W_Q, W_K, W_V):
        yield Hint("input-mutated", "X or a matrix is not the same after the call.")
    found = _pair(outcome, (4, 6), (4, 4))
    if found is None:
        return
    output, weights = found
    hint = _sums(weights)
    if hint:
        yield hint
    elif _slope(weights, (X @ W_Q) @ (X @ W_K).T) is None:
        if _slope(weights, (X @ W_K) @ (X @ W_Q).T) is not None:
            yield Hint("scores-transposed", "The weight of i on j follows the score of j with i.")
        elif _slope(weights, (X @ W_Q.T) @ (X @ W_K.T).T) is not None:
            yield Hint("projection-transposed", "The weights are those of X·Wᵀ: seen with square matrices.")
    if not _same(output, weights @ X @ W_V):
        if _same(output, weights @ X):
            yield Hint("values-unprojected", "The output is weights @ X.")
        elif _same(output, weights @ X @ W_V.T):
            yield Hint("projection-transposed", "The output averages X·W_Vᵀ.")
        else:
            yield from _averaged(output, weights, X @ W_V, {"(X @ W_K)": X @ W_K, "(X @ W_Q)": X @ W_Q})
    masked = _pair(subject.call(SELF, X, W_Q, W_K, W_V, mask=LOPSIDED), (4, 6), (4, 4))
    if masked is not None and _same(masked[1], weights):
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")


# -- masks and positions ----------------------------------------------------------------------------------------------


def _causal_mask(subject: Asking) -> Iterator[Hint]:
    square = _array(subject.call("attention.causal_mask", 4), (4, 4))
    if square is None:
        return
    visible = square.astype(bool)
    below, above = np.tri(4, k=-1, dtype=bool), ~np.tri(4, dtype=bool)
    if np.array_equal(visible, np.tri(4, dtype=bool)):
        short = _array(subject.call("attention.causal_mask", 2, n_keys=4), (2, 4))
        if short is not None and np.array_equal(short.astype(bool), np.tri(2, 4, dtype=bool)):
            yield Hint(
                "causal-mask-upper-left", "causal_mask(2, 4) lets two queries see as if they were the first two."
            )
    elif np.array_equal(visible, below):
        yield Hint("causal-mask-strict", "causal_mask(4) is False on the diagonal.")
    elif np.array_equal(visible, above) or np.array_equal(visible, ~below):
        yield Hint("causal-mask-inverted", "causal_mask(4) is True above the diagonal and False below.")
    elif visible[~above].all() and visible[0, 1] and not visible.all():
        yield Hint("causal-mask-lookahead", "causal_mask(4) lets the first query see the second key.")


def _positions(subject: Asking) -> Iterator[Hint]:
    table = _array(subject.call("attention.sinusoidal_positions", 3, 8), (3, 8))
    if table is None or not np.isfinite(table).all():
        return
    first, second = table[0], table[1]
    if _same(first, [0, 0, 0, 0, 1, 1, 1, 1]):
        yield Hint("positions-halves", "At position 0 the first half of the columns is 0 and the second is 1.")
    elif _same(first, [1, 0] * 4):
        yield Hint("positions-sin-cos-swapped", "At position 0 the even columns are 1: they hold cosines.")
    elif _same(first[:2], [math.sin(1), math.cos(1)]):
        yield Hint("positions-from-one", "The first row holds sin(1) and cos(1): it is position 1.")
    elif _same(first, [0, 1] * 4):
        turn = np.arctan2(second[0::2], second[1::2])
        if not _same(second[0::2] ** 2 + second[1::2] ** 2, np.ones(4)):
            yield Hint("positions-wrong-frequency", "A sine and its cosine beside it have different frequencies.")
        elif not _same(turn[1], 0.1):
            yield Hint(
                "positions-wrong-frequency", f"At d = 8 the second pair turns by {turn[1]:.4g} a position, not by 1/10."
            )


# -- cache ------------------------------------------------------------------------------------------------------------


def _cache(subject: Asking) -> Iterator[Hint]:
    yield from _cache_alone(subject)
    number = subject.call("kv_cache.kv_cache_bytes", 2, 3, 5, 7, 4)
    if number.ok and isinstance(number.value, int | float) and number.value != 1680:
        yield Hint("cache-bytes-formula", f"kv_cache_bytes(2, 3, 5, 7, 4) is {number.value:g}; 2·2·3·5·7·4 is 1680.")
    made = subject.keep("@model", _decoder())
    if not made.ok:
        return
    ids = subject.call("kv_cache.generate", made.value, [1, 2, 3], 5)
    if ids.ok and isinstance(ids.value, list | tuple) and len(ids.value) != 5:
        yield Hint(
            "generate-off-by-one", f"generate gives {len(ids.value)} ids where 5 are asked, after a prompt of 3."
        )
    filled = subject.keep("kv_cache.prefill", made.value, [1, 2, 3])
    if filled.ok and isinstance(filled.value, tuple | list) and len(filled.value) == 2:
        yield from _one_step(subject, made.value, filled.value[1])


def _decoder() -> dict[str, Any]:
    embedding, *matrices = _numbers((9, 8), *[(8, 8), (8, 4), (8, 4), (8, 8)] * 2)
    names = ("W_Q", "W_K", "W_V", "W_O")
    layers = [dict(zip(names, (w / 3 for w in matrices[i : i + 4]), strict=True)) for i in (0, 4)]
    return {"embedding": embedding, "layers": layers, "n_heads": 4, "n_kv_heads": 2, "positions": "none"}


def _one_step(subject: Asking, model: Handle, cache: Any) -> Iterator[Hint]:
    """A prompt of three tokens and one decoded: what the cache held before is there after, and one token more."""
    if not isinstance(cache, Handle):
        return
    length, before = subject.call("@len", cache), subject.method(cache, "keys", 0)
    step = subject.call("kv_cache.decode_step", model, 4, cache)
    longer, after = subject.call("@len", cache), subject.method(cache, "keys", 0)
    if not step.ok or length.value != 3:
        return
    if longer.value == 3 and np.shape(after.value) == np.shape(before.value):
        yield Hint("cache-not-appended", "After a prompt of 3 tokens and a decoded one, the cache holds 3.")
    elif longer.value == 5 and len(after.value) == 5:
        yield Hint("cache-appended-twice", "After a prompt of 3 tokens and a decoded one, the cache holds 5.")
    elif (
        np.shape(before.value)[:1] == (3,)
        and np.shape(after.value)[:1] == (4,)
        and not _same(after.value[:3], before.value)
    ):
        if _same(after.value[1:], before.value):
            yield Hint("cache-prepended", "A decoded token's key stands in front of the prompt's.")
        else:
            yield Hint("cache-overwritten", "A decoded token changed the keys that the prompt had stored.")


def _cache_alone(subject: Asking) -> Iterator[Hint]:
    made = subject.keep("kv_cache.KVCache", 1, 2, 3, 4, "float32")
    if not made.ok or not isinstance(made.value, Handle):
        return
    cache = made.value
    k, v = (a.astype(np.float32) for a in _numbers((3, 2, 3), (3, 2, 3)))
    kept = subject.keep("@tensor", k)
    if not kept.ok or not subject.method(cache, "append", 0, kept.value, v).ok:
        return
    before = subject.method(cache, "keys", 0).value
    if not isinstance(before, np.ndarray) or before.shape != k.shape:
        return
    if before.dtype != np.float32:
        yield Hint("cache-wrong-dtype", f"A cache of float32 gives keys of {before.dtype}.")
    subject.call("@set", kept.value, k + 1)
    if not _same(subject.method(cache, "keys", 0).value, before):
        yield Hint(
            "cache-aliases-input", "The cache's keys change when the array that was appended changes afterwards."
        )
        return
    fill = subject.method(cache, "append", 0, k[:1], v[:1])
    if fill.kind == "raised" and fill.type.endswith("ValueError"):
        yield Hint("cache-capacity-off-by-one", "A cache for 4 tokens takes 3 and refuses the fourth.")
    elif fill.ok:
        more = subject.method(cache, "append", 0, k, v)
        if more.ok and np.shape(subject.method(cache, "keys", 0).value)[:1] == (7,):
            yield Hint("cache-unbounded", "A cache for 4 tokens takes 7.")
        elif more.kind == "raised" and not more.type.endswith("ValueError"):
            yield Hint("cache-capacity-off-by-one", f"A full cache raises {more.type.split('.')[-1]}, not ValueError.")


# -- experiments ------------------------------------------------------------------------------------------------------


def _score_bytes(subject: Asking) -> Iterator[Hint]:
    got = subject.call("experiments.score_bytes", 10, itemsize=2, heads=3).value
    if isinstance(got, int | float) and got != 600:
        yield Hint(
            "memory-formula",
            f"score_bytes(10, itemsize=2, heads=3) is {got:g}; 3 tables of 10 × 10 at 2 bytes are 600.",
        )


def _fit_exponent(subject: Asking) -> Iterator[Hint]:
    ns = [10, 20, 50, 200]
    got = subject.call("experiments.fit_exponent", ns, [1e-6 * n**2 for n in ns]).value
    if isinstance(got, float) and _same(got, 0.5):
        yield Hint("fit-inverted", "For seconds that grow as n² the exponent comes out as 1/2.")


def _local_slopes(subject: Asking) -> Iterator[Hint]:
    ns = [10, 20, 50, 200]
    got = subject.call("experiments.local_slopes", ns, [1e-6 * n**2 for n in ns]).value
    if isinstance(got, list | tuple | np.ndarray) and _same(list(got), [0.5] * 3):
        yield Hint("fit-inverted", "For seconds that grow as n² every slope comes out as 1/2.")


FAMILIES: dict[str, Callable[[Asking], Iterator[Hint]]] = {
    "softmax": _softmax,
    "project": _project,
    "sdpa": _sdpa,
    "self_attention": _self_attention,
    "causal_mask": _causal_mask,
    "positions": _positions,
    "cache": _cache,
    "score_bytes": _score_bytes,
    "fit_exponent": _fit_exponent,
    "local_slopes": _local_slopes,
}
