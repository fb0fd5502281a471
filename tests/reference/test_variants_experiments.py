"""The known wrong measurements: the right one among them is the reference's, and no two kinds answer alike."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from harness.virtual_time import Device, Timing, timing
from reference import experiments
from reference.attention import causal_mask
from reference.variants.experiments import (
    ATTENTIONS,
    MEASUREMENTS,
    Measurement,
    mask_kind,
    over,
)
from reference.variants.space import Answer, Failed, Variant, codes, variants

WITH_PROBES = sorted(name for name, measurement in MEASUREMENTS.items() if measurement.PROBES)
RIGHT = Variant()


def answers(measurement: Measurement, variant: Variant) -> list[Answer]:
    return [measurement.predict(variant, probe) for probe in measurement.PROBES]


def same(a: Answer, b: Answer) -> bool:
    if isinstance(a, Failed) or isinstance(b, Failed):
        return isinstance(a, Failed) and isinstance(b, Failed)
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _same(x: object, y: object) -> bool:
    if isinstance(x, str) or isinstance(y, str):
        return x == y
    return np.shape(x) == np.shape(y) and bool(np.allclose(x, y, rtol=1e-9, atol=1e-12))


@pytest.mark.parametrize("name", WITH_PROBES)
def test_every_fault_changes_an_answer(name: str) -> None:
    """A wrong option alone is told from the right measurement by at least one probe."""
    measurement = MEASUREMENTS[name]
    right = answers(measurement, RIGHT)
    hidden = [
        variant
        for variant in variants(measurement.SPACE, 1)
        if codes(variant) and all(map(same, right, answers(measurement, variant)))
    ]
    # which of prefill_s and decode_s is in another unit matters only where one is
    assert [list(variant) for variant in hidden if "unit of" not in variant] == []


@pytest.mark.parametrize("name", WITH_PROBES)
def test_faults_of_two_codes_never_answer_alike(name: str) -> None:
    """Options whose answers agree on every probe have the same code."""
    measurement = MEASUREMENTS[name]
    known = [
        (codes(variant), answers(measurement, variant)) for variant in variants(measurement.SPACE, 1) if codes(variant)
    ]
    alike = [(a, b) for (a, x), (b, y) in itertools.combinations(known, 2) if a != b and all(map(same, x, y))]
    assert alike == []


def test_the_right_timing_is_the_references() -> None:
    """In the same virtual time the reference measures what the right variant says."""
    for probe in MEASUREMENTS["time_attention"].PROBES:
        scenario: Timing = probe.args[0]
        device, calls = Device(scenario.asynchronous), dict.fromkeys(scenario.ns, 0)

        def attend(
            Q: np.ndarray, K: object, V: object, s: Timing = scenario, device: Device = device, calls: dict = calls
        ) -> None:
            device.work(s.cost(len(Q), calls[len(Q)]))
            calls[len(Q)] += 1

        measured = experiments.time_attention(
            attend, scenario.ns, scenario.d, scenario.warmup, scenario.repeats, device.clock, device.synchronize
        )
        (predicted,) = MEASUREMENTS["time_attention"].predict(RIGHT, probe)
        assert measured == list(predicted)


def test_the_right_search_is_the_references() -> None:
    """The reference finds the n that the right variant says, and asks about none above the limit."""
    for probe in MEASUREMENTS["largest_n"].PROBES:
        scenario = probe.args[0]
        asked: list[int] = []

        def fits(n: int, threshold: int = scenario.threshold, asked: list[int] = asked) -> bool:
            asked.append(n)
            return n <= threshold

        assert experiments.largest_n(fits, scenario.start, scenario.limit) == scenario.largest
        assert max(asked) <= scenario.limit
        assert scenario.far or MEASUREMENTS["largest_n"].predict(RIGHT, probe) == (scenario.largest, False)


def test_the_right_fit_and_slopes_are_the_references() -> None:
    """Slopes and exponent of the right variant are those of the reference."""
    for name, function in (("local_slopes", experiments.local_slopes), ("fit_exponent", experiments.fit_exponent)):
        for probe in MEASUREMENTS[name].PROBES:
            assert MEASUREMENTS[name].predict(RIGHT, probe)[0] == pytest.approx(function(*probe.args), rel=1e-12)


def test_the_right_gaps_are_the_references() -> None:
    """Gaps of the right variant are the reference's, over each of the attentions."""
    for probe in MEASUREMENTS["equivariance_gap"].PROBES:
        c = probe.args[0]
        gap = experiments.equivariance_gap(
            c.X, c.W_Q, c.W_K, c.W_V, c.permutation, c.positions, c.mask, over(c.attention)
        )
        assert MEASUREMENTS["equivariance_gap"].predict(RIGHT, probe) == (gap,)
    for probe in MEASUREMENTS["append_invariance_gap"].PROBES:
        c = probe.args[0]
        gap = experiments.append_invariance_gap(c.X, c.x_new, c.W_Q, c.W_K, c.W_V, over(c.attention))
        assert MEASUREMENTS["append_invariance_gap"].predict(RIGHT, probe) == (gap,)


def test_queued_work_passes_when_it_is_waited_for() -> None:
    """On an asynchronous device most of the time of a call passes in synchronize()."""
    device = Device(True)
    device.work(64.0)
    assert device.clock() == 1.0
    device.synchronize()
    assert device.clock() == 64.0


def test_no_statistic_of_drawn_costs_is_the_median() -> None:
    """Costs are drawn so that mean, first, last and middle one are no medians."""
    scenario = timing(5, (3, 4), 2, 5, False)
    for n in scenario.ns:
        warm = scenario.costs[n][2:]
        assert float(np.median(warm)) not in (np.mean(warm), warm[0], warm[-1], warm[2], min(warm), max(warm))


def test_a_leak_reaches_every_row() -> None:
    """The leaky attention differs from the right one in every output, the one by slot in every slot."""
    Q, K, V = np.random.default_rng(0).standard_normal((3, 5, 4))
    right, _ = ATTENTIONS["right"](Q, K, V)
    for name in ("leaky", "by slot"):
        assert (np.abs(ATTENTIONS[name](Q, K, V)[0] - right).max(axis=-1) > 1e-3).all()


def test_masks_are_told_by_their_polarity() -> None:
    """A causal mask, its opposite, none and any other one are told apart, with leading axes or without."""
    causal = causal_mask(4)
    found = [mask_kind(mask, 4) for mask in (None, causal, causal[None], ~causal, causal.T, np.eye(4, dtype=bool))]
    assert found == ["none", "causal", "causal", "inverted", "inverted", "other"]
