"""results.json as PrairieLearn's external graders write it. A report that is not final is not gradable: it costs no attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grader.render.files import write_atomically
from grader.render.words import check_lines, mistake_lines, not_final, of_students, values
from grader.report import CheckReport, Report

MAX_BYTES = 2**20  # the platform refuses more


def to_prairielearn(report: Report) -> dict[str, Any]:
    """The report as PrairieLearn's results; `score` is a share from 0 to 1."""
    share = report.subtotal / report.max_score if report.max_score else 0.0
    found = [f["message"] for f in report.findings]
    results: dict[str, Any] = {"gradable": report.final, "score": min(1.0, max(0.0, share)) if report.final else 0.0}
    if report.final:
        results |= {
            "message": f"{report.title}: {report.subtotal:g} of {report.max_score:g} points",
            "output": "\n\n".join([*("\n".join(mistake_lines(m)) for m in of_students(report)), *found]),
        }
    else:
        results |= {"message": "This attempt does not count.", "format_errors": not_final(report)}
    results["tests"] = [_row(check) for step in report.steps for check in step.checks if check.status != "not-run"]
    return results


def write_prairielearn(report: Report, path: Path) -> None:
    """Writes the results in one step, without drawn values where they would be too large. Raises OSError."""
    results = to_prairielearn(report)
    text = json.dumps(results, indent=1, allow_nan=False)
    if len(text) > MAX_BYTES:
        for row in results["tests"]:
            row["output"] = ""
        text = json.dumps(results, indent=1, allow_nan=False)
    write_atomically(path, text + "\n")


def _row(check: CheckReport) -> dict[str, Any]:
    lines = check_lines(check)
    return {
        "name": check.title,
        "description": check.id,
        "points": check.score,
        "max_points": check.max_score,
        "message": lines[0],
        "output": "\n".join([*lines[1:], values(check)]).strip(),
    }
