"""Writes harness/breaks.py: which public checks of attention.py each fault that the judge knows can fail.

    python -m grader.hint_table

A student's run has no faults of the judge's to try a failing case on, so it looks up here what explains a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

import harness
from grader.blame import ATTENTION, space_of, subject_of
from harness import check as checking
from harness import draws
from harness.check import Fail
from harness.local import PUBLIC_SECRET, public_checks
from harness.subject import Subject
from reference.variants.space import Variant, wrong_options

STEPS = {1, 2, 4, 7}
FILE = Path(harness.__file__).with_name("breaks.py")
HEAD = '''"""Which public checks of attention.py each fault can fail: made by `python -m grader.hint_table`, not by hand."""

from __future__ import annotations
'''


def table(names: Iterable[str] = ATTENTION) -> dict[str, list[str]]:
    """The codes (of these families) that fail each check by themselves, in one way or another."""
    checks = [c for c in public_checks(STEPS) if c.needs == "numpy"]
    found: dict[str, set[str]] = {check.id: set() for check in checks}
    for family in names:
        asking = [c for c in checks if f"attention.{ATTENTION[family]}" in c.functions]
        for decision in space_of(family):
            for option in wrong_options(decision):
                subject = subject_of({family: Variant({decision.name: option})})
                for check in asking:
                    if option.code and option.code not in found[check.id] and _fails(check, subject):
                        found[check.id].add(option.code)
    return {id: sorted(codes) for id, codes in sorted(found.items())}


def _fails(check: checking.Check, subject: Subject) -> bool:
    """Whether the check fails on any of its draws; which is the smallest does not matter."""
    seed = draws.seed_of(PUBLIC_SECRET, check.id)
    try:
        with np.errstate(all="ignore"):
            if check.cases is None:
                checking.run_case(check, subject, seed, None)
                return False
            prop = partial(checking.run_case, check, subject, seed)
            return draws.falsify(prop, check.cases, seed, check.examples, Fail, lambda error: True) is not None
    except Fail:
        return True
    except Exception:  # an answer that breaks the check
        return False


def spelled(found: dict[str, list[str]]) -> str:
    """The table as a module, as the project's formatter would lay it out."""
    lines = [HEAD, "BREAKS: dict[str, tuple[str, ...]] = {"]
    for id, codes in found.items():
        lines += [f'    "{id}": (', *(f'        "{code}",' for code in codes), "    ),"]
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    FILE.write_text(spelled({id: codes for id, codes in table().items() if codes}))
