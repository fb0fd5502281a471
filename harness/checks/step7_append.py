"""Step 7: appended tokens leave earlier causal outputs alone."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.check import check
from harness.expect import ask
from harness.subject import Subject

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
    if not 0 <= asked.number() <= 10 * ROUNDING:
        raise asked.fail(f"the gap is {asked.number():.3g}", "rounding alone")
