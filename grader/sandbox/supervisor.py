"""Starts a worker, opens groups in it, asks them, and ends what goes past a limit.

One worker process a kind ("numpy", "torch") loads its libraries once and forks a child per group (harness.worker). The judge
watches a child from outside: the kernel's CPU clock of that process, its wire, its output, and what its family takes of memory
and disk. CPU seconds decide a limit; wall time only ends a call that makes no progress, or sleeps on and on.
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
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.sandbox import answers, fencing
from grader.sandbox.cgroup import Enclosure
from grader.sandbox.guard import bounded_memory
from grader.sandbox.interpreter import choose, devices, driver, readable
from grader.sandbox.library import link_library
from harness import frames, wire
from harness.check import Fail
from harness.subject import LIMITS, Asking, Call, Clocks, Outcome
from harness.values import Callback, Proxy

StandIns = Mapping[str, Mapping[str, Callback | Proxy]]
_MIB = 2**20
_CONTEXT = 2 * 2**30  # bytes of the machine's own memory that a process's CUDA context may take


@dataclass(frozen=True)
class Limits:
    """What one call may use; the numbers are the rubric's."""

    cpu_seconds: float = 20.0
    idle_seconds: float = 5.0
    memory_mib: int = 2048
    output_mib: int = 8
    file_mib: int = 32
    folder_mib: int = 128
    folder_files: int = 4096
    processes: int = 64
    strikes: int = 2  # limits reached in one function before it is not called any more
    patience: int = 2  # timeouts of a submission before its further calls get a fifth of the CPU seconds
    calls: int = 6  # a function's calls together may take that many times the CPU seconds of one


class SandboxError(Exception):
    """The grader's own fault: a worker that does not start or answer, or a machine that gives no fence."""


class OutOfTime(Exception):
    """The whole grading has come near its time limit: no verdict on the call that was under way."""


class Sandbox:
    """The workers of one submission. Use as a context manager; on leaving, every process and folder is gone."""

    def __init__(self, root: Path, limits: Limits | None = None, trust: bool = False) -> None:
        self.root = root.resolve()
        self.limits = limits or Limits()
        self.trust = trust  # grade even where the machine gives no fence that holds
        self.layers: list[str] = []
        self.about: dict[str, Any] = {}
        self.device = ""  # the name of the GPU that a group has worked on
        self.strikes: Counter[str] = Counter()
        self.spent: dict[str, float] = defaultdict(float)
        self.endings: dict[str, Outcome] = {}
        self.timeouts = 0
        self.deadline: float | None = None  # of the whole grading, by time.monotonic
        self.integrity: list[str] = []  # for staff: what no honest submission does
        self.groups: set[int] = set()
        self._scratch = Path(tempfile.mkdtemp(prefix="attnlab-", dir=fencing.place()))
        self._scratch.chmod(0o711)  # a worker of another user must reach its own folder below, and list nothing
        self._count = 0
        self._users: Iterator[int] | None = None
        self._workers: dict[str, _Worker] = {}

    def __enter__(self) -> Sandbox:
        """Raises SandboxError where this machine gives too little to keep an untrusted submission out of the judge's files."""
        try:
            self.require(fencing.expected())
        except SandboxError:
            self.close()
            raise
        return self

    def require(self, layers: list[str]) -> None:
        """Raises SandboxError unless these layers hold, or the submission is trusted."""
        lacks = fencing.lacks(layers)
        if lacks and not self.trust:
            raise SandboxError(
                f"{lacks}: grade as root or on a kernel with Landlock, or say --trust-submission for work you trust"
            )

    def limits_now(self) -> Limits:
        """Those of the next call: less CPU where the submission has hung already, or a report would come late."""
        if self.timeouts < self.limits.patience:
            return self.limits
        return replace(self.limits, cpu_seconds=self.limits.cpu_seconds / 5)

    def time_is_up(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def tampered(self, text: str) -> None:
        """Notes for staff what no honest submission does."""
        if len(self.integrity) < 50:
            self.integrity.append(text[:300])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.leave()
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        remove(self._scratch)

    def forget_strikes(self) -> None:
        """Calls are tried afresh: what they stood on has been replaced."""
        self.strikes.clear()
        self.spent.clear()
        self.endings.clear()

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Limits reached in here count against nothing that comes after: for what is only measured."""
        kept = self.strikes.copy(), self.spent.copy(), self.endings.copy(), self.timeouts
        try:
            yield
        finally:
            self.strikes, self.spent, self.endings, self.timeouts = kept

    def close_kind(self, kind: str) -> None:
        """Ends one worker and frees its memory; it starts again when asked."""
        worker = self._workers.pop(kind, None)
        if worker:
            worker.close()

    def worker(self, kind: str) -> _Worker:
        """A worker that has loaded its libraries."""
        self.prepare(kind)
        self._workers[kind].greet()
        return self._workers[kind]

    def prepare(self, kind: str) -> None:
        """Starts a worker, where there is none, and lets it load its libraries while the judge does something else."""
        worker = self._workers.get(kind)
        if worker is None or not worker.alive():
            library = self._scratch / f"library-{kind}"
            if not library.exists():
                link_library(library, torch=kind == "torch")
            self._workers[kind] = _Worker(kind, library, self._scratch)

    def private_folder(self) -> Path:
        """An empty folder for one group, whose first process puts a copy of the submission in."""
        self._count += 1
        folder = self._scratch / f"group-{self._count}"
        folder.mkdir(mode=0o700)
        return folder

    def uid(self) -> int | None:
        """A user that no process has, for one group; None where a worker keeps the judge's."""
        if not fencing.changes_user():
            return None
        if self._users is None:
            self._users = itertools.cycle(fencing.free_users())
        return next(self._users)

    @contextlib.contextmanager
    def group(
        self, kind: str, stand_ins: StandIns | None = None, backend: str = "numpy", device: str = "cpu"
    ) -> Iterator[WorkerSubject]:
        """A fresh process with the submission, for one group of checks; `device` is where torch's tensors lie."""
        subject = WorkerSubject(self, kind, stand_ins or {}, backend, device)
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
        preload = [
            "numpy",
            "numpy.random",
            "numpy.linalg",
            "numpy.testing",
            "statistics",
            "tracemalloc",
            "harness.executor",
        ]
        preload += ["torch", "torch.nn.attention"] if kind == "torch" else []
        self._control.settimeout(120)
        self._kind, self._library = kind, library
        self.about: dict[str, Any] = {}
        with contextlib.suppress(wire.Closed):
            wire.send(self._control, json.dumps({"preload": preload}).encode())

    def greet(self) -> None:
        """Waits for the worker's first word. Raises SandboxError where none comes."""
        if self.about:
            return
        try:
            self.about = json.loads(wire.receive(self._control))
            self.readable = readable(self._library, self.about["standard"])
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

    def fork(self, folder: Path, source: Path, plan: dict[str, Any], stand_ins: bool) -> tuple[int, socket.socket, int]:
        """A child: its pid, the judge's end of its wire, and the end of the pipe that its output comes from."""
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
                "read": self.readable + (driver() if cuda else []),
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
        return int(reply["pid"]), ours, heard

    def end(self, pid: int, uid: int | None) -> int:
        """Ends a group and whatever it left behind; gives its exit status."""
        with contextlib.suppress(SandboxError, KeyError, TypeError):
            return int(self._request({"do": "end", "pid": pid, "uid": uid}, [])["status"])
        return 0

    def leave(self) -> None:
        """At the end of its control the worker ends what is below it, and itself."""
        self._control.close()

    def close(self) -> None:
        """Waits until it has ended, and ends it where it does not."""
        self.leave()
        _has_ended(self.pid, 10.0)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()


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
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "CUDA_VISIBLE_DEVICES")
        if name in os.environ
    }
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        **threads,
        **passed,
    }


class WorkerSubject(Asking):
    """The worker form of Subject: one child process, started at the first question and again after a limit ended it."""

    def __init__(self, sandbox: Sandbox, kind: str, stand_ins: StandIns, backend: str, device: str = "cpu") -> None:
        self._sandbox = sandbox
        self._kind = kind
        self._stand_ins = stand_ins
        self._backend = backend
        self._device = device
        self._pid = 0
        self._uid: int | None = None
        self._link: socket.socket | None = None
        self._heard = -1
        self._hearing = False
        self._folder = Path()
        self._in_memory = False
        self._enclosure: Enclosure | None = None
        self._looked = 0.0
        self._functions: list[Any] = []
        self._imported: set[str] = set()
        self._unread = bytearray()
        self.printed = ""
        self.cpu_seconds = 0.0

    @property
    def backend(self) -> str:
        return self._backend

    @property
    def device(self) -> str:
        return self._device

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[WorkerSubject]:
        with self._sandbox.group(self._kind, stand_ins, self._backend, self._device) as subject:
            yield subject

    def clocks(self) -> Clocks:
        if not self._pid:
            return Clocks(0.0)
        return Clocks(_cpu(self._pid), _delay(self._pid) or None, _peak_memory(self._pid))

    def ask(self, *calls: Call) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for call in calls:
            if outcomes and outcomes[-1].kind in LIMITS:
                outcomes.append(outcomes[-1])
            else:
                outcomes.append(self._ask(call))
        return outcomes

    def _ask(self, call: Call) -> Outcome:
        if self._sandbox.time_is_up():
            raise OutOfTime
        module = call.name.partition(".")[0]
        for name in (module, call.name):
            if self._sandbox.strikes[name] >= self._sandbox.limits.strikes:
                return self._sandbox.endings[name]
        allowed = self._sandbox.limits.cpu_seconds * self._sandbox.limits.calls
        if self._sandbox.spent[call.name] > allowed:
            return Outcome("timeout", text=f"more than {allowed:g} s of CPU in all calls together")
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
            self._sandbox.timeouts += outcome.kind == "timeout"
            self._sandbox.endings[name] = outcome
            self.close()
        return outcome

    def _start(self) -> None:
        worker = self._sandbox.worker(self._kind)
        self._folder, self._uid = self._sandbox.private_folder(), self._sandbox.uid()
        limits = self._sandbox.limits
        cuda = self._device != "cpu"
        plan = {
            "uid": self._uid,
            # CUDA reserves far more addresses than it uses: there what is in memory is watched (`_look_around`)
            "memory": 0 if cuda else limits.memory_mib * _MIB,
            "device": self._device,
            "device_memory": limits.memory_mib * _MIB,
            "open_files": 1024 if cuda else 128,
            "file_bytes": limits.file_mib * _MIB,
            "folder_bytes": limits.folder_mib * _MIB,
            "folder_files": limits.folder_files,
            "processes": limits.processes,
            "cpu_seconds": int(limits.cpu_seconds * limits.calls * 2) + 60,
        }
        self._pid, self._link, self._heard = worker.fork(self._folder, self._sandbox.root, plan, bool(self._stand_ins))
        memory = (limits.memory_mib + limits.folder_mib + 256) * _MIB + (_CONTEXT if cuda else 0)
        self._enclosure = Enclosure(self._pid, memory, limits.processes)  # nothing of the submission runs yet
        self._hearing, self._looked = True, time.monotonic()
        self._sandbox.groups.add(self._pid)
        self._functions, self._imported = [], set()
        self._unread.clear()
        self._ready(worker)
        if self._stand_ins:
            self._send(wire.encode({k: dict(v) for k, v in self._stand_ins.items()}, self._number))

    def _ready(self, worker: _Worker) -> None:
        """The child's first word: which layers of its fence stand. Too few, and nothing of the submission is loaded."""
        try:
            ready = answers.read(self._receive(_Watch(self._pid, Limits(cpu_seconds=60, idle_seconds=60))))
            layers, device = ready["layers"], ready["device"]
        except (wire.Closed, wire.BadFrame, _Ended, KeyError) as error:
            with contextlib.suppress(OSError):
                self.printed += os.read(self._heard, 4096).decode(errors="replace")
            self.close()
            raise SandboxError(f"a group did not start: {error!r} {self.printed[-500:]}") from None
        self._in_memory = "folder" in layers
        if device:
            self._sandbox.device = device
        self._sandbox.layers = [*layers, *(layer for layer in worker.about["layers"] if layer != "folder")]
        self._sandbox.layers += self._enclosure.layers if self._enclosure else []
        self._sandbox.about = worker.about
        try:
            self._sandbox.require(self._sandbox.layers)
        except SandboxError:
            self.close()
            raise

    def close(self) -> None:
        if self._link is None:
            return
        worker = self._sandbox.worker(self._kind)
        with contextlib.suppress(OSError):
            self.cpu_seconds += _cpu(self._pid)
        self._link.close()
        self._link = None
        if self._pid:
            worker.end(self._pid, self._uid)
        if self._enclosure:
            self._enclosure.remove()
        os.close(self._heard)
        self._sandbox.groups.discard(self._pid)
        remove(self._folder)
        if self._uid is not None and not self._in_memory and "landlock" not in self._sandbox.layers:
            fencing.sweep(self._uid)

    def _number(self, function: Any) -> int:
        self._functions.append(function)
        return len(self._functions) - 1

    # -- one question, and what may come of it -------------------------------------------------------------------------

    def _exchange(self, call: Call) -> Outcome:
        request = {
            "name": call.name,
            "args": list(call.args),
            "kwargs": dict(call.kwargs),
            "keep": call.keep,
            "echo": call.echo,
        }
        watch = _Watch(self._pid, self._sandbox.limits_now())
        our_memory_error = False
        try:
            self._send(wire.encode(request, self._number))
            while True:
                frame = self._receive(watch)
                with watch.serving():
                    reply = answers.read(frame)
                if reply.get("is") == "outcome":
                    return self._outcome(answers.outcome(reply), our_memory_error)
                if reply.get("is") != "callback":
                    raise wire.BadFrame("neither an outcome nor a callback")
                with watch.serving():
                    our_memory_error |= self._answer(reply)
        except _Ended as ended:
            return Outcome(ended.kind, text=ended.text)
        except wire.Closed:
            return self._ending(call)
        except wire.BadFrame as error:
            self._sandbox.tampered(f"{call.name}: bytes on the wire that the worker does not send ({error})")
            return Outcome("crashed", text="the process spoke in the worker's place")
        finally:
            self._sandbox.spent[call.name] += watch.used()

    def _answer(self, reply: dict[str, Any]) -> bool:
        """Runs a function of the judge for the submission; true where that raised MemoryError on purpose.

        What it raises is raised in the submission, as it would be in one process: it may have been called with anything.
        """
        number, args, kwargs = answers.callback(reply, len(self._functions))
        try:
            with bounded_memory():
                value = self._functions[number](*args, **kwargs)
                data = wire.encode({"value": value}, self._number)
                if len(data) > wire.MAX_FRAME // 8:
                    raise ValueError(f"a result of {len(data)} bytes is too large to hand over")
        except Fail:
            raise
        except Exception as error:
            self._send(wire.encode({"raise": [type(error).__name__, str(error)[:300]]}))
            return isinstance(error, MemoryError)
        self._send(data)
        return False

    def _outcome(self, outcome: Outcome, our_memory_error: bool) -> Outcome:
        if self._device != "cpu" and broken_device(outcome):
            return Outcome("crashed", text=f"the GPU stopped this process: {outcome.text}", frames=outcome.frames)
        name, text = outcome.type, outcome.text
        out_of_memory = name.endswith("MemoryError") or "can't allocate memory" in text or "not enough memory" in text
        if outcome.kind == "raised" and out_of_memory and not our_memory_error:
            said = text if "too large to hand over" in text else f"more than {self._sandbox.limits.memory_mib} MiB"
            return Outcome("out-of-memory", text=said, frames=outcome.frames)
        return outcome

    def _ending(self, call: Call) -> Outcome:
        """What the closed wire means: the child's exit status says it."""
        ended = _has_ended(self._pid)
        status = self._sandbox.worker(self._kind).end(self._pid, self._uid)
        self._sandbox.groups.discard(self._pid)
        self._pid = 0
        if not ended:
            return Outcome("crashed", text="the process closed what it answers on")
        if not os.WIFSIGNALED(status):
            return Outcome("crashed", text=f"the process ended itself with status {os.waitstatus_to_exitcode(status)}")
        number = os.WTERMSIG(status)
        if number == signal.SIGSYS:
            self._sandbox.tampered(
                f"{call.name}: a system call that reaches for another process (ptrace, a foreign signal, a connection)"
            )
        if number == signal.SIGXCPU:
            return Outcome("timeout", text="too many CPU seconds in one group of checks")
        if number == signal.SIGKILL and self._enclosure and self._enclosure.ended_for_memory():
            return Outcome("out-of-memory", text=f"more than {self._sandbox.limits.memory_mib} MiB")
        return Outcome("crashed", text=f"the process was ended by {signal.Signals(number).name}")

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
                if size > frames.MAX_BYTES:
                    raise wire.BadFrame(f"a frame of {size} bytes")
                need = 4 + size
                if len(self._unread) >= need:
                    break
            sources: list[Any] = [self._link, self._heard] if self._hearing else [self._link]
            ready, _, _ = select.select(sources, [], [], watch.patience)
            if self._heard in ready:
                self._listen(watch)
            if self._link in ready:
                try:
                    part = self._link.recv(2**20)
                except OSError:
                    raise wire.Closed from None
                if not part:
                    if self._hearing:
                        self._listen(watch)
                    raise wire.Closed
                self._unread += part
            watch.check()
            self._look_around()
        frame = bytes(self._unread[4:need])
        del self._unread[:need]
        return frame

    def _listen(self, watch: _Watch) -> None:
        try:
            text = os.read(self._heard, 2**20)
        except BlockingIOError:
            return
        if not text:
            self._hearing = False  # the submission has closed it
        watch.printed(len(text))
        if len(self.printed) < 65_536:
            self.printed = (self.printed + text.decode(errors="replace"))[:65_536]

    def _look_around(self) -> None:
        """Four times a second: memory that several processes take together, and files where the folder has no size of its own."""
        now = time.monotonic()
        if now - self._looked < 0.25:
            return
        self._looked = now
        if self._sandbox.time_is_up():
            raise OutOfTime
        limits = self._sandbox.limits
        family = processes_below(self._sandbox.worker(self._kind).pid, self._sandbox.groups - {self._pid})
        allowed = limits.memory_mib * _MIB + (_CONTEXT if self._device != "cpu" else 0)
        if (len(family) > 1 or self._device != "cpu") and sum(map(_own_memory, family)) > allowed:
            many = f" in {len(family)} processes" if len(family) > 1 else ""
            raise _Ended("out-of-memory", f"more than {limits.memory_mib} MiB{many}")
        if not self._in_memory and _outgrows(self._folder, limits.folder_mib * _MIB, limits.folder_files):
            raise _Ended("output-flood", f"more than {limits.folder_mib} MiB or {limits.folder_files} files written")


def broken_device(outcome: Outcome) -> bool:
    """Whether a call broke its process's CUDA context, in which nothing works afterwards: the process must be ended."""
    told = outcome.type.endswith("AcceleratorError") or "CUDA error" in outcome.text
    return outcome.kind == "raised" and told and "out of memory" not in outcome.text


class _Ended(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class _Watch:
    """Limits of one call, seen from outside: CPU seconds of the process and of what it has the judge do, progress, and output."""

    patience = 0.25

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid, self._limits = pid, limits
        self._start = self._marked = self._used = _cpu(pid)
        self._began = self._since = time.monotonic()
        self._delayed = _delay(pid)
        self._judges_cpu = self._judges_wall = 0.0
        self._bytes = 0

    def used(self) -> float:
        """CPU seconds so far."""
        return self._used - self._start + self._judges_cpu

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """While the judge works for the submission, or on what it said: CPU seconds count, time does not."""
        wall, cpu = time.monotonic(), time.thread_time()
        yield
        self._judges_cpu += time.thread_time() - cpu
        self._judges_wall += time.monotonic() - wall
        self._since, self._marked = time.monotonic(), _cpu(self._pid)

    def printed(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.output_mib * _MIB:
            raise _Ended("output-flood", f"more than {self._limits.output_mib} MiB printed in one call")

    def check(self) -> None:
        self._used = max(self._used, _cpu(self._pid))
        if self.used() > self._limits.cpu_seconds:
            raise _Ended("timeout", f"more than {self._limits.cpu_seconds:g} s of CPU in one call")
        now = time.monotonic()
        if self._used - self._marked > 0.02 * self._limits.idle_seconds:
            self._marked, self._since = self._used, now
        elif now - self._since > self._limits.idle_seconds:
            raise _Ended("timeout", f"no progress in {self._limits.idle_seconds:g} s: the call waits for something")
        most = 4 * self._limits.idle_seconds
        if now - self._began > most:
            working = self._used - self._start + self._judges_wall + _delay(self._pid) - self._delayed
            if now - self._began - working > most:
                raise _Ended("timeout", f"more than {most:g} s asleep in one call")


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far; 0 where it has gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _delay(pid: int) -> float:
    """Seconds that a process could have run and was made to wait by others; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:  # asked at every call
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _peak_memory(pid: int) -> int | None:
    """Bytes that a process has had in memory at most; None where the kernel does not say."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def _has_ended(pid: int, seconds: float = 1.0) -> bool:
    """Whether a process ends by itself within a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def processes_below(root: int, spared: set[int]) -> list[int]:
    """Processes below `root`, without the spared ones and what is below them."""
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()} - spared
            found += children
            todo += children
    return found


def _own_memory(pid: int) -> int:
    """Bytes that a process has in memory and shares with no file."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _outgrows(folder: Path, bytes_: int, files: int) -> bool:
    """Whether a folder holds more than that; looks no further than it must."""
    todo = [str(folder)]
    while todo:
        with contextlib.suppress(OSError):
            for entry in os.scandir(todo.pop()):
                files -= 1
                with contextlib.suppress(OSError):
                    bytes_ -= entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                if files < 0 or bytes_ < 0:
                    return True
    return False
