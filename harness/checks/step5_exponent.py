"""Step 5: the exponent that times show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import check
from harness.expect import Asked, ask, spell_value
from harness.subject import Subject

SLOPES, FIT = "experiments.local_slopes", "experiments.fit_exponent"


def _noisy(ns: list[int]) -> st.SearchStrategy[tuple[list[int], list[float]]]:
    micro = st.lists(st.integers(10, 50_000_000), min_size=len(ns), max_size=len(ns), unique=True)
    return micro.map(lambda ticks: (ns, [t / 1e6 for t in ticks]))


# unevenly spaced, and no two so close that a right formula loses digits in their difference
lengths = st.lists(st.integers(0, 35), min_size=2, max_size=7, unique=True).map(
    lambda powers: [int(8 * 1.2**power) for power in sorted(powers)]
)
measured = lengths.filter(lambda ns: len(ns) > 2).flatmap(_noisy)  # of two points every line is the best one
power_laws = st.tuples(lengths, st.floats(0.5, 3), st.floats(-6, 3))  # ns, exponent, log10 of the seconds at n = 1


def numbers(asked: Asked, count: int, what: str) -> list[float]:
    """The result as a list of that many finite floats. Raises Fail."""
    value = asked.value
    if not isinstance(value, list | tuple | np.ndarray) or (isinstance(value, np.ndarray) and value.ndim != 1):
        raise asked.fail(f"the result is {spell_value(value)}", f"a list of {count} {what}")
    if len(value) != count:
        raise asked.fail(f"{_count(len(value), 'numbers')} came back", _count(count, what))
    value = value.tolist() if isinstance(value, np.ndarray) else value
    plain = [v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in value]
    for number in plain:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise asked.fail(f"a {type(number).__name__} is among the {what}", "floats")
        if not finite(number):
            raise asked.fail(f"{spell_value(number)} is among the {what}", "finite numbers", "not-finite")
    return [float(number) for number in plain]


def finite(number: float) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def _count(number: int, what: str) -> str:
    return f"{number} {what if number != 1 else what.removesuffix('s')}"


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


@check(
    "step5.slopes.measured",
    cases=measured,
    examples=15,
    functions=SLOPES,
    families="local_slopes",
    needs="torch",
    public=True,
)
def slopes_between_points(subject: Subject, case: Any) -> None:
    """From one length to the next, seconds grow as n to the power of the local slope."""
    ns, seconds = case
    asked = ask(subject, SLOPES, ns, seconds)
    for i, slope in enumerate(numbers(asked, len(ns) - 1, "slopes")):
        grown = math.log(seconds[i + 1] / seconds[i])
        if not abs(slope * math.log(ns[i + 1] / ns[i]) - grown) <= 1e-7 * (1 + abs(grown)):
            took = f"{seconds[i]:g} s at n = {ns[i]}, {seconds[i + 1]:g} s at n = {ns[i + 1]}"
            raise asked.fail(
                f"the slope is {slope:.6g}", f"({ns[i + 1]} / {ns[i]}) ** slope = {math.exp(grown):.6g}: {took}"
            )


@check(
    "step5.fit.least-squares",
    cases=measured,
    examples=15,
    functions=FIT,
    families="fit_exponent",
    needs="torch",
    public=True,
)
def best_fit(subject: Subject, case: Any) -> None:
    """No other exponent fits the measured times better: squared errors of log seconds, over all points, are least."""
    ns, seconds = case
    asked = ask(subject, FIT, ns, seconds)
    exponent = asked.number()
    least = misfit(ns, seconds, exponent)
    little = 1e-4 * (1 + abs(exponent))  # less would be lost in the rounding of squares
    for other in (exponent - 0.1, exponent + 0.1, exponent - little, exponent + little):
        if misfit(ns, seconds, other) < least:
            raise asked.fail(f"the exponent is {exponent:.6g}", f"the best fit, and {other:.6g} fits better")


def misfit(ns: list[int], seconds: list[float], exponent: float) -> float:
    """Squared errors that log seconds = constant + exponent * log n leaves, with the constant that suits it best."""
    left = np.log(seconds) - exponent * np.log(ns)
    return float(np.square(left - left.mean()).sum())
