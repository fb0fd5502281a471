"""What a machine gives for grading: versions, limits, and whether a worker starts, asked by starting one."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from grader.device import why_no_cuda
from grader.rubric import load_rubric
from grader.sandbox import Sandbox
from harness import check as checking

LEAST_MIB = 900  # a whole grading's memory


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what came of it, and whether grading can do with that."""

    name: str
    ok: bool
    text: str


def examine() -> list[Finding]:
    """Looks at everything that a grading needs; nothing is changed on the machine."""
    findings = [
        Finding("Python", True, f"{_python(sys.version_info[:3])}, {platform.system()} {platform.release()}"),
        Finding("NumPy", True, version("numpy")),
        _torch(),
        _gpu(),
        Finding("CPUs", True, str(len(os.sched_getaffinity(0)))),
        _memory(),
        _limits(),
    ]
    rubric = load_rubric()
    findings.append(
        Finding("lab", bool(checking.CHECKS), f"{len(checking.CHECKS)} checks in {len(rubric.points)} steps")
    )
    findings.append(_worker("numpy"))
    if findings[2].ok:
        findings.append(_worker("torch"))
    return findings


def _python(version: tuple[int, int, int]) -> str:
    """The version, and what an older one brings along."""
    major, minor, micro = version
    number, mended = f"{major}.{minor}.{micro}", {(3, 11): 10, (3, 12): 6}.get((major, minor), 0)
    if micro >= mended:
        return number
    return f"{number} (from .{mended} on, an archive's headers can no longer hold up its tarfile: CVE-2024-6232)"


def _torch() -> Finding:
    try:
        return Finding("torch", True, version("torch"))
    except PackageNotFoundError:
        return Finding("torch", False, "not installed: steps 3 and 8 need it (pip install torch)")


def _gpu() -> Finding:
    why = why_no_cuda().partition(",")[0]
    return Finding(
        "GPU", True, f"none, and none is needed ({why})" if why else "there is one: --device cuda judges on it"
    )


def _memory() -> Finding:
    """The least of what the machine has left and what its container may take."""
    rooms = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        rooms += [int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            rooms.append(int(Path(name).read_text()) >> 20)
    if not rooms:
        return Finding("memory", True, "unknown")
    room = min(rooms)
    need = "" if room >= LEAST_MIB else f": a grading takes up to {LEAST_MIB}"
    return Finding("memory", room >= LEAST_MIB, f"{room} MiB{need}")


def _limits() -> Finding:
    """Limits that this shell hands on; the worker sets its own below them."""
    names = {
        "address space": resource.RLIMIT_AS,
        "CPU seconds": resource.RLIMIT_CPU,
        "open files": resource.RLIMIT_NOFILE,
    }
    hard = {name: resource.getrlimit(kind)[1] for name, kind in names.items()}
    told = [f"{name} {value}" for name, value in hard.items() if value != resource.RLIM_INFINITY]
    return Finding("limits", True, ", ".join(told) or "none")


def _worker(kind: str) -> Finding:
    """Starts a worker on a tiny submission and asks it something, twice in two groups."""
    with tempfile.TemporaryDirectory(prefix="attnlab-doctor-") as folder:
        root = Path(folder)
        os.chmod(root, 0o755)
        (root / "attention.py").write_text("def softmax(x, axis=-1):\n    return x\n")
        try:
            with Sandbox(root) as sandbox:
                times = []
                for _ in range(2):
                    began = time.perf_counter()
                    with sandbox.group(kind) as subject:
                        outcome = subject.call("attention.softmax", np.ones(3))
                    times.append(time.perf_counter() - began)
                    if not outcome.ok:
                        return Finding(
                            f"{kind} worker", False, f"starts, but does not answer: {outcome.kind} {outcome.text}"
                        )
                fence = ", ".join(sandbox.layers) or "none"
        except Exception as error:
            return Finding(f"{kind} worker", False, f"does not start: {error}")
    text = f"starts in {times[0]:.1f} s, a group of checks in {times[1] * 1000:.0f} ms; fenced by: {fence}"
    return Finding(f"{kind} worker", True, text)
