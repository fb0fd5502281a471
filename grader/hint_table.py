"""Writes harness/breaks.py: which public checks each fault that the judge knows can fail, and how likely it does.

    python -m grader.hint_table

A student's run has no faults of the judge's to try a failing case on, so it looks up here what explains a failure, and of several
faults what explains it best.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import harness
from grader.blame import ATTENTION, FAMILIES, space_of, subject_of
from harness import check as checking
from harness import draws
from harness.check import Fail
from harness.local import PUBLIC_SECRET, public_checks
from harness.messages import MESSAGES
from harness.subject import Subject
from reference.variants.space import Decision, Option, Variant

STEPS = set(range(1, 9))
FILE = Path(harness.__file__).with_name("breaks.py")
HEAD = '''"""Which public checks each fault fails, on what share of their draws: made by `python -m grader.hint_table`, not by hand."""

from __future__ import annotations
'''


def table(names: Iterable[str] = FAMILIES) -> dict[str, dict[str, float]]:
    """The codes (of these families) that fail each check by themselves, with the share of its draws on which they do.

    A code that stands for several ways of being wrong has the mean of the common ones, where one of them fails the check.
    """
    found: dict[str, dict[str, float]] = {check.id: {} for check in public_checks(STEPS)}
    for check, ways in _tried(names):
        for code in {code for code, _, _ in ways}:
            shares = [share for of, share, _ in ways if of == code]
            common = [share for of, share, usual in ways if of == code and usual]
            counted = common if any(common) else shares
            if any(shares):
                found[check.id][code] = round(sum(counted) / len(counted), 2)
    return {id: dict(sorted(codes.items())) for id, codes in sorted(found.items())}


def _tried(names: Iterable[str]) -> Iterator[tuple[checking.Check, list[tuple[str, float, bool]]]]:
    """Each check with the ways of failing it: the code, the share of draws that it fails, and whether it is a common way."""
    options = [(f, d.name, o) for f in sorted(names) if f in FAMILIES for d in space_of(f) for o in _ways(d)]
    subjects = [subject_of({family: Variant({decision: option})}) for family, decision, option in options]
    for check in public_checks(STEPS):
        tried = zip(options, subjects, strict=True)
        yield check, [(str(o.code), _share(check, s), o.common) for (f, _, o), s in tried if _asks(check, f)]


def _ways(decision: Decision) -> Iterator[Option]:
    """The options that are faults; one that carries a number with the first and the last of its examples."""
    for option in decision.options:
        if option.code in MESSAGES:
            yield from {option.at(value): None for value in option.examples[:1] + option.examples[-1:]} or (option,)


def _asks(check: checking.Check, family: str) -> bool:
    """Whether a check can be failed by this family: it is one of the check's own, or the check calls its function."""
    return family in check.families or f"attention.{ATTENTION.get(family)}" in check.functions


def _share(check: checking.Check, subject: Subject) -> float:
    """On what share of its draws the check fails."""
    seed = draws.seed_of(PUBLIC_SECRET, check.id)
    tried = failed = 0

    def attempt(case: Any) -> None:
        nonlocal tried, failed
        tried += 1
        with contextlib.suppress(Exception), np.errstate(all="ignore"):  # an answer that breaks the check shows nothing
            try:
                checking.run_case(check, subject, seed, case)
            except Fail:
                failed += 1

    if check.cases is None:
        attempt(None)
    else:
        draws.falsify(attempt, check.cases, seed, check.examples, Fail)
    return failed / tried


def spelled(found: dict[str, dict[str, float]]) -> str:
    """The table as a module, as the project's formatter would lay it out."""
    lines = [HEAD, "BREAKS: dict[str, dict[str, float]] = {"]
    for id, codes in found.items():
        lines += [f'    "{id}": {{', *(f'        "{code}": {share},' for code, share in codes.items()), "    },"]
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    FILE.write_text(spelled({id: codes for id, codes in table().items() if codes}))
