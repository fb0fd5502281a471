"""results.json as Gradescope takes it.

A row a step with its points and, by its cause, what is not in order; beneath it a row for each mistake that was seen there
first: some ten rows in place of a row a check. A check that students see later, and a test of the course's own, has a row of its
own. `score` stands above them: the platform then adds nothing up. What is for staff stands in `extra_data`, which the platform
shows to nobody.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grader.mistakes import Mistake, mistakes
from grader.policy import Metadata, Refusal, standing
from grader.render.files import write_atomically
from grader.render.words import check_lines, cost, mistake_lines, not_final, values
from grader.report import OWN_TESTS, UNRECOGNISED, CheckReport, Report, StepReport
from grader.rubric import Submissions
from grader.score import hundredths

# What students see at once: a row that is `hidden` there would hide the total, so such a check is told without its inputs.
_NOW = ("visible", "hidden")
MOST_OPEN = 3  # lines of one cause that stand there unfolded


def to_results(
    report: Report,
    seconds: float | None = None,
    policy: Submissions | None = None,
    about: Metadata | None = None,
) -> dict[str, Any]:
    """The report as Gradescope's results; `seconds` is how long the grading has taken so far.

    `policy` says what counts of several submissions, `about` what the platform has told of this one.
    """
    score = report.subtotal if report.score is None else report.score
    kept = standing(policy or Submissions(), about or Metadata(), score, told=not _later(report))
    odd = {"metadata": list(about.odd)} if about and about.odd else {}
    found = mistakes(report.steps, lambda check: check.visibility in _NOW)
    results: dict[str, Any] = {
        "score": kept.score,
        "output": _top(report, kept.lines, found),
        "output_format": "html",
        "test_output_format": "html",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [row for step in report.steps for row in _rows(step, found)] + _by_hand(report),
        "extra_data": {**staff_only(report), **odd},
    }
    if report.leaderboard:
        results["leaderboard"] = [{"name": n, "value": v, "order": order} for n, v, order in report.leaderboard]
    return results if seconds is None else {**results, "execution_time": round(seconds, 1)}


def write_gradescope(
    report: Report,
    path: Path,
    seconds: float | None = None,
    policy: Submissions | None = None,
    about: Metadata | None = None,
) -> None:
    """Writes results.json in one step. Raises OSError."""
    write_atomically(path, _as_text(to_results(report, seconds, policy, about)))


def to_refusal(refused: Refusal) -> dict[str, Any]:
    """Results for a submission that is not graded: the last graded ones are shown again, and say so."""
    rows = refused.results.get("tests")
    kept = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {
        "score": refused.score,
        "output": paragraphs(
            [*refused.lines, *(["Below is what your last graded submission was told."] if kept else [])]
        ),
        "output_format": "html",
        "test_output_format": "html",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": kept,
        "extra_data": {"refused": True},
    }


def write_refusal(refused: Refusal, path: Path) -> None:
    """Writes results.json for a submission that is not graded. Raises OSError."""
    write_atomically(path, _as_text(to_refusal(refused)))


def _as_text(results: dict[str, Any]) -> str:
    return json.dumps(results, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def staff_only(report: Report) -> dict[str, Any]:
    """What a rerun or a dispute needs: never the secret, only its fingerprint."""
    return {
        "final": report.final,
        "seed": report.seed,
        "rubric": report.rubric,
        "environment": report.environment,
        "integrity": list(report.integrity),
        "faults": report.faults,
    }


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _top(report: Report, more: Sequence[str], mistakes: Sequence[Mistake]) -> str:
    """The title, the distinct mistakes, the score; of a total that the platform hides only what is shown."""
    lines = not_final(report, points=not _later(report))
    if later := _later(report):
        now = [c for step in report.steps for c in step.checks if c.visibility in _NOW]
        got = sum(hundredths(c.score) for c in now) / 100
        of = sum(hundredths(c.max_score) for c in now) / 100
        lines.append(f"{got:g} of {of:g} points in what is shown now. The rest and the total are shown {later}.")
    elif report.final:
        lines = [f"{report.score:g} of {report.max_score:g} points."]
    found = [f["message"] for f in report.findings]
    names = [f"{m.title.rstrip('.')}: {cost(m)}, seen first in step {m.step}." for m in mistakes]
    items = "".join(f"<li>{html.escape(name)}</li>" for name in names)
    listed = f"<ol>{items}</ol>" if names else ""
    return f"<h3>{html.escape(report.title)}</h3>{listed}" + paragraphs([*lines, *more, *found])


def _later(report: Report) -> str:
    """When the platform shows what it hides now, and the total with it; "" where it hides nothing."""
    kept = {c.visibility for step in report.steps for c in step.checks} - set(_NOW)
    if "after_published" in kept:
        return "when grades are published"
    return "after the due date" if kept else ""


def _rows(step: StepReport, mistakes: Sequence[Mistake]) -> list[dict[str, Any]]:
    """A step's row with its points, a row for each mistake that was seen in it first, and one for each check shown later."""
    if step.title == OWN_TESTS:  # whose titles begin with the numbers that the course gave them
        return [_own_row(check) for check in step.checks]
    now = [c for c in step.checks if c.visibility in _NOW]
    head: dict[str, Any] = {
        "name": f"Step {step.number}: {step.title}",
        "number": f"{step.number}",
        "output": paragraphs(_standing(step)) + _listed(now),
        "visibility": "visible",
        "tags": sorted({d.code for c in now for d in c.faults}),
        "score": sum(hundredths(c.score) for c in now) / 100,
        "max_score": sum(hundredths(c.max_score) for c in now) / 100,
    }
    if step.status != "not-run":  # without a status a row is neither green nor red
        head["status"] = step.status
    first = [m for m in mistakes if m.step == step.number]
    later = [c for c in step.checks if c not in now]
    rows = [_mistake_row(m, f"{step.number}.{i}", now) for i, m in enumerate(first, 1)]
    return [head, *rows, *(_own_row(c, f"{step.number}.{i}") for i, c in enumerate(later, len(rows) + 1))]


def _standing(step: StepReport) -> list[str]:
    chapter = f" Section {step.chapter}." if step.chapter else ""
    return [f"{step.summary[:1].upper()}{step.summary[1:]}.{chapter}"]


def _listed(checks: Sequence[CheckReport]) -> str:
    """What is not in order, by its cause: what the checks of one have in common is told once, and many of them are folded away."""
    found: dict[str, list[str]] = {}
    for status in ("failed", "blocked", "not-run"):
        for check in (c for c in checks if c.status == status):
            found.setdefault(_cause(check), []).append(_line(check))
    for text in dict.fromkeys(d.message for c in checks for d in c.diagnoses if d.note):
        found.setdefault("A note that costs nothing", []).append(text)
    return "".join(_folded(cause, lines) for cause, lines in found.items())


def _folded(cause: str, lines: Sequence[str]) -> str:
    """A part that can be opened; where a platform takes its tags out, its text stays."""
    count = f" ({len(lines)} checks)" if len(lines) > 1 else ""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    opened = " open" * (len(lines) <= MOST_OPEN)
    return f"<details{opened}><summary>{html.escape(cause)}{count}</summary><ul>{items}</ul></details>"


def _cause(check: CheckReport) -> str:
    """Why it did not pass: the names of its faults, or what it waits for."""
    if check.status == "not-run":
        return "Not judged, which costs nothing"
    if check.status == "blocked":
        return check.faults[0].message.rstrip(".") if check.faults else "Not judged"
    if _keeps_back(check):
        return "Wrong on inputs that are not shown"
    return "; ".join(d.title.rstrip(".") for d in check.faults) or "Failed"


def _line(check: CheckReport) -> str:
    """The check's title, and what was seen where students may see it."""
    seen = check.evidence.seen if check.status == "failed" and check.evidence and check.visibility == "visible" else ""
    return f"{check.title} Seen: {seen}" if seen else check.title


def _keeps_back(check: CheckReport) -> bool:
    return check.visibility == "hidden" and any(d.code == UNRECOGNISED for d in check.faults)


def _mistake_row(mistake: Mistake, number: str, checks: Sequence[CheckReport]) -> dict[str, Any]:
    """A mistake in full, with what was seen where it showed first."""
    first = next((c for c in checks if c.title == mistake.check and c.status == "failed"), None)
    shown = values(first) if first else ""
    return {
        "name": f"Mistake: {mistake.title.rstrip('.')} ({cost(mistake)})",
        "number": number,
        "output": paragraphs(mistake_lines(mistake)[1:]) + (f"<pre>{html.escape(shown)}</pre>" if shown else ""),
        "visibility": "visible",
        "tags": [mistake.code],
        "status": "failed",
    }


def _own_row(check: CheckReport, number: str = "") -> dict[str, Any]:
    """A check that has a row of its own: a test of the course's, or one that students see later."""
    shown = values(check)
    row: dict[str, Any] = {
        "name": check.title,
        **({"number": number} if number else {}),
        "output": paragraphs(check_lines(check)) + (f"<pre>{html.escape(shown)}</pre>" if shown else ""),
        "visibility": "visible" if check.visibility == "hidden" else check.visibility,
        "tags": sorted({d.code for d in check.faults}),
        "extra_data": {"check": check.id},
    }
    if check.status != "not-run":
        row |= {"score": check.score, "max_score": check.max_score}
        row["status"] = "passed" if check.status == "passed" else "failed"
    return row


def _by_hand(report: Report) -> list[dict[str, Any]]:
    """What a person grades: a row that says so, worth nothing here."""
    return [
        {
            "name": f"Graded by a person: {item.title}",
            "output": paragraphs(
                [
                    f"Up to {item.points:g} points, beside the score."
                    if item.points
                    else "It is read, and has no points of its own."
                ]
            ),
            "visibility": "visible",
        }
        for item in report.manual
    ]
