"""How much memory there is to use, on this machine and inside this container."""

from __future__ import annotations

from pathlib import Path

# The container's limit and what it has taken of it: cgroup 2, then 1
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available() -> int | None:
    """Bytes that can be taken before the system ends a process; None where it does not say."""
    found = [_of_the_machine(), *(_of_the_container(*files) for files in _CGROUPS)]
    known = [number for number in found if number is not None]
    return min(known) if known else None


def _of_the_machine() -> int | None:
    try:
        return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def _of_the_container(limit: str, taken: str) -> int | None:
    try:
        return max(int(Path(limit).read_text()) - int(Path(taken).read_text()), 0)
    except (OSError, ValueError):  # no such file, or "max"
        return None
