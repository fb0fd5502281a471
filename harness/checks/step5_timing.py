"""Step 5: timing, in virtual time: the clock, the work and the waiting are the asker's, so that nothing hangs on the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from harness.check import check
from harness.checks.step5_exponent import close, numbers
from harness.expect import Asked, ask
from harness.subject import Call, Subject
from harness.values import Blank, Callback
from harness.virtual_time import Timed, Timing, shape_of, time_attention, timing

TIME = "experiments.time_attention"


@check("step5.time.real-clock", functions=TIME, families="time_attention", needs="torch", public=True)
def real_clock(subject: Subject) -> None:
    """With its own clock, time_attention gives one time above 0 for each length."""

    def attend(Q: Any, K: Any, V: Any) -> Any:
        shape = shape_of(Q)
        n, d = (shape[-2], shape[-1]) if len(shape) > 1 else (1, 1)
        return Blank((n, d)), Blank((n, n))

    asked = ask(subject, TIME, Callback(attend, by_handle=True), [3, 5])
    for seconds in numbers(asked, 2, "times"):
        if not 0 < seconds < 60:
            raise asked.fail(f"a time is {seconds:.3g} s", "seconds, more than 0")


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


@check(
    "step5.time.median",
    functions=TIME,
    families="time_attention",
    about="timing-not-median",
    needs="torch",
    public=True,
)
def median(subject: Subject, rng: np.random.Generator) -> None:
    """Each time is the median of the repeats, by the clock that was given."""
    for repeats in (5, 7):
        scenario = timing(_seed(rng), (3, 5, 8), 2, repeats, False)
        # no call is cold here, and any calls in a row are those of a whole round: how many warm up makes no difference
        warm = {n: costs[-2:] + costs[2:] for n, costs in scenario.costs.items()}
        _compare(subject, replace(scenario, costs=warm), f"the median of {repeats} timed calls")


@check(
    "step5.time.warm-up",
    functions=TIME,
    families="time_attention",
    about="timing-no-warmup",
    needs="torch",
    public=True,
)
def warm_up(subject: Subject, rng: np.random.Generator) -> None:
    """Every length has its own warm-up calls, and they are not timed."""
    for warmup, repeats in ((3, 5), (4, 1)):
        scenario = _even(timing(_seed(rng), (4, 6, 7), warmup, repeats, False), 16.0)
        _compare(subject, scenario, f"the first {warmup} calls at each length are slow, all others alike")


@check(
    "step5.time.synchronised",
    functions=TIME,
    families="time_attention",
    about="timing-not-synchronised",
    needs="torch",
    public=True,
)
def synchronised(subject: Subject, rng: np.random.Generator) -> None:
    """Work that is still queued is waited for before the clock is read, at the start and at the end."""
    scenario = _even(timing(_seed(rng), (4, 6, 7), 2, 1, True), 1.0)
    _compare(subject, scenario, "attend only queues its work, which is done when synchronize() returns")


@check(
    "step5.time.inputs",
    functions=TIME,
    families="time_attention",
    stands_on="step5.time.median",
    needs="torch",
    public=True,
)
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
