"""Starts a worker, opens groups in it, asks them, and ends what goes past a limit.

One worker process a kind ("numpy", "torch") loads its libraries once and forks a child per group (harness.worker). The judge
watches a child from outside: the kernel's CPU clock of that process, its wire, and its output. CPU seconds decide a limit;
wall time only ends a call that makes no progress.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.sandbox.interpreter import choose, readable
from grader.sandbox.library import link_library
from harness import wire
from harness.subject import LIMITS, Asking, Call, Frame, Outcome
from harness.values import Callback, Proxy

StandIns = Mapping[str, Mapping[str, Callback | Proxy]]
_MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What one call may use; the numbers are the rubric's."""

    cpu_seconds: float = 20.0
    idle_seconds: float = 5.0
    memory_mib: int = 2048
    output_mib: int = 8
    file_mib: int = 64
    processes: int = 64
    strikes: int = 2  # limits reached in one function before it is not called any more


class SandboxError(Exception):
    """The grader's own fault: a worker that does not start or answer."""


class Sandbox:
    """The workers of one submission. Use as a context manager; on leaving, every process and folder is gone."""

    def __init__(self, root: Path, limits: Limits | None = None, trust: bool = False) -> None:
        self.root = root
        self.limits = limits or Limits()
        self.trust = trust  # grade even where the machine gives no fence
        self.layers: list[str] = []
        self.about: dict[str, Any] = {}
        self.strikes: Counter[str] = Counter()
        self.endings: dict[str, Outcome] = {}
        self.integrity: list[str] = []
        self.groups: set[int] = set()
        self._scratch = Path(tempfile.mkdtemp(prefix="attnlab-"))
        self._scratch.chmod(0o711)  # a worker of another user must reach its own folder below, and list nothing
        self._count = 0
        self._users: Iterator[int] | None = None
        self._workers: dict[str, _Worker] = {}

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def forget_strikes(self) -> None:
        """Calls are tried afresh: what they stood on has been replaced."""
        self.strikes.clear()
        self.endings.clear()

    def close_kind(self, kind: str) -> None:
        """Ends one worker and frees its memory; it starts again when asked."""
        worker = self._workers.pop(kind, None)
        if worker:
            worker.close()

    def worker(self, kind: str) -> _Worker:
        worker = self._workers.get(kind)
        if worker is None or not worker.alive():
            library = self._scratch / f"library-{kind}"
            if not library.exists():
                link_library(library, torch=kind == "torch")
            worker = self._workers[kind] = _Worker(kind, library, self._scratch)
        return worker

    def private_folder(self) -> Path:
        """A folder for one group, with a copy of the submission in it: what the group does to it is gone with it."""
        self._count += 1
        folder = self._scratch / f"group-{self._count}"
        (folder / "scratch").mkdir(parents=True)
        skip = shutil.ignore_patterns("report", "__pycache__")  # the judge reads the report; no code needs it
        shutil.copytree(self.root, folder / "submission", symlinks=True, ignore=skip, copy_function=shutil.copyfile)
        return folder

    def uid(self) -> int | None:
        """A user that no process has, for one group; None where a worker keeps the judge's."""
        if not choose()[1]:
            return None
        if self._users is None:
            taken = {entry.stat().st_uid for entry in os.scandir("/proc") if entry.name.isdigit()}
            start = 20_000 + (os.getpid() * 131) % 40_000
            free = (uid for uid in itertools.chain(range(start, 60_000), range(20_000, start)) if uid not in taken)
            self._users = itertools.cycle(itertools.islice(free, 100))
        return next(self._users)

    @contextlib.contextmanager
    def group(self, kind: str, stand_ins: StandIns | None = None, backend: str = "numpy") -> Iterator[WorkerSubject]:
        """A fresh process with the submission, for one group of checks."""
        subject = WorkerSubject(self, kind, stand_ins or {}, backend)
        try:
            yield subject
        finally:
            subject.close()


class _Worker:
    """One started interpreter with its control socket."""

    def __init__(self, kind: str, library: Path, scratch: Path) -> None:
        ours, theirs = socket.socketpair()
        self._control = ours
        home = scratch / "home"
        home.mkdir(exist_ok=True)
        boot = f"import sys; sys.path.insert(0, {str(library)!r}); from harness.worker import main; main({theirs.fileno()})"
        self._process = subprocess.Popen(
            [choose()[0], "-P", "-s", "-S", "-B", "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(home),
            cwd=scratch,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        preload = ["numpy", "numpy.random", "numpy.linalg", "numpy.testing", "statistics", "tracemalloc", "harness.executor"]
        preload += ["torch", "torch.nn.attention"] if kind == "torch" else []
        self._control.settimeout(120)
        try:
            wire.send(self._control, json.dumps({"preload": preload}).encode())
            self.about = json.loads(wire.receive(self._control))
            self.readable = readable(library, self.about["standard"])
        except (wire.Closed, wire.BadFrame, TimeoutError) as error:
            heard = b""
            self._process.kill()
            if self._process.stderr:
                heard = self._process.stderr.read()
            raise SandboxError(f"the {kind} worker did not start: {heard.decode(errors='replace')[-500:] or error}") from None

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

    def fork(self, folder: Path, plan: dict[str, Any], stand_ins: bool) -> tuple[int, socket.socket, int]:
        """A child: its pid, the judge's end of its wire, and the end of the pipe that its output comes from."""
        ours, theirs = socket.socketpair()
        heard, spoken = os.pipe()
        request = {
            "do": "fork",
            "root": str(folder / "submission"),
            "scratch": str(folder / "scratch"),
            "plan": {**plan, "read": self.readable, "write": [str(folder), "/dev/null"]},
            "stand_ins": stand_ins,
        }
        try:
            reply = self._request(request, [theirs.fileno(), spoken])
        finally:
            theirs.close()
            os.close(spoken)
        os.set_blocking(heard, False)
        return int(reply["pid"]), ours, heard

    def end(self, pid: int) -> int:
        """Kills a group and whatever it left behind; gives its exit status."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def wait(self, pid: int) -> int:
        with contextlib.suppress(SandboxError, KeyError, TypeError):
            return int(self._request({"do": "wait", "pid": pid}, [])["status"])
        return 0

    def end_orphans(self, alive: set[int]) -> None:
        """Ends the worker's descendants that belong to no living group (a group's double fork, say)."""
        for _ in range(20):
            left = [pid for pid in _descendants(self.pid, alive)]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(SandboxError):
                    self.wait(pid)

    def close(self) -> None:
        self.end_orphans(set())
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()


def _give(folder: Path, uid: int) -> None:
    """Hands a folder and what is in it to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    folder.chmod(0o700)


def _environment(home: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
    passed = {name: os.environ[name] for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **threads, **passed}


def _descendants(root: int, spared: set[int]) -> list[int]:
    """Processes below `root`, without the spared ones and what is below them."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()} - spared
            found += children
            todo += children
    return found


class WorkerSubject(Asking):
    """The worker form of Subject: one child process, started at the first question and again after a limit ended it."""

    def __init__(self, sandbox: Sandbox, kind: str, stand_ins: StandIns, backend: str) -> None:
        self._sandbox = sandbox
        self._kind = kind
        self._stand_ins = stand_ins
        self._backend = backend
        self._pid = 0
        self._link: socket.socket | None = None
        self._heard = -1
        self._folder = Path()
        self._functions: list[Any] = []
        self._imported: set[str] = set()
        self._unread = bytearray()
        self.printed = ""
        self.cpu_seconds = 0.0

    @property
    def backend(self) -> str:
        return self._backend

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[WorkerSubject]:
        with self._sandbox.group(self._kind, stand_ins, self._backend) as subject:
            yield subject

    def ask(self, *calls: Call) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for call in calls:
            if outcomes and outcomes[-1].kind in LIMITS:
                outcomes.append(outcomes[-1])
            else:
                outcomes.append(self._ask(call))
        return outcomes

    def _ask(self, call: Call) -> Outcome:
        module = call.name.partition(".")[0]
        for name in (module, call.name):
            if self._sandbox.strikes[name] >= self._sandbox.limits.strikes:
                return self._sandbox.endings[name]
        if self._link is None:
            self._start()
        if not module.startswith("@") and module not in self._imported and module not in self._stand_ins:
            self._imported.add(module)
            ended = self._judged(module, self._exchange(Call("@import", (module,))))
            if ended.kind in LIMITS:
                return ended
        return self._judged(call.name, self._exchange(call))

    def _judged(self, name: str, outcome: Outcome) -> Outcome:
        """Counts a limit against the function, and ends the child it left in an unknown state."""
        if outcome.kind in LIMITS:
            self._sandbox.strikes[name] += 1
            self._sandbox.endings[name] = outcome
            self.close()
        return outcome

    def _start(self) -> None:
        worker = self._sandbox.worker(self._kind)
        self._folder = self._sandbox.private_folder()
        uid = self._sandbox.uid()
        if uid is not None:
            _give(self._folder, uid)
        limits = self._sandbox.limits
        plan = {"uid": uid, "memory": limits.memory_mib * _MIB, "file_bytes": limits.file_mib * _MIB, "processes": limits.processes}
        self._pid, self._link, self._heard = worker.fork(self._folder, plan, bool(self._stand_ins))
        self._sandbox.groups.add(self._pid)
        self._functions, self._imported = [], set()
        self._unread.clear()
        self._ready(worker)
        if self._stand_ins:
            self._send(wire.encode({k: dict(v) for k, v in self._stand_ins.items()}, self._number))

    def _ready(self, worker: _Worker) -> None:
        """The child's first word: which layers of its fence stand. Too few, and nothing of the submission is loaded."""
        try:
            layers = wire.decode(self._receive(_Watch(self._pid, Limits(cpu_seconds=30, idle_seconds=30))))["layers"]
        except (wire.Closed, wire.BadFrame, _Ended, KeyError, TypeError) as error:
            self.close()
            raise SandboxError(f"a group did not start: {error!r}") from None
        self._sandbox.layers = [*layers, *worker.about["layers"]]
        self._sandbox.about = worker.about
        if not {"uid", "landlock"} & set(layers) and not self._sandbox.trust:
            self.close()
            raise SandboxError(
                "this machine gives neither another user nor Landlock, so a submission could read the judge's files: "
                "grade as root or on a kernel with Landlock, or say --trust-submission for work you trust"
            )

    def close(self) -> None:
        if self._link is None:
            return
        worker = self._sandbox.worker(self._kind)
        with contextlib.suppress(OSError):
            self.cpu_seconds += _cpu(self._pid)
        self._link.close()
        self._link = None
        worker.end(self._pid)
        os.close(self._heard)
        self._sandbox.groups.discard(self._pid)
        worker.end_orphans(self._sandbox.groups)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _number(self, function: Any) -> int:
        self._functions.append(function)
        return len(self._functions) - 1

    # -- one question, and what may come of it -------------------------------------------------------------------------

    def _exchange(self, call: Call) -> Outcome:
        request = {"name": call.name, "args": list(call.args), "kwargs": dict(call.kwargs), "keep": call.keep, "echo": call.echo}
        watch = _Watch(self._pid, self._sandbox.limits)
        our_memory_error = False
        try:
            self._send(wire.encode(request, self._number))
            while True:
                reply = wire.decode(self._receive(watch))
                if reply["is"] == "outcome":
                    return self._outcome(reply, our_memory_error)
                if reply["is"] != "callback":
                    raise wire.BadFrame("neither an outcome nor a callback")
                our_memory_error |= self._answer(reply)
                watch.progress()
        except _Ended as ended:
            return Outcome(ended.kind, text=ended.text)
        except wire.Closed:
            return self._ending()
        except (wire.BadFrame, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            self._sandbox.integrity.append(f"{call.name}: bytes on the wire that the worker does not send ({error})"[:300])
            return Outcome("crashed", text="the process spoke in the worker's place")

    def _answer(self, reply: dict[str, Any]) -> bool:
        """Runs a function of the judge for the submission; true where that raised MemoryError on purpose."""
        function = self._functions[int(reply["number"])]
        try:
            value = function(*reply["args"], **reply["kwargs"])
        except (MemoryError, ValueError) as error:
            self._send(wire.encode({"raise": [type(error).__name__, str(error)[:300]]}))
            return isinstance(error, MemoryError)
        self._send(wire.encode({"value": value}, self._number))
        return False

    def _outcome(self, reply: dict[str, Any], our_memory_error: bool) -> Outcome:
        frames = tuple(Frame(str(f[0]), int(f[1]), str(f[2])) for f in reply["frames"])
        kind, name, text = str(reply["kind"]), str(reply["type"]), str(reply["text"])
        if kind not in ("value", "raised", "missing"):
            raise wire.BadFrame("an outcome of no kind")
        out_of_memory = name.endswith("MemoryError") or "can't allocate memory" in text or "not enough memory" in text
        if kind == "raised" and out_of_memory and not our_memory_error:
            return Outcome("out-of-memory", text=f"more than {self._sandbox.limits.memory_mib} MiB", frames=frames)
        return Outcome(kind, reply["value"], tuple(reply["echo"]), str(reply["code"]), name, text, frames)

    def _ending(self) -> Outcome:
        """What the closed wire means: the child's exit status says it."""
        status = self._sandbox.worker(self._kind).wait(self._pid)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Outcome("crashed", text=f"the process was ended by {signal.Signals(number).name}")
        return Outcome("crashed", text=f"the process ended itself with status {os.waitstatus_to_exitcode(status)}")

    def _send(self, data: bytes) -> None:
        assert self._link is not None
        self._link.settimeout(self._sandbox.limits.idle_seconds)
        try:
            wire.send(self._link, data)
        except TimeoutError:
            raise _Ended("timeout", "the process does not listen") from None
        except OSError:
            raise wire.Closed from None

    def _receive(self, watch: _Watch) -> bytes:
        """The next frame, while the limits hold; what the submission prints is collected on the way."""
        assert self._link is not None
        need = 4
        while len(self._unread) < need or need == 4:
            if len(self._unread) >= 4:
                (size,) = struct.unpack("<I", self._unread[:4])
                if size > wire.MAX_FRAME:
                    raise wire.BadFrame(f"a frame of {size} bytes")
                need = 4 + size
                if len(self._unread) >= need:
                    break
            ready, _, _ = select.select([self._link, self._heard], [], [], watch.patience)
            if self._heard in ready:
                self._listen(watch)
            if self._link in ready:
                try:
                    part = self._link.recv(2**20)
                except OSError:
                    raise wire.Closed from None
                if not part:
                    self._listen(watch)
                    raise wire.Closed
                self._unread += part
                watch.heard(len(part))
            watch.check()
        frame = bytes(self._unread[4:need])
        del self._unread[:need]
        return frame

    def _listen(self, watch: _Watch) -> None:
        try:
            text = os.read(self._heard, 2**20)
        except BlockingIOError:
            return
        if not text:
            time.sleep(0.001)  # both ends closed by the submission: select would spin
        watch.printed(len(text))
        if len(self.printed) < 65_536:
            self.printed = (self.printed + text.decode(errors="replace"))[:65_536]


class _Ended(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class _Watch:
    """Limits of one call, seen from outside: CPU seconds of the process, progress, and bytes printed."""

    patience = 0.25

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid, self._limits = pid, limits
        self._start = self._marked = _cpu(pid)
        self._since = time.monotonic()
        self._bytes = 0

    def progress(self) -> None:
        self._since, self._marked = time.monotonic(), _cpu(self._pid)

    def heard(self, size: int) -> None:
        if size:
            self._since = time.monotonic()

    def printed(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.output_mib * _MIB:
            raise _Ended("output-flood", f"more than {self._limits.output_mib} MiB printed in one call")

    def check(self) -> None:
        used = _cpu(self._pid)
        if used - self._start > self._limits.cpu_seconds:
            raise _Ended("timeout", f"more than {self._limits.cpu_seconds:g} s of CPU in one call")
        now = time.monotonic()
        if used - self._marked > 0.02 * self._limits.idle_seconds:
            self._marked, self._since = used, now
        elif now - self._since > self._limits.idle_seconds:
            raise _Ended("timeout", f"no progress in {self._limits.idle_seconds:g} s: the call waits for something")


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far, by the kernel; infinity-free: 0 where it has gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
