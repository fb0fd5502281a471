"""The numbers of results.json beside what was measured here, as orders of magnitude: for staff to read, and never for points.

Machines differ, and so do their clocks: what stands out by more than ten times is worth a look, and nothing else is.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from grader.checks.step9_report import Results, read_results
from harness.check import Fail

if TYPE_CHECKING:
    from grader.report import Judged

ORDER = 10
MOST_WORDS = 40_000  # bytes of a note that are shown
Curves = Mapping[str, Mapping[int, float]]


def compared(folder: Path, judged: Iterable[Judged]) -> tuple[str, ...]:
    """Sentences on time, memory and speed-up, with both machines; none where nothing was measured, or no report reads."""
    measured = {
        f"{j.check.id} {name}": points
        for j in judged
        for name, points in j.result.curves
        if len(points) > 1 and min(points.values()) > 0
    }
    told = []
    for compare in (_time, _memory, _speed_up):
        try:
            sentence = compare(Results(read_results(folder)), measured)
        except (Fail, ArithmeticError, ValueError):
            continue  # what is wrong with the file is for its own checks to say
        if sentence:
            told.append(sentence)
    return (*told, _machines(folder)) if told else ()


def _time(results: Results, measured: Curves) -> str:
    here = measured.get("step5.cost.attention seconds")
    if here is None:
        return ""
    pairs = zip(results.numbers("ns", above=0), results.numbers("seconds", above=0), strict=False)
    ratios = [seconds / at(here, n) for n, seconds in pairs if min(here) <= n <= max(here)]
    if not ratios:
        return ""
    return _judged(
        "results.json has", median(ratios), "times the seconds of one call of attention that were measured here"
    )


def _memory(results: Results, measured: Curves) -> str:
    here = measured.get("step6.cost.memory peak")
    if here is None:
        return ""
    n, itemsize = (results.number(name, above=0, whole=True) for name in ("memory_n", "itemsize"))
    theirs, ours = (
        results.number("peak_allocated", above=0) / (itemsize * n * n),
        here[max(here)] / (4 * max(here) ** 2),
    )
    found = f"{theirs:.3g} score tensors at the peak, {ours:.3g} of them measured here:"
    return _judged(f"results.json has {found}", theirs / ours, "times as much")


def _speed_up(results: Results, measured: Curves) -> str:
    cached, recomputed = (measured.get(f"step8.cost.decode {name}") for name in ("cached", "recomputed"))
    if cached is None or recomputed is None:
        return ""
    here = {n: recomputed[n] / cached[n] for n in cached}
    n = min(max(results.inner("decoder").number("n_tokens", above=0, whole=True), min(here)), max(here))
    theirs, ours = results.number("speedup_at_last_token", above=0), at(here, n)
    found = f"a speed-up of {theirs:.3g} by the cache, {ours:.3g} measured here on a small decoder:"
    return _judged(f"results.json has {found}", theirs / ours, "times as much")


def at(points: Mapping[int, float], n: float) -> float:
    """The value at n, on a straight line between its neighbours on log-log axes."""
    ns = sorted(points)
    right = next((i for i, m in enumerate(ns[1:], 1) if n <= m), len(ns) - 1)
    a, b = ns[right - 1], ns[right]
    slope = math.log(points[b] / points[a]) / math.log(b / a)
    return float(points[a] * (n / a) ** slope)


def _judged(begin: str, ratio: float, end: str) -> str:
    apart = "" if 1 / ORDER <= ratio <= ORDER else f" That is more than {ORDER} times apart: have a look."
    return f"{begin} {ratio:.2g} {end}.{apart}"


def _machines(folder: Path) -> str:
    try:
        theirs = Results(read_results(folder)).text("hardware")
    except Fail:
        theirs = "not said"
    return f"Measured there: {theirs[:200]}. Here: {_processor()}, {os.cpu_count()} cores, {platform.system()}."


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def words(folder: Path) -> str:
    """The text of note.md for a person to read; empty where there is none."""
    for path in (folder / "report" / "note.md", folder / "note.md"):
        try:
            if not path.is_symlink() and not path.parent.is_symlink() and path.is_file():
                return path.read_bytes()[:MOST_WORDS].decode("utf-8-sig", errors="replace")
        except OSError:
            continue
    return ""
