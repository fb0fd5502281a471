"""One command at a time changes a folder of results: the second is told, and nothing is torn."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class InUseError(Exception):
    """Another command is at work on this folder."""


@contextlib.contextmanager
def alone(results: Path) -> Iterator[None]:
    """Holds the folder itself until the block or this process ends; where it lies on a system without locks, nothing is held.

    Raises InUseError, OSError.
    """
    descriptor = os.open(results, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"{results} is being changed by another command: wait until that has ended") from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
