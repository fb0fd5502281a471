"""Every fault of a family's space is named exactly, alone and beside another; never a fault that is not there."""

from itertools import islice

import pytest

from grader.diagnosis import explain, families, same
from reference.variants.space import Answer, Variant, codes, variants

pytestmark = pytest.mark.slow

# Which of a family's pairs are tried: all, or every tenth or hundredth of the many.
STEPS = {"causal_mask": 1, "positions": 1, "project": 1, "softmax": 10, "sdpa": 100, "self_attention": 100}


def answers(family: str, variant: Variant) -> dict[str, Answer]:
    module = families()[family]
    return {probe.name: module.predict(variant, probe) for probe in module.PROBES}


def visible(family: str, variant: Variant, seen: dict[str, Answer]) -> frozenset[str]:
    """Codes of a variant but for options that another one hides: without them every answer is the same."""
    module = families()[family]
    for dropped in variant:
        rest = Variant({d: o for d, o in variant.items() if d != dropped})
        if all(same(module.predict(rest, probe), seen[probe.name], probe) for probe in module.PROBES):
            return visible(family, rest, seen)
    return codes(variant)


def outcome(family: str, variant: Variant) -> str:
    """How a variant is named: "exact", "part" (a subset of its codes, or unrecognised), or what else is claimed."""
    seen = answers(family, variant)
    found = frozenset(explain(families()[family], seen).codes)
    if found == visible(family, variant, seen):
        return "exact"
    return "part" if found < codes(variant) or found == {"unrecognised"} else f"{variant} named {sorted(found)}"


@pytest.mark.parametrize("family", STEPS)
def test_right_answers_are_explained_by_no_fault(family: str) -> None:
    """The variant that records nothing has no codes and is matched."""
    found = explain(families()[family], answers(family, Variant()))
    assert (found.codes, found.matched) == ((), True)


@pytest.mark.parametrize("family", STEPS)
def test_every_single_fault_is_named_exactly(family: str) -> None:
    """One wrong option alone is named by its code."""
    singles = [v for v in variants(families()[family].SPACE, 1) if len(v) == 1]
    assert {outcome(family, variant) for variant in singles} == {"exact"}


@pytest.mark.parametrize("family", STEPS)
def test_pairs_of_faults_are_named_exactly_or_in_part(family: str) -> None:
    """Of two wrong options at least 93% are both named; the rest get a true part, none gets a code that is not there."""
    pairs = [v for v in variants(families()[family].SPACE, 2) if len(v) == 2 and not any(o.alone for o in v.values())]
    outcomes = [outcome(family, variant) for variant in islice(pairs, 0, None, STEPS[family])]
    assert set(outcomes) <= {"exact", "part"}
    # a small space has few pairs, and a strict mask inverted is the inverted one of another kind
    assert outcomes.count("exact") >= (0.93 if len(pairs) > 100 else 0.85) * len(outcomes)


@pytest.mark.parametrize("family", STEPS)
def test_codes_of_an_explanation_are_proved_by_probes_that_contradict_their_absence(family: str) -> None:
    """Where a code is named, some probe's answer cannot be had without it."""
    singles = [v for v in variants(families()[family].SPACE, 1) if len(v) == 1]
    for variant in singles[::10]:
        seen = answers(family, variant)
        found = explain(families()[family], seen)
        right = answers(family, Variant())
        probes = {probe.name: probe for probe in families()[family].PROBES}
        assert all(not same(right[name], seen[name], probes[name]) for name in found.proof)
        assert bool(found.proof) == bool(found.codes)
