"""What each faulty submission of the project loses under a rubric: for `attnlab rubric prices`.

A submission is judged for the steps that its files concern, in this process where nothing of it needs limits. Causes are not
looked for: they cost nothing.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

from grader import grade as grading
from grader.rubric import Rubric, load_rubric
from tests.labs.attention.edits import Entry, edited, entries, write
from tests.labs.attention.verdicts import InProcess

STEPS = {"attention.py": {1, 2, 4, 7}, "experiments.py": {3, 4, 5, 6, 7, 8}, "kv_cache.py": {8}}


def fixtures(match: str = "") -> list[Entry]:
    """All whose name has `match` in it, but the right ones."""
    return [e for e in entries() if e.kind == "fault" and match in e.name and steps_of(e)]


def steps_of(entry: Entry) -> set[int]:
    """The steps that the changed files concern."""
    return set().union(*(STEPS.get(name, set()) for name in edited(entry)))


def priced(rubric: Path | None, match: str = "", jobs: int = 1) -> Iterator[tuple[Entry, dict[int, float]]]:
    """Each fixture with the points that it loses by step, as it is judged."""
    chosen = fixtures(match)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from zip(chosen, pool.map(partial(price, rubric=rubric), chosen), strict=True)


def price(fixture: Entry, rubric: Path | None) -> dict[int, float]:
    """The points lost by step."""
    return _lost(fixture, load_rubric(rubric))


def _lost(fixture: Entry, rubric: Rubric) -> dict[int, float]:
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(mock.patch.object(grading._Judge, "_explain", lambda *_: None))
        if not fixture.sandbox:
            stack.enter_context(mock.patch.object(grading, "Sandbox", InProcess))
        report = grading.grade(write(fixture, Path(scratch, "submission")), rubric=rubric, steps=steps_of(fixture))
    return {step.number: round(step.max_score - step.score, 2) for step in report.steps if step.score < step.max_score}
