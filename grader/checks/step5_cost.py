"""Step 5, measured from outside: the CPU time of the submission's attention, and how it grows. Worth no points.

The kernel's clock of the process says what a call costs, whatever experiments.py makes of it, and sampled rows of what the
timed calls gave are held against the formula. Lengths that would take too long or do not fit into memory are left out by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grader.measure import memory
from grader.measure.clock import cpu_seconds, forget, spent
from harness.attend import SDPA
from harness.check import Fail, check, note, tell
from harness.expect import ask
from harness.growth import MORE, Growth, growth
from harness.subject import Call, Subject
from harness.values import Handle
from reference.attention import scaled_dot_product_attention

NS = (128, 256, 512, 1024, 2048, 4096)
SHORTER = (32, 64)  # where not all of them can be measured
D = 64
BUDGET = 0.08  # CPU seconds of repeats at one length, where one call takes less
MOST = 3.0  # CPU seconds that a call may be expected to take: a doubling costs five times as much, or less
ROWS = 3
LOOPED = (4, 8, 16, 32)  # lengths whose lines of Python are counted


@check("step5.cost.attention", weight=0)
def attention(subject: Subject) -> None:
    """The CPU time of attention, and how it grows with n: measured here, and worth no points."""
    try:
        measured, left_out = measure(subject)
        looped = loops(subject)
    except Fail:  # that it works is for step 1 to say
        return
    if looped:
        note(
            "cost-interpreted-loop", "Attention runs a Python loop over rows: right, and slower than a matrix product."
        )
    if measured is None:
        return
    times = ", ".join(f"{1e3 * s:.3g} ms at {n}" for n, s in zip(measured.ns, measured.seconds, strict=True))
    tell(
        f"{measured.told()} One call takes {times} (n queries and keys, d = {D}, float32).{left_out}",
        seconds=dict(zip(measured.ns, measured.seconds, strict=True)),
    )
    if measured.kind == MORE:
        note("cost-superquadratic", "Attention's CPU time grows clearly faster than n²: four times a doubling is n².")


def measure(subject: Subject) -> tuple[Growth | None, str]:
    """The growth over the lengths that could be measured, None for fewer than three, and why others were left out.

    Raises Fail where a call gives no value.
    """
    seconds: dict[int, float] = {}
    left_out = ""
    start = _memory(subject)
    for n in NS:
        # twice the length takes four times the memory on top of what there was at first, and a little more
        needed, there = 5 * max(_memory(subject) - start, 0), memory.available()
        if there is not None and needed > there:
            left_out = f" Longer texts do not fit into memory: n = {n} would take about {needed >> 20} MiB."
            break
        if seconds and 5 * max(seconds.values()) > MOST:
            left_out = f" Longer texts take too long to be measured: n = {n} would take more than {MOST:g} s."
            break
        found = cost_at(subject, n)
        if found is None:
            return None, ""
        seconds[n] = found
    if len(seconds) < len(NS):
        seconds |= {n: found for n in SHORTER if (found := cost_at(subject, n)) is not None}
    ns = sorted(n for n in seconds if seconds[n] > 0)
    return growth(ns, [seconds[n] for n in ns]) if len(ns) > 2 else None, left_out


def cost_at(subject: Subject, n: int) -> float | None:
    """CPU seconds of one call with n queries and keys; None where its output is not that of attention. Raises Fail."""
    inputs = ask(subject, "@random", [[n, D]] * 3, "float32", n).value
    call = Call(SDPA, tuple(inputs), keep="whole")
    outcome, first = spent(subject, call)
    right = outcome.ok and _right(subject, inputs, outcome.value)
    forget(subject, outcome.value)
    cost = first.cpu
    if right and cost < BUDGET:
        cost = cpu_seconds(subject, lambda i: call, budget=BUDGET).least
    forget(subject, *inputs)
    return cost if right else None


def _memory(subject: Subject) -> int:
    return subject.clocks().memory or 0


def _right(subject: Subject, inputs: list[Handle], whole: Any) -> bool:
    """Whether sampled rows of the output are those of the formula."""
    q, k, v = inputs
    output = subject.ask(Call("@method", (whole, "__getitem__", 0), keep="whole"))[0]
    assert q.shape is not None
    rows = np.random.default_rng(q.shape[0]).integers(0, q.shape[0], ROWS).tolist()
    got = subject.call("@fetch", output.value, rows)
    forget(subject, output.value)
    Q, K, V = subject.call("@fetch", q, rows), subject.call("@fetch", k), subject.call("@fetch", v)
    if not all(outcome.ok and isinstance(outcome.value, np.ndarray) for outcome in (got, Q, K, V)):
        return False
    right: Any = scaled_dot_product_attention(*(a.value.astype(np.float64) for a in (Q, K, V)))[0]
    return bool(got.value.shape == right.shape and np.abs(got.value - right).max() < 1e-3)


def loops(subject: Subject) -> bool:
    """Whether at least a line of Python more is run for every row more: blocks of a few rows are no such loop."""
    lines = []
    for n in LOOPED:
        inputs = ask(subject, "@random", [[n, D]] * 3, "float64", n).value
        lines.append(ask(subject, "@lines", SDPA, *inputs).value)
        forget(subject, *inputs)
    return all(more - fewer >= b - a for fewer, more, a, b in zip(lines, lines[1:], LOOPED, LOOPED[1:], strict=False))
