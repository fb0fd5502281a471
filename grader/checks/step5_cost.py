"""Step 5, measured from outside: the CPU time of the submission's attention, and how it grows. Worth no points.

The kernel's clock of the process says what a call costs, whatever experiments.py makes of it, and sampled rows of what the
timed calls gave are held against the formula. Lengths that would take too long or do not fit into memory are left out by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grader.measure import memory
from grader.measure.clock import apart, cpu_seconds, forget
from harness.attend import SDPA
from harness.check import Fail, check, fail_of, note, tell
from harness.expect import ask, spell
from harness.growth import MORE, Growth, growth
from harness.subject import Call, Subject
from harness.values import Handle
from reference.attention import scaled_dot_product_attention

NS = (128, 256, 512, 1024, 2048, 4096)
SHORTER = (32, 64)  # where not all of them can be measured
D = 64
ROUNDS = 3  # over all lengths, so that what else the machine does for a while is not taken for a matter of one length
BUDGET = 0.03  # CPU seconds of repeats at one length in a round, where one call takes less
LONG = 1.0  # CPU seconds of a call that is made once
MOST = 3.0  # CPU seconds that a call may be expected to take: a doubling costs five times as much, or less
ROWS = 3
LOOPED = (4, 8, 16, 32)  # lengths whose lines of Python are counted


@check("step5.cost.attention", weight=0)
def attention(subject: Subject) -> None:
    """The CPU time of attention, and how it grows with n: measured here, and worth no points."""
    try:
        with apart(subject):
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
    found: dict[int, list[float]] = {}
    left_out = ""
    start = _memory(subject)
    for n in NS:
        # twice the length takes four times the memory on top of what there was at first, and a little more
        needed, there = 5 * max(_memory(subject) - start, 0), memory.available()
        if there is not None and needed > there:
            left_out = f" Longer texts do not fit into memory: n = {n} would take about {needed >> 20} MiB."
            break
        if found and 5 * max(map(min, found.values())) > MOST:
            left_out = f" Longer texts take too long to be measured: n = {n} would take more than {MOST:g} s."
            break
        if not gives_attention(subject, n):
            return None, ""
        found[n] = [cost_at(subject, n)]
    if len(found) < len(NS):
        found |= {n: [cost_at(subject, n)] for n in SHORTER if gives_attention(subject, n)}
    for _ in range(ROUNDS - 1):
        for n, seconds in found.items():
            if min(seconds) < LONG:
                seconds.append(cost_at(subject, n))
    return fitted(found), left_out


def fitted(found: dict[int, list[float]]) -> Growth | None:
    """The growth of what each round found at every length: of the least, which is believed as far as it came back."""
    ranked = {n: sorted(found[n]) for n in sorted(found) if min(found[n]) > 0}
    if len(ranked) < 3:
        return None
    came_back = {n: times[1] / times[0] for n, times in ranked.items() if len(times) > 1}
    most = max(came_back.values(), default=1.0)  # for the longest, which are measured once
    return growth(list(ranked), [times[0] for times in ranked.values()], [came_back.get(n, most) for n in ranked])


def gives_attention(subject: Subject, n: int) -> bool:
    """Whether the output for n queries and keys is that of attention. Raises Fail where there is none."""
    inputs = ask(subject, "@random", [[n, D]] * 3, "float32", n).value
    call = Call(SDPA, tuple(inputs), keep="whole")
    outcome = subject.ask(call)[0]
    if not outcome.ok:
        raise fail_of(outcome, spell(call), {}, "attention")
    right = _right(subject, inputs, outcome.value)
    forget(subject, outcome.value, *inputs)
    return right


def cost_at(subject: Subject, n: int) -> float:
    """CPU seconds of one call with n queries and keys. Raises Fail."""
    inputs = ask(subject, "@random", [[n, D]] * 3, "float32", n).value
    cost = cpu_seconds(subject, lambda i: Call(SDPA, tuple(inputs)), budget=BUDGET, least=1).least
    forget(subject, *inputs)
    return cost


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
