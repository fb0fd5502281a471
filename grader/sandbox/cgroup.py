"""A control group for each group of checks, where this machine lets the judge make one: memory and processes of a whole family.

The kernel then holds a family to its limits at every moment, where the judge would only look four times a second. Found
in either layout: version 2 (one tree) and version 1 (a tree for each controller). In a default container the trees
are read-only, and an ordinary user may make none: the layer is then absent.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_LIMITS = {  # the file that holds a limit, by controller: version 2, then 1
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
}
_KILLS = ("memory.events", "memory.oom_control")  # where the kernel counts what it has ended for want of memory


def homes(root: Path, own: str) -> dict[str, tuple[Path, str]]:
    """For each controller the folder below which a group can be made, and the file that holds its limit.

    `own` is the text of /proc/self/cgroup.
    """
    found: dict[str, tuple[Path, str]] = {}
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for controller, (new, old) in _LIMITS.items():
            if controller in names.split(","):
                found.setdefault(controller, (root / names / path.lstrip("/"), old))
            elif number == "0" and not names:
                home = root / path.lstrip("/")
                with contextlib.suppress(OSError):
                    if controller in (home / "cgroup.subtree_control").read_text().split():
                        found.setdefault(controller, (home, new))
    return {name: (home, file) for name, (home, file) in found.items() if os.access(home, os.W_OK)}


@cache
def _homes() -> dict[str, tuple[Path, str]]:
    try:
        found = homes(ROOT, Path("/proc/self/cgroup").read_text())
    except OSError:
        return {}
    for home, _ in found.values():
        for left in home.glob("attnlab-*-*"):  # by a judge that was killed
            with contextlib.suppress(OSError):
                if not Path(f"/proc/{left.name.split('-')[1]}").exists():
                    left.rmdir()
    return found


class Enclosure:
    """A control group around one process and what it will fork; `layers` says whether there is one."""

    def __init__(self, pid: int, memory: int, processes: int) -> None:
        """`memory` in bytes for the whole family. Raises nothing: what the machine refuses is absent."""
        self._folders: list[Path] = []
        amounts = {"memory": memory, "pids": processes}
        for controller, (home, file) in _homes().items():
            folder = home / f"attnlab-{os.getpid()}-{pid}"
            try:
                folder.mkdir(exist_ok=True)  # version 2 has both limits in one
                if folder not in self._folders:
                    self._folders.append(folder)
                (folder / file).write_text(str(amounts[controller]))
                (folder / "cgroup.procs").write_text(str(pid))
            except OSError:
                self.remove()
                return

    @property
    def layers(self) -> list[str]:
        return ["cgroup"] if self._folders else []

    def ended_for_memory(self) -> bool:
        """Whether the kernel has ended a process of the family because it took more than its memory."""
        for file in (folder / name for folder in self._folders for name in _KILLS):
            with contextlib.suppress(OSError, ValueError):
                counts = dict(line.split() for line in file.read_text().splitlines())
                if int(counts.get("oom_kill", "0")):
                    return True
        return False

    def remove(self) -> None:
        """Takes the groups away once every process in them has ended; waits a moment for the kernel."""
        for folder in self._folders:
            for _ in range(200):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break
        self._folders.clear()
