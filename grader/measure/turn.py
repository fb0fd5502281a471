"""One measurement at a time on a machine, whoever grades there: two that share a GPU or the cores would measure each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PLACE = Path(tempfile.gettempdir()) / "attnlab-measures.lock"


@contextlib.contextmanager
def taken(give_up: Callable[[], bool]) -> Iterator[bool]:
    """Waits for this machine's turn, or until `give_up`; says whether it was had. It ends with the block, or the process."""
    descriptor = _opened()
    if descriptor is None:  # a place that nobody may write to: there is nothing to agree by
        yield True
        return
    try:
        yield _wait(descriptor, give_up)
    finally:
        os.close(descriptor)


def _opened() -> int | None:
    for flags in (
        os.O_RDONLY,
        os.O_RDONLY | os.O_CREAT,
    ):  # another user's file in a shared folder may not be opened to create
        with contextlib.suppress(OSError):
            return os.open(PLACE, flags | os.O_CLOEXEC, 0o666)
    return None


def _wait(descriptor: int, give_up: Callable[[], bool]) -> bool:
    while not give_up():
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.2)
    return False
