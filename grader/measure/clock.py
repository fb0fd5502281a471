"""What a call costs, by the kernel's clock of the process it runs in: a submission can patch its own clocks, not this one.

CPU seconds pass only while the process runs, so a busy machine lengthens them little, and a call that waits has few. Inputs
and results of a timed call stay in the worker, or moving them would be a part of its cost.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from harness.check import fail_of
from harness.expect import spell
from harness.subject import Call, Outcome, Subject
from harness.values import Handle

EMPTY = Call("@drop", ([],))


@dataclass(frozen=True)
class Spent:
    """What one call took of its process.

    cpu     CPU seconds
    asleep  seconds in which the process neither ran nor waited for a core; None where the kernel does not say
    """

    cpu: float
    asleep: float | None


@dataclass(frozen=True)
class Estimate:
    """CPU seconds of one call: every reading, lowest first, without the cost of an empty call."""

    readings: tuple[float, ...]

    @property
    def least(self) -> float:
        return self.readings[0]

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.readings)

    @property
    def interval(self) -> tuple[float, float]:
        """Holds the median of such calls 19 times out of 20 or more (the extremes, where there are fewer than six)."""
        left_out = 0
        n = len(self.readings)
        while sum(math.comb(n, i) for i in range(left_out + 1)) / 2**n <= 0.025:
            left_out += 1
        low = max(left_out - 1, 0)
        return self.readings[low], self.readings[n - 1 - low]

    def narrow(self, width: float) -> bool:
        """Whether the interval is at most that part of the median wide; too few readings are never narrow."""
        if len(self.readings) < 5:
            return False
        low, high = self.interval
        return high - low <= width * self.seconds


def spent(subject: Subject, call: Call) -> tuple[Outcome, Spent]:
    """Asks one thing, and says what it took."""
    before, judge, began = subject.clocks(), time.process_time(), time.monotonic()
    outcome = subject.ask(call)[0]
    wall, after = time.monotonic() - began, subject.clocks()
    cpu = max(after.cpu - before.cpu, 0.0)
    if before.delayed is None or after.delayed is None:
        return outcome, Spent(cpu, None)
    judges = time.process_time() - judge
    return outcome, Spent(cpu, max(wall - cpu - judges - (after.delayed - before.delayed), 0.0))


def cost_of_an_empty_call(subject: Subject, times: int = 5) -> float:
    """CPU seconds that the worker spends on being asked, whatever is asked: the least of some readings."""
    return min(spent(subject, EMPTY)[1].cpu for _ in range(times))


def cpu_seconds(
    subject: Subject,
    calls: Callable[[int], Call],
    *,
    budget: float = 0.3,
    width: float = 0.1,
    least: int = 3,
    most: int = 15,
) -> Estimate:
    """What a call costs: `calls(i)` is its i-th repeat, as new inputs may be wanted each time. Its result is not fetched.

    Repeats until the interval is narrow, or `budget` CPU seconds or `most` repeats are spent, and `least` times anyway.
    Raises Fail where a call gives no value.
    """
    empty = cost_of_an_empty_call(subject)
    found = Estimate(())
    used = 0.0
    while len(found.readings) < most:
        if len(found.readings) >= least and (used > budget or found.narrow(width)):
            break
        call = replace(calls(len(found.readings)), keep="whole")
        outcome, cost = spent(subject, call)
        if not outcome.ok:
            raise fail_of(outcome, spell(call), {}, call.name.partition(".")[0])
        forget(subject, outcome.value)
        used += cost.cpu
        found = Estimate(tuple(sorted((*found.readings, max(cost.cpu - empty, 0.0)))))
    return found


def forget(subject: Subject, *kept: object) -> None:
    """Frees what a worker was asked to keep."""
    subject.call("@drop", [handle.id for handle in kept if isinstance(handle, Handle)])


@contextlib.contextmanager
def apart(subject: Subject) -> Iterator[None]:
    """Judge and submission have a core each meanwhile, where there are two and the system allows it: neither moves the other."""
    subject.ask(EMPTY)  # so that there is a process
    process, cores = subject.clocks().process, sorted(os.sched_getaffinity(0))
    first = process % len(cores)  # judges that run side by side take different ones
    moved = False
    if process and len(cores) > 1:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(process, {cores[first]})
            moved = True
            os.sched_setaffinity(0, set(cores) - {cores[first]})
    try:
        yield
    finally:
        if moved:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cores)
                os.sched_setaffinity(process, cores)
