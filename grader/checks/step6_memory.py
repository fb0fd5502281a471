"""Step 6: memory that the judge knows, because it is taken by a plan of the judge's."""

from __future__ import annotations

import numpy as np

from grader.instruments import Plan, measure_peak, plans
from harness.check import check
from harness.checks.step6_memory import MIB, PEAK, patiently, peak_of
from harness.expect import Asked
from harness.subject import Call, Subject

# What the library and the measuring itself take beside the plan, and pages that were free before: both are small beside it.
SLACK = 12 * MIB


def near(value: float, peak: float, most: float) -> bool:
    """Whether a measured number is that peak, or up to `most` times it."""
    return 0.8 * peak - SLACK <= value <= most * peak + SLACK


MOST_ALLOCATED, MOST_RESERVED = 1.25, 2.5


def _measured(subject: Subject, pieces: Plan, peak: int) -> Asked:
    """A measurement, once fn has run in a process that had this memory by the kernel's account too. Raises Fail."""
    asked, fn = measure_peak(subject, pieces)
    shown = Asked(Call(PEAK), asked.outcome, f"measure_peak_memory(fn), fn holding {peak // MIB} MiB at its peak")
    peak_of(shown)
    if fn.runs != 1:
        raise shown.fail(f"fn was called {fn.runs} times", "once")
    if fn.fresh and fn.took is not None and fn.took < peak / 4:
        taken = f"{max(fn.took, 0) // MIB} MiB by the system's account"
        raise shown.fail(f"while fn was measured its process took {taken}", "fn run, and its memory measured")
    return shown


@check(
    "step6.peak.allocated",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.one-call",
    needs="torch",
)
def allocated(subject: Subject, rng: np.random.Generator) -> None:
    """`allocated` is the bytes at the peak while fn ran, above what was held before."""
    seed = int(rng.integers(2**32))

    def judge(wait: int) -> None:
        for plan, peak in plans(np.random.default_rng(seed), wait):
            asked = _measured(subject, plan, peak)
            value, _ = peak_of(asked)
            if not near(value, peak, MOST_ALLOCATED):
                raise asked.fail(f"allocated is {value:,.0f} bytes", f"about {peak:,} bytes")

    patiently(judge)


@check(
    "step6.peak.reserved",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.one-call",
    needs="torch",
)
def reserved(subject: Subject, rng: np.random.Generator) -> None:
    """`reserved` is what the process got from the system for it: as much, or somewhat more."""
    seed = int(rng.integers(2**32))

    def judge(wait: int) -> None:
        plan, peak = plans(np.random.default_rng(seed), wait)[1]
        asked = _measured(subject, plan, peak)
        _, value = peak_of(asked)
        if not near(value, peak, MOST_RESERVED):
            due = f"about {peak:,} bytes, or what the allocator took for them"
            raise asked.fail(f"reserved is {value:,.0f} bytes", due)

    patiently(judge)
