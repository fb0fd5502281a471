"""The distinct mistakes of a submission, each once, the costliest first: what every output opens with.

A fault shows in many checks. Here stands what it is called, what it cost in all, and where it was seen first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.report import CheckReport, Diagnosis, Line, StepReport

# Codes that say how a call ended and not why: two functions that end alike may have two causes.
GENERIC = frozenset({"unrecognised", "raised", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array"})
LIMITS = frozenset({"timeout", "out-of-memory", "crashed", "output-flood"})
FILES = frozenset({"file-missing", "name-missing", "signature-mismatch", "import-failed"})
NOT_WRITTEN = "Not written yet"


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    cost     points lost by the checks that it explains and by those that wait for one of them; a check's loss is shared where
             several mistakes explain it
    checks   how many checks fail because of it, and `waiting` how many wait for these
    step     the number of the step where it was seen first, in the check called `check` with the id `check_id`; `steps` are all
    line     the student's own line, where one is known
    """

    code: str
    title: str
    message: str
    look: str
    chapter: str
    evidence: str
    cost: float
    checks: int
    waiting: int
    step: int
    check: str
    check_id: str
    steps: tuple[int, ...]
    key: tuple[str, str]
    line: Line | None = None

    def covers(self, diagnosis: Diagnosis, check: CheckReport) -> bool:
        """Whether a check's finding is this mistake."""
        return self.key == _key(diagnosis, check)


@dataclass
class _Found:
    """A mistake in the making; `first` is the check it was seen in first."""

    diagnosis: Diagnosis
    first: CheckReport
    step: int
    cost: float = 0.0
    checks: int = 0
    waiting: int = 0
    steps: dict[int, None] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)


def mistakes(
    steps: Iterable[StepReport], shown: Callable[[CheckReport], bool] = lambda check: True
) -> tuple[Mistake, ...]:
    """The mistakes that the checks for which `shown` holds have found; evidence is only of checks that students may see."""
    found: dict[tuple[str, str], _Found] = {}
    causes: dict[str, list[_Found]] = {}
    checks = [(step.number, check) for step in steps for check in step.checks if shown(check)]
    for number, check in checks:
        if check.status != "failed":
            continue
        for diagnosis in check.faults:
            mistake = found.setdefault(_key(diagnosis, check), _Found(diagnosis, check, number))
            if mistake.first.visibility != "visible" == check.visibility:
                mistake.diagnosis, mistake.first, mistake.step = diagnosis, check, number
            mistake.checks += 1
            mistake.cost += (check.max_score - check.score) / len(check.faults)
            mistake.steps[number] = None
            mistake.functions |= dict.fromkeys(check.functions[:1])
            causes.setdefault(check.id, []).append(mistake)
    for _, check in checks:
        behind = [m for d in check.faults if d.code == "blocked-by" for m in causes.get(d.evidence, ())]
        for mistake in behind:
            mistake.waiting += 1
            mistake.cost += (check.max_score - check.score) / len(behind)
    ranked = sorted(found.values(), key=lambda m: -round(m.cost, 6))
    return tuple(map(_mistake, ranked))


def _key(diagnosis: Diagnosis, check: CheckReport) -> tuple[str, str]:
    """What makes two findings one mistake."""
    if diagnosis.title == NOT_WRITTEN:
        return NOT_WRITTEN, ""
    if diagnosis.code in FILES:
        return diagnosis.code, diagnosis.message
    if diagnosis.code in GENERIC | LIMITS:
        return diagnosis.code, next(iter(check.functions), check.id)
    return diagnosis.code, ""


def _mistake(found: _Found) -> Mistake:
    d, check = found.diagnosis, found.first
    evidence = check.evidence if check.visibility == "visible" else None
    functions = ", ".join(name.rpartition(".")[2] for name in found.functions)
    title, message = d.title, d.message
    if d.title == NOT_WRITTEN and len(found.functions) > 1:
        message = f"Still to write: {functions}."
    elif d.code == "unrecognised":
        title = f"{functions or check.title.rstrip('.')}: no known mistake fits"
        message = (
            f"{check.title} Seen: {evidence.seen}" if evidence else f"{check.title} Seen on inputs that are not shown."
        )
    elif d.code in GENERIC | LIMITS and functions:
        title = f"{functions}: {d.title}"
        if check.visibility != "visible":  # what is said of such a fault holds a number of the input
            message = f"{check.title} Seen on inputs that are not shown."
    return Mistake(
        code=d.code,
        title=title,
        message=message,
        look="" if d.title == NOT_WRITTEN and len(found.functions) > 1 else d.look,
        chapter=d.chapter,
        evidence=d.evidence if evidence else "",
        cost=round(found.cost, 2),
        checks=found.checks,
        waiting=found.waiting,
        step=found.step,
        check=check.title,
        check_id=check.id,
        steps=tuple(found.steps),
        key=_key(d, check),
        line=evidence.lines[-1] if evidence and evidence.lines else None,
    )
