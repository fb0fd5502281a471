"""What a student's own run knows of their course: the points that hang on public checks, the limits, where the chapter is.

A release writes it as course.json beside this module. Without that file (in the project itself) the contract's limits hold,
and points are not told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from harness.check import CheckResult

FILE = Path(__file__).with_name("course.json")


@dataclass(frozen=True)
class Limits:
    """What one call of a student's function may use where it is graded, and a file while it is imported."""

    cpu_seconds: float = 20
    import_seconds: float = 60
    idle_seconds: float = 5
    memory_mib: int = 2048
    output_mib: int = 8


@dataclass(frozen=True)
class Course:
    """`steps` are a step's points in all, `points` those of each public check; `chapter_link` holds {section}, or is empty."""

    title: str = "Lab 7.9: attention"
    steps: Mapping[int, float] = field(default_factory=dict)
    points: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = Limits()
    chapter_link: str = ""

    def earned(self, results: Iterable[CheckResult]) -> tuple[float, float]:
        """Points of the public checks among `results` that passed, and of all of them."""
        results = list(results)
        worth = [self.points.get(r.check.id, 0.0) for r in results]
        return sum(w for w, r in zip(worth, results, strict=True) if r.status == "passed"), sum(worth)

    def section(self, chapter: str) -> str:
        """ "7.2, step 4" as "section 7.2, step 4", and its address where the course has one."""
        number = re.match(r"[\d.]*\d", chapter)
        link = self.chapter_link.replace("{section}", number[0]) if number and self.chapter_link else ""
        return f"section {chapter}" + (f": {link}" if link else "")


@cache
def course() -> Course:
    """The course of this installation."""
    if not FILE.is_file():
        return Course()
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return Course(
        data["title"],
        {int(number): points for number, points in data["steps"].items()},
        data["points"],
        Limits(**data["limits"]),
        data["chapter_link"],
    )
