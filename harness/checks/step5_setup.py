"""Step 5: whether making the inputs is timed, which no virtual clock can show, as only attend moves it.

So the CPU clock of the submission's process is read whenever it calls back: what it did between a reading of `clock` and the
attend that follows is what it times besides attend.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

from harness.check import Fail, check
from harness.checks.step5_exponent import numbers
from harness.checks.step5_timing import TIME
from harness.expect import Asked
from harness.subject import Call, Subject
from harness.values import Blank, Handle
from harness.virtual_time import lent, shape_of

NS = (1024, 2048, 4096)
D, WARMUP, REPEATS = 64, 1, 5
CLEARLY = 10  # times what passes between two calls that follow each other at once
MOST_EVENTS = 1_000


@check("step5.time.inputs-made-before", functions=TIME, needs="torch", stands_on="step5.time.median", public=True)
def inputs_made_before(subject: Subject) -> None:
    """Nothing but attend is timed: queries, keys and values are made before the clock is read."""
    if too_early(subject) and too_early(subject):
        call = f"time_attention(attend, {list(NS)}, d={D}, warmup={WARMUP}, repeats={REPEATS}, clock=…)"
        seen = "between clock() and attend there is as much work as making the inputs takes"
        raise Fail(seen, "attend called at once", code="timing-includes-setup", call=call)


def too_early(subject: Subject) -> bool:
    """Whether, in the middle of all lengths, far more work lies between clock() and attend than between attend and clock().

    And at least a fifth of what making the inputs takes, which is more than copying them does. Raises Fail where the call
    gives no times.
    """
    events: list[tuple[str, int, float]] = []

    def see(event: str, n: int = 0) -> None:
        if len(events) >= MOST_EVENTS:
            raise ValueError("called too often")
        events.append((event, n, subject.clocks().cpu))

    def clock() -> float:
        see("clock")
        return float(len(events))

    def attend(Q: Any, K: Any, V: Any) -> Any:
        shape = shape_of(Q)
        n = shape[-2] if len(shape) > 1 else 0
        see("attend", n)
        return Blank(shape), Blank((*shape[:-1], n))

    options = {"d": D, "warmup": WARMUP, "repeats": REPEATS, "clock": lent(clock)}
    call = Call(TIME, (lent(attend, by_handle=True), list(NS)), options)
    numbers(Asked(call, subject.ask(call)[0]), len(NS), "times")
    after = [seconds for n in NS for seconds in between(events, "attend", "clock", n)]
    before = [between(events, "clock", "attend", n) for n in NS]
    if not after or not all(before):
        return False
    at_once = CLEARLY * min(after)
    found = [median(b) > max(at_once, making(subject, n) / 5) for n, b in zip(NS, before, strict=True)]
    return median(found) > 0  # two of the three lengths


def between(events: list[tuple[str, int, float]], first: str, second: str, n: int) -> list[float]:
    """CPU seconds from one event to the next, wherever they follow each other and the attend of the two is of length n."""
    pairs = pairwise(events)
    return [b[2] - a[2] for a, b in pairs if (a[0], b[0]) == (first, second) and n in (a[1], b[1])]


def making(subject: Subject, n: int) -> float:
    """CPU seconds that making three arrays (n, D) of normal numbers takes in the submission's process."""
    costs = []
    for seed in range(2):
        before = subject.clocks().cpu
        made = subject.ask(Call("@random", ([[n, D]] * 3, "float64", seed)))[0]
        if not (isinstance(made.value, list) and all(isinstance(handle, Handle) for handle in made.value)):
            return math.inf  # nothing can be said
        costs.append(subject.clocks().cpu - before)
        subject.ask(Call("@drop", ([handle.id for handle in made.value],)))
    return min(costs)
