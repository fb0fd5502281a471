"""Step 6: memory that the judge knows, because it is taken by a plan of the judge's."""

from __future__ import annotations

from grader.instruments import MIB, PLANS, measure_peak
from harness.check import check
from harness.checks.step6_memory import PEAK, peak_of
from harness.expect import Asked
from harness.subject import Call, Subject

# What the library and the measuring itself take beside the plan, and pages that were free before: both are small beside it.
SLACK = 12 * MIB


def _measured(subject: Subject, plan: list[tuple[str, int]], peak: int) -> Asked:
    text = f"measure_peak_memory(fn), fn holding {peak // MIB} MiB at its peak"
    return Asked(Call(PEAK), measure_peak(subject, plan), text)


@check(
    "step6.peak.allocated",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.one-call",
    needs="torch",
)
def allocated(subject: Subject) -> None:
    """`allocated` is the bytes at the peak while fn ran, above what was held before."""
    for plan, peak in PLANS:
        asked = _measured(subject, plan, peak)
        value, _ = peak_of(asked)
        if not 0.8 * peak - SLACK <= value <= 1.25 * peak + SLACK:
            raise asked.fail(f"allocated is {value:,.0f} bytes", f"about {peak:,} bytes")


@check(
    "step6.peak.reserved",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.one-call",
    needs="torch",
)
def reserved(subject: Subject) -> None:
    """`reserved` is what the process got from the system for it: as much, or somewhat more."""
    plan, peak = PLANS[1]
    asked = _measured(subject, plan, peak)
    _, value = peak_of(asked)
    if not 0.7 * peak - SLACK <= value <= 2.5 * peak + SLACK:
        raise asked.fail(
            f"reserved is {value:,.0f} bytes", f"about {peak:,} bytes, or what the allocator took for them"
        )
