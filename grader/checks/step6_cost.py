"""Step 6, measured from outside: what attention takes of memory, and the largest n that a given amount holds. Worth no points.

The kernel says how many bytes the submission's process has had in memory at most. Lengths that this machine's memory does not
hold are left out before they are tried.
"""

from __future__ import annotations

from grader.measure import memory
from grader.measure.memory import MIB, Reached, Taken
from grader.sandbox import SandboxError, WorkerSubject
from harness.attend import SDPA
from harness.check import Fail, check, tell
from harness.subject import Call, Subject
from reference.experiments import score_bytes

NS = (256, 512, 1024, 2048, 4096)
D, ITEMSIZE = 64, 4
UNDER_MIB, SECONDS, MOST = 128, 1.0, 16_384  # of the worker that is to run out, of one call there, and the longest text
LONGEST = 3.0  # CPU seconds that a call may be expected to take


def inputs(n: int) -> Call:
    return Call("@random", ([[n, D]] * 3, "float32", n))


@check("step6.cost.memory", weight=0)
def peak(subject: Subject) -> None:
    """The memory of attention at its peak, beside the score tensor: measured here, and worth no points."""
    found: dict[int, Taken] = {}
    left_out = ""
    for n in NS:
        # twice the length takes four times the memory and the time, and a little more
        needed, there = 5 * max((t.bytes for t in found.values()), default=0), memory.available()
        if there is not None and needed > there:
            left_out = f" Longer texts do not fit into memory: n = {n} would take about {needed >> 20} MiB."
            break
        if 5 * max((t.seconds for t in found.values()), default=0.0) > LONGEST:
            left_out = f" Longer texts take too long to be measured: n = {n} would take more than {LONGEST:g} s."
            break
        try:
            taken = memory.taken_by(subject, inputs, SDPA, n)
        except Fail:  # that it works is for step 1 to say, and what does not fit there is not measured here
            break
        if taken is None:
            return
        found[n] = taken
    if found:
        peaks = {n: taken.bytes for n, taken in found.items()}
        tell(told(peaks) + left_out, peak=peaks)


def told(peaks: dict[int, int]) -> str:
    """Peaks in bytes by n, in plain sentences: the score tensor beside them, and how many tables were alive at once."""
    n = max(peaks)
    table = score_bytes(n, ITEMSIZE)
    listed = ", ".join(f"{size / MIB:.1f} MiB at {m}" for m, size in peaks.items())
    return (
        f"A call has at its peak in memory, above what was there before: {listed} (n queries and keys, d = {D}, float32). "
        f"At n = {n} the score tensor takes {table / MIB:.1f} MiB by the formula, so {alive(peaks[n] / table)}"
    )


def alive(tables: float) -> str:
    """What a peak of so many score tensors says of the n × n arrays that were held at once."""
    if tables < 0.75:
        return "less than one n × n array was added: blocks were enough, or took the place of what the process had had before."
    if tables < 1.5:
        return f"about one n × n array was alive at once ({tables:.1f}): what comes between took its place or came in blocks."
    if tables > 12:
        return f"as much as {tables:.0f} of them was held at once: an array larger than n × n was made, n × n × d it may be."
    return (
        f"about {tables:.1f} n × n arrays of that size were alive at once: scores, weights, and what was made on the way from "
        "one to the other. One in float64 counts twice."
    )


@check("step6.cost.largest", weight=0)
def largest(subject: Subject) -> None:
    """The largest n whose attention a given amount of memory holds: measured here, and worth no points."""
    if not isinstance(subject, WorkerSubject):
        return  # the process that it would run out in is the judge's own
    there = memory.available()
    if there is not None and there < 2 * UNDER_MIB * MIB:
        tell(f"The largest n is not looked for: {2 * UNDER_MIB} MiB of memory are not free here.")
        return
    try:
        found = memory.largest_under(subject, UNDER_MIB, SECONDS, inputs, SDPA, MOST)
    except Fail:  # that it works is for step 1 to say
        return
    except SandboxError as error:
        tell(f"The largest n is not looked for: {error}.")
        return
    tell(ran_out(found))


def ran_out(found: Reached) -> str:
    """Where the bisection ended, and what ran out there."""
    table = score_bytes(found.n, ITEMSIZE)
    text = f"In a process that may take {UNDER_MIB} MiB more than its libraries, the largest n is {found.n}"
    tables = f"{UNDER_MIB * MIB / table:.1f} score tensors of that n are as much as the limit"
    if found.resource == "memory":
        return f"{text}; at n = {found.beyond} memory runs out, and {tables}."
    if found.resource == "time":
        return f"{text}; at n = {found.beyond} a call takes more than {SECONDS:g} s, and memory has not run out."
    return f"{text} or more: nothing ran out up to there."
