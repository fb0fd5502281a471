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


def unwritable(path: Path) -> str:
    """Why no file can be written at `path`, and the mend; nothing where one can."""
    if path.is_dir():
        return f"{path} is a folder: name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: make it, or name another"
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return ""
    except OSError as error:
        return f"nothing can be written in {path.parent} ({error.strerror or error}): name another folder"


def _mode() -> int:
    """What a newly made file may have under the process's umask; mkstemp's own is for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
