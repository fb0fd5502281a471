"""A check that breaks on an answer has failed, and says what came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import broken
from harness import check as checking
from harness.check import Check
from harness.expect import ask
from harness.local import Held, run_check
from harness.subject import LocalSubject

BASE = Path(__file__).parents[2] / "examples" / "base"


def breaks(subject: Any) -> None:
    ask(subject, "attention.causal_mask", 2).value["no such key"]


BREAKS = Check("step7.breaks", 7, "It breaks.", breaks)


def test_a_check_that_breaks_keeps_what_it_broke_on():
    """The result holds the exception's last lines and the last question with its answer."""
    result = checking.run(BREAKS, LocalSubject(BASE), 0)
    assert (result.status, "no such key" in result.broke) == ("not-run", True)
    assert result.heard is not None
    assert (result.heard[0].name, result.heard[1].value.shape) == ("attention.causal_mask", (2, 2))


def test_as_a_failure_it_says_what_came_back():
    """The words are the call and the answer, and no exception of the check's own."""
    failure = broken.failed(checking.run(BREAKS, LocalSubject(BASE), 0)).failure
    assert failure is not None
    assert (failure.call, failure.seen) == ("causal_mask(2)", "what came back could not be read: bool array (2, 2)")


def test_where_the_last_call_raised_its_own_words_are_told(tmp_path: Path):
    """A check that breaks after a call without a result tells of that call."""

    def after_a_raise(subject: Any) -> None:
        ask(subject, "attention.causal_mask", "no number").outcome.value["key"]

    failure = broken.failed(checking.run(Check("step7.raises", 7, "T.", after_a_raise), LocalSubject(BASE), 0)).failure
    assert failure is not None
    assert failure.code == "raised"


def test_a_students_own_run_takes_it_for_a_failure():
    """Public checks pass over right submissions, so that one that breaks has broken on this one."""
    result = run_check(BREAKS, Held(BASE), {})
    assert (result.status, result.failure is not None) == ("failed", True)
