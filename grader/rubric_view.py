"""What a rubric comes to, before anything is graded: what each check is worth and who sees it, and what a student sees when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.rubric import Rubric
from grader.score import split
from harness import check as checking
from harness.check import Check

WHEN = ("on handing in", "after the due date", "after publishing")
_SHOWN_FROM = {"visible": 0, "hidden": 0, "after_due_date": 1, "after_published": 2}


@dataclass(frozen=True)
class Row:
    """A check, or with step 0 a test of the course's own. `points` is None where only running would tell."""

    id: str
    title: str
    step: int
    points: float | None
    weight: float
    visibility: str
    public: bool
    waived: bool

    def is_shown(self, when: int) -> bool:
        """Whether its result is shown at WHEN[when]; one that is `hidden` is told by the name of its fault."""
        return _SHOWN_FROM[self.visibility] <= when


def rows(rubric: Rubric, checks: Mapping[str, Check]) -> list[Row]:
    """Every check that a grading asks and that has a step with points, in the order of the report; then the course's own."""
    asked = checking.ordered(
        rubric.with_prerequisites(c)
        for c in checks.values()
        if rubric.points.get(c.step) and (rubric.weight_of(c) or c.id in rubric.waived)
    )
    found = []
    for step, points in sorted(rubric.points.items()):
        of_step = [c for c in asked if c.step == step]
        weights = [rubric.weight_of(c) for c in of_step]
        for c, weight, share in zip(of_step, weights, split(points, weights), strict=True):
            seen = rubric.visibility_of(c.id)
            found.append(Row(c.id, c.title, step, share / 100, weight, seen, c.public, c.id in rubric.waived))
    for name, worth in rubric.own.worth.items():
        seen = rubric.own.visibility.get(name, rubric.visibility)
        found.append(Row(name, "A test of the course's own.", 0, worth, 1.0, seen, False, name in rubric.waived))
    return found


def total_from(found: Sequence[Row]) -> int:
    """From which of WHEN on Gradescope shows the total: it hides it while any row is kept back."""
    return max((_SHOWN_FROM[row.visibility] for row in found), default=0)


def notices(rubric: Rubric, checks: Mapping[str, Check]) -> list[str]:
    """What is allowed and may not be meant, a sentence each."""
    found = rows(rubric, checks)
    told = []
    if kinds := sorted({row.visibility for row in found if _SHOWN_FROM[row.visibility]}):
        count = sum(row.visibility in kinds for row in found)
        until = "then" if len(kinds) == 1 else "grades are published"
        told.append(
            f"{count} {'check is' if count == 1 else 'checks are'} shown {' or '.join(kinds)}: Gradescope hides a student's "
            f"total until {until}. With visibility: hidden it shows the total at once."
        )
    if left_out := [n for n in checking.STEPS if n not in rubric.points and _worth(n, checks)]:
        told.append(f"Not graded, since points does not list them: {', '.join(f'step{n}' for n in left_out)}.")
    return told


def _worth(step: int, checks: Mapping[str, Check]) -> bool:
    """Whether every submission is asked something in this step: a companion file is nobody's duty."""
    return any(c.step == step and c.needs not in ("companion", "tensors") for c in checks.values())


def sentences(rubric: Rubric, found: Sequence[Row]) -> list[str]:
    """What a preview says beside its table."""
    public = [row for row in found if row.public]
    kept = [row for row in found if not row.public and row.step and row.visibility != "hidden"]
    named = [row for row in found if row.visibility == "hidden"]
    told = [f"At home students run {_checks(len(public))}, the public tests; a failing one shows its smallest input."]
    if kept:
        shows = "shows the smallest input found" if rubric.show_hidden_inputs else "is told in words, without an input"
        told.append(f"{_checks(len(kept))} {_are(kept)} the judge's own: a failing one {shows}.")
    if named:
        told.append(
            f"{_checks(len(named))} {_are(named)} hidden: the report leaves {'it' if len(named) == 1 else 'them'} out, "
            "and Gradescope names the fault and shows no input."
        )
    if waived := [row for row in found if row.waived]:
        told.append(f"{_checks(len(waived))} {_are(waived)} waived: passed by all, with the reason.")
    if late := rubric.submissions.late:
        told.append(
            f"Handed in late: {late.percent_a_day:g} % of the score less for each begun day, {late.most_percent:g} % at most."
        )
    if attempts := rubric.submissions.attempts:
        told.append(f"At most {attempts.most} submissions in {attempts.hours:g} hours are graded.")
    told += [f"A person grades “{m.title}”: {m.points:g} points beside the score." for m in rubric.manual if m.points]
    return told


def _checks(count: int) -> str:
    return f"{count} check{'s' * (count != 1)}"


def _are(found: Sequence[Row]) -> str:
    return "is" if len(found) == 1 else "are"
