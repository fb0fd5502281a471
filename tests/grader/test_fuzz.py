"""An odd answer is judged: no check breaks on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from harness.check import Check
from tests.grader import fuzz
from tests.grader.test_right import unread

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("check", fuzz.checks(), ids=lambda check: check.id)
def test_no_check_breaks_on_an_odd_answer(check: Check) -> None:
    """One of its first answers, changed at random; `python -m tests.grader.fuzz --match ID` tries more."""
    assert fuzz.round_of(check, seed=100, of=3).reason == ""


def test_what_is_changed_is_what_a_worker_could_say() -> None:
    """Every change ends as an outcome of the wire's kinds, and none stays as it was by rule."""
    rng = np.random.default_rng(0)
    answer = fuzz.Outcome("value", {"shape": (1, 2), "rows": [np.ones((2, 3)), 1.0]})
    kinds = {fuzz.odd(answer, rng).kind for _ in range(300)}
    assert kinds == {"value", "raised", "crashed"}


def test_a_check_that_takes_an_answer_for_what_it_is_not_is_found() -> None:
    """A check that sums whatever comes breaks on what is no array, and a round of odd answers shows it."""
    check = Check("step1.unread", 1, "T.", unread)
    found = [fuzz.round_of(check, seed, 1) for seed in range(40)]
    assert {result.status for result in found} == {"passed", "failed", "not-run"}
    assert all(
        result.broke.endswith('ask(subject, "attention.softmax", np.array([[1.0, 2.0]])).value.sum()')
        for result in found
        if result.broke
    )


def test_no_check_breaks_on_an_odd_entry_of_results(tmp_path: Path) -> None:
    """Every entry, changed in every way: each check passes or fails."""
    found: Counter[str] = Counter()
    for path, text, results in fuzz.judged_results(tmp_path):
        found.update(result.status for result in results)
        assert [(path, text, result.reason) for result in results if result.broke] == []
    assert set(found) == {"passed", "failed"}


@pytest.mark.parametrize("step", [1, 6, 8])
def test_a_grading_with_odd_answers_is_final(step: int) -> None:
    """One answer in thirty of the worker is changed: the report is whole, and no step pays more than there is."""
    report = fuzz.graded_oddly(step, seed=0)
    assert fuzz.withheld(report) == []
    assert [s.score <= s.max_score for s in report.steps] == [True]
