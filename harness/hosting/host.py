"""Starts a worker on this machine and opens groups in it.

One worker process a kind ("numpy", "torch") loads its libraries once and forks a child per group (harness.worker). Whoever
holds a `Worker` watches its groups from outside, by what the kernel says of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import wire
from harness.hosting import processes
from harness.hosting.library import devices, driver, link_library, readable

_PRELOAD = ("numpy", "numpy.random", "numpy.linalg", "numpy.testing", "statistics", "tracemalloc", "harness.executor")

# Torch leaves 140 MB in memory, in small pieces. On huge pages a fork has a hundredth of the pages to account for, and an end too.
_HUGE_PAGES = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


_MATPLOTLIB = re.compile(rb"^[ \t]*(?:import|from)[ \t]+matplotlib\b", re.MULTILINE)
_MOST_READ = 2**20


class SandboxError(Exception):
    """The grader's own fault: a worker that does not start or answer, or a machine that gives no fence."""


@dataclass(frozen=True)
class Forked:
    """A group's first process: its number, the judge's end of its wire, and the end of the pipe its output comes from."""

    pid: int
    link: socket.socket
    heard: int


class Worker:
    """One started interpreter with its control socket; `scratch` is a folder that every user may go through.

    `source` is the submission: its text says what is worth loading once for all groups."""

    def __init__(self, kind: str, scratch: Path, python: str, source: Path) -> None:
        self._kind, self._scratch = kind, scratch
        self._library = scratch / f"library-{kind}"
        if not self._library.exists():
            link_library(self._library, torch=kind == "torch")
        ours, theirs = socket.socketpair()
        self._control = ours
        self._folders: dict[int, Path] = {}
        home = scratch / "home"
        home.mkdir(exist_ok=True)
        path = f"sys.path.insert(0, {str(self._library)!r})"
        self._process = subprocess.Popen(
            [python, "-P", "-s", "-S", "-B", "-c", f"import sys; {path}; from harness.worker import main; main({theirs.fileno()})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(home) | (_HUGE_PAGES if kind == "torch" else {}),
            cwd=scratch,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._control.settimeout(120)
        self.about: dict[str, Any] = {}
        with contextlib.suppress(wire.Closed):
            preload = [*_PRELOAD, *(["torch", "torch.nn.attention"] if kind == "torch" else [])]
            hello = {"preload": preload, "wanted": slow_libraries(source, kind)}
            wire.send(self._control, json.dumps(hello).encode())

    def greet(self) -> None:
        """Waits for the worker's first word. Raises SandboxError where none comes."""
        if self.about:
            return
        try:
            self.about = json.loads(wire.receive(self._control))
            self._readable = readable(self._library, self.about["standard"])
        except (wire.Closed, wire.BadFrame, TimeoutError) as error:
            heard = b""
            self._process.kill()
            if self._process.stderr:
                heard = self._process.stderr.read()
            raise SandboxError(
                f"the {self._kind} worker did not start: {heard.decode(errors='replace')[-500:] or error}"
            ) from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def _request(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            socket.send_fds(self._control, [b"!"], descriptors)
            wire.send(self._control, json.dumps(request).encode())
            return json.loads(wire.receive(self._control))  # type: ignore[no-any-return]
        except (OSError, ValueError, wire.Closed, wire.BadFrame) as error:
            raise SandboxError(f"the worker does not answer: {error!r}") from None

    def fork(self, source: Path, plan: dict[str, Any], stand_ins: bool) -> Forked:
        """A child for one group, which puts a copy of the submission in an empty folder of its own."""
        folder = self._scratch / f"group-{len(self._folders) + 1}-{self._kind}-{os.urandom(4).hex()}"
        folder.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        heard, spoken = os.pipe()
        cuda = plan["device"] != "cpu"
        request = {
            "do": "fork",
            "folder": str(folder),
            "source": str(source),
            "in_memory": "folder" in self.about["layers"],
            "plan": {
                **plan,
                "read": self._readable + (driver() if cuda else []),
                "write": [str(folder), "/dev/null", *(devices() if cuda else [])],
            },
            "stand_ins": stand_ins,
        }
        try:
            reply = self._request(request, [theirs.fileno(), spoken])
        finally:
            theirs.close()
            os.close(spoken)
        os.set_blocking(heard, False)
        self._folders[int(reply["pid"])] = folder
        return Forked(int(reply["pid"]), ours, heard)

    def keep_spare(self, pid: int) -> int:
        """Takes up the copy that a group has left of itself; 0 where it is none to go on from. It shares the group's folder."""
        folder = self._folders[pid]
        found = int(self._request({"do": "spare", "pid": pid, "folder": str(folder)}, [])["spare"])
        if found:
            self._folders[found] = folder
        return found

    def resume(self, spare: int) -> tuple[Forked, int] | None:
        """Lets a copy go on as a group, and gives the copy that it has left in turn, or 0. None where it cannot go on."""
        ours, theirs = socket.socketpair()
        heard, spoken = os.pipe()
        try:
            reply = self._request({"do": "resume", "pid": spare}, [theirs.fileno(), spoken])
        finally:
            theirs.close()
            os.close(spoken)
        if not reply["pid"]:
            ours.close()
            os.close(heard)
            return None
        if reply["spare"]:
            self._folders[int(reply["spare"])] = self._folders[spare]
        os.set_blocking(heard, False)
        return Forked(spare, ours, heard), int(reply["spare"])

    def end(self, pid: int, uid: int | None) -> int:
        """Ends a group and whatever it left behind; gives its exit status."""
        with contextlib.suppress(SandboxError, KeyError, TypeError):
            return int(self._request({"do": "end", "pid": pid, "uid": uid}, [])["status"])
        return 0

    def where(self, pid: int) -> None:
        """Has a group print the lines that it is in, as the child registered at its start."""
        with contextlib.suppress(SandboxError):
            self._request({"do": "where", "pid": pid}, [])

    def clean(self, pid: int) -> None:
        """Removes the folder of a group that has ended."""
        folder = self._folders.pop(pid, None)
        if folder and folder not in self._folders.values():
            remove(folder)

    def leave(self) -> None:
        """At the end of its control the worker ends what is below it, and itself."""
        self._control.close()

    def close(self) -> None:
        """Waits until it has ended, and ends it where it does not."""
        self.leave()
        processes.has_ended(self.pid, 10.0)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()

    # -- looks at a group --------------------------------------------------------------------------------------------------

    def cpu(self, pid: int) -> float:
        """CPU seconds so far."""
        return processes.cpu(pid)

    def delay(self, pid: int) -> float:
        """Seconds that it could have run and was made to wait."""
        return processes.delay(pid)

    def peak_memory(self, pid: int) -> int | None:
        """Bytes that it has had in memory at most."""
        return processes.peak_memory(pid)

    def has_ended(self, pid: int) -> bool:
        """Whether it ends by itself within a moment."""
        return processes.has_ended(pid)

    def family(self, pid: int, others: list[int], enough: int) -> tuple[int, int, float]:
        """How many processes there are below the worker but for other groups, bytes that they hold together (exact where they
        are more than `enough`), and CPU seconds that those beside `pid` have used."""
        found = processes.below(self.pid, set(others))
        beside = processes.family_cpu(found) - processes.cpu(pid)
        return len(found), processes.family_memory(found, enough), beside

    def family_cpu(self, others: list[int]) -> float:
        """CPU seconds of all of them."""
        return processes.family_cpu(processes.below(self.pid, set(others)))

    def outgrown(self, pid: int, bytes_: int, files: int) -> bool:
        """Whether its folder holds more than that."""
        return pid in self._folders and processes.outgrows(self._folders[pid], bytes_, files)


def slow_libraries(source: Path, kind: str) -> list[str]:
    """Modules that take long to load and that a submission imports: a worker loads them once, and not every group."""
    others = {"make_report.py", *(() if kind == "torch" else ("experiments.py", "attention_torch.py"))}
    for path in source.glob("*.py"):
        with contextlib.suppress(OSError):
            if path.name not in others and not path.is_symlink() and _MATPLOTLIB.search(path.read_bytes()[:_MOST_READ]):
                return ["matplotlib.pyplot"]
    return []


def remove(folder: Path) -> None:
    """Removes a folder, however deep a submission has made it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stderr=subprocess.DEVNULL)


def _environment(home: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
    passed = {
        name: os.environ[name]
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
        if name in os.environ
    }
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "PYTHONHASHSEED": "0",
        **threads,
        **passed,
    }
