"""The largest n that a given amount of memory holds, by bisection: each length in a process of its own, whose memory is limited.

    python -m harness.profiling.limited FOLDER N BYTES

makes one call of attention in FOLDER on N queries and keys, with so many bytes above what the libraries have taken. Exit 0: it
came to its end; 3: memory ran out; 4: it failed by something else. A death by the limit is an answer like any other.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DONE, NO_MEMORY, FAILED = 0, 3, 4
GRID = 16  # lengths tried are multiples of it: finer steps are smaller than what a process varies by
WIDTH, SMALL = 64, 16
SECONDS = 5.0  # that a process may take


@dataclass(frozen=True)
class Largest:
    """The largest n that a limit of bytes holds, the first beyond it (None where all fit), and what ran out there."""

    limit: int
    n: int
    beyond: int | None
    resource: str  # "memory", "time" or ""


def largest(root: Path, limit: int, most: int, tick: Callable[[float], None]) -> Largest | None:
    """Bisects up to `most`. None where this system limits no process, or attention does not work."""
    if sys.platform != "linux":
        return None
    ends: dict[int, str] = {}
    tried = 0

    def fits(n: int) -> bool:
        nonlocal tried
        tried += 1
        tick(min(tried / (2 * (most // GRID).bit_length()), 1))
        ends[n] = end_of(root, n, limit)
        return not ends[n]

    good, bad = GRID, most + GRID
    if not fits(good):
        return None
    while 2 * good < bad:
        if fits(2 * good):
            good *= 2
        else:
            bad = 2 * good
    while bad - good > GRID:
        middle = (good + bad) // (2 * GRID) * GRID
        if fits(middle):
            good = middle
        else:
            bad = middle
    tick(1)
    if "error" in ends.values():
        return None
    return Largest(limit, good, bad if bad in ends else None, ends.get(bad, ""))


def end_of(root: Path, n: int, limit: int) -> str:
    """What ended one call: "memory", "time", "error", or "" where it came to its end."""
    command = [sys.executable, "-m", "harness.profiling.limited", str(root), str(n), str(limit)]
    try:
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "time"
    return {DONE: "", FAILED: "error"}.get(
        done.returncode, "memory"
    )  # killed, or ended by a library that found no room


def call(root: Path, n: int, limit: int) -> int:
    """One call of attention in this process, whose memory is limited from here on. Gives the exit status."""
    import resource

    from harness.subject import Call, LocalSubject

    def attend(n: int) -> str:
        inputs = subject.call("@random", [[n, WIDTH]] * 3, "float32", n)
        if not inputs.ok:
            return inputs.type
        outcome = subject.ask(Call("attention.scaled_dot_product_attention", tuple(inputs.value), keep="whole"))[0]
        return "" if outcome.ok else outcome.type or outcome.kind

    subject = LocalSubject(root)
    if attend(SMALL):  # what is imported or made once is no part of what is limited
        return FAILED
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + limit
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    ended = attend(n)
    return NO_MEMORY if ended.endswith("MemoryError") else FAILED if ended else DONE


if __name__ == "__main__":
    sys.exit(call(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
