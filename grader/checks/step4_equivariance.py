"""Step 4 against the reference: the sinusoids of section 7.4."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from grader.checks.step1_attention import agree, factor
from harness.attend import POSITIONS
from harness.check import check
from harness.checks.step4_equivariance import EVEN
from harness.expect import ask
from harness.subject import Subject
from reference import attention, bounds


@check(
    "step4.positions.agrees",
    cases=st.tuples(st.integers(1, 60), EVEN | st.sampled_from((32, 64))),
    examples=12,
    functions=POSITIONS,
    families="positions",
)
def positions_agree(subject: Subject, case: tuple[int, int]) -> None:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d)) and PE[pos, 2i+1] = cos of the same, for any length and even width."""
    n, d = case
    asked = ask(subject, POSITIONS, n, d)
    table = asked.array((n, d))
    if table.dtype.kind != "f":
        raise asked.fail(f"the table has dtype {table.dtype}", "a float", "wrong-dtype", table)
    bound = bounds.sinusoidal_positions(n, d, table.dtype, factor())
    agree(asked, "the entries", table.astype(np.float64), attention.sinusoidal_positions(n, d), bound, "the sinusoids")
