"""Starts a worker, opens groups in it, asks them, and ends what goes past a limit.

One worker process a kind ("numpy", "torch") loads its libraries once and forks a child per group (harness.worker). The judge
watches a child from outside: the kernel's CPU clock of that process, its wire, its output, and what its family takes of memory
and disk. CPU seconds of the family decide a limit; wall time ends a call that makes no progress, or sleeps on and on, and any
call in the end.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import select
import signal
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.sandbox import answers, fencing
from grader.sandbox.cgroup import Enclosure
from grader.sandbox.container import Container, ContainerWorker, Image
from grader.sandbox.guard import bounded_memory
from grader.sandbox.interpreter import choose
from grader.scratch import Scratch
from harness import frames, wire
from harness.check import Fail
from harness.hosting.host import Forked, SandboxError, Worker
from harness.subject import LIMITS, Asking, Call, Clocks, Frame, Outcome, StandIns, remember

__all__ = ["Limits", "OutOfTime", "Sandbox", "SandboxError", "WorkerSubject"]
_MIB = 2**20
_TRACED = re.compile(r'File "([^"\n]{1,4096})", line (\d{1,7}) in')
_SLOW = 0.1  # CPU seconds of loading beyond which it is done once for many groups
_CONTEXT = 2 * 2**30  # bytes of the machine's own memory that a process's CUDA context may take


@dataclass(frozen=True)
class Limits:
    """What one call may use; the numbers are the rubric's."""

    cpu_seconds: float = 20.0
    import_seconds: float = 60.0  # CPU seconds in which a file must have loaded
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
    whole: int = 60  # all calls of a submission together likewise
    wall: int = 10  # and one call that many times its CPU seconds of wall time, whatever it does meanwhile


@dataclass(frozen=True)
class _Spare:
    """A copy of a group's process that has loaded some modules and was asked nothing: the next group goes on from there."""

    pid: int
    uid: int | None
    modules: frozenset[str]
    in_memory: bool
    enclosure: Enclosure | None


class OutOfTime(Exception):
    """The whole grading has come near its time limit: no verdict on the call that was under way."""


class Sandbox:
    """The workers of one submission. Use as a context manager; on leaving, every process and folder is gone."""

    def __init__(
        self, root: Path, limits: Limits | None = None, trust: bool = False, image: Image | None = None
    ) -> None:
        self.root = root.resolve()
        self.image = image  # of a container for the workers; else they run on this machine
        self.container: Container | None = None
        self.limits = limits or Limits()
        self.trust = trust  # grade even where the machine gives no fence that holds
        self.layers: list[str] = []
        self.about: dict[str, Any] = {}
        self.device = ""  # the name of the GPU that a group has worked on
        self.strikes: Counter[str] = Counter()
        self.spent: dict[str, float] = defaultdict(float)
        self.endings: dict[str, Outcome] = {}
        self.timeouts = 0
        self.taken = 0.0  # seconds of all calls, at work or asleep
        self._aside = 0.0  # the same of what counts against nothing
        self.deadline: float | None = None  # of the whole grading, by time.monotonic
        self.integrity: list[str] = []  # for staff: what no honest submission does
        self.groups: set[int] = set()
        self._held = Scratch(fencing.place())
        self._scratch = self._held.path
        self._scratch.chmod(0o711)  # a worker of another user must reach its own folder below, and list nothing
        self._users: Iterator[int] | None = None
        self.spares: dict[tuple[str, bytes], _Spare] = {}  # by the kind of their worker, and what they have loaded over
        self.slow: dict[str, list[str]] = {}  # by kind, what takes long to load, in the order of loading
        self.refuses_loans = False  # what is lent cannot be put into the submission once it is loaded
        self._workers: dict[str, Worker | ContainerWorker] = {}

    def __enter__(self) -> Sandbox:
        """Raises SandboxError where this machine gives too little to keep an untrusted submission out of the judge's files."""
        try:
            if self.image:
                self.container = Container(self.image, self.root)
            else:
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
        if self.container:
            self.container.close()
        self._held.close()

    def forget_strikes(self) -> None:
        """Calls are tried afresh: what they stood on has been replaced."""
        self.strikes.clear()
        self.spent.clear()
        self.endings.clear()

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Limits reached in here count against nothing that comes after: for what is only measured, and for a closer look.

        All of it together may take half of what a submission's calls may.
        """
        kept = self.strikes.copy(), self.spent.copy(), self.endings.copy(), self.timeouts
        judged, self.taken = self.taken, max(self._aside, self._most / 2)
        try:
            yield
        finally:
            self._aside, self.taken = self.taken, judged
            self.strikes, self.spent, self.endings, self.timeouts = kept

    def spend(self, name: str, seconds: float) -> None:
        """Counts what a call took against its function and the whole submission."""
        self.spent[name] += seconds
        self.taken += seconds

    def exhausted(self, name: str) -> str:
        """Why a function is not called any more, where its calls or all calls have taken too long; else nothing."""
        of_one = self.limits.cpu_seconds * self.limits.calls
        if self.spent[name] > of_one:
            return f"more than {of_one:g} s in all calls together"
        return f"more than {self._most:g} s in all calls of this submission together" if self.taken > self._most else ""

    @property
    def _most(self) -> float:
        return self.limits.cpu_seconds * self.limits.whole

    def worker(self, kind: str) -> Worker | ContainerWorker:
        """A worker that has loaded its libraries."""
        self.prepare(kind)
        self._workers[kind].greet()
        return self._workers[kind]

    def prepare(self, kind: str) -> None:
        """Starts a worker, where there is none, and lets it load its libraries while the judge does something else."""
        worker = self._workers.get(kind)
        if worker is None or not worker.alive():
            self.spares = {key: spare for key, spare in self.spares.items() if key[0] != kind}
            self._workers[kind] = (
                self.container.worker(kind) if self.container else Worker(kind, self._scratch, choose()[0], self.root)
            )

    def keep(self, key: tuple[str, bytes], spare: _Spare) -> None:
        """Has the next group of this key go on from there, in place of what it would have gone on from."""
        before = self.spares.pop(key, None)
        if before:
            self.drop(self._workers[key[0]], before)
        self.spares[key] = spare
        self.groups.add(spare.pid)

    def drop(self, worker: Worker | ContainerWorker, spare: _Spare) -> None:
        """Ends a copy that no group will go on from."""
        worker.end(spare.pid, None)
        worker.clean(spare.pid)
        if spare.enclosure:
            spare.enclosure.remove()
        self.groups.discard(spare.pid)

    def uid(self) -> int | None:
        """A user that no process has, for one group; None where a worker keeps the judge's."""
        if self.container or not fencing.changes_user():
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


class WorkerSubject(Asking):
    """The worker form of Subject: one child process, started at the first question and again after a limit ended it."""

    def __init__(self, sandbox: Sandbox, kind: str, stand_ins: StandIns, backend: str, device: str = "cpu") -> None:
        self._sandbox = sandbox
        self._kind = kind
        self._stand_ins = stand_ins
        self._backend = backend
        self._works_with = ""
        self._device = device
        self._pid = 0
        self._uid: int | None = None
        self._link: socket.socket | None = None
        self._heard = -1
        self._hearing = False
        self._worker: Worker | ContainerWorker | None = None
        self._clock: _Clock | None = None
        self._in_memory = False
        self._fresh = False  # nothing but loading has been asked of the process
        self._over = b""  # what the process has loaded over, as it was sent
        self._copied = False  # it is, or has left, a copy: another process has its user and its folder
        self._enclosure: Enclosure | None = None
        self._looked = 0.0
        self._functions: list[Any] = []
        self._imported: set[str] = set()
        self._unread = bytearray()
        self.printed = ""

    @property
    def backend(self) -> str:
        # torch is there; whether kv_cache.py works with it, kv_cache.py says
        if self._backend == "torch" and not self._works_with:
            self._works_with = "torch" if self.call("@backend").value == "torch" else "numpy"
        return self._works_with or self._backend

    @property
    def device(self) -> str:
        return self._device

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[WorkerSubject]:
        with self._sandbox.group(self._kind, {**self._stand_ins, **stand_ins}, self._backend, self._device) as subject:
            yield subject

    @contextlib.contextmanager
    def limited(self, limits: Limits) -> Iterator[WorkerSubject]:
        """The same submission in a worker of its own under other limits: reaching them counts against nothing here."""
        here = self._sandbox
        with Sandbox(here.root, limits, here.trust, here.image) as sandbox:
            sandbox.deadline = here.deadline
            with sandbox.group(self._kind, None, self._backend) as subject:
                yield subject
            for text in sandbox.integrity:
                here.tampered(text)

    def forget(self) -> None:
        """Lets go of what the submission was asked to keep: caches take memory, and may hold files."""
        if self._link is None or self._sandbox.time_is_up():  # then nothing more is asked, and all goes with the group
            return
        with contextlib.suppress(OutOfTime, SandboxError):  # what was judged stands, whatever becomes of the worker
            if self._exchange(Call("@forget")).kind in LIMITS:
                self.close()

    def clocks(self) -> Clocks:
        if not self._pid or not self._worker:
            return Clocks(0.0)
        worker, pid = self._worker, self._pid
        here = 0 if isinstance(worker, ContainerWorker) else pid
        cpu = worker.family_cpu(self._others())  # what it has children do is its own work
        return Clocks(cpu, worker.delay(pid) or None, worker.peak_memory(pid), here)

    def _others(self) -> list[int]:
        """Groups of the same worker that are open meanwhile."""
        return sorted(self._sandbox.groups - {self._pid})

    def ask(self, *calls: Call) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for call in calls:
            if outcomes and outcomes[-1].kind in LIMITS:
                outcomes.append(outcomes[-1])
            else:
                outcomes.append(self._ask(call))
        remember(calls, outcomes)
        return outcomes

    def _ask(self, call: Call) -> Outcome:
        if self._sandbox.time_is_up():
            raise OutOfTime
        loads = call.name == "@import"
        module = str(call.args[0]) if loads else call.name.partition(".")[0]
        if self._sandbox.strikes[module] and not module.startswith("@"):  # loading is asked once
            return self._sandbox.endings[module]
        if self._sandbox.strikes[call.name] >= self._sandbox.limits.strikes:
            return self._sandbox.endings[call.name]
        if why := self._sandbox.exhausted(call.name):
            return Outcome("timeout", text=why)
        if self._link is None:
            self._start()
        if not module.startswith("@") and module not in self._imported and module not in self._stand_ins:
            loaded = self._load(module)
            if loads or loaded.kind in LIMITS:
                return loaded
        if loads:
            return Outcome("value", True)
        self._fresh = False
        return self._judged(call.name, self._exchange(call))

    def _load(self, module: str) -> Outcome:
        """Loads a module, once for all groups to come where that takes long."""
        self._imported.add(module)
        before = self._sandbox.spent["@import"]
        outcome = self._judged(module, _while_importing(module, self._exchange(Call("@import", (module,)))))
        took = self._sandbox.spent["@import"] - before
        if took > _SLOW and outcome.kind not in LIMITS:
            slow = self._sandbox.slow.setdefault(self._kind, [])
            slow += [module] if module not in slow else []
            if self._fresh and self._device == "cpu":
                self._leave_spare()
        return outcome

    def _leave_spare(self) -> None:
        """Has the process leave a copy of itself for the groups to come."""
        assert self._worker is not None
        if not self._exchange(Call("@spare")).ok:
            return
        self._copied = True
        pid = self._worker.keep_spare(self._pid)
        if pid:
            self._sandbox.keep(
                self._key(), _Spare(pid, self._uid, frozenset(self._imported), self._in_memory, self._enclose(pid))
            )

    def _enclose(self, pid: int) -> Enclosure | None:
        """A control group of its own for a process of which nothing but its library runs yet."""
        if self._sandbox.container:
            return None
        limits = self._sandbox.limits
        memory = (limits.memory_mib + limits.folder_mib + 256) * _MIB + (_CONTEXT if self._device != "cpu" else 0)
        return Enclosure(pid, memory, limits.processes)

    def _judged(self, name: str, outcome: Outcome) -> Outcome:
        """Counts a limit against the function, and ends the child it left in an unknown state."""
        if outcome.kind in LIMITS:
            self._sandbox.strikes[name] += 1
            self._sandbox.timeouts += outcome.kind == "timeout"
            self._sandbox.endings[name] = outcome
            self.close()
        return outcome

    def _start(self) -> None:
        worker = self._worker = self._sandbox.worker(self._kind)
        slow = self._sandbox.slow.get(self._kind) if self._device == "cpu" else None
        if slow and self._stand_ins and self._sandbox.refuses_loans:
            if self._go_on(worker, self._lendings()):
                return
        elif slow and self._start_loaded(worker, slow):
            return
        self._start_afresh(worker, self._stand_ins)

    def _start_loaded(self, worker: Worker | ContainerWorker, slow: list[str]) -> bool:
        """Starts with what is slow to load already loaded, and what is lent put in its place. False where that cannot be."""
        if not self._go_on(worker, {}):
            self._start_afresh(worker, {})
            for module in tuple(slow):
                if self._load(module).kind in LIMITS:
                    return False
        if not self._stand_ins:
            return True
        self._fresh = False  # a copy of it would have what is lent here
        if self._exchange(Call("@lend", (self._lendings(),))).value is not True:
            self._sandbox.refuses_loans = True
            self.close()
            return False
        return True

    def _lendings(self) -> dict[str, Any]:
        """What is lent, as it crosses."""
        return {name: dict(names) for name, names in self._stand_ins.items()}

    def _key(self) -> tuple[str, bytes]:
        """What a copy of this process is good for: groups of its kind, over as much that is lent."""
        return self._kind, self._over

    def _start_afresh(self, worker: Worker | ContainerWorker, stand_ins: StandIns) -> None:
        """Starts a process that has loaded nothing of the submission."""
        self._uid = self._sandbox.uid()
        limits = self._sandbox.limits
        cuda = self._device != "cpu"
        plan = {
            "uid": self._uid,
            # CUDA reserves far more addresses than it uses: there what is in memory is watched (`_look_around`)
            "memory": 0 if cuda else limits.memory_mib * _MIB,
            "device": self._device,
            "device_memory": limits.memory_mib * _MIB,
            "open_files": 1024,  # as a shell gives: a cache may hold a file
            "file_bytes": limits.file_mib * _MIB,
            "folder_bytes": limits.folder_mib * _MIB,
            "folder_files": limits.folder_files,
            "processes": limits.processes,
            "cpu_seconds": int(limits.cpu_seconds * limits.calls * 2) + 60,
        }
        self._copied = False
        forked = worker.fork(self._sandbox.root, plan, bool(stand_ins))
        clock = self._begin(worker, forked, self._enclose(forked.pid))
        self._ready(worker, clock)
        if stand_ins:
            self._over = wire.encode(self._lendings(), self._number)
            self._send(self._over)

    def _begin(self, worker: Worker | ContainerWorker, forked: Forked, enclosure: Enclosure | None) -> _Clock:
        """What holds of every process that is going to be asked."""
        self._pid, self._link, self._heard, self._enclosure = forked.pid, forked.link, forked.heard, enclosure
        clock = self._clock = _Clock(worker, self._pid)
        self._hearing, self._looked, self._fresh = True, time.monotonic(), True
        self._sandbox.groups.add(self._pid)
        self._functions, self._imported, self._over = [], set(), b""
        self._unread.clear()
        return clock

    def _go_on(self, worker: Worker | ContainerWorker, stand_ins: dict[str, Any]) -> bool:
        """Goes on from a copy that has loaded the submission over as much that is lent, where there is one."""
        self._functions = []
        over = wire.encode(stand_ins, self._number) if stand_ins else b""
        kept = self._sandbox.spares.pop((self._kind, over), None)
        if kept is None:
            return False
        resumed = worker.resume(kept.pid)
        if resumed is None:
            self._sandbox.drop(worker, kept)
            return False
        forked, following = resumed
        self._uid, self._in_memory, self._copied = kept.uid, kept.in_memory, True
        clock = self._begin(worker, forked, kept.enclosure)
        self._over = wire.encode(stand_ins, self._number) if stand_ins else b""
        if following:
            self._sandbox.keep(self._key(), replace(kept, pid=following, enclosure=self._enclose(following)))
        self._imported = set(kept.modules)
        try:
            answers.read(self._receive(_Watch(clock, Limits(cpu_seconds=60, idle_seconds=60))))
        except (wire.Closed, wire.BadFrame, _Ended):
            self.close()
            return False
        return True

    def _ready(self, worker: Worker | ContainerWorker, clock: _Clock) -> None:
        """The child's first word: which layers of its fence stand. Too few, and nothing of the submission is loaded."""
        try:
            ready = answers.read(self._receive(_Watch(clock, Limits(cpu_seconds=60, idle_seconds=60))))
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
        self._sandbox.layers += ["container"] if self._sandbox.container else []
        self._sandbox.about = worker.about
        try:
            self._sandbox.require(self._sandbox.layers)
        except SandboxError:
            self.close()
            raise

    def close(self) -> None:
        if self._link is None or self._worker is None:
            return
        self._link.close()
        self._link = None
        if self._pid:
            self._worker.end(self._pid, None if self._copied else self._uid)
            self._worker.clean(self._pid)
        if self._enclosure:
            self._enclosure.remove()
        os.close(self._heard)
        self._sandbox.groups.discard(self._pid)
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
        assert self._clock is not None
        limits = self._sandbox.limits_now()
        if call.name == "@import":
            limits = replace(limits, cpu_seconds=self._sandbox.limits.import_seconds)
        watch = _Watch(self._clock, limits)
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
            return Outcome(ended.kind, text=ended.text, frames=self._where() if ended.kind == "timeout" else ())
        except wire.Closed:
            return self._ending(call)
        except wire.BadFrame as error:
            self._sandbox.tampered(f"{call.name}: bytes on the wire that the worker does not send ({error})")
            return Outcome("crashed", text="the process spoke in the worker's place")
        finally:
            self._sandbox.spend(call.name, watch.taken())

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
        assert self._worker is not None
        ended = self._worker.has_ended(self._pid)
        status = self._worker.end(self._pid, None if self._copied else self._uid)
        self._worker.clean(self._pid)
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

    def _where(self) -> tuple[Frame, ...]:
        """The submission's own lines that its process is in, as it prints them on a signal, outermost first."""
        assert self._worker is not None
        self._worker.where(self._pid)
        said, until = b"", time.monotonic() + 0.3
        while (
            self._hearing and b"\n\n" not in said and select.select([self._heard], [], [], until - time.monotonic())[0]
        ):
            with contextlib.suppress(BlockingIOError):
                part = os.read(self._heard, 2**16)
                said = (said + part)[-(2**16) :]
                if not part or time.monotonic() > until:
                    break
        return lines_of(said.decode(errors="replace"), self._sandbox.root)

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
            self._look_around(watch)
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

    def _look_around(self, watch: _Watch) -> None:
        """Four times a second: memory and CPU that several processes take together, and files where the folder has no size of
        its own."""
        now = time.monotonic()
        if now - self._looked < 0.25:
            return
        self._looked = now
        if self._sandbox.time_is_up():
            raise OutOfTime
        limits = self._sandbox.limits
        assert self._worker is not None
        allowed = limits.memory_mib * _MIB + (_CONTEXT if self._device != "cpu" else 0)
        count, held, beside = self._worker.family(self._pid, self._others(), allowed)
        watch.family(beside, count)
        if (count > 1 or self._device != "cpu") and held > allowed:
            many = f" in {count} processes" if count > 1 else ""
            raise _Ended("out-of-memory", f"more than {limits.memory_mib} MiB{many}")
        if not self._in_memory and self._worker.outgrown(self._pid, limits.folder_mib * _MIB, limits.folder_files):
            raise _Ended("output-flood", f"more than {limits.folder_mib} MiB or {limits.folder_files} files written")


def lines_of(traceback: str, root: Path) -> tuple[Frame, ...]:
    """A submission's own lines in what faulthandler has printed, outermost first. It may print anything: only its files count."""
    found = []
    for path, number in _TRACED.findall(traceback.rpartition("most recent call first")[2])[:100]:
        name = path.rpartition("/submission/")[2]
        with contextlib.suppress(OSError, IndexError, ValueError):
            if name.endswith(".py") and "/" not in name and not (root / name).is_symlink():
                text = (root / name).read_bytes().splitlines()[int(number) - 1]
                found.append(Frame(name[:200], int(number), text.decode(errors="replace").strip()[:200]))
    return tuple(reversed(found[:8]))


def _while_importing(module: str, outcome: Outcome) -> Outcome:
    """A limit that is reached while a file loads says so: no call is to blame for it."""
    if outcome.kind not in LIMITS:
        return outcome
    text = f"{outcome.text.removesuffix(' in one call')} while importing {module}.py"
    if outcome.frames:
        last = outcome.frames[-1]
        text += f", at line {last.line}" if last.file == f"{module}.py" else f", in {last.file} at line {last.line}"
    return replace(outcome, text=text)


def broken_device(outcome: Outcome) -> bool:
    """Whether a call broke its process's CUDA context, in which nothing works afterwards: the process must be ended."""
    told = outcome.type.endswith("AcceleratorError") or "CUDA error" in outcome.text
    return outcome.kind == "raised" and told and "out of memory" not in outcome.text


class _Ended(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class _Clock:
    """The CPU clock of a group's process, read no more often than it matters: in a container a look is a request."""

    def __init__(self, worker: Worker | ContainerWorker, pid: int) -> None:
        self._worker, self._pid = worker, pid
        self._seconds, self._at = worker.cpu(pid), time.monotonic()
        self._delayed, self._asked = 0.0, -math.inf

    def look(self, age: float) -> float:
        """CPU seconds so far, as they were at most `age` seconds ago."""
        now = time.monotonic()
        if now - self._at > age:
            self._seconds, self._at = self._worker.cpu(self._pid), now
        return self._seconds

    def delay(self, age: float) -> float:
        """Seconds that it could have run and was made to wait, as they were at most `age` seconds ago."""
        now = time.monotonic()
        if now - self._asked > age:
            self._delayed, self._asked = self._worker.delay(self._pid), now
        return self._delayed


class _Watch:
    """Limits of one call, seen from outside: CPU seconds of the process and of what it has the judge do, progress, and output."""

    patience = 0.25

    def __init__(self, clock: _Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self._start = self._marked = self._used = clock.look(0.25)
        self._began = self._since = time.monotonic()
        self._delayed = clock.delay(0.25)
        self._judges_cpu = self._judges_wall = self._children = 0.0
        self._children_before: float | None = None
        self._bytes = 0

    def used(self) -> float:
        """CPU seconds so far."""
        return self._used - self._start + self._judges_cpu + self._children

    def taken(self) -> float:
        """Seconds so far in which it worked or was asleep."""
        return self.used() + max(self._asleep(), 0.0)

    def _asleep(self) -> float:
        """Seconds in which it neither worked nor was kept from it; none in a call that takes a moment."""
        wall = time.monotonic() - self._began
        if wall < 0.05:
            return 0.0
        return wall - (self._used - self._start) - self._judges_wall - (self._clock.delay(0.05) - self._delayed)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """While the judge works for the submission, or on what it said: CPU seconds count, time does not."""
        wall, cpu = time.monotonic(), time.thread_time()
        yield
        self._judges_cpu += time.thread_time() - cpu
        self._judges_wall += time.monotonic() - wall
        self._since = time.monotonic()

    def family(self, children: float, count: int) -> None:
        """CPU seconds of the process's children so far: what these use between two looks counts for the call."""
        before, self._children_before = self._children_before, children
        self._children += max(0.0, children - before) if before is not None else 0.0
        if count > 1 and self.used() > self._limits.cpu_seconds:
            raise _Ended("timeout", f"more than {self._limits.cpu_seconds:g} s of CPU in {count} processes")

    def printed(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.output_mib * _MIB:
            raise _Ended("output-flood", f"more than {self._limits.output_mib} MiB printed in one call")

    def check(self) -> None:
        self._used = max(self._used, self._clock.look(0.05))
        if self.used() > self._limits.cpu_seconds:
            raise _Ended("timeout", f"more than {self._limits.cpu_seconds:g} s of CPU in one call")
        now = time.monotonic()
        if self._used - self._marked > 0.02 * self._limits.idle_seconds:
            self._marked, self._since = self._used, now
        elif now - self._since > self._limits.idle_seconds:
            raise _Ended("timeout", f"no progress in {self._limits.idle_seconds:g} s: the call waits for something")
        most = 4 * self._limits.idle_seconds
        if now - self._began > most and self._asleep() > most:
            raise _Ended("timeout", f"more than {most:g} s asleep in one call")
        most = self._limits.wall * self._limits.cpu_seconds + most
        if now - self._began - self._judges_wall > most:
            raise _Ended("timeout", f"more than {most:g} s in one call")
