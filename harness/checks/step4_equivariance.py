"""Step 4: shuffled tokens give shuffled outputs, until positions or a causal mask mark the slots (section 7.4)."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from harness.attend import POSITIONS, SELF, apart, largest, self_output, size_of
from harness.check import check
from harness.checks.step2_chapter import W_K, W_Q, W_V, E
from harness.expect import Asked, ask, told_apart
from harness.rounding import negligible
from harness.strategies import Tokens, tokens
from harness.subject import Subject
from harness.values import Array

of_positions = partial(check, functions=POSITIONS, families="positions", public=True)

EVEN = st.integers(1, 8).map(lambda half: 2 * half)
LENGTH_AND_WIDTH = st.tuples(st.integers(2, 40), EVEN)
GAP = 1e-4  # far above rounding in float32, far below what a position or a mask does to standard-normal tokens


def _shuffle_gap(
    subject: Subject,
    given: tuple[Array, Array, Array, Array],
    order: Array,
    added: Array | None = None,
    mask: Array | None = None,
) -> tuple[Asked, float]:
    """Shuffle, attend, un-shuffle: the largest difference in an output. `added` and the mask stay with the slots."""
    X, *W = given
    named = {} if mask is None else {"mask": mask}
    positions = 0 if added is None else added
    _, plain = self_output(subject, (X + positions).astype(X.dtype), *W, **named)
    asked, shuffled = self_output(subject, (X[order] + positions).astype(X.dtype), *W, **named)
    if np.ptp(plain, axis=0).max() == 0:
        raise asked.fail("every token gets the same output", "outputs that depend on the tokens", got=plain)
    return asked, apart(shuffled[np.argsort(order)], plain)


def _order(case: Tokens) -> Array:
    """A permutation that moves every token."""
    return np.roll(np.arange(case.n), 1 + case.seed % (case.n - 1))


@check(
    "step4.equivariance.shuffle",
    cases=tokens(least=3),
    examples=8,
    functions=SELF,
    families="self_attention",
    public=True,
)
def shuffled_tokens_give_shuffled_outputs(subject: Subject, case: Tokens) -> None:
    """Without positions and mask, shuffling the tokens shuffles the outputs and changes nothing else."""
    given = case.x_and_weights()
    order = case.rng().permutation(case.n)
    asked, gap = _shuffle_gap(subject, given, order)
    wide = [np.abs(a.astype(np.float64)) for a in given]
    size = size_of(wide[0] @ wide[1], wide[0] @ wide[2])
    if gap > negligible(case.dtype, size, case.n + case.d) * largest(wide[0] @ wide[3]):
        raise asked.fail(f"the un-shuffled outputs differ by {gap:.3g}", "the outputs of the tokens as they were")


@check(
    "step4.equivariance.positions-break-it",
    cases=tokens(least=4),
    examples=5,
    functions=(SELF, POSITIONS),
    families=("positions", "self_attention"),
    public=True,
)
def positions_break_the_equivariance(subject: Subject, case: Tokens) -> None:
    """With sinusoidal_positions added, shuffling the tokens changes the outputs."""
    X, *W = case.x_and_weights()
    width = case.d - case.d % 2
    asked = ask(subject, POSITIONS, case.n, width)
    table = asked.array((case.n, width)).astype(np.float64)
    added = np.pad(table, ((0, 0), (0, case.d - width)))
    _, gap = _shuffle_gap(subject, (X, W[0], W[1], W[2]), _order(case), added)
    if gap < GAP:
        seen = f"with this table added, a shuffle changes no output (by {gap:.2g} at most)"
        raise asked.fail(seen, "outputs that depend on where a token is", got=table)


@check(
    "step4.equivariance.causal-mask-breaks-it",
    cases=tokens(least=4),
    examples=5,
    functions=SELF,
    families="self_attention",
    about=("mask-ignored",),
    public=True,
)
def a_causal_mask_breaks_the_equivariance(subject: Subject, case: Tokens) -> None:
    """Under a causal mask, shuffling the tokens changes the outputs, though no position was added."""
    mask = np.tri(case.n, dtype=bool)
    asked, gap = _shuffle_gap(subject, case.x_and_weights(), _order(case), mask=mask)
    if gap < GAP:
        seen = f"under a causal mask, a shuffle changes no output (by {gap:.2g} at most)"
        raise asked.fail(seen, "outputs that depend on which tokens come before")


@check(
    "step4.equivariance.chapter-shuffle",
    functions=(SELF, POSITIONS),
    families=("positions", "self_attention"),
    public=True,
)
def the_chapters_shuffle_test(subject: Subject) -> None:
    """The chapter's shuffle içti kedi sütü: the gap is rounding, and 0.3289 with 0.3 times the positions added."""
    order = np.array([2, 0, 1])
    asked, gap = _shuffle_gap(subject, (E, W_Q, W_K, W_V), order)
    if gap > negligible("float64", 10, 7):
        raise asked.fail(f"the gap is {gap:.3g}", "about 1e-16")
    table = ask(subject, POSITIONS, 3, 4)
    positions = table.array((3, 4)).astype(np.float64)
    _, gap = _shuffle_gap(subject, (E, W_Q, W_K, W_V), order, 0.3 * positions)
    if not round(gap, 4) == 0.3289:
        raise table.fail(f"with 0.3 times these positions added the gap is {gap:.4f}", "0.3289", got=positions)


@of_positions("step4.positions.first-row", cases=EVEN, examples=4, about=("positions-from-one", "positions-halves"))
def the_first_position_is_zero(subject: Subject, case: int) -> None:
    """Position 0 is sin 0 = 0 in the even columns and cos 0 = 1 in the odd ones."""
    asked = ask(subject, POSITIONS, 3, case)
    first = asked.array((3, case))[0]
    if np.abs(first - np.tile([0.0, 1.0], case // 2)).max() > negligible("float32", 1, 1):
        raise asked.fail(
            f"the first row begins {np.round(first[:4].astype(float), 4).tolist()}", "0, 1, 0, 1, …", got=first
        )


@of_positions(
    "step4.positions.pairs-of-length-one",
    cases=LENGTH_AND_WIDTH,
    examples=6,
    about=("positions-halves", "positions-wrong-frequency"),
)
def sine_and_cosine_of_one_angle(subject: Subject, case: tuple[int, int]) -> None:
    """Columns 2i and 2i+1 are sine and cosine of one angle: their squares sum to 1, and a row's length is √(d/2)."""
    n, d = case
    asked = ask(subject, POSITIONS, n, d)
    table = asked.array((n, d)).astype(np.float64)
    squares = (table**2).reshape(n, d // 2, 2).sum(axis=-1)
    if np.abs(squares - 1).max() > negligible(_dtype(asked), 1, 1):
        row, pair = (int(i) for i in np.unravel_index(np.abs(squares - 1).argmax(), squares.shape))
        total = told_apart(float(squares[row, pair]), 1.0)[0]
        seen = f"at position {row} the squares of columns {2 * pair} and {2 * pair + 1} sum to {total}"
        raise asked.fail(seen, "1", got=table)


@of_positions(
    "step4.positions.offsets",
    cases=LENGTH_AND_WIDTH,
    examples=6,
    about=("positions-wrong-frequency",),
    stands_on="step4.positions.pairs-of-length-one",
)
def products_depend_on_the_offset_alone(subject: Subject, case: tuple[int, int]) -> None:
    """PE_p · PE_{p+k} is the same for every p, and differs from one offset k to another."""
    n, d = case
    asked = ask(subject, POSITIONS, n, d)
    table = asked.array((n, d)).astype(np.float64)
    products = table @ table.T
    for k in range(n):
        along = np.diagonal(products, k)
        if np.ptp(along) > negligible(_dtype(asked), n, 1) * d:
            raise asked.fail(f"at offset {k} the products differ by {np.ptp(along):.3g}", "one number", got=table)
    if abs(products[0, 0] - products[0, 1]) < 1e-3:
        raise asked.fail("neighbours have the product of equal positions", "another number for offset 1", got=table)


def _dtype(asked: Asked) -> np.dtype[np.floating]:
    """That of the answer: a table may be of any float."""
    dtype = asked.value.dtype
    if dtype.kind != "f":
        raise asked.fail(f"the table has dtype {dtype}", "a float", "wrong-dtype", asked.value)
    return dtype  # type: ignore[no-any-return]
