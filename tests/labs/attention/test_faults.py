"""Every entry of faults/*.toml gets the verdict that it asks for, by the grader and by a student's own run."""

from typing import Any

import pytest

from tests.labs.attention import verdicts
from tests.labs.attention.edits import Entry, entries

FAST = {"k-capital-t", "k-einsum", "scale-left-out", "softmax-without-maximum", "softmax-by-logarithms"}
"""The entries that every run judges; the others are slow together."""

LONG = {
    "cache-unused--own-attention",
    "cache-unused--patched-clock",
    "cache-unused--remembers",
    "cache-unused--slow-step",
    "softmax-of-thousands-never-ends",
    "speedup-faked",
    "speedup-faked--busy",
    "speedup-faked--in-forward",
    "speedup-faked--patched-clock",
}
"""Those whose limits must be reached, or whose costs must be measured again."""


def cases() -> list[Any]:
    return [pytest.param(e, id=e.name, marks=_marks(e.name)) for e in entries()]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in FAST else [pytest.mark.long if name in LONG else pytest.mark.slow]


@pytest.mark.parametrize("entry", cases())
def test_an_entry_gets_its_verdict(entry: Entry) -> None:
    graded, student = verdicts.graded(entry), verdicts.student_run(entry)
    complaints = verdicts.complaints(entry, graded, student)
    assert complaints == [], f"\n{graded}\n{student}"
