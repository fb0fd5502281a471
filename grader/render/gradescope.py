"""results.json as Gradescope takes it.

A row a step, of text alone, so that no point counts twice, and a row a check with its points. `score` stands above them: the
platform then adds nothing up. What is for staff stands in `extra_data`, which the platform shows to nobody.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grader.policy import Metadata, Refusal, standing
from grader.render.files import write_atomically
from grader.render.words import check_lines, not_final, values
from grader.report import UNRECOGNISED, CheckReport, Diagnosis, Report, StepReport
from grader.rubric import Submissions


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
    kept = standing(policy or Submissions(), about or Metadata(), score)
    odd = {"metadata": list(about.odd)} if about and about.odd else {}
    told: dict[Diagnosis, str] = {}
    results: dict[str, Any] = {
        "score": kept.score,
        "output": _top(report, kept.lines),
        "output_format": "html",
        "test_output_format": "html",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [row for step in report.steps for row in _rows(step, told)] + _by_hand(report),
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


def _top(report: Report, more: Sequence[str]) -> str:
    lines = not_final(report) or [f"{report.score:g} of {report.max_score:g} points."]
    found = [f["message"] for f in report.findings]
    return f"<h3>{html.escape(report.title)}</h3>" + paragraphs([*lines, *more, *found])


def _rows(step: StepReport, told: dict[Diagnosis, str]) -> list[dict[str, Any]]:
    words = [f"{step.score:g} of {step.max_score:g} points: {step.summary}."]
    words += [f"Chapter: {step.chapter}"] if step.chapter else []
    head: dict[str, Any] = {"name": f"Step {step.number}: {step.title}", "number": f"{step.number}"}
    head |= {"output": paragraphs(words), "visibility": "visible"}
    if step.status != "not-run":  # without a status and without points a row is neither green nor red
        head["status"] = step.status
    return [head, *(_row(check, f"{step.number}.{i}", told) for i, check in enumerate(step.checks, 1))]


def _row(check: CheckReport, number: str, told: dict[Diagnosis, str]) -> dict[str, Any]:
    lines, shown = check_lines(check, told), values(check)
    if check.visibility == "visible":
        told |= {d: number for d in check.diagnoses if d not in told and d.code != UNRECOGNISED}
    drawn = f"<pre>{html.escape(shown)}</pre>" if shown else ""
    row: dict[str, Any] = {
        "name": check.title,
        "number": number,
        "output": paragraphs(lines) + drawn,
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
            "output": paragraphs([f"Up to {item.points:g} points, beside the score." if item.points else "No points."]),
            "visibility": "visible",
        }
        for item in report.manual
    ]
