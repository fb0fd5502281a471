"""Scores as a gradebook takes them: a platform's own list of students with the scores filled in.

The list is what the platform exports: Canvas's gradebook, Moodle's grades or grading worksheet, Gradescope's roster or
grades. Only final scores go in; a student who has none is left out, so that nothing is overwritten with nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.course.batch import Result

_CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_POINTS = "Points Possible"


class GradebookError(Exception):
    """A list of students that cannot be filled in: the file, the cause and the mend."""


@dataclass(frozen=True)
class Filled:
    """The text of the file, and what staff should know: who has no final score, whose result matched nobody."""

    kind: str
    text: str
    without: tuple[str, ...]
    unmatched: tuple[str, ...]


def fill(roster: Path, results: Sequence[Result], column: str) -> Filled:
    """Fills the scores into a list of students; `column` is the assignment's. Raises GradebookError."""
    try:
        text = roster.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise GradebookError(f"{roster} cannot be read ({error}): name the file that the platform exported") from None
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    if not rows:
        raise GradebookError(f"{roster} is empty: name the file that the platform exported")
    head, body = rows[0], [row for row in rows[1:] if any(cell.strip() for cell in row)]
    kind, names, added = _kind(roster, head, column)
    kept = [h for h in head if h in names] if kind == "Canvas" else list(head)
    out = [*kept, *(name for name in added if name not in kept)]
    by_name: dict[str, list[Result]] = {}
    for result in results:
        for student in result.students:
            by_name.setdefault(student.strip().casefold(), []).append(result)
    written, without, used = [], [], set()
    most = max((r.report["max_score"] for r in results if r.report), default=0.0)
    for row in body:
        cells = dict(zip(head, row, strict=False))
        if kind == "Canvas" and _POINTS in cells.get("Student", ""):
            written.append(_line(out, {**cells, added[0]: f"{most:g}"}))
            continue
        who = [cells[n].strip() for n in names if cells.get(n, "").strip()]
        found = {r.name: r for name in who for r in by_name.get(name.casefold(), ())}
        if len(found) > 1:
            raise GradebookError(f"{who[0]} has several results: {', '.join(sorted(found))}: take all but one away")
        used |= set(found)
        reports = [r.report for r in found.values() if r.final and r.report]
        if not reports:
            without.append(who[0] if who else "a line without a name")
            continue
        values = [f"{reports[0]['score']:g}", f"{reports[0]['max_score']:g}"]
        written.append(_line(out, {**cells, **dict(zip(added, values, strict=False))}))
    if kind == "Canvas" and not any(_POINTS in row[out.index("Student")] for row in written):
        written.insert(0, _line(out, {"Student": f"    {_POINTS}", added[0]: f"{most:g}"}))
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, lineterminator="\r\n").writerows([out, *written])
    unmatched = tuple(r.name for r in results if r.name not in used)
    return Filled(kind, stream.getvalue(), tuple(without), unmatched)


def _kind(roster: Path, head: Sequence[str], column: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Whose list it is, the columns that say who a student is, and those that the score and its maximum go into."""
    columns = set(head)
    if {"Student", "ID", "Section"} <= columns:
        own = next((h for h in head if h == column or h.startswith(f"{column} (")), column)  # Canvas adds its number
        return "Canvas", tuple(n for n in _CANVAS if n in columns), (own,)
    if "SID" in columns and columns & {"Email", "Name"}:
        return "Gradescope", ("Email", "SID", "Name"), ("Total Score", "Max Points")
    identifiers = tuple(
        n for n in ("Email address", "ID number", "Identifier", "Username", "Full name") if n in columns
    )
    if identifiers and identifiers != ("Full name",):
        return "Moodle", identifiers, ("Grade",) if "Grade" in columns else (column,)
    raise GradebookError(
        f"{roster} is no list of students that is known here (its columns: {', '.join(head)[:200]}): export Canvas's gradebook, "
        "Moodle's grades or grading worksheet, or Gradescope's roster"
    )


def _line(columns: Sequence[str], cells: dict[str, str]) -> list[str]:
    return [cells.get(name, "") for name in columns]
