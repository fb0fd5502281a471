"""Which of the faults found explain a failed check: those that break it by themselves, or without which it holds.

A search says what a function does wrong; not every check of that function fails for each of its faults. So the failing case is
run again, in this process, over a submission of the judge's own that is right but for the faults in question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import harness.given
from grader.diagnosis import Explanation, families
from harness.check import Check, Fail, run_case
from harness.subject import LocalSubject
from reference import attention
from reference.variants import cache_module
from reference.variants.experiments import MEASUREMENTS
from reference.variants.experiments import served as measurement
from reference.variants.space import Failed, Option, Probe, Space, Variant, wrong_options

ATTENTION = {
    "softmax": "softmax",
    "project": "project",
    "sdpa": "scaled_dot_product_attention",
    "self_attention": "self_attention",
    "causal_mask": "causal_mask",
    "positions": "sinusoidal_positions",
}
"""Families whose variants are functions of attention.py, and the function of each."""

FAMILIES = frozenset({*ATTENTION, "cache", "kv_cache_bytes", *MEASUREMENTS})
"""Those whose variants can be served: what explains a failure is known for these alone."""

GIVEN = Path(str(harness.given.__file__)).parent
"""Where model.py lies, the one file of the judge's own submission."""

Served = Mapping[str, Variant]
"""The faults of a submission of the judge's own, by family; what is not named is right."""


def explaining(check: Check, case: Any, seed: int, found: Mapping[str, Explanation]) -> dict[str, Explanation]:
    """The codes that explain why a check fails on a case, each with the explanation that it comes from.

    `found` are explanations of the functions that the check asks, by family. A fault counts where it alone breaks the check
    on this case, or where the check holds once it is taken back from all that was found.
    """
    served = {name: e.variant for name, e in found.items() if e.variant and name in FAMILIES}
    if not _fails(check, case, seed, served):
        return {}
    named: dict[str, Explanation] = {}
    for family, variant in served.items():
        for decision, option in variant.items():
            code = option.code
            if code is None or code in named or code not in found[family].codes:
                continue
            alone = {family: _alone(variant, decision, option)}
            rest = {**served, family: _without(variant, decision)}
            if _fails(check, case, seed, alone) or not _fails(check, case, seed, rest):
                named[code] = found[family]
    return named


def breaks(check: Check, case: Any, seed: int, code: str, names: Iterable[str]) -> bool:
    """Whether some known way of having this fault, in a function of these families, fails the check on this case.

    Each is tried in both styles: the plain one, and the other one of every decision that has one. A fault that none of them
    has a known way of is held against nothing: what was seen of it stands.
    """
    ways = [
        {name: Variant({**style, decision.name: option})}
        for name in names
        if name in FAMILIES
        for style in _styles(name)
        for decision in space_of(name)
        for option in wrong_options(decision)
        if option.code == code
    ]
    return not ways or any(_fails(check, case, seed, way) for way in ways)


def _styles(family: str) -> tuple[dict[str, Option], ...]:
    """Nothing, and the first option that is no fault of every decision; that a fault ends with a path is no style."""
    others = {
        d.name: next((o for o in d.options[1:] if o.code is None), None)
        for d in space_of(family)
        if not d.name.endswith(" too")
    }
    other = {name: option for name, option in others.items() if option is not None}
    return ({}, other) if other else ({},)


def space_of(family: str) -> Space:
    """The decisions of a family that can be served."""
    return (MEASUREMENTS.get(family) or families()[family]).SPACE


def _without(variant: Variant, decision: str) -> Variant:
    return Variant({d: o for d, o in variant.items() if d != decision})


def _alone(variant: Variant, decision: str, option: Option) -> Variant:
    """One fault, with the styles (options that are no fault) that were found beside it."""
    return Variant({d: o for d, o in variant.items() if o.code is None} | {decision: option})


def _fails(check: Check, case: Any, seed: int, served: Served) -> bool:
    """Whether the check fails on the case over a right submission with these faults. A check that breaks shows nothing."""
    try:
        with np.errstate(all="ignore"):
            run_case(check, subject_of(served), seed, case)
    except Fail:
        return True
    except Exception:
        return False
    return False


def subject_of(served: Served) -> LocalSubject:
    """A submission of the judge's own in this process, right but for these faults."""
    module, kv_cache, experiments = ModuleType("attention"), ModuleType("kv_cache"), ModuleType("experiments")
    for family, name in ATTENTION.items():
        right = getattr(attention, name)
        variant = served.get(family)
        setattr(module, name, _serving(family, name, variant) if variant else right)
    vars(kv_cache).update(vars(cache_module.functions(served.get("cache", {}), served.get("kv_cache_bytes"))))
    for name in MEASUREMENTS:
        setattr(experiments, name, measurement(name, served.get(name, Variant())))
    return LocalSubject(GIVEN, modules={"attention": module, "kv_cache": kv_cache, "experiments": experiments})


def _serving(family: str, name: str, variant: Variant) -> Callable[..., Any]:
    """The function as the variant has it."""

    def served(*args: Any, **kwargs: Any) -> Any:
        answer = families()[family].predict(variant, Probe("served", name, args, kwargs))
        if isinstance(answer, Failed):
            raise ValueError(answer.kind)
        return answer[0] if len(answer) == 1 else answer

    return served
