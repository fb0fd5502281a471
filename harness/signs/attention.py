"""Hints on attention.py, by questions that anybody could ask: a function looks at one family.

Softmax and attention itself have modules of their own; here are what leads to them, and what goes with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from harness.signs import (
    Hint,
    Look,
    array,
    averaged,
    changed,
    close,
    form,
    narrowed,
    numbers,
    or_else,
    pair,
    place,
    said,
    same,
    slope,
    sums,
)
from harness.signs import mask as signs_mask
from harness.signs import scale as signs_scale
from harness.signs import sdpa as signs_sdpa
from harness.signs import softmax as signs_softmax
from harness.subject import Asking, Outcome
from harness.values import Array

PROJECT = "attention.project"
SDPA = "attention.scaled_dot_product_attention"
SELF = "attention.self_attention"


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
    if narrowed(Q) and narrowed(K) and narrowed(V):
        yield Hint("narrow-arithmetic", "Every number of Q, K and V is a float32 one, and the inputs are float64.")
    batch = subject.call(PROJECT, np.stack([X, X + 1]), W_Q, W_K, W_V)
    if batch.kind == "raised":
        seen = f"For X with a batch axis project raises {said(batch)}."
        yield Hint("batch-unsupported", seen, at=place(batch))


def _project_described(subject: Asking) -> Iterator[Hint]:
    X, *W = numbers((4, 6), (6, 5), (6, 5), (6, 3))
    outcome = subject.call(PROJECT, X, *W)
    if not outcome.ok or not isinstance(outcome.value, tuple | list) or len(outcome.value) != 3:
        return
    for name, matrix, value in zip("QKV", W, outcome.value, strict=True):
        got = array(Outcome("value", value), (4, matrix.shape[1]))
        if got is not None and not close(got, X @ matrix):
            yield Hint(None, f"{name} is not X @ W_{name}.", like="projection-transposed")
            return


def _self_attention(subject: Asking) -> Iterator[Hint]:
    X, W_Q, W_K, W_V = numbers((4, 6), (6, 6), (6, 6), (6, 6))
    outcome = subject.call(SELF, X, W_Q, W_K, W_V)
    yield from form(outcome, (4, 6), (4, 4))
    if changed(subject, SELF, X, W_Q, W_K, W_V):
        yield Hint("input-mutated", "X or a matrix is not the same after the call.")
    found = pair(outcome, (4, 6), (4, 4))
    if found is None or _as_its_parts(subject):
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
            yield from averaged(output, weights, X @ W_V, {"(X @ W_K)": X @ W_K, "(X @ W_Q)": X @ W_Q})
    fresh, mask = (
        X[:3] + 1,
        signs_mask.LOPSIDED[:3, :3],
    )  # not asked before, and under the mask first: a result may be remembered
    masked = pair(subject.call(SELF, fresh, W_Q, W_K, W_V, mask=mask), (3, 6), (3, 3))
    free = pair(subject.call(SELF, fresh, W_Q, W_K, W_V), (3, 6), (3, 3))
    if masked is not None and free is not None and same(masked[1], free[1]) and (masked[1][~mask] > 0).all():
        yield Hint("mask-ignored", "With and without a mask the weights are the same.")


def _as_its_parts(subject: Asking) -> bool:
    """Whether self_attention gives what the submission's own attention of its own projections gives, under a mask too.

    What is wrong with it is then wrong with these.
    """
    X, W_Q, W_K, W_V = numbers((4, 7), (7, 5), (7, 5), (7, 3))
    projected = subject.call(PROJECT, X, W_Q, W_K, W_V).value
    if not isinstance(projected, tuple | list) or len(projected) != 3:
        return False
    for named in ({"mask": signs_mask.LOPSIDED}, {}):
        whole = pair(subject.call(SELF, X, W_Q, W_K, W_V, **named), (4, 3), (4, 4))
        parts = pair(subject.call(SDPA, *projected, **named), (4, 3), (4, 4))
        if whole is None or parts is None or not all(map(same, whole, parts)):
            return False
    return True


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
    for under, named in (("The", {}), ("Under a mask the", {"mask": signs_mask.LOPSIDED})):
        expected = pair(subject.call(SDPA, *projected, **named), (4, 3), (4, 4))
        found = pair(subject.call(SELF, X, W_Q, W_K, W_V, **named), (4, 3), (4, 4))
        if found is None or expected is None or not np.isfinite([*expected[0].flat, *expected[1].flat]).all():
            continue
        for i, what in ((1, "weights are"), (0, "output is")):
            if not close(found[i], expected[i]):
                seen = f"{under} {what} not what attention gives for project(X, W_Q, W_K, W_V)."
                yield Hint(None, seen, like="values-unprojected")
                return


def _causal_mask(subject: Asking) -> Iterator[Hint]:
    square = _shown(subject.call("attention.causal_mask", 4), (4, 4))
    if square is None:
        return
    visible, dtype, like = square
    if dtype:
        yield Hint("wrong-dtype", f"causal_mask(4) {dtype}: booleans are asked for.", like=like)
    below, above = np.tri(4, k=-1, dtype=bool), ~np.tri(4, dtype=bool)
    if np.array_equal(visible, np.tri(4, dtype=bool)):
        short = _shown(subject.call("attention.causal_mask", 2, n_keys=4), (2, 4))
        if short is not None and np.array_equal(short[0], np.tri(2, 4, dtype=bool)):
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
        yield Hint(None, "causal_mask(4) hides nothing.", like="causal-mask-lookahead")
    else:
        query, key = (int(i) for i in np.argwhere(visible == above)[0])
        does, to = ("shows", "to") if key > query else ("hides", "from")
        yield Hint(None, f"causal_mask(4) {does} key {key} {to} query {query}.", like="causal-mask-strict")


def _shown(outcome: Outcome, shape: tuple[int, ...]) -> tuple[Array, str, str | None] | None:
    """Where a causal mask lets a query see a key, what its dtype is if not bool."""
    table = outcome.value
    if not outcome.ok or not isinstance(table, np.ndarray) or table.shape != shape or table.dtype.kind not in "fibu":
        return None
    if table.dtype == bool:
        return table, "", None
    numbers = np.unique(table)
    if len(numbers) == 2 and numbers[0] < -1 and numbers[1] == 0:
        return table == 0, f"holds 0 and {numbers[0]:g}, to be added to the scores", "causal-mask-inverted"
    return table != 0, f"has the dtype {table.dtype}", None


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
        yield from _frequencies(second)
    elif not first.any():
        yield Hint(None, "Row 0 is all zeros, and cos 0 is 1.", like="positions-from-one")
    else:
        seen = f"At position 0 the first columns are {first[0]:.4g} and {first[1]:.4g}: sin 0 is 0 and cos 0 is 1."
        yield Hint(None, seen, like="positions-from-one")


def _frequencies(row: Array) -> Iterator[Hint]:
    """By which angle each pair of columns turns from one position to the next, read off position 1, at d = 8."""
    if not same(row[0::2] ** 2 + row[1::2] ** 2, np.ones(4)):
        yield Hint("positions-wrong-frequency", "A sine and its cosine beside it have different frequencies.")
        return
    turns = np.arctan2(row[0::2], row[1::2])
    if close(turns, 0.1 ** np.arange(4)):
        return
    seen = f"At d = 8 the pairs of columns turn by {', '.join(f'{turn:.4g}' for turn in turns)} a position"
    if same(turns, np.full(4, turns[0])):
        rule = "all by the same angle: is the exponent rounded to a whole number (//)?"
    elif same(turns, 1e4 ** -(np.arange(4) / 3)):
        rule = "the last by 1/10000: the exponent is divided by d - 2, and not by d."
    elif turns.min() > 0 and same(turns, turns[1] ** np.arange(4)):
        rule = f"as if the base were {turns[1] ** -4:.6g} and not 10000."
    else:
        rule = "and should turn by 1, 0.1, 0.01 and 0.001."
    yield Hint("positions-wrong-frequency", f"{seen}, {rule}")


FAMILIES: dict[str, Look] = {
    "softmax": signs_softmax.look,
    "project": or_else(_project, _project_described),
    "sdpa": signs_sdpa.look,
    "self_attention": or_else(_self_attention, _self_described),
    "causal_mask": _causal_mask,
    "positions": _positions,
}
