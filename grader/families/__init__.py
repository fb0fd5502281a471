"""Where a failure's cause is looked for: one module a family of faults, each found by being here.

A family asks the submission its probes and searches the space of known wrong answers (reference.variants) for the one that
equals what came back (grader.diagnosis).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grader.diagnosis import Explanation
from harness.subject import Subject


@dataclass(frozen=True)
class Family:
    """`explain` asks a subject of the worker kind `needs` ("numpy", "torch" or "kv") about `functions`."""

    name: str
    functions: tuple[str, ...]
    needs: str
    explain: Callable[[Subject], Explanation]


FAMILIES: dict[str, Family] = {}


def register(family: Family) -> Family:
    if family.name in FAMILIES:
        raise ValueError(f"two families are called {family.name}")
    FAMILIES[family.name] = family
    return family
