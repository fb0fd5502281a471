"""Every known wrong measurement, generated from the space, is named again from its numbers alone."""

from __future__ import annotations

import numpy as np
import pytest

from grader import diagnosis
from grader.checks.step3_sdpa import spoil
from grader.families.experiments import peak_faults
from reference.attention import causal_mask, scaled_dot_product_attention
from reference.variants.experiments import MEASUREMENTS, Compared, Measurement
from reference.variants.space import Answer, Probe, Variant, codes, variants

MIB = 2**20
PEAKS = [64.0 * MIB, 96.0 * MIB]


def probes_of(name: str, variant: Variant) -> tuple[Probe, ...]:
    """The family's probes; for compare_with_sdpa what a submission with these faults would have called attention with."""
    if MEASUREMENTS[name].PROBES:
        return MEASUREMENTS[name].PROBES
    found = []
    rng = np.random.default_rng(1)
    for causal, sign in ((False, 0.0), (False, 1.0), (True, -1.0)):
        for shape in ((2, 2, 5, 4), (1, 3, 6, 16)):
            q, k, v = rng.standard_normal((3, *shape))
            mask = None
            if causal:
                mask = ~causal_mask(shape[2]) if variant.pick("our mask") == "inverted" else causal_mask(shape[2])
            scale = 0.3 if variant.pick("scale") == "only ours" else None
            with np.errstate(all="ignore"):
                output, _ = scaled_dot_product_attention(q, k, v, mask=mask, scale=scale)
            call = Compared(q, k, v, mask, scale, spoil(output, sign) if sign else output)
            found.append(
                Probe(f"{shape} {causal} {sign}", "experiments.compare_with_sdpa", ((call,), causal), size=10.0)
            )
    return tuple(found)


def observed(measurement: Measurement, variant: Variant, probes: tuple[Probe, ...]) -> dict[str, Answer]:
    return {probe.name: measurement.predict(variant, probe) for probe in probes}


def truths(measurement: Measurement, variant: Variant, probes: tuple[Probe, ...]) -> list[frozenset[str]]:
    """Codes that are right to name: the variant's, or those of a part of it that answers alike (the rest is hidden)."""
    answers = observed(measurement, variant, probes)
    parts = [Variant({d: o for d, o in variant.items() if d != dropped}) for dropped in variant]
    alike = [
        part
        for part in parts
        if all(diagnosis.same(measurement.predict(part, probe), answers[probe.name], probe) for probe in probes)
    ]
    return [codes(variant), *(truth for part in alike for truth in truths(measurement, part, probes))]


@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_right_answers_name_nothing(name: str) -> None:
    """What the right measurement gives is explained without a fault."""
    probes = probes_of(name, Variant())
    found = diagnosis.explain(MEASUREMENTS[name], observed(MEASUREMENTS[name], Variant(), probes), probes)
    assert (found.codes, found.matched) == ((), True)


@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_every_single_fault_is_named(name: str) -> None:
    """One wrong option is named by its code, always."""
    measurement = MEASUREMENTS[name]
    missed = []
    for variant in variants(measurement.SPACE, 1):
        probes = probes_of(name, variant)
        found = diagnosis.explain(measurement, observed(measurement, variant, probes), probes)
        if frozenset(found.codes) not in truths(measurement, variant, probes):
            missed.append((variant, found.codes))
    assert missed == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_two_faults_are_named_or_a_part_of_them(name: str) -> None:
    """Of pairs at least 95% are named in full, and never is a code named that is not there."""
    measurement = MEASUREMENTS[name]
    pairs = [variant for variant in variants(measurement.SPACE, 2) if len(variant) == 2]
    exact, wrong = 0, []
    for variant in pairs:
        probes = probes_of(name, variant)
        found = frozenset(diagnosis.explain(measurement, observed(measurement, variant, probes), probes).codes)
        if found in truths(measurement, variant, probes):
            exact += 1
        elif not found <= codes(variant) | {diagnosis.UNRECOGNISED}:
            wrong.append((variant, found))
    assert wrong == []
    # two logarithms of the same wrong base are right together, and so are a half and a factor of two
    assert exact >= 0.95 * len(pairs) or len(pairs) - exact <= 2


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (PEAKS, set()),
        ([1.2 * peak for peak in PEAKS], set()),
        ([64.0, 96.0], {"wrong-unit"}),
        ([peak / 1024 for peak in PEAKS], {"wrong-unit"}),
        ([8 * peak for peak in PEAKS], {"wrong-unit"}),
        ([0.0, 1000.0], {"memory-not-peak"}),
        ([peak + 300 * MIB for peak in PEAKS], {"memory-not-peak"}),
        ([(peak + 300 * MIB) / 1024 for peak in PEAKS], {"memory-not-peak", "wrong-unit"}),
        ([20.0 * MIB, 90.0 * MIB], None),
    ],
)
def test_peaks_are_told_by_unit_and_by_what_they_include(values: list[float], named: set[str] | None) -> None:
    """Numbers for two known peaks say which unit they are in, and whether something else was measured."""
    assert peak_faults(values, PEAKS, 1.25) == named
