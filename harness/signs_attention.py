"""Hints on attention.py: softmax, the projections, attention with its mask and scale, the causal mask, positions.

Every function looks at one family, by questions that anybody could ask.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator

import numpy as np

from harness import signs_scale
from harness.signs import Hint, array, changed, follows, numbers, pair, same, slope, sums
from harness.subject import Asking, Outcome
from harness.values import Array, Handle

SOFTMAX = "attention.softmax"
PROJECT = "attention.project"
SDPA = "attention.scaled_dot_product_attention"
SELF = "attention.self_attention"
MASK = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], bool)
LOPSIDED = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], bool)  # not its own transpose

Look = Callable[[Asking], Iterator[Hint]]


def _or_else(named: Look, described: Look) -> Look:
    """What has a name; where nothing has, what is odd."""

    def look(subject: Asking) -> Iterator[Hint]:
        found = list(named(subject))
        yield from found or described(subject)

    return look


# -- softmax ----------------------------------------------------------------------------------------------------------


def _softmax(subject: Asking) -> Iterator[Hint]:
    x, cube = numbers((3, 5), (2, 3, 4))
    again = [array(subject.call(SOFTMAX, x), x.shape) for _ in range(3)]
    if any(a is not None and b is not None and not same(a, b) for a, b in itertools.pairwise(again)):
        yield Hint("not-deterministic", "The same scores, asked again, get other weights.")
        return
    if _remembers_scores(subject):
        yield Hint("stale-result", "New scores in the same place get the weights of those asked before.")
        return
    outcome = subject.call(SOFTMAX, x)
    weights = array(outcome, x.shape)
    if changed(subject, SOFTMAX, x):
        yield Hint("input-mutated", "The array passed in is not the same after the call.")
    if weights is None:
        deep = array(subject.call(SOFTMAX, cube), cube.shape)
        if _fixed_axis(outcome) and deep is not None and same(deep.sum(-1), np.ones((2, 3))):
            yield Hint("softmax-positional-axis", f"Three dimensions work, two do not: {outcome.text[:80]}.")
        yield from _without_keepdims(subject)
        return
    if same(weights, x):
        yield Hint("softmax-not-applied", "What comes back is the input.")
        return
    hint = sums(weights) or _unnormalised(weights, x)
    yield from [hint] if hint else []
    if not same(weights.sum(-1), np.ones(3)):
        return
    yield from _sharpness(weights, slope(weights, x))
    deep = array(subject.call(SOFTMAX, cube), cube.shape)
    if deep is not None and not same(deep.sum(-1), np.ones((2, 3))) and same(deep.sum(1), np.ones((2, 4))):
        yield Hint(
            "softmax-positional-axis", "In two dimensions rows sum to 1; in three, axis 1 does and the last does not."
        )
    other = array(subject.call(SOFTMAX, x, axis=0), x.shape)
    if other is not None and same(other.sum(-1), np.ones(3)) and not same(other.sum(0), np.ones(5)):
        yield Hint("softmax-ignores-axis", "With axis=0 it is still the rows that sum to 1.")
    yield from _stability(subject)


def _sharpness(weights: Array, factor: float | None) -> Iterator[Hint]:
    if np.isin(weights, (0.0, 1.0)).all():
        yield Hint("softmax-argmax", "Every row is a single 1 and zeros, for scores that are close to each other.")
    for base in (2, 10):
        if factor is not None and same(factor, math.log(base)):
            yield Hint("softmax-wrong-base", f"Scores 1 apart get weights whose ratio is {base}, not e.")


def _unnormalised(weights: Array, x: Array) -> Hint | None:
    if slope(weights, x) is None or not same(slope(weights, x), 1.0):
        return None
    sums = weights.sum(-1)
    if same(weights, np.exp(x)) or same(weights.max(-1), np.ones(3)) or same(weights, np.exp(x - x.max())):
        return Hint("softmax-unnormalised", f"The exponentials come back undivided: row 0 sums to {sums[0]:.3f}.")
    for exponentials in (np.exp(x - x.max(-1, keepdims=True)), np.exp(x)):
        divisors = exponentials.sum(-1)
        added = divisors * (1 / sums - 1)
        room = 8 * np.finfo(float).eps * float(divisors.max())
        if added.min() > 16 * room and np.ptp(added) <= room + 1e-6 * added.min():
            return Hint("softmax-epsilon", f"Row sums are off 1 as if {added.mean():.3g} were added to each divisor.")
    return None


def _remembers_scores(subject: Asking) -> bool:
    """Whether other scores in the same array, its corners as they were, get the weights of the earlier ones.

    Among the rows of a taller table both get weights of their own. No check asks for tables of these shapes.
    """
    (x,) = numbers((3, 9))
    memory = subject.call("@array", x).value
    if not isinstance(memory, Handle):
        return False
    before = array(subject.call(SOFTMAX, memory), x.shape)
    y = _turned_inside(x)
    subject.call("@set", memory, y)
    after = array(subject.call(SOFTMAX, memory), x.shape)
    among = array(subject.call(SOFTMAX, np.concatenate([y, x, y])), (9, 9))
    if before is None or after is None or among is None or not np.array_equal(before, after):
        return False
    return same(among[3:6], before) and not same(among[:3], after)


def _turned_inside(x: Array) -> Array:
    """The same numbers, all but the first and last in reverse."""
    flat = x.ravel().copy()
    flat[1:-1] = flat[-2:0:-1]
    return flat.reshape(x.shape)


def _fixed_axis(outcome: Outcome) -> bool:
    """An error that says that an axis, counted from the front, is one too many."""
    if outcome.kind != "raised":
        return False
    beyond = re.search(r"axis (\d+) is out of bounds for array of dimension (\d+)", outcome.text)
    return beyond is not None or "axes don't match array" in outcome.text


def _softmax_described(subject: Asking) -> Iterator[Hint]:
    (x,) = numbers((3, 5))
    weights = array(subject.call(SOFTMAX, x), x.shape)
    if weights is None or not np.isfinite(weights).all():
        return
    if weights.min() < 0 or np.abs(weights.sum(-1) - 1).max() > 1e-3:
        yield Hint(None, _rows_sum(weights))
    elif not follows(weights, x):
        yield Hint(
            None, "Two weights of a row do not stand to each other as e to the power of their scores' difference."
        )
    elif (factor := slope(weights, x)) is not None and abs(factor - 1) > 1e-3:
        yield Hint(None, f"Scores 1 apart get weights whose ratio is {math.exp(factor):.4g}, not e.")


def _rows_sum(weights: Array) -> str:
    if weights.min() < 0:
        return f"A weight is below 0: {weights.min():.3g}."
    return f"Rows of weights do not sum to 1, but to {', '.join(f'{s:.3f}' for s in weights.sum(-1))}."


def _without_keepdims(subject: Asking) -> Iterator[Hint]:
    (x,) = numbers((3, 3))
    weights = array(subject.call(SOFTMAX, x), x.shape)
    for shifted in (x - x.max(-1, keepdims=True), x - x.max(-1), x):
        powers = np.exp(shifted)
        if weights is not None and same(weights, powers / powers.sum(-1)):
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
        weights = array(outcome, x.shape)
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
    weights = array(subject.call(SOFTMAX, x), x.shape)
    if weights is not None and weights.min() > 0 and same(math.log(weights[0, 1] / weights[0, 0]), 5.0):
        yield Hint(
            "softmax-max-wrong-axis", "Two equal scores in a row get unequal weights, by what stands in another row."
        )
        return
    found = bad((0.0, 1.0), (3000.0, 3001.0))
    if found is not None and found.tolist() == [True, False]:
        yield Hint("softmax-global-max", "A row at 0 and 1 is not finite once another row stands at 3000.")


# -- projections ------------------------------------------------------------------------------------------------------


def _project(subject: Asking) -> Iterator[Hint]:
    X, W_Q, W_K, W_V = numbers((4, 6), (6, 6), (6, 6), (6, 6))
    outcome = subject.call(PROJECT, X, W_Q, W_K, W_V)
    if not outcome.ok or not isinstance(outcome.value, tuple | list) or len(outcome.value) != 3:
        return
    Q, K, V = outcome.value
    if same(Q, X @ W_Q.T) or same(K, X @ W_K.T) or same(V, X @ W_V.T):
        yield Hint("projection-transposed", "The projection is X·Wᵀ: seen with square matrices.")
    if same(K, X @ W_V) and same(V, X @ W_K):
        yield Hint("values-swapped", "K comes from W_V and V from W_K.")
    if same(Q, X @ W_K) and same(K, X @ W_Q):
        yield Hint("scores-transposed", "Q comes from W_K and K from W_Q.")
    if same(V, X):
        yield Hint("values-unprojected", "V is X itself.")


def _project_described(subject: Asking) -> Iterator[Hint]:
    X, *W = numbers((4, 6), (6, 5), (6, 5), (6, 3))
    outcome = subject.call(PROJECT, X, *W)
    if not outcome.ok or not isinstance(outcome.value, tuple | list) or len(outcome.value) != 3:
        return
    for name, matrix, value in zip("QKV", W, outcome.value, strict=True):
        got = array(Outcome("value", value), (4, matrix.shape[1]))
        if got is not None and not _close(got, X @ matrix):
            yield Hint(None, f"{name} is not X @ W_{name}.")
            return


def _close(a: Array, b: Array) -> bool:
    """The same but for rounding, in float32 too."""
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3))


# -- attention --------------------------------------------------------------------------------------------------------


def _sdpa(subject: Asking) -> Iterator[Hint]:
    n, m, d_k, d_v = 3, 5, 6, 2
    Q, K, V = numbers((n, d_k), (m, d_k), (m, d_v))
    outcome = subject.call(SDPA, Q, K, V)
    yield from _form(outcome, (n, d_v), (n, m))
    if changed(subject, SDPA, Q, K, V):
        yield Hint("input-mutated", "Q, K or V is not the same after the call.")
    found = pair(outcome, (n, d_v), (n, m))
    if found is None:
        yield from _batches_alone(subject, outcome)
        yield from _square(subject)
        return
    output, weights = found
    if not _repeats(subject):
        yield Hint("not-deterministic", "The same call twice gives two results.")
        return
    if _remembers_arrays(subject):
        yield Hint("stale-result", "New queries, keys or values in the same place get the result of those before.")
        return
    other = pair(subject.call(SDPA, Q[::-1].copy(), K[::-1].copy(), V), (n, d_v), (n, m))
    if other is not None and same(other[1], weights):
        yield Hint(None, "Other queries and keys of the same shape get the same weights.")
        return
    scores = Q @ K.T
    hint = sums(weights)
    if hint:
        yield hint
    factor = slope(weights, scores)
    late = factor is not None and same(factor, 1.0) and same(output, weights @ V / math.sqrt(d_k))
    if late:
        yield Hint(
            "scale-after-softmax", "The weights are those of the raw scores, and the output is divided by sqrt(d_k)."
        )
    else:
        no_scores = _no_scores(weights, factor, scores, d_k)
        yield from no_scores
        if not no_scores:
            yield from signs_scale.hints(lambda sizes, seed: _factor(subject, sizes, seed), SIZES, OTHER_SIZES)
        yield from _explicit_scale(subject, Q, K, V, weights, factor)
    if hint is None:
        yield from _square(subject)
    if not late and not same(output, weights @ V) and ((output > V.max(0)) | (output < V.min(0))).any():
        yield Hint(None, "An output lies outside the range of the values: it is no weighted average of them.")
    yield from _overflow(subject)
    if hint is None:
        yield from _mask(subject)
        yield from _batch(subject)


def _form(outcome: Outcome, output: tuple[int, ...], weights: tuple[int, ...]) -> Iterator[Hint]:
    if array(outcome, output) is not None:
        yield Hint("weights-missing", "One array comes back: the output, without the weights.")
    if pair(outcome, weights, output) is not None:
        yield Hint("output-order", "The weights come first and the output second.")


SIZES = {"n": 3, "m": 5, "d_k": 6, "d_v": 2}
OTHER_SIZES = {"n": 4, "m": 7, "d_k": 10, "d_v": 8}


def _factor(subject: Asking, sizes: signs_scale.Sizes, seed: int) -> float | None:
    """What attention multiplies the scores by."""
    n, m, d_k, d_v = (sizes[name] for name in ("n", "m", "d_k", "d_v"))
    Q, K, V = numbers((n, d_k), (m, d_k), (m, d_v), seed=seed)
    found = pair(subject.call(SDPA, Q, K, V), (n, d_v), (n, m))
    return None if found is None else slope(found[1], Q @ K.T)


def _no_scores(weights: Array, factor: float | None, scores: Array, d_k: int) -> list[Hint]:
    """Weights that are no softmax of scores, and weights that are scaled themselves."""
    if np.isin(weights, (0.0, 1.0)).all() and same(weights.sum(-1), np.ones(len(weights))):
        return [Hint("softmax-argmax", "Every row of the weights is a single 1 and zeros.")]
    ratio = weights / scores
    if same(ratio, np.full_like(ratio, ratio[0, 0])) and ratio[0, 0] > 0:
        return [Hint("softmax-not-applied", "The weights are the scores themselves, negative ones too.")]
    totals = weights.sum(-1)
    if factor is not None and same(factor, 1.0) and same(totals, np.full_like(totals, 1 / math.sqrt(d_k))):
        seen = f"Every row totals to {totals[0]:.4g}, which is 1/sqrt(d_k)."
        return [Hint("scale-after-softmax", seen)]
    return []


def _repeats(subject: Asking) -> bool:
    """Whether the same call gives the same twice, weights and output; of many entries, so that a dropped one shows."""
    Q, K, V = numbers((9, 6), (12, 6), (12, 2))
    one, other = (pair(subject.call(SDPA, Q, K, V), (9, 2), (9, 12)) for _ in range(2))
    return one is None or other is None or (same(one[0], other[0]) and same(one[1], other[1]))


def _remembers_arrays(subject: Asking) -> bool:
    """Whether Q, K or V with other numbers in the same array gives what the earlier ones gave.

    With the queries written out twice, or three times, both give results of their own. No check asks for these shapes.
    """
    arrays = numbers((3, 6), (8, 6), (8, 2))
    memory = [subject.call("@array", array).value for array in arrays]
    if not all(isinstance(handle, Handle) for handle in memory):
        return False
    before = pair(subject.call(SDPA, *memory), (3, 2), (3, 8))
    fresh = _among(subject, arrays, 2)
    if before is None or fresh is None or not all(map(same, fresh, before)):
        return False
    for i, old in enumerate(list(arrays)):
        arrays[i] = _turned_inside(old)
        subject.call("@set", memory[i], arrays[i])
        after = pair(subject.call(SDPA, *memory), (3, 2), (3, 8))
        fresh = _among(subject, arrays, 3 + i)
        if after is None or fresh is None:
            return False
        if all(map(np.array_equal, after, before)) and not all(map(same, fresh, after)):
            return True
        before = after
    return False


def _among(subject: Asking, arrays: list[Array], times: int) -> tuple[Array, Array] | None:
    """What the queries get when they are written out several times."""
    Q, K, V = arrays
    found = pair(subject.call(SDPA, np.tile(Q, (times, 1)), K, V), (3 * times, 2), (3 * times, 8))
    return None if found is None else (found[0][:3], found[1][:3])


def _batches_alone(subject: Asking, outcome: Outcome) -> Iterator[Hint]:
    """Two dimensions raise, three come out right, and four raise or come out wrong."""
    if outcome.kind != "raised" or not _right_in_a_batch(subject, (2,)):
        return
    said = f"{outcome.type.split('.')[-1]}: {outcome.text[:80]}"
    if _fixed_axis(outcome) and not _right_in_a_batch(subject, (2, 2)):
        yield Hint("softmax-positional-axis", f"A batch works, one sequence does not: {said}.")
    else:
        yield Hint(None, f"A batch works, and one sequence without a batch axis raises {said}.")


def _right_in_a_batch(subject: Asking, batch: tuple[int, ...]) -> bool:
    """Weights that follow each item's scores over sqrt(d_k), and an output that blends its values."""
    n, m, d_k, d_v = (SIZES[name] for name in ("n", "m", "d_k", "d_v"))
    Q, K, V = numbers((*batch, n, d_k), (*batch, m, d_k), (*batch, m, d_v))
    found = pair(subject.call(SDPA, Q, K, V), (*batch, n, d_v), (*batch, n, m))
    if found is None:
        return False
    powers = np.exp(Q @ K.swapaxes(-1, -2) / math.sqrt(d_k))
    return same(found[1], powers / powers.sum(-1, keepdims=True)) and same(found[0], found[1] @ V)


def _square(subject: Asking) -> Iterator[Hint]:
    """What shows where all tables are square: transposes, and other matrices in the place of V."""
    Q, K, V = numbers((6, 6), (6, 6), (6, 6))
    found = pair(subject.call(SDPA, Q, K, V), (6, 6), (6, 6))
    if found is None:
        return
    output, weights = found
    scores = Q @ K.T
    if slope(weights, scores) is None and slope(weights, scores.T) is not None:
        yield Hint("scores-transposed", "On a square table the weight of i on j follows the score of j with i.")
    yield from _averaged(output, weights, V, {"K": K, "Q": Q})


def _averaged(output: Array, weights: Array, V: Array, others: dict[str, Array]) -> Iterator[Hint]:
    if same(output, weights @ V):
        return
    if same(output, weights.T @ V):
        yield Hint("weights-transposed", "The output is the transposed weights times V.")
    for name, matrix in others.items():
        if same(output, weights @ matrix):
            yield Hint("values-swapped", f"The output is weights @ {name}, not weights @ V.")


def _explicit_scale(subject: Asking, Q: Array, K: Array, V: Array, free: Array, factor: float | None) -> Iterator[Hint]:
    found = pair(subject.call(SDPA, Q, K, V, scale=0.3), (len(Q), V.shape[1]), (len(Q), len(K)))
    given = None if found is None else slope(found[1], Q @ K.T)
    if found is None or given is None or factor is None or same(given, 0.3):
        return
    if same(found[1], free):
        yield Hint("scale-ignored", "scale=0.3 gives the same weights as no scale.")
    elif same(given, 0.3 * factor):
        yield Hint("scale-compounded", f"scale=0.3 multiplies the scores by {given:.4g}: the default comes on top.")


def _overflow(subject: Asking) -> Iterator[Hint]:
    """One query and two keys, so that any maximum but the row's own is that of the row as well."""
    Q, K, V = np.array([[2000.0]]), np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])
    outcome = subject.call(SDPA, Q, K, V)
    found = pair(outcome, (1, 1), (1, 2))
    overflowed = outcome.kind == "raised" and outcome.type.endswith("OverflowError")
    if overflowed or (found is not None and not np.isfinite(found[1]).all()):
        yield Hint("softmax-overflow", "For scores 0 and 2000 the weights are not finite.")


def _mask(subject: Asking) -> Iterator[Hint]:
    """Weights under a mask, and then the same without one (in this order, lest a remembered result seem unmasked)."""
    n, m, width = 3, 5, 2
    Q, K, V = (matrix + 0.5 for matrix in numbers((n, 6), (m, 6), (m, width)))
    outcome = subject.call(SDPA, Q, K, V, mask=MASK)
    if outcome.kind == "raised" and "truth value of an array" in outcome.text:
        yield Hint("mask-not-broadcast", "The mask is asked for one truth value (`if mask:`), and an array has none.")
        return
    yield from _turned_mask(subject)
    found, unmasked = pair(outcome, (n, width), (n, m)), pair(subject.call(SDPA, Q, K, V), (n, width), (n, m))
    if found is None or unmasked is None or not same(unmasked[1].sum(-1), np.ones(n)):
        return
    weights, free, hidden = found[1], unmasked[1], ~MASK
    if (weights[hidden] > 0).all() and same(weights, free):
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")
    elif (weights[hidden] > 0).all() and not weights[MASK].any():
        yield Hint("mask-inverted", "Weights are 0 exactly where the mask is True.")
    elif not weights[hidden].any():
        if same(weights[MASK], free[MASK]) and (weights.sum(-1) < 0.999).all():
            sum_of_first = f"row 0 sums to {weights[0].sum():.3f}"
            yield Hint("mask-after-softmax", f"Visible weights are those without a mask: {sum_of_first}.")
        yield from _more_masks(subject, Q, K, V)
    elif weights.min() > 0:
        yield from _leak(weights, free, slope(free, Q @ K.T), Q @ K.T)


def _leak(weights: Array, free: Array, factor: float | None, scores: Array) -> Iterator[Hint]:
    """How far a hidden score stands below a visible one: an amount added to it, or a value put in its place."""
    lower = _hidden_over_visible(free) - _hidden_over_visible(weights)
    if same(lower, np.full_like(lower, lower[0])):
        if same(lower[0], 1.0):
            yield Hint("mask-added", "A hidden score is 1 lower than without a mask: the mask was added to the scores.")
        elif lower[0] > 2:
            yield Hint("mask-finite-fill", f"A hidden score is only {lower[0]:.4g} lower than without a mask.")
    if factor is None:
        return
    fill = _hidden_over_visible(weights) + factor * scores[np.arange(len(scores)), MASK.argmax(1)]
    if same(fill, np.zeros_like(fill)):
        yield Hint("mask-multiplied", "Hidden keys weigh as much as a score of 0 does.")
    elif same(fill, np.full_like(fill, fill[0])) and fill[0] < -2:
        yield Hint("mask-finite-fill", f"Hidden keys weigh as much as a score of {fill[0]:.4g} does.")


def _turned_mask(subject: Asking) -> Iterator[Hint]:
    found = pair(subject.call(SDPA, *numbers((4, 6), (4, 6), (4, 3)), mask=LOPSIDED), (4, 3), (4, 4))
    if found is not None and np.array_equal(found[1] > 0, LOPSIDED.T):
        yield Hint("mask-transposed", "Weights are above 0 exactly where the transposed mask is True.")


def _hidden_over_visible(weights: Array) -> Array:
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
    found = pair(subject.call(SDPA, *low, mask=np.array([[True, False]])), (1, 1), (1, 2))
    if found is not None and found[1][0, 1] > 0:
        yield Hint("mask-finite-fill", f"Among scores of -1e6 a hidden key gets the weight {found[1][0, 1]:.3g}.")


def _batch(subject: Asking) -> Iterator[Hint]:
    """A batch of two against its items, asked one by one."""
    Q, K, V = numbers((2, 3, 6), (2, 5, 6), (2, 5, 2))
    outcome = subject.call(SDPA, Q, K, V)
    if outcome.kind == "raised":
        yield Hint("batch-unsupported", f"A batch raises {outcome.type.split('.')[-1]}, each of its items does not.")
        return

    def alone(i: int, j: int) -> Array | None:
        """The weights that item i gets alone, with the keys of item j."""
        answer = pair(subject.call(SDPA, Q[i], K[j], V[j]), (3, 2), (3, 5))
        return None if answer is None else answer[1]

    found = pair(outcome, (2, 3, 2), (2, 3, 5))
    if found is None:
        yield from _form(outcome, (2, 3, 2), (2, 3, 5))
        single = pair(outcome, (3, 2), (3, 5))
        item = next((i for i in (0, 1) if single is not None and same(single[1], alone(i, i))), None)
        if item is not None:
            which = ("first", "second")[item]
            yield Hint("batch-unsupported", f"Of a batch of two only the {which} item's result comes back.")
        return
    output, weights = found

    if same(weights[0], alone(0, 0)) and same(weights[1], alone(1, 1)):
        if not same(output, weights @ V) and (same(output[0], weights[0] @ V[1]) or same(output[1], weights[1] @ V[0])):
            yield Hint("batch-mixed", "An item of a batch averages another item's values.")
    elif same(weights.sum(1), np.ones((2, 5))):
        yield Hint("softmax-positional-axis", "In a batch axis 1 of the weights sums to 1, not the last axis.")
    elif same(weights[0], alone(0, 1)) or same(weights[1], alone(1, 0)):
        yield Hint("batch-mixed", "An item of a batch gets the weights that another item's keys would give.")
    else:
        yield Hint(None, "An item of a batch gets other weights than it gets alone.")


def _sdpa_described(subject: Asking) -> Iterator[Hint]:
    n, m, d_k, d_v = (SIZES[name] for name in ("n", "m", "d_k", "d_v"))
    Q, K, V = numbers((n, d_k), (m, d_k), (m, d_v))
    found = pair(subject.call(SDPA, Q, K, V), (n, d_v), (n, m))
    if found is None or not np.isfinite(found[1]).all() or not np.isfinite(found[0]).all():
        return
    output, weights = found
    if weights.min() < 0 or np.abs(weights.sum(-1) - 1).max() > 1e-3:
        yield Hint(None, _rows_sum(weights))
    elif not follows(weights, Q @ K.T):
        each = [slope(weights[i : i + 1], (Q @ K.T)[i : i + 1]) for i in range(n)]
        if None not in each:
            factors = ", ".join(f"{factor:.3g}" for factor in each)
            yield Hint(None, f"Each query's scores are multiplied by a factor of its own: {factors} for the first {n}.")
        else:
            yield Hint(None, "The weights do not follow Q·Kᵀ: no factor on it explains how two keys' weights compare.")
    else:
        yield from signs_scale.described(lambda sizes, seed: _factor(subject, sizes, seed), SIZES)
    if not _close(output, weights @ V):
        off = np.abs(output - weights @ V).max()
        yield Hint(None, f"The output is not weights @ V: an entry is {off:.3g} away from it.")
    yield from _mask_described(subject)


def _mask_described(subject: Asking) -> Iterator[Hint]:
    """Weights under a mask whose fault has no name."""
    Q, K, V = (matrix + 0.5 for matrix in numbers((3, 6), (5, 6), (5, 2)))
    found = pair(subject.call(SDPA, Q, K, V, mask=MASK), (3, 2), (3, 5))
    free = pair(subject.call(SDPA, Q, K, V), (3, 2), (3, 5))
    if found is None or free is None or not np.isfinite(found[1]).all() or (free[1] <= 0).any():
        return
    shown = np.where(MASK, free[1], 0)
    if found[1][~MASK].any():
        yield Hint(None, f"A key that the mask hides gets weight {found[1][~MASK].max():.3g}.")
    elif (found[1][MASK] <= 0).any():
        yield Hint(None, "A key that the mask shows gets no weight.")
    elif not _close(found[1], shown / shown.sum(-1, keepdims=True)):
        yield Hint(None, "Under a mask the keys that are shown do not share the weight as they do without it.")


def _self_attention(subject: Asking) -> Iterator[Hint]:
    X, W_Q, W_K, W_V = numbers((4, 6), (6, 6), (6, 6), (6, 6))
    outcome = subject.call(SELF, X, W_Q, W_K, W_V)
    yield from _form(outcome, (4, 6), (4, 4))
    if changed(subject, SELF, X, W_Q, W_K, W_V):
        yield Hint("input-mutated", "X or a matrix is not the same after the call.")
    found = pair(outcome, (4, 6), (4, 4))
    if found is None:
        return
    output, weights = found
    hint = sums(weights)
    if hint:
        yield hint
    elif slope(weights, (X @ W_Q) @ (X @ W_K).T) is None:
        if slope(weights, (X @ W_K) @ (X @ W_Q).T) is not None:
            yield Hint("scores-transposed", "The weight of i on j follows the score of j with i.")
        elif slope(weights, (X @ W_Q.T) @ (X @ W_K.T).T) is not None:
            yield Hint("projection-transposed", "The weights are those of X·Wᵀ: seen with square matrices.")
    else:
        sizes, others = {"n": 4, "d": 7, "d_k": 5, "d_v": 3}, {"n": 5, "d": 8, "d_k": 10, "d_v": 6}
        yield from signs_scale.hints(lambda sizes, seed: _factor_of_self(subject, sizes, seed), sizes, others)
    if not same(output, weights @ X @ W_V):
        if same(output, weights @ X):
            yield Hint("values-unprojected", "The output is weights @ X.")
        elif same(output, weights @ X @ W_V.T):
            yield Hint("projection-transposed", "The output averages X·W_Vᵀ.")
        else:
            yield from _averaged(output, weights, X @ W_V, {"(X @ W_K)": X @ W_K, "(X @ W_Q)": X @ W_Q})
    fresh, mask = X[:3] + 1, LOPSIDED[:3, :3]  # not asked before, and under the mask first: a result may be remembered
    masked = pair(subject.call(SELF, fresh, W_Q, W_K, W_V, mask=mask), (3, 6), (3, 3))
    free = pair(subject.call(SELF, fresh, W_Q, W_K, W_V), (3, 6), (3, 3))
    if masked is not None and free is not None and same(masked[1], free[1]) and (masked[1][~mask] > 0).all():
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")


def _factor_of_self(subject: Asking, sizes: signs_scale.Sizes, seed: int) -> float | None:
    """What self_attention multiplies the scores by."""
    n, d, d_k, d_v = (sizes[name] for name in ("n", "d", "d_k", "d_v"))
    X, W_Q, W_K, W_V = numbers((n, d), (d, d_k), (d, d_k), (d, d_v), seed=seed)
    W_Q, W_K = W_Q / d, W_K / d  # or a weight of 0 hides the factor
    found = pair(subject.call(SELF, X, W_Q, W_K, W_V), (n, d_v), (n, n))
    return None if found is None else slope(found[1], (X @ W_Q) @ (X @ W_K).T)


def _self_described(subject: Asking) -> Iterator[Hint]:
    """self_attention against the submission's own attention of its own projections."""
    X, W_Q, W_K, W_V = numbers((4, 6), (6, 5), (6, 5), (6, 3))
    projected = subject.call(PROJECT, X, W_Q, W_K, W_V).value
    if not isinstance(projected, tuple | list) or len(projected) != 3:
        return
    mask = LOPSIDED
    for under, named in (("", {}), ("Under a mask ", {"mask": mask})):
        expected = pair(subject.call(SDPA, *projected, **named), (4, 3), (4, 4))
        found = pair(subject.call(SELF, X, W_Q, W_K, W_V, **named), (4, 3), (4, 4))
        if found is None or expected is None or not np.isfinite([*expected[0].flat, *expected[1].flat]).all():
            continue
        what = next((i for i in (1, 0) if not _close(found[i], expected[i])), None)
        if what is not None:
            part = f"{('output is', 'weights are')[what]} not what attention gives for project(X, W_Q, W_K, W_V)"
            yield Hint(None, f"{under}the {part}.".capitalize() if not under else f"{under}the {part}.")
            return


# -- masks and positions ----------------------------------------------------------------------------------------------


def _causal_mask(subject: Asking) -> Iterator[Hint]:
    square = array(subject.call("attention.causal_mask", 4), (4, 4))
    if square is None:
        return
    visible = square.astype(bool)
    below, above = np.tri(4, k=-1, dtype=bool), ~np.tri(4, dtype=bool)
    if np.array_equal(visible, np.tri(4, dtype=bool)):
        short = array(subject.call("attention.causal_mask", 2, n_keys=4), (2, 4))
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
    elif visible.all():
        yield Hint(None, "causal_mask(4) hides nothing.")
    else:
        query, key = (int(i) for i in np.argwhere(visible == above)[0])
        yield Hint(
            None,
            f"causal_mask(4) {'shows' if key > query else 'hides'} key {key} {'to' if key > query else 'from'} query {query}.",
        )


def _positions(subject: Asking) -> Iterator[Hint]:
    table = array(subject.call("attention.sinusoidal_positions", 3, 8), (3, 8))
    if table is None or not np.isfinite(table).all():
        return
    first, second = table[0], table[1]
    if same(first, [0, 0, 0, 0, 1, 1, 1, 1]):
        yield Hint("positions-halves", "At position 0 the first half of the columns is 0 and the second is 1.")
    elif same(first, [1, 0] * 4):
        yield Hint("positions-sin-cos-swapped", "At position 0 the even columns are 1: they hold cosines.")
    elif same(first[:2], [math.sin(1), math.cos(1)]):
        yield Hint("positions-from-one", "The first row holds sin(1) and cos(1): it is position 1.")
    elif same(first, [0, 1] * 4):
        turn = np.arctan2(second[0::2], second[1::2])
        if not same(second[0::2] ** 2 + second[1::2] ** 2, np.ones(4)):
            yield Hint("positions-wrong-frequency", "A sine and its cosine beside it have different frequencies.")
        elif not same(turn[1], 0.1):
            yield Hint(
                "positions-wrong-frequency", f"At d = 8 the second pair turns by {turn[1]:.4g} a position, not by 1/10."
            )
    else:
        yield Hint(
            None, f"At position 0 the first columns are {first[0]:.4g} and {first[1]:.4g}: sin 0 is 0 and cos 0 is 1."
        )


FAMILIES: dict[str, Look] = {
    "softmax": _or_else(_softmax, _softmax_described),
    "project": _or_else(_project, _project_described),
    "sdpa": _or_else(_sdpa, _sdpa_described),
    "self_attention": _or_else(_self_attention, _self_described),
    "causal_mask": _causal_mask,
    "positions": _positions,
}
