"""What GitHub Actions shows: a job summary in Markdown, and annotations beside the lines of a submission.

The runner obeys lines that begin with `::`, so a student's text is escaped in every annotation, and what else is printed
stands between `::stop-commands::` and a token that nobody can guess.
"""

from __future__ import annotations

import contextlib
import html
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from grader.render.words import check_lines, mistake_lines, not_final, of_students, values
from grader.report import CheckReport, Report

MOST_ANNOTATIONS = 10  # of each kind, a step of a job; the rest would be dropped without a word
MAX_SUMMARY = 900_000  # bytes; the platform refuses a summary of more than 1 MiB


def to_summary(report: Report) -> str:
    """The report as Markdown with escaped text: a table of the steps, and what failed below it."""
    lines = [f"## {_md(report.title)}", ""]
    for number, mistake in enumerate(of_students(report), 1):
        name, *more = mistake_lines(mistake)
        lines += [f"{number}. **{_md(name)}** {' '.join(_md(line) for line in more)}"]
    lines += ["", *(f"{_md(line)}\n" for line in not_final(report))]
    lines += [] if report.score is None else [f"**{report.score:g} of {report.max_score:g} points**", ""]
    lines += ["| | Step | Points | |", "|---|---|---:|---|"]
    marks = {"passed": "✅", "failed": "❌", "not-run": "⚠️"}
    for step in report.steps:
        cells = [marks[step.status], f"{step.number}. {_md(step.title)}", f"{step.score:g} of {step.max_score:g}"]
        lines.append(f"| {' | '.join([*cells, _md(step.summary)])} |")
    lines.append("")
    lines += [f"- {_md(f['message'])}" for f in report.findings]
    failed = [_details(c) for s in report.steps for c in s.checks if c.status == "failed"]
    text = "\n".join(lines) + "\n"
    for part in failed:
        if len((text + part).encode()) > MAX_SUMMARY:
            return text + "\nThere is more in the report that does not fit here.\n"
        text += part
    return text


def add_summary(report: Report, path: Path) -> None:
    """Adds to the file that GITHUB_STEP_SUMMARY names; other steps of the job may have written there. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write(to_summary(report))


def to_annotations(report: Report, folder: str = "") -> list[str]:
    """Workflow commands, each fault once: at the student's own line where one is known."""
    told: set[tuple[str, ...]] = set()
    found: list[str] = []
    for check in (c for s in report.steps for c in s.checks if c.status == "failed"):
        said = tuple(check_lines(check))
        if said not in told and len(found) < MOST_ANNOTATIONS:
            found.append(_annotation(check, folder))
        told.add(said)
    if not report.final:
        found.insert(0, f"::warning title={_property(report.title)}::{_data(chr(10).join(not_final(report)))}")
    return found


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """What is printed meanwhile may hold a student's text: the runner obeys nothing in it."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def _annotation(check: CheckReport, folder: str) -> str:
    where = ""
    if check.evidence and check.evidence.lines and check.visibility != "hidden":
        line = check.evidence.lines[-1]
        where = f"file={_property(f'{folder}/{line.file}' if folder else line.file)},line={line.line},"
    return f"::error {where}title={_property(check.title)}::{_data(chr(10).join(check_lines(check)))}"


def _details(check: CheckReport) -> str:
    lines = [html.escape(line) for line in check_lines(check)]
    shown = html.escape(values(check))
    body = "<br>".join(lines) + (f"<pre>{shown}</pre>" if shown else "")
    # a line that is empty, or holds blanks alone, would end the block of HTML, and what follows would be read as Markdown
    kept = "\n".join(line if line.strip(" \t") else "&#8203;" for line in re.split("\r\n?|\n", body))
    return f"<details><summary>{html.escape(check.title)}</summary>{kept}</details>\n\n"


def _md(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    safe = html.escape(" ".join(text.split()))
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]|~#!" else c for c in safe)
    return re.sub("(?i)(://|www[.]|@)", r"&#8203;\1", escaped)  # an address by itself would be made a link


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
