"""An odd answer is judged: no check breaks on it."""

from __future__ import annotations

import numpy as np
import pytest

from harness.check import Check
from tests.grader import fuzz

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
    assert {"value", "raised"} <= kinds <= {"value", "raised", "crashed"}
