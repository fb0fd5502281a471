"""The lab's steps, and which of them a package of checks is about: told without loading a check."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Step:
    """One step of the lab. `chapter` says where it is told."""

    number: int
    title: str
    chapter: str


STEPS: dict[int, Step] = {}


def step(number: int, title: str, chapter: str) -> Step:
    """Registers a step of the lab."""
    STEPS[number] = Step(number, title, chapter)
    return STEPS[number]


def modules_of(package: ModuleType) -> dict[str, int | None]:
    """The modules of a package of checks, and the step that each name begins with: step3_sdpa is of step 3."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    begun = {name: re.match(r"step(\d+)_", name) for name in names}
    return {name: int(found[1]) if found else None for name, found in begun.items()}


def steps_in(package: ModuleType) -> set[int]:
    """The steps that a package has checks of."""
    return {number for number in modules_of(package).values() if number is not None}
