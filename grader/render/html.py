"""One self-contained page: no network, no scripts, readable on a phone and on paper, in light and in dark.

It is a student's page: checks that are not visible to students, and what is for staff, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jinja2

from grader.render.files import write_atomically
from grader.report import UNRECOGNISED, CheckReport, Report, StepReport, Table


def to_html(report: Report) -> str:
    text = resources.files("grader.render").joinpath("report.html.j2").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"points": points, "share": share, "tints": tints, "sentence": sentence}
    environment.globals |= {
        "shown": shown,
        "hidden": hidden,
        "told_once": told_once,
        "is_told": is_told,
        "says_more": says_more,
    }
    return environment.from_string(text).render(report=report)


def write_html(report: Report, path: Path) -> None:
    """Writes the page in one step. Raises OSError."""
    write_atomically(path, to_html(report))


def shown(step: StepReport, status: str) -> list[CheckReport]:
    """The checks of one status that a student may see."""
    return [c for c in step.checks if c.status == status and c.visibility == "visible"]


def hidden(step: StepReport) -> int:
    return sum(c.visibility != "visible" for c in step.checks)


def told_once(checks: list[CheckReport]) -> tuple[list[CheckReport], list[CheckReport]]:
    """The checks that show a fault for the first time, without the faults told before, and those that show none anew."""
    told: set[tuple[str, str]] = set()
    news, again = [], []
    for check in checks:
        fresh = [d for d in check.faults if d.code == UNRECOGNISED or (d.code, d.message) not in told]
        told |= {(d.code, d.message) for d in fresh}
        if fresh or not check.faults:
            notes = [d for d in check.diagnoses if d.note]
            news.append(replace(check, diagnoses=(*fresh, *notes)))
        else:
            again.append(check)
    return news, again


def is_told(check: CheckReport) -> bool:
    """What was seen stands in a diagnosis already."""
    seen = check.evidence.seen if check.evidence else ""
    return any(seen in d.message for d in check.faults)


def says_more(check: CheckReport) -> bool:
    """The evidence holds more than the diagnoses say."""
    e = check.evidence
    return e is not None and bool(e.inputs or e.got or e.lines or e.call or not is_told(check))


def sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def points(value: float) -> str:
    return f"{value:g}"


def share(part: float, whole: float) -> str:
    """A percentage for a bar's length."""
    return f"{100 * part / whole if whole else 0:.1f}%"


def tints(table: Table) -> Iterator[list[tuple[str, str, str]]]:
    """Rows of (text, class, strength): how strongly to shade a cell, by its size among the numbers of the table."""
    numbers = [[_number(cell) for cell in row] for row in table.rows]
    most = max((abs(n) for row in numbers for n in row if n is not None), default=0.0)
    for row, values in zip(table.rows, numbers, strict=True):
        cells = []
        for cell, n in zip(row, values, strict=True):
            if table.dtype == "bool":
                cells.append((cell, "yes" if cell == "True" else "no", "1"))
            elif n is None:
                cells.append((cell, "odd" if cell in ("nan", "inf", "-inf") else "", "0"))
            else:
                cells.append((cell, "minus" if n < 0 else "plus", f"{abs(n) / most if most else 0:.2f}"))
        yield cells


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
