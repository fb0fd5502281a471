"""Looks at other processes, by what the kernel says of them: nothing here asks a process itself."""

from __future__ import annotations

import contextlib
import glob
import os
import select
import time
from pathlib import Path


def cpu(pid: int) -> float:
    """CPU seconds of a process so far; 0 where it has gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def family_cpu(pids: list[int]) -> float:
    """CPU seconds of processes so far, and of their children that have ended and been waited for."""
    return sum(cpu(pid) + _waited_for(pid) for pid in pids)


def _waited_for(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def delay(pid: int) -> float:
    """Seconds that a process could have run and was made to wait by others; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:  # asked at every call
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def peak_memory(pid: int) -> int | None:
    """Bytes that a process has had in memory at most; None where the kernel does not say."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def has_ended(pid: int, seconds: float = 1.0) -> bool:
    """Whether a process ends by itself within a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def below(root: int, spared: set[int]) -> list[int]:
    """Processes below `root`, without the spared ones and what is below them."""
    found: list[int] = []
    todo = [root]
    while todo:
        for thread in glob.glob(f"/proc/{todo.pop()}/task/*/children"):  # each has forked children of its own
            with contextlib.suppress(OSError):
                children = {int(child) for child in Path(thread).read_text().split()} - spared
                found += children
                todo += children
    return found


def family_memory(pids: list[int], enough: int) -> int:
    """Bytes that processes have in memory together, files apart. What several of them share counts once, where the kernel
    says how many do; it is asked only for more than `enough`, since the answer takes long."""
    held = sum(map(_in_memory, pids))
    return held if held <= enough else sum(_portion(pid) or _in_memory(pid) for pid in pids)


def _in_memory(pid: int) -> int:
    return _sum(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:"))


def _portion(pid: int) -> int:
    """A process's proportional share; 0 where only its owner may ask."""
    return _sum(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _sum(file: str, fields: tuple[str, ...]) -> int:
    try:
        lines = [line.split() for line in Path(file).read_text().splitlines()]
        return 1024 * sum(int(line[1]) for line in lines if line and line[0] in fields)
    except (OSError, IndexError, ValueError):
        return 0


def outgrows(folder: Path, bytes_: int, files: int) -> bool:
    """Whether a folder holds more than that; looks no further than it must."""
    todo = [str(folder)]
    while todo:
        with contextlib.suppress(OSError):
            for entry in os.scandir(todo.pop()):
                files -= 1
                with contextlib.suppress(OSError):
                    bytes_ -= entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                if files < 0 or bytes_ < 0:
                    return True
    return False
