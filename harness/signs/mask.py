"""Hints on what attention does with a mask: the weights under it against those without one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.signs import (
    Hint,
    close,
    place,
    same,
    slope,
)
from harness.signs.asked import Attention
from harness.values import Array

LOPSIDED = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], bool)  # not its own transpose


def named(attention: Attention) -> Iterator[Hint]:
    """Weights under a mask, and then the same without one (in this order, lest a remembered result seem unmasked)."""
    Q, K, V = (matrix + 0.5 for matrix in attention.problem())
    mask = attention.mask()
    outcome = attention.ask(Q, K, V, mask=mask)
    if outcome.kind == "raised" and "truth value of an array" in outcome.text:
        yield Hint(
            "mask-not-broadcast",
            "The mask is asked for one truth value (`if mask:`), and an array has none.",
            at=place(outcome),
        )
        return
    yield from _turned_mask(attention)
    found, unmasked = attention.pair(Q, K, V, mask=mask), attention.pair(Q, K, V)
    if found is None or unmasked is None:
        return
    weights, free, hidden = found[1], unmasked[1], ~mask
    if (weights[hidden] > 0).all() and same(weights, free) and same(found[0], unmasked[0]):
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")
    elif not same(free.sum(-1), np.ones(len(free))):
        return
    elif np.isnan(weights).all():
        shown = attention.pair(Q, K, V, mask=np.ones_like(mask))
        if shown is not None and np.isnan(shown[1]).all():
            seen = "Under a mask every weight is NaN, also where it hides nothing: 0 times -inf is NaN."
            yield Hint("not-finite", seen)
    elif (weights[hidden] > 0).all() and not weights[mask].any():
        yield Hint("mask-inverted", "Weights are 0 exactly where the mask is True.")
    elif not weights[hidden].any():
        if same(weights[mask], free[mask]) and (weights.sum(-1) < 0.999).all():
            sum_of_first = f"row 0 sums to {weights[0].sum():.3f}"
            yield Hint("mask-after-softmax", f"Visible weights are those without a mask: {sum_of_first}.")
        yield from _more_masks(attention, Q, K, V)
        yield from _in_a_batch(attention)
    elif weights.min() > 0:
        scores = attention.scores(Q, K)
        yield from _leak(mask, weights, free, slope(free, scores), scores)


def _leak(mask: Array, weights: Array, free: Array, factor: float | None, scores: Array) -> Iterator[Hint]:
    """How far a hidden score stands below a visible one: an amount added to it, or a value put in its place."""
    lower = _hidden_over_visible(mask, free) - _hidden_over_visible(mask, weights)
    if same(lower, np.full_like(lower, lower[0])):
        if same(lower[0], 1.0):
            yield Hint("mask-added", "A hidden score is 1 lower than without a mask: the mask was added to the scores.")
        elif lower[0] > 2:
            yield Hint("mask-finite-fill", f"A hidden score is only {lower[0]:.4g} lower than without a mask.")
    if factor is None:
        return
    fill = _hidden_over_visible(mask, weights) + factor * scores[np.arange(len(scores)), mask.argmax(1)]
    if same(fill, np.zeros_like(fill)):
        yield Hint("mask-multiplied", "Hidden keys weigh as much as a score of 0 does.")
    elif same(fill, np.full_like(fill, fill[0])) and fill[0] < -2:
        yield Hint("mask-finite-fill", f"Hidden keys weigh as much as a score of {fill[0]:.4g} does.")


def _turned_mask(attention: Attention) -> Iterator[Hint]:
    found = attention.pair(*attention.problem(n=4, m=4, d_v=3), mask=LOPSIDED)
    if found is not None and np.array_equal(found[1] > 0, LOPSIDED.T):
        yield Hint("mask-transposed", "Weights are above 0 exactly where the transposed mask is True.")


def _hidden_over_visible(mask: Array, weights: Array) -> Array:
    """For every row: log of the first hidden weight over the first visible one."""
    rows = np.arange(len(weights))
    return np.asarray(np.log(weights[rows, mask.argmin(1)] / weights[rows, mask.argmax(1)]))


def _more_masks(attention: Attention, Q: Array, K: Array, V: Array) -> Iterator[Hint]:
    full = attention.mask()
    for mask in (full[:1], full[0]):
        outcome = attention.ask(Q, K, V, mask=mask)
        if outcome.kind == "raised":
            seen = f"A mask of shape {mask.shape} raises, one of shape {full.shape} does not."
            yield Hint("mask-not-broadcast", seen, at=place(outcome))
            break
    small = attention.pair(Q, K, V, mask=full, scale=1e-7)
    if small is not None and small[1][~full].any():
        seen = f"With scale=1e-7 a hidden key gets the weight {small[1][~full].max():.3g}: what hides it is scaled too."
        yield Hint("mask-finite-fill", seen)
    if attention.takes != "any":
        return
    low = np.array([[1000.0]]), np.array([[-1000.0], [-1000.0]]), np.array([[1.0], [2.0]])
    found = attention.pair(*low, mask=np.array([[True, False]]))
    if found is not None and found[1][0, 1] > 0:
        yield Hint("mask-finite-fill", f"Among scores of -1e6 a hidden key gets the weight {found[1][0, 1]:.3g}.")


def _in_a_batch(attention: Attention) -> Iterator[Hint]:
    """A batch of two under masks: one for each item, and one for both."""
    if attention.batched or attention.pair(*attention.problem(2)) is None:
        return
    Q, K, V = attention.problem(2)
    one = attention.mask()
    masks = np.stack([one, np.roll(one, 1, axis=1)])
    outcome, found = attention.ask(Q, K, V, mask=masks), attention.pair(Q, K, V, mask=masks)
    alone = [attention.pair(Q[i], K[i], V[i], mask=masks[i]) for i in (0, 1)]
    if outcome.kind == "raised":
        seen = f"A mask of shape {masks.shape} for a batch raises {outcome.type.split('.')[-1]}"
        yield Hint(
            "mask-not-broadcast", f"{seen}, one of shape {one.shape} for a sequence does not.", at=place(outcome)
        )
        return
    if found is None or alone[0] is None or alone[1] is None:
        return
    shown = found[1] > 0
    if any(np.array_equal(shown[i], masks[1 - i]) for i in (0, 1)):
        yield Hint("batch-mixed", "An item of a batch gets weights where another item's mask is True.")
        return
    if not all(same(found[1][i], own[1]) for i, own in enumerate(alone) if own is not None):
        return
    for mask in (one, masks[:, :1], one[None]):
        whole = np.broadcast_to(mask, masks.shape).copy()
        outcome, expected = attention.ask(Q, K, V, mask=mask), attention.pair(Q, K, V, mask=whole)
        found = attention.pair(Q, K, V, mask=mask)
        if outcome.kind == "raised":
            seen = f"For a batch a mask of shape {mask.shape} raises {outcome.type.split('.')[-1]}"
            yield Hint("mask-not-broadcast", f"{seen}, one of shape {masks.shape} does not.", at=place(outcome))
            return
        if found is not None and expected is not None and not same(found[1], expected[1]):
            seen = f"For a batch a mask of shape {mask.shape} hides other keys than the same mask written out."
            yield Hint("mask-not-broadcast", seen)
            return


def described(attention: Attention) -> Iterator[Hint]:
    """Weights under a mask whose fault has no name."""
    Q, K, V = (matrix + 0.5 for matrix in attention.problem())
    mask = attention.mask()
    found, free = attention.pair(Q, K, V, mask=mask), attention.pair(Q, K, V)
    if found is None or free is None or not np.isfinite(found[1]).all() or (free[1] <= 0).any():
        return
    shown = np.where(mask, free[1], 0)
    if found[1][~mask].any():
        seen = f"A key that the mask hides gets weight {found[1][~mask].max():.3g}."
        yield Hint(None, seen, like="mask-ignored")
    elif (found[1][mask] <= 0).any():
        yield Hint(None, "A key that the mask shows gets no weight.", like="mask-inverted")
    elif same(free[1].sum(-1), np.ones(len(Q))) and not close(found[1], shown / shown.sum(-1, keepdims=True)):
        seen = "Under a mask the keys that are shown do not share the weight as they do without it."
        yield Hint(None, seen, like="mask-after-softmax")
