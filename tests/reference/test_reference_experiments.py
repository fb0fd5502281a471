"""The measurements, by clocks and functions whose every event is known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reference import cache, decoder, experiments
from reference.attention import Array, causal_mask, self_attention
from reference.decoder import random_model
from reference.experiments import (
    append_invariance_gap,
    decode_latencies,
    equivariance_gap,
    fit_exponent,
    largest_n,
    local_slopes,
    score_bytes,
    time_attention,
)


def head(seed: int) -> tuple[Array, Array, Array, Array]:
    """X (6, 4), W_Q, W_K (4, 3), W_V (4, 5)."""
    rng = np.random.default_rng(seed)
    X, W_Q, W_K, W_V = (rng.standard_normal(shape) for shape in ((6, 4), (4, 3), (4, 3), (4, 5)))
    return X, W_Q, W_K, W_V


PERMUTATION = [2, 0, 1, 5, 3, 4]  # not its own inverse


def test_attention_is_equivariant_until_positions_or_a_mask() -> None:
    arguments = head(1)
    positions = np.random.default_rng(2).standard_normal((6, 4))
    assert equivariance_gap(*arguments, PERMUTATION) < 1e-14
    assert equivariance_gap(*arguments, PERMUTATION, positions=positions) > 0.1
    assert equivariance_gap(*arguments, PERMUTATION, mask=causal_mask(6)) > 0.1


def test_the_gap_is_the_largest_entry_by_hand() -> None:
    """Token by token: slot i held token permutation[i]."""
    X, W_Q, W_K, W_V = head(3)
    positions = np.random.default_rng(4).standard_normal((6, 4))
    plain, _ = self_attention(X + positions, W_Q, W_K, W_V)
    shuffled, _ = self_attention(X[PERMUTATION] + positions, W_Q, W_K, W_V)
    expected = max(float(np.max(np.abs(shuffled[i] - plain[token]))) for i, token in enumerate(PERMUTATION))
    assert equivariance_gap(X, W_Q, W_K, W_V, PERMUTATION, positions=positions) == expected


def test_the_gap_sees_an_attention_that_leaks_positions() -> None:
    def leaks(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None) -> tuple[Array, Array]:
        output, weights = self_attention(X, W_Q, W_K, W_V, mask)
        return output + np.arange(len(X))[:, None], weights

    assert equivariance_gap(*head(5), PERMUTATION, attention=leaks) == pytest.approx(2)  # 2 moved to slot 0


def test_appending_changes_nothing_that_came_before() -> None:
    X, W_Q, W_K, W_V = head(6)
    x_new = np.full((1, 4), 3.0)
    assert append_invariance_gap(X, x_new, W_Q, W_K, W_V) < 1e-14


def test_the_append_gap_sees_an_attention_that_ignores_the_mask() -> None:
    def unmasked(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None) -> tuple[Array, Array]:
        return self_attention(X, W_Q, W_K, W_V)

    X, W_Q, W_K, W_V = head(6)
    x_new = np.full((1, 4), 3.0)
    longer, _ = self_attention(np.concatenate([X, x_new]), W_Q, W_K, W_V)
    expected = float(np.max(np.abs(longer[:6] - self_attention(X, W_Q, W_K, W_V)[0])))
    assert expected > 0.1
    assert append_invariance_gap(X, x_new, W_Q, W_K, W_V, attention=unmasked) == expected


class Lab:
    """A clock, a device and an `attend` that writes down every event; an attend takes the next of `durations`."""

    def __init__(self, durations: list[float]) -> None:
        self.now, self.queued, self.durations = 100.0, 0.0, durations
        self.events: list[Any] = []

    def clock(self) -> float:
        self.events.append("clock")
        return self.now

    def synchronize(self) -> None:
        self.events.append("sync")
        self.now, self.queued = self.now + self.queued, 0.0

    def attend(self, Q: Array, K: Array, V: Array) -> None:
        self.events.append((Q.shape, K.shape, V.shape))
        self.queued += self.durations.pop(0)


def test_time_attention_gives_medians_of_synchronised_calls() -> None:
    """Warm-up calls, however slow, do not count, and the median is neither mean nor minimum."""
    lab = Lab([50, 60, 1, 9, 2, 70, 80, 30, 4, 3])
    seconds = time_attention(lab.attend, [4, 8], d=3, warmup=2, repeats=3, clock=lab.clock, synchronize=lab.synchronize)
    assert seconds == [2, 4]
    timed = ["sync", "clock", ((4, 3),) * 3, "sync", "clock"]
    assert lab.events[:17] == [((4, 3),) * 3] * 2 + timed * 3


def test_time_attention_without_a_device() -> None:
    """No synchronize: the clock alone, read twice for each timed call."""
    ticks = iter(range(100))
    assert time_attention(lambda Q, K, V: None, [2, 3], warmup=0, repeats=3, clock=lambda: next(ticks)) == [1, 1]
    assert next(ticks) == 12


def test_slopes_and_exponent_of_a_power_law() -> None:
    """seconds = 3 n^1.7, at unequal steps."""
    ns = [10, 20, 50, 400]
    seconds = [3 * n**1.7 for n in ns]
    assert local_slopes(ns, seconds) == pytest.approx([1.7] * 3, abs=1e-13)
    assert fit_exponent(ns, seconds) == pytest.approx(1.7, abs=1e-13)


def test_slopes_and_exponent_by_hand() -> None:
    """log n = 0, 1, 3 and log s = 0, 2, 3: slopes 2 and 1/2; least squares 13/14, neither end to end nor their mean."""
    ns = [1, math.e, math.e**3]
    seconds = [1, math.e**2, math.e**3]
    assert local_slopes(ns, seconds) == pytest.approx([2, 0.5])
    assert fit_exponent(ns, seconds) == pytest.approx(13 / 14)
    assert fit_exponent(ns, seconds) == pytest.approx(np.polyfit(np.log(ns), np.log(seconds), 1)[0])


def test_score_bytes_by_hand() -> None:
    assert score_bytes(10) == 200
    assert score_bytes(10, itemsize=4, heads=3) == 1200


def at_most(bound: int, asked: list[int]) -> Callable[[int], bool]:
    def fits(n: int) -> bool:
        asked.append(n)
        return n <= bound

    return fits


@pytest.mark.parametrize("start, limit", [(1, 64), (128, 5000), (7, 7), (100, 150), (128, 2**24)])
def test_largest_n_is_exact_logarithmic_and_inside_its_limits(start: int, limit: int) -> None:
    """Every bound near a power, a start or a limit; `limit` is asked and never exceeded."""
    for bound in {0, start - 1, start, start + 1, 2 * start, 3 * start, 1000, limit - 1, limit, limit + 9}:
        asked: list[int] = []
        expected = 0 if bound < start else min(bound, limit)
        assert largest_n(at_most(bound, asked), start=start, limit=limit) == expected
        assert all(start <= n <= limit for n in asked)
        assert len(asked) == len(set(asked)) <= 2 * math.log2(limit) + 2


def test_largest_n_takes_a_memory_error_for_no() -> None:
    def fits(n: int) -> bool:
        if n > 777:
            raise MemoryError
        return True

    assert largest_n(fits) == 777


@pytest.mark.parametrize("use_cache", [True, False])
def test_decode_latencies_are_one_a_step_after_prefill(use_cache: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes as long as the tokens it computes; what is computed agrees with generate."""
    lab = Lab([])
    computed: list[list[int]] = []

    def counted(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(model: decoder.Decoder, tokens: Any, *rest: Any) -> Any:
            computed.append(np.atleast_1d(tokens).tolist())
            lab.queued += len(computed[-1])
            return fn(model, tokens, *rest)

        return call

    for name, fn in (("prefill", cache.prefill), ("decode_step", cache.decode_step), ("forward", decoder.forward)):
        monkeypatch.setattr(experiments, name, counted(fn))
    model = random_model(np.random.default_rng(1))
    result = decode_latencies(model, [1, 2, 3], 4, use_cache, clock=lab.clock, synchronize=lab.synchronize)
    new = decoder.generate(model, [1, 2, 3], 4)
    steps = [[token] for token in new] if use_cache else [[1, 2, 3, *new[:i]] for i in range(1, 5)]
    assert computed == [[1, 2, 3], *steps]
    assert result["prefill_s"] == 3
    assert result["decode_s"] == [len(step) for step in steps]
    assert result["cache_bytes"] == (decoder.kv_cache_bytes(2, 2, 8, 3 + 4, 8) if use_cache else 0)
    assert lab.events == ["sync", "clock"] * 2 * 5
