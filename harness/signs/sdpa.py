"""Hints on scaled dot-product attention: its form, its scale, what it averages, batches, what it remembers.

Where only some problems are answered (square tables, a batch), these are what the other signs are looked for on: a second
fault is named beside the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from harness.signs import (
    Hint,
    array,
    averaged,
    changed,
    close,
    fixed_axis,
    follows,
    form,
    narrowed,
    numbers,
    pair,
    place,
    repeated,
    rows_sum,
    said,
    same,
    slope,
    sums,
    turned_inside,
)
from harness.signs import mask as signs_mask
from harness.signs import scale as signs_scale
from harness.signs import softmax as signs_softmax
from harness.signs.asked import OTHER_SIZES, SDPA, SIZES, Attention, attention_of
from harness.subject import Asking, Outcome
from harness.values import Array, Handle


def look(subject: Asking) -> Iterator[Hint]:
    """What has a name; where nothing has, what is odd."""
    found = attention_of(subject)
    if found is None:
        named = list(_square(Attention(subject)))
        yield from named or _batches_alone(subject)
        return
    attention, outcome = found
    named = list(_named(attention, outcome))
    yield from named or _described(attention)
    if not any(hint.code and hint.code.startswith("mask-") for hint in named):
        yield from signs_mask.described(attention)


def _named(attention: Attention, outcome: Outcome) -> Iterator[Hint]:
    subject = attention.subject
    Q, K, V = attention.problem()
    yield from _form(attention, outcome)
    if changed(subject, SDPA, Q, K, V):
        yield Hint("input-mutated", "Q, K or V is not the same after the call.")
    found = attention.pair(Q, K, V)
    if found is None:
        return
    output, weights = found
    if not _repeats(attention):
        yield Hint("not-deterministic", "The same call twice gives two results.")
        return
    if _remembers_arrays(attention):
        yield Hint("stale-result", "New queries, keys or values in the same place get the result of those before.")
        return
    other = attention.pair(Q[::-1].copy(), K[::-1].copy(), V)
    if other is not None and same(other[1], weights):
        yield Hint(None, "Other queries and keys of the same shape get the same weights.", like="softmax-not-applied")
        return
    scores = attention.scores(Q, K)
    hint = sums(weights)
    if hint:
        yield hint
    factor = slope(weights, scores)
    late = factor is not None and same(factor, 1.0) and same(output, weights @ V / math.sqrt(K.shape[-1]))
    if late:
        seen = "The weights are those of the raw scores, and the output is divided by sqrt(d_k)."
        yield Hint("scale-after-softmax", seen)
    else:
        no_scores = _no_scores(attention, factor, (Q, K, V), found)
        yield from no_scores
        if not no_scores:
            yield from _scale(attention)
        yield from _explicit_scale(attention, weights, factor)
    yield from _as_softmax(attention, weights, factor, scores)
    if hint is None:
        yield from _square(attention)
        yield from _narrow(attention, outcome, factor)
    if not late and not same(output, weights @ V):
        if factor is not None and same(output, factor * scores @ V):
            yield Hint("softmax-not-applied", "The output is scores @ V; the weights come back as they should.")
        elif ((output > V.max(0)) | (output < V.min(0))).any():
            seen = "An output lies outside the range of the values: it is no weighted average of them."
            yield Hint(None, seen, like="values-swapped")
    yield from signs_mask.named(attention)
    if hint is None and not attention.batched:
        yield from _batch(attention)


def _form(attention: Attention, outcome: Outcome) -> Iterator[Hint]:
    """In what form, and for which problems, there is an answer."""
    Q, K, V = Attention(attention.subject).problem()
    yield from form(outcome, (len(Q), V.shape[1]), (len(Q), len(K)))
    if attention.takes == "unturned":
        batch = attention.ask(*attention.problem(2))
        if "axes don't match" in batch.text:
            seen = "In two dimensions the scores are Q @ K, K not transposed; a batch raises"
            yield Hint("transpose-permutation", f"{seen} {said(batch)}.", at=place(batch))
        else:
            seen = "The scores are Q @ K: K is not transposed."
            yield Hint(None, seen, like="transpose-permutation")
    elif attention.takes == "square" and not any(_square(attention)):
        wrong = f"raise {said(outcome)}" if outcome.kind == "raised" else "give another shape"
        seen = f"{len(Q)} queries and {len(K)} keys {wrong}; as many keys as queries do not."
        yield Hint("square-only", seen, at=place(outcome))
    elif attention.batched:
        yield from _batches_alone(attention.subject)
    one = attention.ask(*attention.problem(n=1)) if attention.takes == "any" else Outcome("missing")
    m, d_v = SIZES["m"], SIZES["d_v"]
    if one.ok and pair(one, (1, d_v), (1, m)) is None and pair(one, (d_v,), (m,)) is not None:
        yield Hint("wrong-shape", f"For one query the output has the shape ({d_v},): an axis of length 1 is gone.")


def _no_scores(
    attention: Attention, factor: float | None, qkv: tuple[Array, Array, Array], found: tuple[Array, Array]
) -> list[Hint]:
    """Weights that are no softmax of scores, and weights that are scaled themselves."""
    Q, K, V = qkv
    output, weights = found
    scores = attention.scores(Q, K)
    if np.isin(weights, (0.0, 1.0)).all() and same(weights.sum(-1), np.ones(len(weights))):
        return [Hint("softmax-argmax", "Every row of the weights is a single 1 and zeros.")]
    ratio = weights / scores
    if same(ratio, np.full_like(ratio, ratio[0, 0])) and ratio[0, 0] > 0:
        seen = "The weights are the scores themselves, negative ones too"
        powers = np.exp(weights)
        if same(output, powers / powers.sum(-1, keepdims=True) @ V):
            seen += ", and the output is not made of them: softmax's result is what should come back"
        return [Hint("softmax-not-applied", f"{seen}.")]
    totals = weights.sum(-1)
    if factor is not None and same(factor, 1.0) and same(totals, np.full_like(totals, 1 / math.sqrt(K.shape[-1]))):
        seen = f"Every row totals to {totals[0]:.4g}, which is 1/sqrt(d_k)."
        return [Hint("scale-after-softmax", seen)]
    if factor is None:
        for name, constant in (("1/sqrt(d_k)", K.shape[-1] ** -0.5), ("1", 1.0), ("1/d_k", 1 / K.shape[-1])):
            scaled = constant * scores
            above = slope(weights, scaled - scaled.max(0))
            if above is not None and same(above, 1.0):
                seen = f"With the scores times {name}, the largest of each column was subtracted, not that of the row."
                return [Hint("softmax-max-wrong-axis", seen)]
    return []


def _scale(attention: Attention) -> Iterator[Hint]:
    """The factor on the scores; where it has no name, without what softmax itself puts to it."""
    one, other = attention.fit(), attention.fit(**OTHER_SIZES)
    found = list(signs_scale.hints(attention.factor, one, other))
    (x,) = numbers((2, 4))
    own = array(attention.subject.call(signs_softmax.SOFTMAX, x), x.shape)
    unit = None if own is None else slope(own, x)
    if not found and unit and not same(unit, 1.0):
        found = list(signs_scale.hints(partial(_without, unit, attention), one, other))
    yield from found


def _without(unit: float, attention: Attention, sizes: signs_scale.Sizes, seed: int) -> float | None:
    factor = attention.factor(sizes, seed)
    return None if factor is None else factor / unit


def _as_softmax(attention: Attention, weights: Array, factor: float | None, scores: Array) -> Iterator[Hint]:
    """What attention does to scores of one's choice is what a softmax does."""
    if factor is None or sums(weights) is not None:
        return
    hint = signs_softmax.sums_of_exponentials(weights, factor * scores)
    if hint is not None:
        yield hint
    if hint is None or hint.code != "softmax-sum-unshifted":
        yield from signs_softmax.of_large_scores(attention.weigh)


def _narrow(attention: Attention, outcome: Outcome, factor: float | None) -> Iterator[Hint]:
    """Numbers that are right to the precision of float32 alone."""
    if not outcome.ok:
        outcome = attention.ask(*attention.problem())
    parts = list(outcome.value) if isinstance(outcome.value, tuple | list) else [outcome.value]
    for what, part in zip(("output", "weights"), parts, strict=False):
        if isinstance(part, np.ndarray) and part.dtype == np.float32:
            yield Hint("wrong-dtype", f"For float64 arrays float32 comes back ({what}).")
            return
        if narrowed(part):
            yield Hint("narrow-arithmetic", f"Every number of the {what} is a float32 one, and the inputs are float64.")
            return
    if factor is None:
        return
    d_k = attention.fit()["d_k"]
    root = np.sqrt(np.float32(d_k))
    for short in (float(root) ** -1, float(np.float32(d_k**-0.5)), float(np.float32(1) / root)):
        if abs(factor / short - 1) < 1e-13 < abs(factor * d_k**0.5 - 1):
            seen = f"The scores are multiplied by {factor:.12g}, which is 1/sqrt({d_k}) as a float32, not {d_k**-0.5:.12g}."
            yield Hint("narrow-arithmetic", seen)
            return


def _repeats(attention: Attention) -> bool:
    """Whether the same call gives the same twice, weights and output; of many entries, so that a dropped one shows."""
    Q, K, V = attention.problem(n=9, m=12)
    one, other = (attention.pair(Q, K, V) for _ in range(2))
    return one is None or other is None or (repeated(one[0], other[0]) and repeated(one[1], other[1]))


def _remembers_arrays(attention: Attention) -> bool:
    """Whether Q, K or V with other numbers in the same array gives what the earlier ones gave.

    With the queries written out twice, or three times, both give results of their own. No check asks for these shapes.
    """
    if attention != Attention(attention.subject):
        return False
    subject = attention.subject
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


def _batches_alone(subject: Asking) -> Iterator[Hint]:
    """Two dimensions raise, three are answered, and four raise or come out wrong."""
    outcome = Attention(subject).ask(*Attention(subject).problem())
    if outcome.kind != "raised" or not _answers(subject, (2,)):
        return
    if fixed_axis(outcome) and not _right_in_a_batch(subject, (2, 2)):
        seen = f"A batch works, one sequence raises {said(outcome)}."
        yield Hint("softmax-positional-axis", seen, at=place(outcome))
    else:
        yield Hint(None, f"A batch works, and one sequence without a batch axis raises {said(outcome)}.", like="raised")


def _answers(subject: Asking, batch: tuple[int, ...]) -> bool:
    attention = Attention(subject)
    return attention.pair(*attention.problem(*batch)) is not None


def _right_in_a_batch(subject: Asking, batch: tuple[int, ...]) -> bool:
    """Weights that follow each item's scores over sqrt(d_k), and an output that blends its values."""
    attention = Attention(subject)
    Q, K, V = attention.problem(*batch)
    found = attention.pair(Q, K, V)
    if found is None:
        return False
    powers = np.exp(attention.scores(Q, K) / math.sqrt(Q.shape[-1]))
    return same(found[1], powers / powers.sum(-1, keepdims=True)) and same(found[0], found[1] @ V)


def _square(attention: Attention) -> Iterator[Hint]:
    """What shows where all tables are square: transposes, and other matrices in the place of V."""
    Q, K, V = attention.problem(n=6, m=6, d_k=6, d_v=6)
    found = attention.pair(Q, K, V)
    if found is None:
        return
    output, weights = found
    scores = attention.scores(Q, K)
    if slope(weights, scores) is None and slope(weights, scores.T) is not None:
        yield Hint("scores-transposed", "On a square table the weight of i on j follows the score of j with i.")
    yield from averaged(output, weights, V, {"K": K, "Q": Q})


def _explicit_scale(attention: Attention, free: Array, factor: float | None) -> Iterator[Hint]:
    Q, K, V = attention.problem()
    found = attention.pair(Q, K, V, scale=0.3)
    given = None if found is None else slope(found[1], attention.scores(Q, K))
    if found is None or given is None or factor is None or same(given, 0.3):
        return
    if same(found[1], free):
        yield Hint("scale-ignored", "scale=0.3 gives the same weights as no scale.")
    elif same(given, 0.3 * factor):
        yield Hint("scale-compounded", f"scale=0.3 multiplies the scores by {given:.4g}: the default comes on top.")


def _batch(attention: Attention) -> Iterator[Hint]:
    """A batch of two against its items, asked one by one."""
    Q, K, V = attention.problem(2)
    n, m, d_v = Q.shape[1], K.shape[1], V.shape[2]
    outcome = attention.ask(Q, K, V)
    if outcome.kind == "raised":
        if attention.takes != "unturned":
            seen = f"A batch raises {said(outcome)}; each of its items does not."
            yield Hint("batch-unsupported", seen, at=place(outcome))
        return

    def alone(i: int, j: int) -> Array | None:
        """The weights that item i gets alone, with the keys of item j."""
        answer = attention.pair(Q[i], K[j], V[j])
        return None if answer is None else answer[1]

    found = attention.pair(Q, K, V)
    if found is None:
        yield from form(outcome, (2, n, d_v), (2, n, m))
        single = pair(outcome, (n, d_v), (n, m))
        item = next((i for i in (0, 1) if single is not None and same(single[1], alone(i, i))), None)
        if item is not None:
            which = ("first", "second")[item]
            yield Hint("batch-unsupported", f"Of a batch of two only the {which} item's result comes back.")
        elif outcome.ok:
            yield Hint("batch-unsupported", "One sequence gives the right shapes, and a batch of two does not.")
        return
    output, weights = found

    if same(weights[0], alone(0, 0)) and same(weights[1], alone(1, 1)):
        if not same(output, weights @ V) and any(same(output[i], weights[i] @ V[1 - i]) for i in (0, 1)):
            yield Hint("batch-mixed", "An item of a batch averages another item's values.")
        else:
            yield from _two_axes(attention)
    elif same(weights.sum(1), np.ones((2, m))):
        yield Hint("softmax-positional-axis", "In a batch axis 1 of the weights sums to 1, not the last axis.")
    elif same(weights[0], alone(0, 1)) or same(weights[1], alone(1, 0)):
        yield Hint("batch-mixed", "An item of a batch gets the weights that another item's keys would give.")
    elif same(weights[0], weights[1]) and any(same(weights[0], alone(i, i)) for i in (0, 1)):
        yield Hint("batch-mixed", "Every item of a batch gets the weights of one of them.")
    elif not _scaled_by_a_size(attention, weights, (Q, K, V)):
        yield Hint(None, "An item of a batch gets other weights than it gets alone.", like="batch-unsupported")
    else:
        seen = f"In a batch the scores are divided by the root of {_scaled_by_a_size(attention, weights, (Q, K, V))}"
        yield Hint("scale-by-wrong-width", f"{seen}, and for one sequence they are not.")


def _scaled_by_a_size(attention: Attention, weights: Array, qkv: tuple[Array, Array, Array]) -> str:
    """The size over whose root a batch's scores are taken, where it is another than d_k."""
    Q, K, V = qkv
    factors = [slope(w, s) for w, s in zip(weights, attention.scores(Q, K), strict=True)]
    named = {"the number of items": 2, "n": Q.shape[1], "m": K.shape[1], "d_v": V.shape[2]}
    for name, size in named.items():
        if size != K.shape[2] and all(factor is not None and same(factor, size**-0.5) for factor in factors):
            return name
    return ""


def _two_axes(attention: Attention) -> Iterator[Hint]:
    """Two batch axes against the same items along one."""
    Q, K, V = attention.problem(4, d_v=3)
    flat = attention.pair(Q, K, V)
    deep = [a.reshape(2, 2, *a.shape[1:]) for a in (Q, K, V)]
    outcome = attention.ask(deep[0], deep[1], deep[2])
    if flat is None:
        return
    found = attention.pair(deep[0], deep[1], deep[2])
    if outcome.kind == "raised":
        code = "softmax-positional-axis" if fixed_axis(outcome) else "batch-unsupported"
        yield Hint(code, f"One batch axis works, and two raise {said(outcome)}.", at=place(outcome))
    elif found is not None and not same(found[1], flat[1].reshape(found[1].shape)):
        if same(found[1].sum(2), np.ones(found[1].sum(2).shape)) or same(
            found[1].sum(1), np.ones(found[1].sum(1).shape)
        ):
            yield Hint(
                "softmax-positional-axis", "With two batch axes another axis of the weights than the last sums to 1."
            )
        else:
            yield Hint("batch-unsupported", "With two batch axes the weights are other ones than with one.")


def _described(attention: Attention) -> Iterator[Hint]:
    Q, K, V = attention.problem()
    found = attention.pair(Q, K, V)
    if found is None or not np.isfinite(found[1]).all() or not np.isfinite(found[0]).all():
        return
    output, weights = found
    scores = attention.scores(Q, K)
    if weights.min() < 0 or np.abs(weights.sum(-1) - 1).max() > 1e-3:
        yield Hint(None, rows_sum(weights), like="softmax-unnormalised")
    elif not follows(weights, scores):
        each = [slope(weights[i : i + 1], scores[i : i + 1]) for i in range(len(Q))]
        if None not in each:
            factors = ", ".join(f"{factor:.3g}" for factor in each)
            seen = f"Each query's scores are multiplied by a factor of its own: {factors} for the first {len(Q)}."
            yield Hint(None, seen, like="scale-missing")
        else:
            seen = "The weights do not follow Q·Kᵀ: no factor on it explains how two keys' weights compare."
            yield Hint(None, seen, like="softmax-wrong-base")
    else:
        yield from signs_scale.described(attention.factor, attention.fit())
    if not close(output, weights @ V):
        off = np.abs(output - weights @ V).max()
        yield Hint(None, f"The output is not weights @ V: an entry is {off:.3g} away from it.", like="values-swapped")
