"""What the grader and a student's own run say of an entry, and what of it is not as the entry has it.

The grader runs in this process, over a stand-in for its sandbox, so that an entry takes a second: only what needs limits or a
process of its own goes through the real one.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from grader import blame
from grader import grade as grading
from grader.rubric import Rubric, load_rubric
from harness import draws
from harness.check import CheckResult
from harness.local import PUBLIC_SECRET, Held, public_checks
from harness.messages import MESSAGES
from harness.plugin import Lab
from harness.subject import Call, StandIns
from tests.labs.attention.edits import Entry, write

GENERIC = frozenset(
    {"blocked-by", "unrecognised", "raised", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "timeout"}
)
"""Codes that accuse of nothing: they say how a call ended."""

OF_EARLIER_CALLS = frozenset({"cache-shared-state", "stale-result", "not-deterministic"})
"""Faults that show in what came before a case, and not in the case alone."""

TWINS = {"batch-unsupported": ("softmax-positional-axis",), "softmax-positional-axis": ("batch-unsupported",)}
"""One mistake that has two names: an axis is counted from the front, so that two dimensions work and a batch does not."""


class _Subject(Held):
    """A group's subject: as a worker's, it can be told to forget, and to end."""

    device = "cpu"

    def forget(self) -> None:
        self.ask(Call("@forget"))

    def close(self) -> None:
        pass


class InProcess:
    """Stands in for grader.sandbox.Sandbox: a group is a fresh import of the submission in this process, without limits."""

    def __init__(self, root: Path, limits: Any = None, trust: bool = False, image: Any = None) -> None:
        self.root = root
        self.image = None
        self.deadline: float | None = None
        self.layers: list[str] = []
        self.about: dict[str, Any] = {}
        self.device = ""
        self.strikes: Counter[str] = Counter()
        self.integrity: list[str] = []

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def time_is_up(self) -> bool:
        return False

    def prepare(self, kind: str) -> None:
        pass

    def forget_strikes(self) -> None:
        pass

    def uncounted(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def group(
        self, kind: str, stand_ins: StandIns | None = None, backend: str = "numpy", device: str = "cpu"
    ) -> Iterator[_Subject]:
        subject = _Subject(self.root, stand_ins)
        with subject.held():
            yield subject


@dataclass
class Verdict:
    """What one run said. `codes` are those beside each failed check, `points` those lost by step."""

    who: str
    failed: list[str] = field(default_factory=list)
    codes: dict[str, set[str]] = field(default_factory=dict)
    points: dict[int, float] = field(default_factory=dict)
    other: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def named(self) -> set[str]:
        return set().union(self.other, *self.codes.values()) - GENERIC

    def __str__(self) -> str:
        lost = ", ".join(f"{points:g} of step {step}" for step, points in self.points.items() if points)
        beside: dict[str, list[str]] = {}
        for check in self.failed:
            beside.setdefault(", ".join(sorted(self.codes.get(check, ()))) or "no code", []).append(check)
        lines = [f"  {self.who}: {len(self.failed)} failed{f', lost {lost}' if lost else ''}"]
        lines += [f"    {codes}: {' '.join(checks)}" for codes, checks in beside.items()]
        return "\n".join([*lines, *(f"    {text}" for text in (*sorted(self.other), *self.problems))])


COSTS = ("step8.growth.cached", "step8.growth.recomputed")
"""Checks that measure for seconds what a cost grows with: asked of right entries, in a sandbox, and of faults that they must fail."""


@cache
def _rubric(costs: bool) -> Rubric:
    rubric = load_rubric()
    none = {id: replace(rubric.rule(id), weight=0.0) for id in COSTS}
    return rubric if costs else replace(rubric, rules={**rubric.rules, **none})


def graded(entry: Entry) -> Verdict:
    """The grader's judgement, with the public seed."""
    verdict = Verdict("grader")
    costs = entry.kind == "right" or entry.sandbox or not set(COSTS).isdisjoint(entry.checks)
    sandbox = contextlib.nullcontext() if entry.sandbox else mock.patch.object(grading, "Sandbox", InProcess)
    with tempfile.TemporaryDirectory() as scratch, sandbox, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflow and the like: what came of it is said
        report = grading.grade(write(entry, Path(scratch, "submission")), rubric=_rubric(costs), steps=set(entry.steps))
    verdict.problems += [f"the grader's own fault: {text}" for text in report.faults.values()]
    verdict.other |= {found["code"] for found in (*report.findings, *report.integrity)} - {"entry-refused"}
    for step in report.steps:
        verdict.points[step.number] = round(step.max_score - step.score, 2)
        for check in step.checks:
            if check.status == "not-run":
                verdict.problems.append(f"{check.id} was not run")
            if check.status == "failed":
                verdict.failed.append(check.id)
            verdict.codes[check.id] = {diagnosis.code for diagnosis in check.faults}
    return verdict


@contextlib.contextmanager
def _clocks_kept() -> Iterator[None]:
    """A submission that puts a clock of its own into `time` does so for itself alone."""
    before = dict(vars(time))
    try:
        yield
    finally:
        vars(time).update(before)


def student_run(entry: Entry) -> Verdict:
    """What a student's pytest says: the public checks, and the hint beside each that fails."""
    verdict = Verdict("student")
    with tempfile.TemporaryDirectory() as scratch, _clocks_kept():
        lab = Lab(Held(write(entry, Path(scratch, "submission"))))
        for check in public_checks(set(entry.steps)):
            result, hint = lab.run(check)
            if result.status == "not-run":
                verdict.problems.append(f"{check.id} was not run: {result.reason}")
            if result.status != "failed":
                continue
            verdict.failed.append(check.id)
            code = result.failure.code if result.failure else None
            said = {hint.code} if hint else {code}
            verdict.codes[check.id] = {c for c in said if c in MESSAGES}
            if (
                hint
                and hint.code
                and hint.code not in GENERIC
                and code
                not in (hint.code, "raised")  # whether a fault ends in an exception depends on how the rest is written
                and not _explains(hint.code, result)
            ):
                verdict.problems.append(f"{check.id} is told {hint.code}, which does not break it on its case")
    return verdict


def _explains(code: str, result: CheckResult) -> bool:
    """Whether some known way of having this fault fails the check on its case; taken for granted where none can be run."""
    check = result.check
    if not set(check.families) <= set(blame.FAMILIES):
        return True
    if code in OF_EARLIER_CALLS:
        return True
    known = (option.code for name in check.families for d in blame.space_of(name) for option in d.options)
    if code not in known:
        return True
    return blame.breaks(check, result.case, draws.seed_of(PUBLIC_SECRET, check.id), code, check.families)


def complaints(entry: Entry, graded: Verdict | None, student: Verdict | None) -> list[str]:
    """What is not as the entry has it, in sentences."""
    found = [f"{v.who}: {problem}" for v in (graded, student) if v for problem in v.problems]
    found += [text for v in (graded, student) if v for text in _beside(entry, v)]
    if entry.kind == "right":
        found += [f"{v.who}: failed {', '.join(v.failed)}" for v in (graded, student) if v and v.failed]
        if graded and any(graded.points.values()):
            found.append("grader: points were lost")
        return found
    if graded:
        passed = [check for check in entry.checks if check not in graded.failed]
        if passed:
            found.append(f"grader: did not fail {', '.join(passed)}")
        if not graded.points.get(entry.steps[0]):
            found.append(f"grader: no points were lost in step {entry.steps[0]}")
        unnamed = set(entry.codes) - graded.named.union(*graded.codes.values())
        if len(unnamed) > len(graded.named & set(entry.also)):
            found.append(f"grader: not named {', '.join(sorted(unnamed))}")
    if student and entry.hinted and not student.named & entry.expected:
        found.append(f"student: named none of {', '.join(sorted(entry.expected))}")
    if graded and student:
        for check in student.failed:
            theirs, ours = graded.codes.get(check, set()) - GENERIC, student.codes[check] - GENERIC
            if theirs and ours and not theirs & {twin for code in ours for twin in (code, *TWINS.get(code, ()))}:
                found.append(
                    f"{check}: the grader names {', '.join(sorted(theirs))}, the student's run {', '.join(ours)}"
                )
    return found


def _beside(entry: Entry, verdict: Verdict) -> Iterator[str]:
    """What is reported and is not of the entry."""
    for check, codes in verdict.codes.items():
        for code in sorted(codes - GENERIC - entry.expected):
            yield f"{verdict.who}: {check} is told {code}"
    for code in sorted(verdict.other - GENERIC - entry.expected):
        yield f"{verdict.who}: the files are told {code}"
