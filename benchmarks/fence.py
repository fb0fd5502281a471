"""What the fence costs: python benchmarks/fence.py

Prints the CPU time of a grading with every layer over that of one with none (the median of pairs), and the time that a further
group takes to start and to end, by the CPU and by the clock.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from grader.grade import grade
from grader.rubric import load_rubric
from grader.sandbox import Sandbox, fencing, supervisor

BASE = Path(__file__).parent.parent / "examples" / "base"
PAIRS, GROUPS = 3, 40


def cpu() -> float:
    """CPU seconds of this process and of those it has waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def graded(steps: set[int]) -> float:
    """CPU seconds of one grading."""
    before = cpu()
    report = grade(BASE, rubric=load_rubric(), steps=steps)
    assert all(step.status == "passed" for step in report.steps)
    return cpu() - before


def without_fence(steps: set[int]) -> float:
    """The same with no layer at all."""
    boot = "from harness import fence; fence.raise_fence = lambda plan, parent: []; fence.isolate_worker = lambda: []; "
    start, interpreter = supervisor.subprocess.Popen, supervisor.choose()[0]

    def popen(command: list[str], **options: object) -> object:
        if "-c" in command:
            at = command.index("-c") + 1
            command[at] = command[at].replace("from harness.worker", boot + "from harness.worker")
        return start(command, **options)

    with (
        mock.patch.object(supervisor.subprocess, "Popen", popen),
        mock.patch.object(supervisor, "choose", lambda: (interpreter, False)),
        mock.patch.object(fencing, "changes_user", lambda: False),
        mock.patch.object(fencing, "lacks", lambda layers: ""),
    ):
        return graded(steps)


def groups(kind: str) -> tuple[float, float]:
    """CPU and wall milliseconds of a further group, asked nothing."""
    with Sandbox(BASE) as sandbox:
        with sandbox.group(kind) as subject:
            subject.call("@len", [])
        spent = time.process_time() + _family(sandbox, kind)
        walls = []
        for _ in range(GROUPS):
            began = time.perf_counter()
            with sandbox.group(kind) as subject:
                subject.call("@len", [])
            walls.append(time.perf_counter() - began)
        spent = time.process_time() + _family(sandbox, kind) - spent
    return 1000 * spent / GROUPS, 1000 * statistics.median(walls)


def _family(sandbox: Sandbox, kind: str) -> float:
    """CPU seconds of a worker and of the groups that it has collected."""
    fields = Path(f"/proc/{sandbox.worker(kind).pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / 100


def main() -> None:
    for kind in ("numpy", "torch"):
        spent, wall = groups(kind)
        print(f"a further {kind} group: {spent:.1f} ms of CPU, {wall:.1f} ms by the clock")
    steps = {1, 2, 7}
    ratios = []
    for _ in range(PAIRS):
        fenced, bare = graded(steps), without_fence(steps)
        ratios.append(fenced / bare)
        print(f"steps 1, 2 and 7: {fenced:.2f} s of CPU with every layer, {bare:.2f} s with none")
    print(f"ratio: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
