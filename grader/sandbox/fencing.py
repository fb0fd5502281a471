"""Which layers of the fence this machine gives, and whether they are enough for work that is not trusted.

Enough is: a submission cannot read the judge's files, and cannot reach the judge's process or what it writes. Another user
with Landlock does that, or with file modes that keep the judge's packages from it; so does Landlock with seccomp.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import grader
import reference
from grader.sandbox.interpreter import choose, open_to_all, reachable
from harness import fence

LAYERS = {
    "uid": "a user of its own for every group",
    "landlock": "no file but Python, its libraries and the group's own folder",
    "seccomp": "no sockets, ptrace, exec, foreign signals",
    "limits": "memory, CPU, processes, file size",
    "folder": "a folder in memory with a size of its own",
    "net": "no network",
    "ipc": "no shared memory with others",
    "cgroup": "memory and processes of a whole family, held by the kernel",
    "container": "a container with nothing of the judge's in it",
}


def lacks(layers: list[str]) -> str:
    """Why these layers are not enough, or nothing."""
    have = set(layers)
    if "landlock" in have and have & {"uid", "seccomp"}:
        return ""
    if "uid" not in have:
        return "this machine gives neither another user nor Landlock with seccomp, so a submission could reach the judge's files"
    right = Path(grader.__file__).parents[1] / "examples" / "base" / "attention.py"
    if any(open_to_all(path) for path in (right, *(Path(p.__file__ or "/") for p in (reference, grader)))):
        return "this machine has no Landlock and the judge's packages may be read by every user"
    return ""


@cache
def expected() -> list[str]:
    """The layers that decide, as far as can be said without starting anything."""
    layers = ["uid"] if changes_user() else []
    if fence.landlock_abi() >= 1:
        layers.append("landlock")
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        import pyseccomp  # noqa: F401

        layers.append("seccomp")
    return layers


def probe() -> dict[str, Any]:
    """What a worker gets on this machine, found by starting one: every layer by name, and whether they are enough.

    {"layers": {name: {"has": bool, "what": str}}, "enough": bool, "lacks": str, "interpreter": str, "landlock": ABI}
    """
    from grader.sandbox.supervisor import Sandbox

    with tempfile.TemporaryDirectory(prefix="attnlab-probe-") as folder, Sandbox(Path(folder), trust=True) as sandbox:
        with sandbox.group("numpy") as subject:
            subject.call("@len", [])
        have, about = sandbox.layers, sandbox.about
    return {
        "layers": {name: {"has": name in have, "what": what} for name, what in LAYERS.items()},
        "enough": not lacks(have),
        "lacks": lacks(have),
        "interpreter": choose()[0],
        "landlock": about["landlock"],
    }


@cache
def place() -> str | None:
    """Where the folders of groups lie: the usual place for temporary files, or another that every user can reach."""
    usual = Path(tempfile.gettempdir())
    if os.geteuid() != 0 or reachable(usual):
        return None
    return next(
        (path for path in ("/tmp", "/var/tmp", "/dev/shm") if reachable(Path(path)) and os.access(path, os.W_OK)), None
    )


def changes_user() -> bool:
    """Whether a worker may take another user and still reach Python, its libraries and its folder."""
    return choose()[1] and reachable(Path(place() or tempfile.gettempdir()))


def free_users(count: int = 100) -> list[int]:
    """Users that no process has. Chosen at random, since other judges choose too: from a range that nobody hands out,
    where the machine (or its container) knows such high numbers."""
    low, high = 0x70000000, 0x7FFF0000
    with contextlib.suppress(OSError, ValueError, IndexError):
        inside, _, length = map(int, Path("/proc/self/uid_map").read_text().split("\n")[0].split())
        if inside + length <= high:
            low, high = 20_000, min(60_000, inside + length)
    start = low + secrets.randbelow(max(1, high - low - 2 * count))
    taken = set()
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # processes end while one looks
            taken.add(entry.stat().st_uid)
    return list(itertools.islice((uid for uid in range(start, high) if uid not in taken), count))


def sweep(uid: int) -> None:
    """Removes what a user has left where anyone may write: for machines on which nothing forbids it."""
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.stat(follow_symlinks=False).st_uid == uid:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)
