"""A group's process that has loaded a submission leaves a copy of itself, from which the next group goes on: slow files load once.

A copy takes nothing from one group to the next. The worker stops it before the first group is asked anything, and lets it
go on only where it is nothing but memory (one thread, no open file, nothing shared) and its folder is as it was. A file whose
process is more than that loads afresh for every group.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import hashlib
import os
import select
import signal
import socket
import stat
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import fence

_SCM_CREDENTIALS = 2
_MOST_BYTES, _MOST_FILES = 32 * 2**20, 4096
_PATIENCE = 10.0  # seconds, of a busy machine


# -- in a group's process ----------------------------------------------------------------------------------------------


def leave(line: socket.socket, worker: int) -> socket.socket | None:
    """Forks a copy that waits to be another group's. None in the process that goes on; in the copy, once it is wanted, its own
    line to the worker, with a wire in descriptor 3 and an output in 1 and 2.

    The copy is the worker's child, and neither can wait for the other or ask what it used.
    """
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return None
    if os.fork():
        os._exit(0)
    os.setsid()
    for _ in range(2000):
        if os.getppid() == worker:
            break
        time.sleep(0.001)
    fence.end_with_parent(worker)
    ours, theirs = socket.socketpair()
    socket.send_fds(line, [b"!"], [theirs.fileno()])
    line.close()
    theirs.close()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(4):
        os.dup2(null, descriptor)
    os.close(null)
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 2)
    if len(descriptors) != 2:
        os._exit(0)
    for source, target in zip((descriptors[0], descriptors[1], descriptors[1]), (3, 1, 2), strict=True):
        os.dup2(source, target)
    for descriptor in descriptors:
        os.close(descriptor)
    return ours


# -- in the worker -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spare:
    """A stopped copy: its number, the end of its line, its folder and what that held."""

    pid: int
    line: socket.socket
    folder: str
    held: bytes

    def unchanged(self) -> bool:
        """Whether nobody has said anything to it, or to its folder, since it was stopped."""
        waiting = array.array("i", [0])
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(self.line, termios.TIOCOUTQ, waiting)
            return (
                _state(self.pid) == ("T", os.getpid())
                and not waiting[0]
                and self.held == _digest(self.pid, self.folder)
            )
        return False

    def resume(self, descriptors: list[int]) -> None:
        """Lets it go on as a group with this wire and this output. Raises OSError where it does not listen."""
        os.kill(self.pid, signal.SIGCONT)
        socket.send_fds(self.line, [b"!"], descriptors)


def open_line() -> tuple[socket.socket, socket.socket]:
    """The worker's end and a group's, on which that says which process it has left."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel says who speaks
    return ours, theirs


def received(line: socket.socket, folder: str, leader: int, held: bytes | None = None) -> Spare | None:
    """The copy that was left by `leader`, stopped; None where there is none, or where it, or the leader, is more than memory.

    `held` is what its folder must hold, where that is known.
    """
    pid, end = _introduced(line)
    if not pid or end is None:
        return None
    try:
        if _state(pid)[1] != os.getpid() or not _is_alone(leader, and_childless=False):
            end.close()
            return None
        _wait(lambda: _state(pid)[0] == "S" and _is_alone(leader))  # it waits, and whoever came between is collected
        os.kill(pid, signal.SIGSTOP)
        _wait(lambda: _state(pid)[0] == "T")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        end.setblocking(False)
        if _state(pid) == ("T", os.getpid()) and _is_alone(leader) and _is_alone(pid) and _is_memory(pid):
            holds = _digest(pid, folder)
            if held in (None, holds):
                return Spare(pid, end, folder, holds)
    except (OSError, ValueError):
        pass
    end.close()
    return None


def _wait(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not reached() and time.monotonic() < until:
        time.sleep(0.0005)


def _introduced(line: socket.socket) -> tuple[int, socket.socket | None]:
    """Who has spoken on a line, and the descriptor that it handed over. It may have been anything."""
    found, pid = array.array("i"), 0
    try:
        if select.select([line], [], [], _PATIENCE)[0]:
            _, ancillary, _, _ = line.recvmsg(1, socket.CMSG_SPACE(4) + socket.CMSG_SPACE(12))
            for _, kind, data in ancillary:
                if kind == socket.SCM_RIGHTS:
                    found.frombytes(data[: len(data) - len(data) % found.itemsize])
                elif kind == _SCM_CREDENTIALS:
                    pid = struct.unpack("3i", data)[0]
        if len(found) == 1:
            end = socket.socket(fileno=found[0])
            if (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
                return pid, end
    except (OSError, struct.error):
        pass
    for descriptor in found:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return 0, None


def _state(pid: int) -> tuple[str, int]:
    """A process's state, as a letter, and its parent."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def _is_alone(pid: int, and_childless: bool = True) -> bool:
    """Whether a process has one thread, and no child."""
    if os.listdir(f"/proc/{pid}/task") != [str(pid)]:
        return False
    return not and_childless or not Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def _is_memory(pid: int) -> bool:
    """Whether a process shares no memory that anyone can write to, and has nothing open but its line."""
    for mapped in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = mapped.split(maxsplit=5)
        of_a_library = len(fields) == 6 and fields[1] == "r--s" and fields[5].startswith(("/usr/", "/lib"))
        if fields[1].endswith("s") and not of_a_library:
            return False
    opened = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    lines = [name for name in opened if name != os.devnull]
    return len(lines) == 1 and lines[0].startswith("socket:")


def _digest(pid: int, folder: str) -> bytes:
    """What a group's folder holds, as its process sees it. Raises OSError, or ValueError where it holds more than is read."""
    top = f"/proc/{pid}/root{folder}"
    seen, todo, room, files = hashlib.blake2b(), [top], _MOST_BYTES, 0
    while todo:
        here = todo.pop()
        with os.scandir(here) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            about = entry.stat(follow_symlinks=False)
            files, room = files + 1, room - about.st_size
            if files > _MOST_FILES or room < 0 or (about.st_nlink > 1 and not entry.is_dir(follow_symlinks=False)):
                raise ValueError(entry.name)
            read = 0 if entry.is_dir(follow_symlinks=False) else about.st_atime_ns  # this look reads folders itself
            name = entry.path.removeprefix(top)
            told = (name, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, read)
            seen.update(repr(told).encode(errors="surrogateescape"))
            if stat.S_ISDIR(about.st_mode):
                todo.append(entry.path)
            elif stat.S_ISLNK(about.st_mode):
                seen.update(os.readlink(os.fsencode(entry.path)))
            elif stat.S_ISREG(about.st_mode):
                descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME)
                with open(descriptor, "rb") as file:
                    seen.update(file.read(_MOST_BYTES))
            else:
                raise ValueError(entry.name)
    return seen.digest()
