"""Step 5: timing, and the exponent that it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import check, step
from harness.expect import Asked, ask, spell_value
from harness.subject import Subject
from harness.values import Blank, Callback, Handle

step(5, "Measure the exponent", "7.9, step 5")

TIME, SLOPES, FIT = "experiments.time_attention", "experiments.local_slopes", "experiments.fit_exponent"
# unevenly spaced, and no two so close that a right formula loses digits in their difference
lengths = st.lists(st.integers(0, 35), min_size=2, max_size=7, unique=True).map(
    lambda powers: [int(8 * 1.2**power) for power in sorted(powers)]
)
power_laws = st.tuples(lengths, st.floats(0.5, 3), st.floats(-6, 3))  # ns, exponent, log10 of the seconds at n = 1


def numbers(asked: Asked, count: int, what: str) -> list[float]:
    """The result as a list of that many finite floats. Raises Fail."""
    value = asked.value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise asked.fail(f"the result is {spell_value(value)}", f"a list of {count} {what}")
    if len(value) != count:
        raise asked.fail(f"{len(value)} {what} came back", f"{count}")
    plain = [v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in value]
    for number in plain:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise asked.fail(f"a {type(number).__name__} is among the {what}", "floats")
        if not np.isfinite(number):
            raise asked.fail(f"{number} is among the {what}", "finite numbers", "not-finite")
    return [float(number) for number in plain]


def power_law(case: tuple[list[int], float, float]) -> tuple[list[int], list[float], float]:
    ns, exponent, size = case
    return ns, [10.0**size * n**exponent for n in ns], exponent


def close(value: float, expected: float) -> bool:
    return abs(value - expected) <= 1e-7 * (1 + abs(expected))


@check(
    "step5.slopes.power-law",
    cases=power_laws,
    examples=15,
    functions=SLOPES,
    families="local_slopes",
    needs="torch",
    public=True,
)
def local_slopes(subject: Subject, case: Any) -> None:
    """On an exact power law every local slope is its exponent."""
    ns, seconds, exponent = power_law(case)
    asked = ask(subject, SLOPES, ns, seconds)
    for slope in numbers(asked, len(ns) - 1, "slopes"):
        if not close(slope, exponent):
            raise asked.fail(f"a local slope of c * n^{exponent:.3g} is {slope:.6g}", f"{exponent:.6g}")


@check(
    "step5.fit.power-law",
    cases=power_laws,
    examples=15,
    functions=FIT,
    families="fit_exponent",
    needs="torch",
    public=True,
)
def fit_exponent(subject: Subject, case: Any) -> None:
    """On an exact power law the fitted exponent is its exponent, whatever the unit of time."""
    ns, seconds, exponent = power_law(case)
    asked = ask(subject, FIT, ns, seconds)
    if not close(asked.number(), exponent):
        raise asked.fail(f"the fit of c * n^{exponent:.3g} gives {asked.number():.6g}", f"{exponent:.6g}")


@check("step5.time.real-clock", functions=TIME, families="time_attention", needs="torch", public=True)
def real_clock(subject: Subject) -> None:
    """With its own clock, time_attention gives one time above 0 for each length."""

    def attend(Q: Any, K: Any, V: Any) -> Any:
        shape = tuple(Q.shape or ()) if isinstance(Q, Handle | np.ndarray) else ()
        n, d = (shape[-2], shape[-1]) if len(shape) > 1 else (1, 1)
        return Blank((n, d)), Blank((n, n))

    asked = ask(subject, TIME, Callback(attend, by_handle=True), [3, 5])
    for seconds in numbers(asked, 2, "times"):
        if not 0 < seconds < 60:
            raise asked.fail(f"a time is {seconds:.3g} s", "seconds, more than 0")
