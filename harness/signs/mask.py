"""Hints on what attention does with a mask: the weights under it against those without one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.signs import (
    Hint,
    close,
    numbers,
    pair,
    same,
    slope,
)
from harness.subject import Asking
from harness.values import Array

SDPA = "attention.scaled_dot_product_attention"
MASK = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], bool)
LOPSIDED = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], bool)  # not its own transpose


def named(subject: Asking) -> Iterator[Hint]:
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


def described(subject: Asking) -> Iterator[Hint]:
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
    elif not close(found[1], shown / shown.sum(-1, keepdims=True)):
        yield Hint(None, "Under a mask the keys that are shown do not share the weight as they do without it.")
