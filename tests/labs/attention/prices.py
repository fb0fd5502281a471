"""What each faulty submission of the project loses under a rubric: for `attnlab rubric prices`.

A submission is judged for the steps that its files concern, in this process where nothing of it needs limits. Causes are not
looked for: they cost nothing.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

from grader import grade as grading
from grader.rubric import Rubric, load_rubric
from tests.labs.attention.edits import BASE, HERE, Entry, edited, entries, write
from tests.labs.attention.verdicts import InProcess

SUBMISSIONS = HERE.parents[1] / "submissions"
STEPS = {"attention.py": {1, 2, 4, 7}, "experiments.py": {3, 4, 5, 6, 7, 8}, "kv_cache.py": {8}}
GROUPS = {"attention": False, "cache": False, "experiments": False, "growth": True}
"""Folders of tests/submissions, and whether theirs need a worker; the others hold what costs no points."""


@dataclass(frozen=True)
class Fixture:
    """A faulty submission: an entry of faults/*.toml, or a folder of tests/submissions."""

    name: str
    group: str
    source: Entry | Path
    sandbox: bool

    @property
    def steps(self) -> set[int]:
        files = edited(self.source) if isinstance(self.source, Entry) else [p.name for p in self.source.iterdir()]
        return set().union(*(STEPS.get(name, set()) for name in files))

    def write(self, folder: Path) -> Path:
        if isinstance(self.source, Entry):
            return write(self.source, folder)
        shutil.copytree(BASE, folder)
        shutil.copytree(self.source, folder, dirs_exist_ok=True)
        return folder


def fixtures(match: str = "") -> list[Fixture]:
    """All whose name has `match` in it, but the right ones."""
    found = [
        Fixture(path.name, group, path, sandbox)
        for group, sandbox in GROUPS.items()
        for path in sorted((SUBMISSIONS / group).iterdir())
        if not path.name.startswith("correct")
    ]
    found += [Fixture(e.name, Path(e.file).stem, e, e.sandbox) for e in entries() if e.kind == "fault"]
    return [f for f in found if match in f.name and f.steps]


def priced(rubric: Path | None, match: str = "", jobs: int = 1) -> Iterator[tuple[Fixture, dict[int, float]]]:
    """Each fixture with the points that it loses by step, as it is judged."""
    chosen = fixtures(match)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from zip(chosen, pool.map(partial(price, rubric=rubric), chosen), strict=True)


def price(fixture: Fixture, rubric: Path | None) -> dict[int, float]:
    """The points lost by step."""
    return _lost(fixture, load_rubric(rubric))


def _lost(fixture: Fixture, rubric: Rubric) -> dict[int, float]:
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(mock.patch.object(grading._Judge, "_explain", lambda *_: None))
        if not fixture.sandbox:
            stack.enter_context(mock.patch.object(grading, "Sandbox", InProcess))
        report = grading.grade(fixture.write(Path(scratch, "submission")), rubric=rubric, steps=fixture.steps)
    return {step.number: round(step.max_score - step.score, 2) for step in report.steps if step.score < step.max_score}
