"""Memory seen from outside: what there is to use, what a call took of it at its peak, and where it runs out.

The kernel says how many pages a process has had in memory at most. A process starts each measurement afresh, so that nothing
that was held before is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.sandbox import Limits, WorkerSubject
from harness.check import fail_of
from harness.expect import spell
from harness.subject import LIMITS, Call, Subject
from reference.experiments import largest_n

MIB = 2**20
SMALL = 16  # a length that costs nothing
Prepare = Callable[[int], Call]  # the call that makes the inputs of length n, which stay in the process

# The container's limit, what it has taken of it, and what of that are files which it would give back: cgroup 2, then 1
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        "total_inactive_file",
    ),
)


# -- what there is ---------------------------------------------------------------------------------------------------


def available() -> int | None:
    """Bytes that can be taken before the system ends a process; None where it does not say."""
    found = [_of_the_machine(), *(_of_the_container(*files) for files in _CGROUPS)]
    known = [number for number in found if number is not None]
    return min(known) if known else None


def _of_the_machine() -> int | None:
    try:
        return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def _of_the_container(limit: str, taken: str, stat: str, given_back: str) -> int | None:
    try:
        left = int(Path(limit).read_text()) - int(Path(taken).read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    try:
        fields = dict(line.split() for line in Path(stat).read_text().splitlines())
        left += int(fields.get(given_back, 0))
    except (OSError, ValueError):
        pass
    return max(left, 0)


# -- what a call takes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """Bytes that a call had in memory at its peak above what was there before, and its CPU seconds."""

    bytes: int
    seconds: float


def taken_by(subject: Subject, prepare: Prepare, name: str, n: int) -> Taken | None:
    """What one call takes in a fresh process; None where the kernel does not say. Raises Fail where a call gives no value."""
    with subject.lend({}) as fresh:
        inputs = _asked(fresh, prepare(n))
        _asked(
            fresh, Call(name, tuple(_asked(fresh, prepare(SMALL))))
        )  # what is imported or made once is no part of it
        before = fresh.clocks()
        _asked(fresh, Call(name, tuple(inputs), keep="whole"))
        after = fresh.clocks()
    if before.memory is None or after.memory is None:
        return None
    return Taken(max(after.memory - before.memory, 0), after.cpu - before.cpu)


def _asked(subject: Subject, call: Call) -> Any:
    """What a call gives. Raises Fail."""
    outcome = subject.ask(call)[0]
    if not outcome.ok:
        raise fail_of(outcome, spell(call), {}, call.name.partition(".")[0])
    return outcome.value


# -- where it runs out -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """The largest n that could be done, the least that could not (None up to the last tried), and what ran out there."""

    n: int
    beyond: int | None
    resource: str  # "memory", "time" or "" where nothing did


GRID = 16  # lengths tried are multiples of it: finer steps are smaller than what a process varies by


def largest_under(
    whole: WorkerSubject, memory_mib: int, cpu_seconds: float, prepare: Prepare, name: str, most: int
) -> Reached:
    """Bisects for the largest n up to `most` that a call gets through in a worker with so much memory.

    An end by a limit, be it an exception or the death of the process, is an answer. Raises Fail where the call fails by
    anything else, SandboxError where this machine gives no fenced worker.
    """
    uncounted = 10**6  # limits are what is looked for: reaching one counts against nothing
    limits = Limits(cpu_seconds, memory_mib=memory_mib, strikes=uncounted, patience=uncounted, calls=uncounted)
    ends: dict[int, str] = {}
    with whole.limited(limits) as subject:

        def fits(k: int) -> bool:
            n = k * GRID
            made = subject.ask(prepare(n))[0]
            done = subject.ask(Call(name, tuple(made.value), keep="whole"))[0] if made.ok else made
            subject.close()  # the next length gets a process of its own
            if done.ok:
                return True
            if done.kind not in LIMITS or k == 1:
                raise fail_of(done, f"{name}(…)", {}, name.partition(".")[0])
            ends[n] = "time" if done.kind == "timeout" else "memory"
            return False

        n = GRID * largest_n(fits, start=1, limit=most // GRID)
    beyond = min(ends, default=None)
    return Reached(n, beyond, ends[beyond] if beyond else "")
