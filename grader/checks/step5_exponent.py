"""Step 5, in virtual time: the clock, the work and the waiting are the judge's, so that nothing depends on the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from grader.instruments import Timed, time_attention
from harness.check import check
from harness.checks.step5_exponent import FIT, SLOPES, TIME, close, lengths, numbers
from harness.expect import Asked, ask
from harness.subject import Call, Subject
from reference import experiments
from reference.variants.experiments import Timing, timing


def _noisy(ns: list[int]) -> st.SearchStrategy[tuple[list[int], list[float]]]:
    micro = st.lists(st.integers(10, 50_000_000), min_size=len(ns), max_size=len(ns), unique=True)
    return micro.map(lambda ticks: (ns, [t / 1e6 for t in ticks]))


measured = lengths.filter(lambda ns: len(ns) > 2).flatmap(_noisy)  # of two points every line is the best one


@check("step5.slopes.measured", cases=measured, examples=15, functions=SLOPES, families="local_slopes", needs="torch")
def local_slopes(subject: Subject, case: Any) -> None:
    """Each local slope is the change of log seconds over the change of log n."""
    ns, seconds = case
    asked = ask(subject, SLOPES, ns, seconds)
    for slope, wanted in zip(numbers(asked, len(ns) - 1, "slopes"), experiments.local_slopes(ns, seconds), strict=True):
        if not close(slope, wanted):
            raise asked.fail(f"a local slope is {slope:.6g}", f"{wanted:.6g}")


@check("step5.fit.least-squares", cases=measured, examples=15, functions=FIT, families="fit_exponent", needs="torch")
def fit_exponent(subject: Subject, case: Any) -> None:
    """The exponent is the least-squares slope of log seconds on log n, over all points."""
    ns, seconds = case
    asked = ask(subject, FIT, ns, seconds)
    wanted = experiments.fit_exponent(ns, seconds)
    if not close(asked.number(), wanted):
        raise asked.fail(f"the exponent is {asked.number():.6g}", f"{wanted:.6g}")


def seconds_of(scenario: Timing) -> list[float]:
    """What a right measurement of the scenario gives."""
    return [float(np.median(scenario.costs[n][scenario.warmup :])) for n in scenario.ns]


def _time(subject: Subject, scenario: Timing) -> tuple[Timed, Asked]:
    timed = time_attention(subject, scenario)
    synchronize = ", synchronize=…" if scenario.asynchronous else ""
    shown = (
        f"time_attention(attend, {list(scenario.ns)}, d={scenario.d}, warmup={scenario.warmup}, "
        f"repeats={scenario.repeats}, clock=…{synchronize})"
    )
    return timed, Asked(Call(TIME), timed.outcome, shown)


def _compare(subject: Subject, scenario: Timing, why: str) -> None:
    timed, asked = _time(subject, scenario)
    found = numbers(asked, len(scenario.ns), "times")
    if not timed.readings:
        raise asked.fail("the clock that was given was not read", "times from clock()", "timing-wrong-clock")
    for n, seconds, wanted in zip(scenario.ns, found, seconds_of(scenario), strict=True):
        if not close(seconds, wanted):
            raise asked.fail(f"{seconds:.6g} s at n = {n}, by the clock that was given", f"{wanted:.6g} s: {why}")


def _even(scenario: Timing, first: float) -> Timing:
    """The same with equal costs for each n, but for `first` times as much while cold."""
    costs = {}
    for n, all_costs in scenario.costs.items():
        warm = all_costs[scenario.warmup]
        costs[n] = (first * warm,) * scenario.warmup + (warm,) * scenario.repeats
    return replace(scenario, costs=costs)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))


@check("step5.time.median", functions=TIME, families="time_attention", needs="torch")
def median(subject: Subject, rng: np.random.Generator) -> None:
    """Each time is the median of the repeats, by the clock that was given."""
    for repeats in (5, 7):
        scenario = timing(_seed(rng), (3, 5, 8), 2, repeats, False)
        warm = {n: (costs[2],) * 2 + costs[2:] for n, costs in scenario.costs.items()}  # no call is cold here
        _compare(subject, replace(scenario, costs=warm), f"the median of {repeats} timed calls")


@check("step5.time.warm-up", functions=TIME, families="time_attention", needs="torch")
def warm_up(subject: Subject, rng: np.random.Generator) -> None:
    """Every length has its own warm-up calls, and they are not timed."""
    for warmup, repeats in ((3, 5), (2, 1)):
        scenario = _even(timing(_seed(rng), (4, 6, 7), warmup, repeats, False), 16.0)
        _compare(subject, scenario, f"the first {warmup} calls at each length are slow, all others alike")


@check("step5.time.synchronised", functions=TIME, families="time_attention", needs="torch")
def synchronised(subject: Subject, rng: np.random.Generator) -> None:
    """Work that is still queued is waited for before the clock is read, at the start and at the end."""
    scenario = _even(timing(_seed(rng), (4, 6, 7), 2, 1, True), 1.0)
    _compare(subject, scenario, "attend only queues its work, which is done when synchronize() returns")


@check("step5.time.inputs", functions=TIME, families="time_attention", stands_on="step5.time.median", needs="torch")
def inputs(subject: Subject, rng: np.random.Generator) -> None:
    """attend is called with queries, keys and values of shape (n, d), warmup + repeats times for each n."""
    scenario = timing(_seed(rng), (5, 9), 2, 3, False, d=6)
    timed, asked = _time(subject, scenario)
    numbers(asked, 2, "times")
    for shapes in timed.shapes:
        if any(len(shape) < 2 or shape[-1] != scenario.d or shape != shapes[0] for shape in shapes):
            raise asked.fail(f"attend was called with shapes {shapes}", f"(n, {scenario.d}) three times")
    for n in scenario.ns:
        if timed.calls[n] < scenario.warmup + scenario.repeats:
            raise asked.fail(
                f"attend was called {timed.calls[n]} times with n = {n}",
                f"{scenario.warmup} + {scenario.repeats} times",
            )
