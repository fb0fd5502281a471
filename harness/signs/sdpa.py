"""Hints on scaled dot-product attention: its form, its scale, what it averages, batches, what it remembers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from harness.signs import (
    Hint,
    averaged,
    changed,
    close,
    fixed_axis,
    follows,
    form,
    numbers,
    or_else,
    pair,
    rows_sum,
    same,
    slope,
    sums,
    turned_inside,
)
from harness.signs import mask as signs_mask
from harness.signs import scale as signs_scale
from harness.subject import Asking, Outcome
from harness.values import Array, Handle

SDPA = "attention.scaled_dot_product_attention"
SIZES = {"n": 3, "m": 5, "d_k": 6, "d_v": 2}
OTHER_SIZES = {"n": 4, "m": 7, "d_k": 10, "d_v": 8}


def named(subject: Asking) -> Iterator[Hint]:
    n, m, d_k, d_v = 3, 5, 6, 2
    Q, K, V = numbers((n, d_k), (m, d_k), (m, d_v))
    outcome = subject.call(SDPA, Q, K, V)
    yield from form(outcome, (n, d_v), (n, m))
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
        yield from signs_mask.named(subject)
        yield from _batch(subject)


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
        arrays[i] = turned_inside(old)
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
    if fixed_axis(outcome) and not _right_in_a_batch(subject, (2, 2)):
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
    yield from averaged(output, weights, V, {"K": K, "Q": Q})


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
        yield from form(outcome, (2, 3, 2), (2, 3, 5))
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


def described(subject: Asking) -> Iterator[Hint]:
    n, m, d_k, d_v = (SIZES[name] for name in ("n", "m", "d_k", "d_v"))
    Q, K, V = numbers((n, d_k), (m, d_k), (m, d_v))
    found = pair(subject.call(SDPA, Q, K, V), (n, d_v), (n, m))
    if found is None or not np.isfinite(found[1]).all() or not np.isfinite(found[0]).all():
        return
    output, weights = found
    if weights.min() < 0 or np.abs(weights.sum(-1) - 1).max() > 1e-3:
        yield Hint(None, rows_sum(weights))
    elif not follows(weights, Q @ K.T):
        each = [slope(weights[i : i + 1], (Q @ K.T)[i : i + 1]) for i in range(n)]
        if None not in each:
            factors = ", ".join(f"{factor:.3g}" for factor in each)
            yield Hint(None, f"Each query's scores are multiplied by a factor of its own: {factors} for the first {n}.")
        else:
            yield Hint(None, "The weights do not follow Q·Kᵀ: no factor on it explains how two keys' weights compare.")
    else:
        yield from signs_scale.described(lambda sizes, seed: _factor(subject, sizes, seed), SIZES)
    if not close(output, weights @ V):
        off = np.abs(output - weights @ V).max()
        yield Hint(None, f"The output is not weights @ V: an entry is {off:.3g} away from it.")
    yield from signs_mask.described(subject)


look = or_else(named, described)
