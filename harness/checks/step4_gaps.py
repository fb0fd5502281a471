"""Step 4: permutation equivariance, and what breaks it."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.check import check
from harness.expect import ask
from harness.own_attention import over_own_attention
from harness.rounding import MILLIONTH
from harness.subject import Subject
from harness.values import Array

GAP = "experiments.equivariance_gap"
ROUNDING = 1e-12  # float64, outputs of size 1: sums of a few terms in another order
SEEN = 1e-3  # a gap that is none of rounding's

sizes = st.tuples(st.integers(3, 8), st.integers(0, 2**32 - 1))


@check(
    "step4.gap.own-attention",
    cases=sizes,
    examples=6,
    functions=(GAP, "attention.self_attention"),
    families="equivariance_gap",
    needs="torch",
    public=True,
)
def own_attention(subject: Subject, case: tuple[int, int]) -> None:
    """Shuffled tokens leave a gap of rounding; with positions, or with a causal mask, the gap is plain to see."""
    n, seed = case
    rng = np.random.default_rng(seed)
    X, W_Q, W_K, W_V = rng.standard_normal((n, 4)), *rng.standard_normal((3, 4, 4))
    positions = rng.standard_normal((n, 4))
    permutation = np.roll(np.arange(n), 1)
    causal = np.tril(np.ones((n, n), bool))
    plain = ask(subject, GAP, X, W_Q, W_K, W_V, permutation)
    if not 0 <= plain.number() <= 10 * MILLIONTH:  # rounding alone, in whichever precision the own attention has
        raise plain.fail(
            f"the gap is {plain.number():.3g}", "about 0, rounding alone: no mask and no positions are given"
        )
    for what, options in (("with positions", {"positions": positions}), ("under a causal mask", {"mask": causal})):
        broken = ask(subject, GAP, X, W_Q, W_K, W_V, permutation, **options)
        if not broken.number() > SEEN:
            raise broken.fail(f"the gap is {broken.number():.3g}", f"a gap that shows {what}: the slots differ then")


def one_slot_off(output: Array) -> Array:
    """1 added to all that the first slot gives."""
    first: Array = (np.arange(output.shape[-2]) == 0)[:, None]
    return output + first


@check(
    "step4.gap.one-slot-off",
    functions=(GAP, "attention.self_attention"),
    families="equivariance_gap",
    stands_on="step4.gap.own-attention",
    needs="torch",
    public=True,
)
def finds_one_slot_off(subject: Subject) -> None:
    """With 1 added to the outputs of one slot, the gap is 1: it is measured, and not known beforehand."""
    X, *W = gap_inputs(5)
    permutation = np.roll(np.arange(5), 1)
    with over_own_attention(subject) as (borrower, attention):
        own = ask(borrower, GAP, X, *W, permutation)
        attention.spoil = one_slot_off
        off = ask(borrower, GAP, X, *W, permutation)
    if not abs(off.number() - 1) <= own.number() + ROUNDING:
        raise off.fail(f"the gap is {off.number():.3g}", "1, which was added to the outputs of the first slot")


def gap_inputs(n: int) -> list[Array]:
    """X (n, 4) and three matrices, always the same."""
    rng = np.random.default_rng(n)
    return [rng.standard_normal((n, 4)), *rng.standard_normal((3, 4, 4))]
