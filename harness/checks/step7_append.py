"""Step 7: appended tokens leave earlier causal outputs alone."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.check import check
from harness.checks.step4_gaps import gap_inputs
from harness.expect import ask
from harness.own_attention import over_own_attention
from harness.rounding import MILLIONTH
from harness.subject import Subject
from harness.values import Array

GAP = "experiments.append_invariance_gap"
ROUNDING = 1e-12


@check(
    "step7.append.own-attention",
    cases=st.tuples(st.integers(1, 8), st.integers(0, 2**32 - 1)),
    examples=6,
    functions=(GAP, "attention.self_attention", "attention.causal_mask"),
    families="append_invariance_gap",
    stands_on="step7.append.leak",  # without it, a 0 that is written down would pass
    needs="torch",
    public=True,
)
def own_attention(subject: Subject, case: tuple[int, int]) -> None:
    """A token appended to a causal sequence leaves the outputs before it as they were."""
    n, seed = case
    rng = np.random.default_rng(seed)
    X, x_new = rng.standard_normal((n, 4)), rng.standard_normal((1, 4))
    asked = ask(subject, GAP, X, x_new, *rng.standard_normal((3, 4, 4)))
    if not 0 <= asked.number() <= 10 * MILLIONTH:  # rounding alone, in whichever precision the own attention has
        raise asked.fail(f"the gap is {asked.number():.3g}", "rounding alone")


def by_length(output: Array) -> Array:
    """The number of tokens added to every output: one more token, and all outputs are off by 1."""
    length: int = output.shape[-2]
    return output + float(length)


@check(
    "step7.append.one-off",
    functions=(GAP, "attention.self_attention", "attention.causal_mask"),
    families="append_invariance_gap",
    stands_on="step7.append.own-attention",
    needs="torch",
    public=True,
)
def finds_one_off(subject: Subject) -> None:
    """With 1 added to every output for each token there is, the gap is 1: it is measured, and not known beforehand."""
    X, *W = gap_inputs(5)
    x_new = np.ones((1, 4))
    with over_own_attention(subject) as (borrower, attention):
        own = ask(borrower, GAP, X, x_new, *W)
        attention.spoil = by_length
        off = ask(borrower, GAP, X, x_new, *W)
    if not abs(off.number() - 1) <= own.number() + 10 * ROUNDING:
        raise off.fail(f"the gap is {off.number():.3g}", "1: a token more added 1 to every output")
