"""The kind of growth is named rightly or not at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.growth import LINEAR, MORE, QUADRATIC, growth

NS = (128, 256, 512, 1024, 2048, 4096)
KINDS = {
    "n": (lambda n: n, {LINEAR}),
    "n log n": (lambda n: n * math.log(n), {LINEAR}),
    "n with fixed costs": (lambda n: n + 300, {LINEAR, None}),
    "n²": (lambda n: n**2, {QUADRATIC}),
    "n² with a cache cliff": (lambda n: n**2 * (3 if n > 1024 else 1), {QUADRATIC, None}),
    "n² with a cliff at the end": (lambda n: n**2 * (8 if n > 2048 else 1), {QUADRATIC, None}),
    "n² with a gentle cliff": (lambda n: n**2 * (1 + 2 / (1 + (1000 / n) ** 2)), {QUADRATIC, None}),
    "n² with one cliff after another": (
        lambda n: n**2 * 1.6 ** sum(n > m for m in (700, 1500, 3000)),
        {QUADRATIC, None},
    ),
    "n² with fixed costs": (lambda n: n**2 + 300**2, {QUADRATIC, None}),
    "n² all but hidden": (lambda n: n**2 + 2500**2, {QUADRATIC, None}),
    "n³": (lambda n: n**3, {MORE}),
    "n³ with fixed costs": (lambda n: n**3 + 900**3, {MORE, None}),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_right_or_left_open(name):
    """A hundred noisy measurements each: never another kind, and pure powers always their own."""
    cost, allowed = KINDS[name]
    rng = np.random.default_rng(8)
    noisy = [[cost(n) * float(np.exp(rng.normal(0, 0.03))) for n in NS] for _ in range(100)]
    assert {growth(NS, seconds).kind for seconds in noisy} <= allowed


@pytest.mark.parametrize("name", [name for name in KINDS if name != "n² with one cliff after another"])
def test_on_a_busy_machine_no_wrong_kind_is_named(name):
    """Any reading may be up to two thirds too long: the least of three rounds, and how far it came back, are what is known.

    But for what grows as n to the 2.7 over the whole range, which is as near to the one as to the other.
    """
    cost, allowed = KINDS[name]
    rng = np.random.default_rng(11)
    named = set()
    for _ in range(300):
        rounds = [sorted(cost(n) * 2 ** rng.uniform(0, 0.75, 3) * np.exp(rng.normal(0, 0.02, 3))) for n in NS]
        named.add(growth(NS, [r[0] for r in rounds], [r[1] / r[0] for r in rounds]).kind)
    assert named <= allowed | {None}


def test_a_reading_that_does_not_come_back_leaves_the_kind_open():
    """Slopes of two that may be off by half are no evidence of a square."""
    seconds = [1e-9 * n**2 for n in NS]
    assert growth(NS, seconds, [1.05] * 6).kind == QUADRATIC
    assert growth(NS, seconds, [1.5] * 6).kind is None


def test_an_exact_power_has_its_exponent_and_no_width():
    """Slope, interval and local slopes are the exponent."""
    found = growth(NS, [3e-9 * n**1.5 for n in NS])
    np.testing.assert_allclose([found.exponent, found.low, found.high, *found.slopes], [1.5] * 8, rtol=1e-6)


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    """19 times out of 20, to within what 400 tries can show."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        found = growth(NS, [n**2 * float(np.exp(rng.normal(0, 0.2))) for n in NS])
        held += found.low <= 2 <= found.high
    assert 0.91 <= held / 400 <= 0.99


def test_the_sentence_says_where_fixed_costs_and_memory_show():
    """Flat at first, steep at the end."""
    told = growth(NS, [4, 6, 16, 64, 256, 1600]).told()
    assert "Up to n = 512 fixed costs show" in told
    assert "From n = 2048 on memory traffic shows" in told


def test_two_lengths_show_no_kind():
    """Three slopes are needed."""
    assert growth(NS[:3], [1, 4, 16]).kind is None


def test_no_more_is_told_than_the_slopes_carry() -> None:
    """What is sure with steady times is left open where they scatter."""
    seconds = [4, 6, 16, 64, 256, 1600]
    scattered = growth(NS, seconds, [2.0] * 6).told()
    assert "fixed costs" not in scattered and "memory traffic" not in scattered
    assert "They scatter too much" in scattered
    assert "fixed costs show" in growth(NS, seconds, [1.01] * 6).told()
    assert "0.58 ± 0.03" in growth(NS, seconds, [1.01] * 6).told()
