"""What a GPU gives: python benchmarks/gpu.py [cuda|cpu]

Runs the tests that need a GPU, grades examples/torch on it with everything measured, and times a further group there: a few
minutes. Prints lines for benchmarks/README.md. With "cpu" the same on the CPU, without the tests, to see that the script works.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from grader.device import why_no_cuda
from grader.grade import grade
from grader.rubric import load_rubric
from grader.sandbox import Sandbox

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "torch"
GROUPS = 5


def tests() -> str:
    """The last line of what pytest says."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "gpu", "tests/grader/test_torch_gpu.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        print(run.stdout[-6000:], run.stderr[-2000:], file=sys.stderr)
    return (run.stdout.strip().splitlines() or [run.stderr[-300:]])[-1]


def group(device: str) -> tuple[float, float]:
    """Seconds by the clock that the first group takes on the device, and a further one."""
    walls = []
    with Sandbox(EXAMPLE, trust=True) as sandbox:
        sandbox.worker("torch")
        for _ in range(GROUPS):
            began = time.perf_counter()
            with sandbox.group("torch", backend="torch", device=device) as subject:
                subject.call("attention_torch.causal_mask", 2)
            walls.append(time.perf_counter() - began)
    return walls[0], statistics.median(walls[1:])


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    if device == "cuda" and (why := why_no_cuda()):
        print(f"benchmarks/gpu.py: {why.partition(', or')[0]}, or say: python benchmarks/gpu.py cpu", file=sys.stderr)
        sys.exit(2)
    if device == "cuda":
        print(f"tests on the GPU: {tests()}", flush=True)
    began = time.perf_counter()
    report = grade(EXAMPLE, rubric=load_rubric(), device=device, measure=True, steps={8, 10}, trust=True)
    seconds = time.perf_counter() - began
    print(f"machine: {report.environment}")
    for step in report.steps:
        passed = sum(check.status == "passed" for check in step.checks)
        print(f"step {step.number}: {passed} of {len(step.checks)} checks passed")
        for check in step.checks:
            if check.status != "passed":
                print(f"  {check.id} {check.status}: {check.output[:600]}")
            elif ".cost." in check.id and check.output:
                print(f"  {check.id}: {check.output}")
    print(f"steps 8 and 10 with what is measured: {seconds:.1f} s")
    first, further = group(device)
    print(f"a group on {device}: {1e3 * first:.0f} ms the first, {1e3 * further:.0f} ms a further one")


if __name__ == "__main__":
    main()
