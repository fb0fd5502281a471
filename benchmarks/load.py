"""The same submission on a quiet machine and on a busy one: python benchmarks/load.py [SUBMISSION] [--count 100] [--steps 5,6,8]

Grades it `count` times, every other time while each core has a process that does nothing but compute. Prints whether all scores
and all checks are equal, the spread of the exponent that is fitted to attention's CPU time, and the ratio of the seconds taken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from grader.checks import step5_cost
from grader.grade import environment, grade
from grader.rubric import load_rubric
from grader.sandbox import Sandbox

BASE = Path(__file__).parent.parent / "examples" / "base"


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """A process for every core that computes until the end."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def exponent(folder: Path) -> float:
    """Fitted to the CPU time of the submission's attention, as `attnlab grade --measure` tells it."""
    with Sandbox(folder) as sandbox, sandbox.group("numpy") as subject:
        found, _ = step5_cost.measure(subject)
    assert found is not None
    return found.exponent


def verdicts(folder: Path, steps: set[int]) -> tuple[object, ...]:
    """Every step's score, and every check's status and codes."""
    report = grade(folder, rubric=load_rubric(), steps=steps)
    checks = [c for s in report.steps for c in s.checks]
    return (*(s.score for s in report.steps), *((c.id, c.status, *(d.code for d in c.diagnoses)) for c in checks))


def spread(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}, median {statistics.median(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=BASE)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--steps", default="5,6,8")
    options = parser.parse_args()
    steps = {int(number) for number in options.steps.split(",")}
    print(f"machine: {os.cpu_count()} cores; {environment()}")
    seen: Counter[tuple[object, ...]] = Counter()
    exponents: dict[bool, list[float]] = {False: [], True: []}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for i in range(options.count):
        busy = bool(i % 2)
        with busy_cores() if busy else contextlib.nullcontext():
            began = time.perf_counter()
            seen[verdicts(options.folder, steps)] += 1
            seconds[busy].append(time.perf_counter() - began)
            exponents[busy].append(exponent(options.folder))
        print(
            f"{i + 1}: {'busy' if busy else 'quiet'}, {seconds[busy][-1]:.1f} s, n to the {exponents[busy][-1]:.3f}",
            flush=True,
        )
    print(f"{options.count} gradings of steps {options.steps}: {len(seen)} different result{'s' * (len(seen) > 1)}")
    for busy, name in ((False, "quiet"), (True, "busy")):
        if exponents[busy]:
            print(f"exponent, {name}: {spread(exponents[busy])}")
    if seconds[True]:
        print(f"seconds, busy to quiet: {statistics.median(seconds[True]) / statistics.median(seconds[False]):.2f}")


if __name__ == "__main__":
    main()
