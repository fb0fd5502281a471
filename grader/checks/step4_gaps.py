"""Step 4, over an attention of the judge whose gaps are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from grader.instruments import over_attention
from harness.check import check
from harness.checks.step4_gaps import GAP
from harness.expect import Asked, ask
from harness.subject import Call, Subject
from reference import chapter
from reference.attention import sinusoidal_positions
from reference.experiments import equivariance_gap
from reference.variants.experiments import Shuffle, over, shuffle

PRECISION = 1e-10  # of gaps of size 1 in float64
seeds = st.lists(st.tuples(st.integers(4, 9), st.integers(0, 2**32 - 1)), min_size=1, max_size=3)


def question(case: Shuffle) -> Call:
    options = {name: value for name, value in (("positions", case.positions), ("mask", case.mask)) if value is not None}
    return Call(GAP, (case.X, case.W_Q, case.W_K, case.W_V, case.permutation), options, echo=True)


def expected(case: Shuffle) -> float:
    attention = over(case.attention)
    return equivariance_gap(
        case.X, case.W_Q, case.W_K, case.W_V, case.permutation, case.positions, case.mask, attention
    )


def _compare(subject: Subject, cases: list[Shuffle], why: str) -> list[Asked]:
    answers = []
    with over_attention(subject) as (borrower, attention):
        for case in cases:
            attention.name = case.attention
            answers.append(Asked(question(case), borrower.ask(question(case))[0]))
    for case, asked in zip(cases, answers, strict=True):
        gap = asked.number()
        if not abs(gap - expected(case)) <= PRECISION:
            raise asked.fail(f"the gap is {gap:.6g}", f"{expected(case):.6g}: {why}")
    return answers


def _cases(rng: np.random.Generator, **options: Any) -> list[Shuffle]:
    return [shuffle(int(rng.integers(2**32)), n, **options) for n in (4, 6, 9)]


@check("step4.gap.slots", functions=GAP, families="equivariance_gap", needs="torch")
def slots(subject: Subject, rng: np.random.Generator) -> None:
    """An attention that treats one slot unlike another is found out, by the size of its gap."""
    _compare(
        subject, _cases(rng, attention="by slot"), "your attention was replaced by one that adds a vector to each slot"
    )


@check("step4.gap.un-shuffled", functions=GAP, families="equivariance_gap", stands_on="step4.gap.slots", needs="torch")
def un_shuffled(subject: Subject, rng: np.random.Generator) -> None:
    """Without mask and positions the un-shuffled outputs of a right attention are the outputs again."""
    _compare(subject, _cases(rng, attention="right"), "un-shuffled, every output is at its token again")


@check("step4.gap.positions", functions=GAP, families="equivariance_gap", needs="torch")
def positions(subject: Subject, rng: np.random.Generator) -> None:
    """Positions are added after the shuffle: a slot keeps its position, whichever token is in it."""
    _compare(subject, _cases(rng, attention="right", positions=True), "positions stay with the slots")


@check("step4.gap.mask", functions=GAP, families="equivariance_gap", needs="torch")
def mask(subject: Subject, rng: np.random.Generator) -> None:
    """The mask stays with the slots while the tokens move."""
    _compare(subject, _cases(rng, attention="right", causal=True), "the mask stays with the slots")


@check("step4.gap.mask-and-positions", functions=GAP, families="equivariance_gap", needs="torch")
def both(subject: Subject, rng: np.random.Generator) -> None:
    """A mask and positions together both stay with the slots."""
    cases = _cases(rng, attention="right", positions=True, causal=True)
    for asked in _compare(subject, cases, "mask and positions stay with the slots"):
        asked.unchanged()


@check("step4.gap.chapter", functions=GAP, families="equivariance_gap", stands_on="step4.gap.positions", needs="torch")
def chapter_numbers(subject: Subject) -> None:
    """The chapter's sentence, shuffled, gives its gap: rounding alone, and 0.3289 with positions."""
    given = (np.array(chapter.E), np.array(chapter.W_Q), np.array(chapter.W_K), np.array(chapter.W_V))
    permutation = np.array(chapter.PERMUTATION)
    positions = chapter.POSITION_SCALE * sinusoidal_positions(*given[0].shape)
    with over_attention(subject) as (borrower, _):
        moved = ask(borrower, GAP, *given, permutation, positions=positions)
        plain = ask(borrower, GAP, *given, permutation)
    if not abs(moved.number() - chapter.SHUFFLE_GAP_WITH_POSITIONS_PRINTED) <= 5e-5:
        raise moved.fail(f"the gap with positions is {moved.number():.4f}", "0.3289, as section 7.4 prints it")
    if not 0 <= plain.number() <= 1e-14:
        raise plain.fail(f"the gap is {plain.number():.3g}", "about 1e-16, as section 7.4 prints it")
