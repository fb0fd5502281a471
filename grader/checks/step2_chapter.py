"""Step 2 at full precision: the chapter's head computed, not copied, and so for numbers close to the chapter's."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from grader.checks.step1_attention import agree, factor, negligible, wide
from harness.attend import SELF, largest, self_output
from harness.check import check
from harness.strategies import DTYPES, SEEDS
from harness.subject import Subject
from harness.values import Array
from reference import attention, bounds, chapter

GIVEN = (chapter.E, chapter.W_Q, chapter.W_K, chapter.W_V)

by_self_attention = partial(check, functions=SELF, families="self_attention")


def _agrees(subject: Subject, given: tuple[Array, Array, Array, Array], strict: bool = False) -> None:
    asked, output = self_output(subject, *given)
    right = attention.self_attention(*(wide(a) for a in given))[0]
    bound = bounds.self_attention(*given, factor=factor()).output
    if not strict:
        bound = negligible(bound, largest(given[0] @ given[3]))
    agree(asked, "the outputs", output, right, bound, "softmax(QKᵀ/√d_k) V")


@by_self_attention("step2.full-precision")
def the_chapters_numbers_in_full(subject: Subject) -> None:
    """The chapter's outputs are right to float64's rounding, far beyond the four decimals that it prints."""
    _agrees(subject, GIVEN, strict=True)


@by_self_attention("step2.nearby-numbers", cases=st.tuples(st.sampled_from((1e-3, 1e-6)), DTYPES, SEEDS), examples=5)
def numbers_close_to_the_chapters(subject: Subject, case: tuple[float, str, int]) -> None:
    """Inputs that differ a little from the chapter's give results that differ a little, computed from these inputs."""
    size, dtype, seed = case
    rng = np.random.default_rng(seed)
    E, W_Q, W_K, W_V = ((a + size * rng.standard_normal(a.shape)).astype(dtype) for a in GIVEN)
    _agrees(subject, (E, W_Q, W_K, W_V))


@by_self_attention("step2.swapped-matrices")
def other_roles_for_the_chapters_matrices(subject: Subject) -> None:
    """With W_Q, W_K and W_V given in other roles, the results are those of these roles."""
    E, W_Q, W_K, W_V = GIVEN
    for roles in ((W_K, W_Q, W_V), (W_V, W_K, W_Q)):
        _agrees(subject, (E, *roles))
