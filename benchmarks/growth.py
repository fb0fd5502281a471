"""Whether a cost's growth is named rightly on a real machine: python benchmarks/growth.py [--count 100]

A submission whose function computes for a number of turns that is known, asked as attention is: for n, n log n, n², n² with a
step where a cache would end, and n³. Every other time each core is kept busy. Prints how often the kind was named, left open
("not told apart") or wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from load import busy_cores

from grader.checks.step5_cost import BUDGET, NS, ROUNDS, fitted
from grader.measure.clock import cpu_seconds
from grader.sandbox import Sandbox
from harness.growth import LINEAR, MORE, QUADRATIC
from harness.subject import Call

TURNS = 4_000_000  # of a loop, at the longest n
SUBJECT = "def softmax(x, axis=-1):\n    total = 0\n    for i in range(int(x)):\n        total += i\n    return total\n"
COSTS: dict[str, tuple[Callable[[int], float], str]] = {
    "n": (lambda n: n, LINEAR),
    "n log n": (lambda n: n * math.log(n), LINEAR),
    "n²": (lambda n: n**2, QUADRATIC),
    "n² with a cache cliff": (lambda n: n**2 * (3 if n > 1024 else 1), QUADRATIC),
    "n³": (lambda n: n**3, MORE),
}


def kind_of(sandbox: Sandbox, cost: Callable[[int], float]) -> str | None:
    """The kind that is named of what was measured, in rounds over all lengths as for attention."""
    seconds: dict[int, list[float]] = {n: [] for n in NS}
    with sandbox.group("numpy") as subject:
        for _ in range(ROUNDS):
            for n in NS:
                call = Call("attention.softmax", (round(TURNS * cost(n) / cost(NS[-1])),))
                seconds[n].append(cpu_seconds(subject, lambda i, c=call: c, budget=BUDGET, least=1).least)
    found = fitted(seconds)
    return found.kind if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "attention.py").write_text(SUBJECT)
        with Sandbox(Path(folder)) as sandbox:
            for name, (cost, right) in COSTS.items():
                found: Counter[str] = Counter()
                for i in range(count):
                    with busy_cores() if i % 2 else contextlib.nullcontext():
                        kind = kind_of(sandbox, cost)
                    found["right" if kind == right else "not told apart" if kind is None else "wrong"] += 1
                print(f"{name}: {dict(found)}", flush=True)


if __name__ == "__main__":
    main()
