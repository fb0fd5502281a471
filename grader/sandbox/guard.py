"""A bound on the judge's own memory while it works for a submission, which may ask for anything."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

ROOM = 1 << 30


@contextlib.contextmanager
def bounded_memory(room: int = ROOM) -> Iterator[None]:
    """What takes more than `room` bytes in here raises MemoryError, before the machine runs out."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bound = pages * os.sysconf("SC_PAGE_SIZE") + room
        soft, hard = before
        if soft == resource.RLIM_INFINITY or bound < soft:
            resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    except (OSError, ValueError):
        pass
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
