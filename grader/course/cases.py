"""Submissions with a verdict that is expected of them: how staff try a grader, or a changed rubric.

A folder of cases holds a folder each. One with a case.toml is laid over `base`, a correct submission beside it, and says
what must come out; one without is graded as it is, and must get full marks and no fault.

    codes = ["scale-missing"]   faults that must all be named
    also  = []                  faults that may be named beside them, or in place of one
    steps = [1, 2]              steps of which at least the first must lose points
    score = 81.5                the score, where that is known
    alone = true                nothing is laid under its files
    kind  = "fault"             or "correct", which must get full marks, or "attack"
    note  = "…"                 words for a person, as are source, goal and expect

A key, a code or a step that is none is told with its line before anything is graded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from grader.page import Page, PageError
from grader.rubric import known_checks
from harness.messages import MESSAGES

CASE = "case.toml"
# How a call ended says little by itself; these stand beside any fault.
_NEUTRAL = frozenset({"blocked-by", "raised", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array"})


class CaseError(Exception):
    """A folder of cases that cannot be used: the file, the cause and the mend."""


@dataclass(frozen=True)
class Case:
    """One submission and what is expected of it. `base` is what its own files are laid over."""

    name: str
    folder: Path
    base: Path | None = None
    codes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    score: float | None = None
    correct: bool = True

    def assemble(self, target: Path) -> None:
        """Puts the submission into an empty folder."""
        skip = shutil.ignore_patterns(CASE, "__pycache__")
        for source in (self.base, self.folder):
            if source is not None:
                shutil.copytree(source, target, ignore=skip, dirs_exist_ok=True)


@dataclass(frozen=True)
class Verdict:
    """What a grading came to, whatever wrote it down. `lost` are the steps that lost points."""

    score: float
    max_score: float
    final: bool
    codes: frozenset[str]
    lost: frozenset[int]


def find(folder: Path, only: Sequence[str] = ()) -> list[Case]:
    """The cases in a folder, by name; with `only`, those whose names hold one of these words. Raises CaseError."""
    if not folder.is_dir():
        raise CaseError(f"{folder} is no folder: name one that holds a folder for each submission")
    base = folder / "base"
    cases = [
        _case(path, base if base.is_dir() else None)
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.name.startswith((".", "_"))
    ]
    chosen = [case for case in cases if not only or any(word in case.name for word in only)]
    if not chosen:
        raise CaseError(
            f"{folder} holds no case{' whose name has ' + ' or '.join(only) if only else ''}: put a submission's folder in it"
        )
    return chosen


def differences(case: Case, verdict: Verdict) -> list[str]:
    """In what a grading is not as expected, a sentence each."""
    told = []
    if not verdict.final:
        told.append("the score is not final: something could not be judged")
    named = verdict.codes - _NEUTRAL
    missing = [code for code in case.codes if code not in verdict.codes]
    if missing and not named & set(case.also):
        told.append(f"not named: {', '.join(missing)}")
    extra = sorted(named - set(case.codes) - set(case.also))
    if extra:
        told.append(f"named and not expected: {', '.join(extra)}")
    if case.steps and case.steps[0] not in verdict.lost:
        told.append(f"step {case.steps[0]} lost no points")
    if case.correct and verdict.score < verdict.max_score:
        told.append(f"{verdict.score:g} of {verdict.max_score:g} points, where full marks are expected")
    if case.score is not None and abs(case.score - verdict.score) > 0.005:
        told.append(f"{verdict.score:g} points, where {case.score:g} are expected")
    return told


def between(image: Verdict, host: Verdict) -> list[str]:
    """In what an autograder's verdict is not this host's of the same submission, a sentence each."""
    told = []
    if image.score != host.score:
        told.append(f"{image.score:g} points in the image, and {host.score:g} on this host")
    if image.final != host.final:
        told.append(f"the score is final {'in the image' if image.final else 'on this host'} alone")
    for here, there, where in ((image, host, "in the image"), (host, image, "on this host")):
        if alone := sorted(here.codes - there.codes):
            told.append(f"named {where} alone: {', '.join(alone)}")
    return told


def _case(folder: Path, base: Path | None) -> Case:
    file = folder / CASE
    if not file.is_file():
        return Case(folder.name, folder)
    try:
        value = _expected(file)
    except OSError as error:
        raise CaseError(f"{file} cannot be read ({error.strerror}): mend it, or take it away") from None
    except PageError as error:
        raise CaseError(str(error)) from None
    codes, also, steps = (tuple(value.get(key, ())) for key in ("codes", "also", "steps"))
    score = value.get("score")
    correct = value.get("kind") == "correct" or not (codes or also or steps or score is not None or "kind" in value)
    return Case(folder.name, folder, None if value.get("alone") else base, codes, also, steps, score, correct)


def _expected(file: Path) -> Mapping[str, Any]:
    """A case.toml that the schema and the lab agree with. Raises PageError, OSError."""
    page = Page.of_toml(str(file), file.read_bytes())
    page.validate(json.loads(resources.files("grader.course").joinpath("case.schema.json").read_text("utf-8")))
    for key in ("codes", "also"):
        for code in page.value.get(key, ()):
            page.known((key,), code, "code", MESSAGES)
    steps = {f"{check.step}" for check in known_checks().values()}
    for number in page.value.get("steps", ()):
        page.known(("steps",), f"{number}", "step", steps)
    value: Mapping[str, Any] = page.value
    return value
