"""One self-contained page: no network, no scripts, readable on a phone and on paper, in light and in dark.

It is a student's page: checks that are not visible to students, and what is for staff, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from grader.mistakes import Mistake
from grader.pictures import OFF, Picture
from grader.render.files import write_atomically
from grader.render.plot import plot
from grader.render.words import cost, of_students, seen_in
from grader.report import UNRECOGNISED, CheckReport, Diagnosis, Report, StepReport, Table


def to_html(report: Report) -> str:
    text = resources.files("grader.render").joinpath("report.html.j2").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"points": points, "share": share, "tints": tints, "sentence": sentence}
    environment.filters |= {"heat": heat, "plot": plot, "kind": kind, "off": off, "total": total}
    environment.globals |= {
        "shown": shown,
        "hidden": hidden,
        "told_once": told_once,
        "is_told": is_told,
        "says_more": says_more,
        "palette": palette,
        "number_of": number_of,
        "cost": cost,
        "seen_in": seen_in,
        "lost": lost,
        "tells_first": tells_first,
        "waiting_for": waiting_for,
    }
    return environment.from_string(text).render(report=report, mistakes=of_students(report))


def write_html(report: Report, path: Path) -> None:
    """Writes the page in one step. Raises OSError."""
    write_atomically(path, to_html(report))


def shown(step: StepReport, status: str) -> list[CheckReport]:
    """The checks of one status that a student may see."""
    return [c for c in step.checks if c.status == status and c.visibility == "visible"]


def number_of(mistakes: Sequence[Mistake], diagnosis: Diagnosis, check: CheckReport) -> int:
    """The place of a check's finding in the list of mistakes, from 1; 0 where it is not in it."""
    return next((i for i, m in enumerate(mistakes, 1) if m.covers(diagnosis, check)), 0)


def tells_first(mistakes: Sequence[Mistake], check: CheckReport) -> bool:
    """Whether a mistake was seen first in this check, whose evidence then stands open, or one that is not among them."""
    first = any(m.check_id == check.id for m in mistakes)
    return first or not all(number_of(mistakes, d, check) for d in check.faults)


def lost(mistake: Mistake) -> str:
    """What a mistake cost, as a number alone."""
    return f"−{mistake.cost:g}" if mistake.cost else "0"


def waiting_for(blocked: Sequence[CheckReport]) -> list[tuple[str, list[CheckReport]]]:
    """The blocked checks by what they wait for, which is so told once."""
    found: dict[str, list[CheckReport]] = {}
    for check in blocked:
        found.setdefault(" ".join(d.message for d in check.faults), []).append(check)
    return list(found.items())


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


def kind(picture: Picture) -> str:
    """Which macro draws it: "rows", "strip" or "plot"."""
    return type(picture).__name__.lower()


def heat(
    table: Sequence[Sequence[float | None]], right: Sequence[Sequence[float | None]]
) -> Iterator[list[tuple[str, str]]]:
    """Rows of (text, classes) for a heat map: ten depths, and `off` for the weight of each row that is furthest from the right one."""
    for row, wanted in zip(table, right, strict=True):
        cells = []
        distances = [math.inf if v is None or w is None else abs(v - w) for v, w in zip(row, wanted, strict=True)]
        for value, distance in zip(row, distances, strict=True):
            wrong = distance >= OFF and distance == max(distances)
            depth = 0 if value is None else round(10 * min(max(value, 0.0), 1.0))
            text = "none" if value is None else _weight(value)
            cells.append((text, f"h{depth}" + " off" * wrong))
        yield cells


_PALETTES = {"": ((244, 246, 250), (17, 72, 150)), "dark": ((38, 45, 55), (140, 186, 255))}


def palette() -> Markup:
    """The style of a heat map's ten depths, on a light page and on a dark one, each with the ink that reads best on it."""
    rules = []
    for scheme, (pale, deep) in _PALETTES.items():
        lines = []
        for depth in range(11):
            shade = tuple(round(p + (d - p) * depth / 10) for p, d in zip(pale, deep, strict=True))
            ink = max((255, 255, 255), (0, 0, 0), key=lambda ink: _contrast(ink, shade))
            lines.append(f".heat .h{depth} {{ background: rgb{shade}; color: rgb{ink}; }}".replace(",", ""))
        text = " ".join(lines)
        rules.append(f"@media (prefers-color-scheme: {scheme}) {{ {text} }}" if scheme else text)
    return Markup("\n".join(rules))


def _contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """WCAG's contrast of two colours, 1 to 21."""
    bright = [_luminance(colour) for colour in (one, other)]
    return (max(bright) + 0.05) / (min(bright) + 0.05)


def _luminance(colour: tuple[int, ...]) -> float:
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _weight(value: float) -> str:
    """Three decimals without the zero in front; what has no room is written short."""
    if value in (0.0, 1.0):
        return f"{value:.0f}"
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 10 else f"{value:.0e}"


def total(row: Sequence[float | None]) -> str:
    """What a row sums to, where every entry is a number."""
    return f"{sum(v for v in row if v is not None):.2f}" if None not in row else "none"


def off(distance: float | None) -> str:
    """How far a token's logits are off, short enough for its cell."""
    return "none" if distance is None else "0" if distance < 1e-3 else f"{distance:.2g}"


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
