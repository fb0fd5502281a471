"""How every output reaches the disk: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Puts `content` (text as UTF-8) at `path` in one step, so that no reader ever sees half of it. Raises OSError."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _mode() -> int:
    """What a newly made file may have under the process's umask; mkstemp's own is for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
