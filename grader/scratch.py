"""Folders for a while. Each has a lock that its owner holds while it lives, so that what a killed judge has left is found."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

from harness.hosting.host import remove

PREFIX = "attnlab-scratch-"
_YOUNG = 60.0  # seconds: whoever makes a folder has locked it by then


class Scratch:
    """A new folder; gone at `close`. What owners that have died left beside it goes first."""

    def __init__(self, place: str | None = None) -> None:
        sweep(Path(place or tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._lock = _opened(self.path)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        remove(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(place: Path) -> None:
    """Removes this user's folders there that no living process has locked."""
    for entry in [e for e in os.scandir(place) if e.name.startswith(PREFIX)]:
        try:
            state = entry.stat(follow_symlinks=False)
            if state.st_uid != os.geteuid() or time.time() - state.st_ctime < _YOUNG:
                continue
            lock = _opened(Path(entry.path))
        except OSError:  # another judge was faster, or it is no folder
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(Path(entry.path))
        except OSError:
            pass
        finally:
            os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
