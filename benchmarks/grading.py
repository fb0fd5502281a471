"""What a grading costs: python benchmarks/grading.py [SUBMISSION]

Prints, measured in one run: seconds and memory of a whole grading, seconds of the NumPy steps, and the ratio of CPU time behind
the wire and the fence to the same checks in one process. Ratios travel between machines; seconds do not.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from grader import grade as grading
from grader.grade import PUBLIC_SECRET, grade
from grader.rubric import load_rubric
from grader.sandbox import Limits, Sandbox
from harness import check as checking
from harness import draws
from harness.check import CHECKS
from harness.subject import LocalSubject, Subject

BASE = Path(__file__).parent.parent / "examples" / "base"
NUMPY_STEPS = {1, 2, 4, 7}


def cpu() -> float:
    """CPU seconds of this process and of the children it has waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def proportional_set(pid: int) -> int:
    """Bytes of memory of a process and everything below it, shared pages divided among those that share them."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) << 10 if line.startswith("Pss:") else 0
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += proportional_set(int(child))
    except OSError:
        pass
    return total


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], proportional_set(os.getpid()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def run_checks(subject: Subject) -> None:
    for check in CHECKS.values():
        if check.step in NUMPY_STEPS and check.needs == "numpy":
            result = checking.run(check, subject, draws.seed_of(PUBLIC_SECRET, check.id))
            assert result.status == "passed", (check.id, result)


def in_worker(folder: Path) -> None:
    with Sandbox(folder, Limits(), trust=True) as sandbox, sandbox.group("numpy") as subject:
        run_checks(subject)


def measured(work: Callable[[], None]) -> tuple[float, float]:
    wall, used = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - wall, cpu() - used


def _apart(form: str, folder: Path) -> None:
    """The checks in a process of their own."""
    subprocess.run([sys.executable, __file__, str(folder), form], check=True)


def main() -> None:
    if len(sys.argv) == 3:
        return run_checks(LocalSubject(Path(sys.argv[1]))) if sys.argv[2] == "local" else in_worker(Path(sys.argv[1]))
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BASE
    rubric = load_rubric()
    print(f"machine: {os.cpu_count()} cores; {grading.environment()}")
    with peak_memory() as peak:
        wall, used = measured(lambda: print("score:", grade(folder, rubric=rubric).score))
    print(
        f"whole grading: {wall:.1f} s wall, {used:.1f} s CPU, {peak[0] / 2**20:.0f} MiB (proportional set, all processes)"
    )
    wall, used = measured(lambda: grade(folder, rubric=rubric, steps=NUMPY_STEPS) and None)
    print(f"steps 1, 2, 4 and 7, whole: {wall:.1f} s wall, {used:.1f} s CPU")
    ratios = []
    for _ in range(3):  # each from its start to its end: one process loads the libraries once, judge and worker twice
        _, local = measured(lambda: _apart("local", folder))
        wall, fenced = measured(lambda: _apart("worker", folder))
        ratios.append(fenced / local)
    print(
        f"their checks of attention.py in a worker: {wall:.1f} s wall, {fenced:.2f} s CPU; CPU to that in one process: "
        + ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    )
    with Sandbox(folder) as sandbox:
        with sandbox.group("numpy") as subject:
            subject.call("attention.causal_mask", 2)
        wall, _ = measured(lambda: _groups(sandbox, 20))
    print(f"a further group: {1000 * wall / 20:.1f} ms")


def _groups(sandbox: Sandbox, count: int) -> None:
    for _ in range(count):
        with sandbox.group("numpy") as subject:
            subject.call("attention.causal_mask", 2)


if __name__ == "__main__":
    main()
