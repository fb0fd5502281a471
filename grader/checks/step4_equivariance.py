"""Step 4 against the reference: the sinusoids of section 7.4."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from grader.checks.step1_attention import agree, factor, negligible
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
    positions_are_right(subject, *case)


@check("step4.positions.precision", cases=st.just((60, 16)), examples=1, functions=POSITIONS, families="positions")
def positions_precision(subject: Subject, case: tuple[int, int]) -> None:
    """A table of positions is right to the rounding of its own dtype."""
    positions_are_right(subject, *case, strict=True)


@check("step4.positions.at-size", cases=st.just((523, 134)), examples=1, functions=POSITIONS, families="positions")
def positions_at_size(subject: Subject, case: tuple[int, int]) -> None:
    """Some hundreds of positions, in rows as wide, are right to the last."""
    positions_are_right(subject, *case)


def positions_are_right(subject: Subject, n: int, d: int, strict: bool = False) -> None:
    """The table agrees with the reference; `strict` for a check of precision."""
    asked = ask(subject, POSITIONS, n, d)
    table = asked.array((n, d))
    if table.dtype.kind != "f":
        raise asked.fail(f"the table has dtype {table.dtype}", "a float", "wrong-dtype", table)
    bound = bounds.sinusoidal_positions(n, d, table.dtype, factor())
    right = attention.sinusoidal_positions(n, d)
    agree(
        asked, "the entries", table.astype(np.float64), right, bound if strict else negligible(bound), "the sinusoids"
    )
