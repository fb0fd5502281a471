"""Step 7, over an attention of the judge that lets hidden tokens through."""

from __future__ import annotations

import numpy as np

from grader.instruments import over_attention
from harness.check import check
from harness.checks.step7_append import GAP
from harness.expect import Asked
from harness.subject import Call, Subject
from reference.experiments import append_invariance_gap
from reference.variants.experiments import Append, append, over

PRECISION = 1e-10


def question(case: Append) -> Call:
    return Call(GAP, (case.X, case.x_new, case.W_Q, case.W_K, case.W_V), {}, echo=True)


def expected(case: Append) -> float:
    return append_invariance_gap(case.X, case.x_new, case.W_Q, case.W_K, case.W_V, over(case.attention))


def _compare(subject: Subject, cases: list[Append], why: str) -> list[Asked]:
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


def _cases(rng: np.random.Generator, attention: str) -> list[Append]:
    return [append(int(rng.integers(2**32)), n, attention) for n in (1, 4, 7)]


@check("step7.append.leak", functions=GAP, families="append_invariance_gap", needs="torch")
def leak(subject: Subject, rng: np.random.Generator) -> None:
    """An attention that lets later tokens through its mask is found out, by the size of its gap."""
    answers = _compare(
        subject, _cases(rng, "leaky"), "your attention was replaced by one that adds a share of every value"
    )
    for asked in answers:
        asked.unchanged()


@check(
    "step7.append.causal",
    functions=GAP,
    families="append_invariance_gap",
    stands_on="step7.append.leak",
    needs="torch",
)
def causal(subject: Subject, rng: np.random.Generator) -> None:
    """Both runs are causal: with a right attention the appended token changes nothing before it."""
    _compare(subject, _cases(rng, "right"), "under a causal mask an appended token is seen by itself alone")
