"""Processes below one that a test has started: whether they end with it."""

from __future__ import annotations

import time
from pathlib import Path


def family_of(root: int, at_least: int) -> set[int]:
    """Processes below one, once there are so many. Fails where it ends before."""
    found: set[int] = set()
    while len(found) < at_least:
        assert Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()[0] != "Z", "it has ended"
        todo, found = [root], set()
        while todo:
            below = [int(pid) for pid in _children(todo.pop())]
            found.update(below)
            todo += below
    return found


def _children(pid: int) -> list[str]:
    """Those that any of its threads has started."""
    try:
        return [
            child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def all_end(pids: set[int], seconds: float) -> bool:
    """Whether all are gone before so many seconds have passed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
    return False
