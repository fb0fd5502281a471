"""Faults in several functions of experiments.py at once are each named, and nothing else is."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.diagnosis import UNRECOGNISED
from grader.families import FAMILIES
from harness import contract
from harness.subject import LocalSubject
from reference.variants.experiments import MEASUREMENTS
from tests.labs.attention import edits

importlib.import_module("grader.families.experiments")
FUNCTIONS = [function.name for function in contract.functions_of("experiments")]
BASE = edits.text_of("experiments-loops", "experiments.py")
# seen by a check of its own, which reads the worker's clock, and by no search
APART = {"timing-includes-setup"}


def text_of(source: str, name: str) -> str:
    found = re.search(rf"^def {name}\(.*?(?=^(?:def|class) |\Z)", source, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(0)


def faults_by_function() -> dict[str, dict[str, str]]:
    """Of each function the faulty texts that there are fixtures for, by their code."""
    found: dict[str, dict[str, str]] = {}
    for entry in edits.entries():
        if entry.file != "experiments.toml" or entry.kind != "fault" or entry.base != "loops" or entry.name in APART:
            continue
        source = edits.edited(entry)["experiments.py"]
        differing = [name for name in FUNCTIONS if text_of(source, name).strip() != text_of(BASE, name).strip()]
        if len(differing) == 1:
            found.setdefault(differing[0], {})[entry.name] = text_of(source, differing[0])
    return found


FAULTS = faults_by_function()


def mixtures() -> Iterator[dict[str, str]]:
    """Submissions with a fault in every function, so many that every pair of faults in two functions stands in one of them."""
    left = {
        frozenset(((f, a), (g, b))) for f, g in itertools.combinations(FAULTS, 2) for a in FAULTS[f] for b in FAULTS[g]
    }
    while left:
        chosen = dict(min(left, key=sorted))
        for function, codes in FAULTS.items():
            if function not in chosen:
                chosen[function] = max(
                    codes, key=lambda code: sum(frozenset((pair, (function, code))) in left for pair in chosen.items())
                )
        left -= {frozenset(pair) for pair in itertools.combinations(chosen.items(), 2)}
        yield chosen


def test_every_code_that_the_search_can_name_has_a_submission() -> None:
    """Named once more from its source, and not from its own numbers alone."""
    named = {code for entry in edits.entries() for code in entry.codes}
    known = {option.code for m in MEASUREMENTS.values() for d in m.SPACE for option in d.options if option.code}
    assert known - named == set()


def test_every_pair_of_faults_in_two_functions_stands_in_a_mixture() -> None:
    """None is left out, and no mixture has two texts of one function."""
    seen = {frozenset(pair) for mixture in mixtures() for pair in itertools.combinations(mixture.items(), 2)}
    for f, g in itertools.combinations(FAULTS, 2):
        assert {frozenset(((f, a), (g, b))) for a in FAULTS[f] for b in FAULTS[g]} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(list(mixtures()))))
def test_faults_in_several_functions_are_each_named(number: int, submission: Callable[..., Path]) -> None:
    """Each function's fault by its code, beside any other's."""
    mixture = list(mixtures())[number]
    source = BASE
    for function, code in mixture.items():
        source = source.replace(text_of(BASE, function), FAULTS[function][code])
    subject = LocalSubject(submission(experiments=source))
    named = {function: FAMILIES[function].explain(subject).codes for function in mixture}
    assert named == {function: (code.split("--")[0],) for function, code in mixture.items()}
    assert UNRECOGNISED not in {code for codes in named.values() for code in codes}
