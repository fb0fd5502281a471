"""Scores as a gradebook takes them: a platform's own list of students with the scores filled in.

The list is what the platform exports: Canvas's gradebook, Moodle's grades or grading worksheet, Gradescope's roster or
grades. Only final scores go in; a student who has none is left out, so that nothing is overwritten with nothing. What the
list says of a student is written as it stands, since the platform finds its students by it.
"""

from __future__ import annotations

import csv
import difflib
import io
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from grader.course.batch import Result
from grader.policy import Metadata, Standing, moment, standing
from grader.rubric import Late, Submissions

_CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_NAMES = frozenset(
    {"Student", "Name", "Full name"}
)  # what two people may share: asked last, and only where it is of one
_POINTS = "Points Possible"
_MOODLE = frozenset(
    {
        "First name",
        "Last name",
        "Surname",
        "Institution",
        "Department",
        "Status",
        "Maximum grade",
        "Grade can be changed",
    }
    | {
        "Last modified (submission)",
        "Last modified (grade)",
        "Online text",
        "Feedback comments",
        "Last downloaded from this course",
    }
)  # what Moodle's exports have beside assignments


class GradebookError(Exception):
    """A list of students that cannot be filled in: the file, the cause and the mend."""


@dataclass(frozen=True)
class Due:
    """When the work was due, for all and for those who have an extension, by name."""

    general: datetime | None = None
    own: Mapping[str, datetime] = field(default_factory=dict)

    def of(self, students: Iterable[str]) -> datetime | None:
        """A group's work is due when the last of its extensions ends, as on Gradescope."""
        dues = [self.general, *(self.own.get(_key(student)) for student in students)]
        return max((due for due in dues if due), default=None)


@dataclass(frozen=True)
class Filled:
    """The text of the file, and what staff should know: who is left out and why, whose result matched nobody, what lateness
    took off (a line each), whose lateness could not be told, for want of a due date or of the time of handing in, which scores
    of the list are overwritten, and which are withheld, since the result is flagged or would lower a score."""

    kind: str
    text: str
    without: tuple[str, ...]
    unmatched: tuple[str, ...]
    late: tuple[str, ...] = ()
    no_due: tuple[str, ...] = ()
    no_time: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def dues(words: Iterable[str]) -> Due:
    """Reads TIME, which is for all, and NAME=TIME. Raises GradebookError."""
    general: datetime | None = None
    own: dict[str, datetime] = {}
    for word in words:
        name, sign, text = word.rpartition("=")
        name, due = _key(name), moment(text.strip())
        if due is None or (sign and not name) or datetime.fromisoformat(text.strip()).tzinfo is None:
            raise GradebookError(f"{word!r} is no time with a zone: write it as 2026-03-05T23:59-08:00, or NAME=TIME")
        if name in own or (not name and general):
            raise GradebookError(f"the due date of {name or 'all'} is given twice: keep one of the two")
        if sign:
            own[name] = due
        else:
            general = due
    return Due(general, own)


def fill(
    roster: Path, results: Sequence[Result], column: str, due: Due | None = None, include_flagged: bool = False
) -> Filled:
    """Fills the scores into a list of students; `column` is the assignment's. Raises GradebookError.

    A score of a flagged result, and one below what the list has, is written with `include_flagged` alone.
    """
    head, body, delimiter = _read(roster)
    kind, names, added = _kind(roster, head, column)
    kept = [h for h in head if h in _CANVAS] if kind == "Canvas" else list(head)
    out = [*kept, *(name for name in added if name not in kept)]
    due = due or Due()
    _usable(due, results)
    of = _Finder(names, body, results)
    written, used = [], set()
    without: list[str] = []
    late: list[str] = []
    no_due: list[str] = []
    no_time: list[str] = []
    overwritten: list[str] = []
    withheld: list[str] = []
    most = max((r.report["max_score"] for r in results if r.report), default=0.0)
    for cells in body:
        if kind == "Canvas" and _POINTS in cells.get("Student", ""):
            written.append(_line(out, {**cells, added[0]: _points(most)}))
            continue
        who, result, why = of(cells)
        used |= {result.name} if result else set()
        if result is None or result.report is None or why:
            without.append(f"{who} ({why})")
            continue
        kept_score = _kept(result, due)
        if kept_score is None:
            (no_time if result.created is None else no_due).append(who)
        late += [f"{who}: {line}" for line in kept_score.lines] if kept_score else []
        values = [
            _points(kept_score.score if kept_score else result.report["score"]),
            _points(result.report["max_score"]),
        ]
        before = cells.get(added[0], "").strip()
        lower = _number(before) is not None and float(values[0]) < float(_number(before) or 0.0)
        if (result.flags or lower) and not include_flagged:
            why = "; ".join(result.flags) or f"{values[0]} is less than {before}"
            withheld.append(f"{who} ({why})")
            continue
        if before and before != values[0]:
            overwritten.append(f"{who}: {before} becomes {values[0]}")
        written.append(_line(out, {**cells, **dict(zip(added, values, strict=False))}))
    if kind == "Canvas" and not any(_POINTS in row[out.index("Student")] for row in written):
        written.insert(0, _line(out, {"Student": f"    {_POINTS}", added[0]: _points(most)}))
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, lineterminator="\r\n").writerows([out, *written])
    unmatched = tuple(r.name for r in results if r.name not in used)
    return Filled(
        kind,
        stream.getvalue(),
        tuple(without),
        unmatched,
        tuple(late),
        tuple(no_due),
        tuple(no_time),
        tuple(overwritten),
        tuple(withheld),
    )


class _Finder:
    """Whose result is whose: by what only one person has (an address, an id), and by a name only where one person has it."""

    def __init__(self, names: Sequence[str], body: Sequence[Mapping[str, str]], results: Sequence[Result]) -> None:
        self._names = names
        self._times = Counter(_key(row.get(n, "")) for row in body for n in names if n in _NAMES)
        self._results: dict[str, dict[str, Result]] = {}
        for result in results:
            for student in result.students:
                self._results.setdefault(_key(student), {})[result.name] = result

    def __call__(self, cells: Mapping[str, str]) -> tuple[str, Result | None, str]:
        """Of a line: who it is, the result, and why it has no final score, where it has none. Raises GradebookError."""
        who = [(n in _NAMES, cells.get(n, "").strip()) for n in self._names if cells.get(n, "").strip()]
        if not who:
            return "a line without a name", None, "it says nothing of who it is"
        first = who[0][1]
        found = {k: r for is_name, text in who if not is_name for k, r in self._results.get(_key(text), {}).items()}
        if not found:
            own = [text for is_name, text in who if is_name and self._results.get(_key(text))]
            if any(self._times[_key(text)] > 1 for text in own):
                mend = (
                    "call the folders of their submissions by an e-mail address or an id, and run attnlab batch again"
                )
                return first, None, f"others in the list have that name: {mend}"
            found = {k: r for text in own for k, r in self._results[_key(text)].items()}
        if len(found) > 1:
            raise GradebookError(f"{first} has several results: {', '.join(sorted(found))}: take all but one away")
        result = next(iter(found.values()), None)
        if result is None:
            return first, None, "no result is of that name"
        if result.refused:
            return first, result, f"refused: {result.refused}"
        if result.report is None:
            return first, result, f"{result.name} has no report that can be read"
        return first, result, "" if result.final else f"the report of {result.name} is not final"


def _kept(result: Result, due: Due) -> Standing | None:
    """The score with what lateness takes off; None where the rubric takes something off and it cannot be told whether."""
    assert result.report is not None
    score, rule = float(result.report["score"]), result.report.get("late")
    if not rule:
        return Standing(score)
    try:
        policy = Submissions(late=Late(**rule))
    except TypeError:
        raise GradebookError(
            f"{result.folder / 'report.json'} has an odd rule of lateness: attnlab rerun {result.folder.parent} --only "
            f"{result.name} --apply makes it anew"
        ) from None
    about = Metadata(result.students, result.created, due.of(result.students))
    return standing(policy, about, score) if about.created and about.due else None


def _usable(due: Due, results: Sequence[Result]) -> None:
    """Raises GradebookError for a due date that nothing is held against."""
    known = {_key(student) for result in results for student in result.students}
    if stray := sorted(set(due.own) - known):
        raise GradebookError(f"--due names {stray[0]}, and no result is of that name: see students in submission.json")
    if (due.general or due.own) and not any(r.report and r.report.get("late") for r in results):
        raise GradebookError(
            "--due: the rubric that these were graded with takes nothing off for lateness: leave it out, or grade with a "
            "rubric that has submissions: {late: …}"
        )


def _read(roster: Path) -> tuple[list[str], list[dict[str, str]], str]:
    """The columns, a line each by its columns, and the delimiter. Raises GradebookError."""
    try:
        text = roster.read_text("utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=first.count)
        rows = [(n, row) for n, row in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter), 1)]
    except UnicodeDecodeError:
        raise GradebookError(f"{roster} is not UTF-8: name the file as the platform exported it") from None
    except (OSError, csv.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise GradebookError(f"{roster} cannot be read ({cause}): name the file that the platform exported") from None
    rows = [(n, row) for n, row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise GradebookError(f"{roster} is empty: name the file that the platform exported")
    head = rows[0][1]
    if doubled := [h for h, times in Counter(head).items() if times > 1 and h.strip()]:
        raise GradebookError(f"{roster} has two columns {doubled[0]!r}: take one away")
    for n, row in rows[1:]:
        if len(row) > len(head) and any(cell.strip() for cell in row[len(head) :]):
            raise GradebookError(
                f"{roster}, row {n}: {len(row)} cells under {len(head)} columns: put quotes around what has a comma in it, "
                "as the platform's export does"
            )
    return head, [dict(zip(head, row, strict=False)) for _, row in rows[1:]], delimiter


def _kind(roster: Path, head: Sequence[str], column: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Whose list it is, the columns that say who a student is, and those that the score and its maximum go into."""
    columns = set(head)
    if {"Student", "ID", "Section"} <= columns:
        own = next((h for h in head if h == column or h.startswith(f"{column} (")), column)  # Canvas adds its number
        _has_column(roster, own, [h for h in head if h not in _CANVAS], column)
        return "Canvas", tuple(n for n in _CANVAS if n in columns and n != "Section"), (own,)
    if "SID" in columns and columns & {"Email", "Name"}:
        return "Gradescope", ("Email", "SID", "Name"), ("Total Score", "Max Points")
    identifiers = tuple(
        n for n in ("Email address", "ID number", "Identifier", "Username", "Full name") if n in columns
    )
    if identifiers and identifiers != ("Full name",):
        if "Grade" not in columns:
            _has_column(roster, column, [h for h in head if h not in {*identifiers, *_MOODLE}], column)
        return "Moodle", identifiers, ("Grade",) if "Grade" in columns else (column,)
    raise GradebookError(
        f"{roster} is no list of students that is known here (its columns: {', '.join(head)[:200]}): export Canvas's gradebook, "
        "Moodle's grades or grading worksheet, or Gradescope's roster"
    )


def _has_column(roster: Path, own: str, others: Sequence[str], column: str) -> None:
    """Raises GradebookError where a list has columns of assignments and this is none of them: a typing error would add one."""
    if others and own not in others:
        near = difflib.get_close_matches(column, others, 1, 0.0)[0]
        raise GradebookError(f"{roster} has no column {column!r}: the nearest is {near!r}: name it with --column")


def _number(text: str) -> float | None:
    """A score that stands in a list; None for what is not a number."""
    try:
        return float(text)
    except ValueError:
        return None


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip().casefold()


def _points(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _line(columns: Sequence[str], cells: Mapping[str, str]) -> list[str]:
    return [cells.get(name, "") for name in columns]
