"""A check that breaks: the submission's failure where a right one passes, else the grader's own fault."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from grader.grade import grade
from grader.rubric import load_rubric
from harness.check import CHECKS, Check
from harness.expect import ask
from tests.conftest import BASE

pytestmark = pytest.mark.slow
RUBRIC = load_rubric()


def unread(subject: Any) -> None:
    """Takes what softmax gives for an array, unchecked."""
    ask(subject, "attention.softmax", np.array([[1.0, 2.0]])).value.sum()


def unread_text(subject: Any) -> None:
    """Takes what generate gives for a text, unchecked."""
    ask(subject, "kv_cache.kv_cache_bytes", 1, 1, 1, 1, 2).value.bit_length()


def broken_anywhere(subject: Any) -> None:
    raise RuntimeError("a mistake in the check")


def of_files(folder: Any) -> None:
    (folder / "report" / "note.md").read_text(encoding="utf-8").index("attention")


def statuses(folder: Any, *checks: Check) -> tuple[dict[str, str], Any]:
    with mock.patch.dict(CHECKS, {check.id: check for check in checks}, clear=True):
        report = grade(folder, rubric=RUBRIC, secret=b"a course's own", steps={c.step for c in checks})
    return {c.id: c.status for s in report.steps for c in s.checks}, report


def test_one_that_breaks_on_what_a_submission_says_failed(submission):
    """In each worker, and over the folder itself: failed, what came back is told, and staff get the trace."""
    folder = submission(
        attention=(BASE / "attention.py").read_text() + "\n\ndef softmax(x, axis=-1):\n    return 'text'\n",
        kv_cache=(BASE / "kv_cache.py").read_text() + "\n\ndef kv_cache_bytes(*sizes):\n    return 'text'\n",
    )
    (folder / "report" / "note.md").write_text("nothing")
    checks = (
        Check("step1.unread", 1, "T.", unread),
        Check("step8.unread", 8, "T.", unread_text, needs="kv"),
        Check("step9.unread", 9, "T.", of_files, needs="files"),
    )
    found, report = statuses(folder, *checks)
    assert found == dict.fromkeys(("step1.unread", "step8.unread", "step9.unread"), "failed")
    assert not any("could not be judged" in reason for reason in report.provisional)
    assert [text.split()[0] for text in report.faults.values()] == [*found]
    assert "what came back could not be read: 'text'" in report.steps[0].checks[0].output


def test_one_that_breaks_over_a_right_submission_too_is_the_graders_own_fault(submission):
    """Not run, the score withheld, and staff told."""
    found, report = statuses(submission(), Check("step1.mistake", 1, "T.", broken_anywhere))
    assert (found, report.score) == ({"step1.mistake": "not-run"}, None)
    assert "a mistake in the check" in report.faults["step1.mistake"]


def test_a_right_submission_fails_none_of_these(submission):
    """The checks that break on an odd answer pass on the right one."""
    checks = (Check("step1.unread", 1, "T.", unread), Check("step8.unread", 8, "T.", unread_text, needs="kv"))
    found, _ = statuses(submission(), *checks)
    assert set(found.values()) == {"passed"}
