"""A student's own run of the public checks names the fault that is there in every check that fails, and no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.local import Held, public_checks
from harness.plugin import Lab

BASE = Path(__file__).parents[2] / "examples" / "base"
CASES = sorted((Path(__file__).parents[1] / "submissions" / "attention").iterdir())
FAST = {"scale-missing", "mask-ignored", "softmax-wrong-axis", "positions-halves", "correct--python-loops"}
"""What every run judges; the others are slow together."""


def cases() -> list[object]:
    return [pytest.param(c, id=c.name, marks=[] if c.name in FAST else pytest.mark.slow) for c in CASES]


@pytest.mark.parametrize("case", cases())
def test_every_failed_check_is_told_the_fault_of_the_fixture(tmp_path: Path, case: Path) -> None:
    """No code but the fixture's stands beside a failed check of attention.py's steps; a correct one fails none."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("report"))
    shutil.copy(case / "attention.py", tmp_path)
    lab = Lab(Held(tmp_path))
    found = [lab.run(check) for check in public_checks({1, 2, 4, 7})]
    named = {result.check.id: hint.code if hint else "" for result, hint in found if result.status == "failed"}
    expected = case.name.split("--")[0]
    assert {code for code in named.values() if code} == ({expected} if expected != "correct" else set())
    assert bool(named) == (expected != "correct")
