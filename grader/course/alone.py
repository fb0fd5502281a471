"""One command at a time changes a folder of results: the second is told, and nothing is torn."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

NAME = ".in-use"


class InUseError(Exception):
    """Another command is at work on this folder: which, and what to do."""


@contextlib.contextmanager
def alone(results: Path) -> Iterator[None]:
    """Holds the folder until the block or this process ends. Raises InUseError, OSError."""
    descriptor = os.open(results / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(descriptor, 100).decode(errors="replace").strip() or "another command"
            raise InUseError(f"{results} is being changed by {who}: wait until that has ended") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        yield
    finally:
        os.close(descriptor)
