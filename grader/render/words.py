"""What outputs for other homes say of a check, in plain lines: each marks them up in its own way.

A check that students may not see is told by its fault's name and nothing that was drawn: a row of a platform that is
hidden there hides the student's total as well.
"""

from __future__ import annotations

from grader.mistakes import Mistake, mistakes
from grader.report import SET_BY_STAFF, UNRECOGNISED, CheckReport, Diagnosis, Report

# Their messages hold what was seen: an index, a shape, a number of a hidden input.
_SHOWS_INPUTS = frozenset({"wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "raised"})


def fault_lines(fault: Diagnosis, secret: bool = False) -> list[str]:
    """A fault in at most three lines: what is wrong, where to look, how it was seen; the last not where that is secret."""
    if fault.code == UNRECOGNISED and secret:
        return ["The result is wrong on inputs that are not shown."]
    says = "" if secret and fault.code in _SHOWS_INPUTS else f" {fault.message}"
    lines = [f"{fault.title.rstrip('.')}.{says}"]
    if fault.look:
        lines.append(f"Look: {fault.look}" + (f" ({fault.chapter})" if fault.chapter else ""))
    if fault.evidence and not secret and fault.code != "blocked-by":
        lines.append(f"How it was seen: {fault.evidence}")
    return lines


def check_lines(check: CheckReport, told: dict[Diagnosis, str] | None = None) -> list[str]:
    """All that is said of a check, but for its values. `told` says which faults have been told, and where."""
    secret = check.visibility == "hidden"
    lines = []
    for d in check.diagnoses:
        if told and d in told:
            lines.append(f"{d.title.rstrip('.')}, as in {told[d]}.")
        elif not (secret and d.note and d.code != SET_BY_STAFF):
            lines += fault_lines(d, secret)
    if check.status == "passed":
        return ["Passed.", *lines]
    if check.status == "not-run":
        return ["Not judged: this costs nothing."]
    return lines or ["Failed."]


def values(check: CheckReport) -> str:
    """What was seen, with inputs and results drawn, where students may see it."""
    return "" if check.visibility == "hidden" else check.output


def not_final(report: Report, points: bool = True) -> list[str]:
    """Why there is no final score, for the student, and what staff are to do; nothing where the score is final. Without `points`
    it names none."""
    if report.final:
        return []
    reasons = [f"{reason[:1].upper()}{reason[1:]}." for reason in report.provisional]
    return [
        "This score is not final.",
        *reasons,
        *([f"What was judged so far is worth {report.subtotal:g} of {report.max_score:g} points."] if points else []),
        "You need not do anything. Course staff: please run the autograder on this submission again.",
    ]


# -- mistakes ----------------------------------------------------------------------------------------------------------


def of_students(report: Report) -> tuple[Mistake, ...]:
    """The mistakes that a student may be told of: a check that is shown later, or not to students, gives none away."""
    return mistakes(report.steps, lambda check: check.visibility == "visible")


def cost(mistake: Mistake) -> str:
    """What a mistake cost, in words."""
    if not mistake.cost:
        return "no points"
    return f"−{mistake.cost:g} point{'s' * (mistake.cost != 1)}"


def seen_in(mistake: Mistake) -> str:
    """Where a mistake was seen first, and in how many checks."""
    others = [f"{mistake.checks} checks fail for it"] if mistake.checks > 1 else []
    if mistake.waiting:
        others.append(
            f"{mistake.waiting} more {'waits' if mistake.waiting == 1 else 'wait'} for {'it' if mistake.checks == 1 else 'these'}"
        )
    more = f" ({', '.join(others)})" if others else ""
    where = "" if mistake.check in mistake.message else f": {mistake.check.rstrip('.')}"
    return f"Seen first in step {mistake.step}{where}{more}."


def mistake_lines(mistake: Mistake) -> list[str]:
    """A mistake in a few plain lines: its name and cost, what is wrong, where to look, where it was seen."""
    lines = [f"{mistake.title.rstrip('.')} ({cost(mistake)}).", mistake.message]
    if mistake.look:
        lines.append(f"Look: {mistake.look}" + (f" ({mistake.chapter})" if mistake.chapter else ""))
    if mistake.line:
        lines.append(f"{mistake.line.file}:{mistake.line.line}: {mistake.line.text}")
    return [*lines, seen_in(mistake)]
