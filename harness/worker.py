"""The student side of the grader (Linux only): a process that knows nothing, and forks a child for every group of checks.

    python -P -s -S -c "…main(DESCRIPTOR)"      with the library's folder as the first of its path

The parent loads NumPy (and torch where asked), runs no operation, and forks on request, so that a group costs milliseconds
and cannot harm the next. A child gets a wire, a pipe for what it prints, its limits, and then the submission; it answers one
`Call` at a time and ends when its wire closes. One that has loaded a slow file leaves a copy of itself for the groups to come
(harness.hosting.spare). Only plain data crosses (harness.wire).
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import device, executor, fence, frames, values, wire
from harness.hosting import spare
from harness.subject import Call, Outcome
from harness.values import Callback, Proxy

_PR_SET_CHILD_SUBREAPER = 36

_leaders: set[int] = set()  # groups that are to live, by the pid of their first process
_statuses: dict[int, int] = {}  # exit statuses of leaders that have been collected
_lines: dict[int, socket.socket] = {}  # on which a group's first process says what copy it has left
_spares: dict[int, spare.Spare] = {}  # those copies, by their number


def main(descriptor: int) -> None:
    """Serves the control socket: a line of JSON a request, descriptors beside it, a line of JSON an answer.

    While the libraries load, the kernel ends this process with the judge; afterwards the closed socket does, so that
    what a group has left in the background is ended too.
    """
    fence.end_with_parent(os.getppid())
    control = socket.socket(fileno=descriptor)
    _become_subreaper()
    hello = json.loads(wire.receive(control))
    for module in hello["preload"]:
        importlib.import_module(module)
    for module in hello["wanted"]:
        with contextlib.suppress(Exception):  # where it is not installed, the submission's own import says so
            importlib.import_module(module)
    if "torch" in hello["preload"]:
        sys.modules["torch"].set_num_threads(1)
        device.kept()
    fence.compile_filters()
    gc.collect()
    gc.freeze()  # children share these pages; a collection there would copy them
    layers = fence.isolate_worker()
    about = {
        "threads": threading.active_count(),
        "python": sys.version.split()[0],
        "layers": layers,
        "standard": sys.path[-3:],
        "landlock": fence.landlock_abi(),
    }
    wire.send(control, json.dumps(about).encode())
    fence.outlive_parent()
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
            request: dict[str, Any] = json.loads(wire.receive(control)) if message else {"do": "leave"}
        except (ConnectionError, wire.Closed):
            request = {"do": "leave"}
        if request["do"] == "fork":
            _fork(control, request, descriptors)
        elif request["do"] == "spare":
            wire.send(control, json.dumps({"spare": _keep_spare(request["pid"], request["folder"])}).encode())
        elif request["do"] == "resume":
            wire.send(control, json.dumps(_resume(request["pid"], descriptors)).encode())
        elif request["do"] == "where":
            with contextlib.suppress(OSError):
                os.kill(request["pid"], signal.SIGUSR1)
            wire.send(control, b"{}")
        elif request["do"] == "end":
            wire.send(control, json.dumps({"status": _end(request["pid"], request["uid"])}).encode())
        else:  # the judge has gone, or is done: whatever is left of any group goes too
            _leaders.clear()
            _end_family()
            os._exit(0)  # nothing is left to be tidied, and taking libraries down costs time


def _become_subreaper() -> None:
    """Orphans of a group come to this process, which ends them."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _fork(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    parent = os.getpid()
    ours, theirs = spare.open_line()
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        theirs.close()
        _leaders.add(pid)
        _lines[pid] = ours
        wire.send(control, json.dumps({"pid": pid}).encode())
        return
    status = 1
    try:
        control.close()
        _child(request, parent, theirs.detach(), *descriptors)
        status = 0
    except wire.Closed:
        status = 0
    finally:
        os._exit(status)


def _keep_spare(pid: int, folder: str, held: bytes | None = None) -> int:
    """Takes up the copy that a group says it has left; 0 where it is none that a later group may go on from."""
    found = spare.received(_lines[pid], folder, pid, held) if pid in _lines else None
    if found is None:
        return 0  # what was left, if anything, ends with the group
    _leaders.add(found.pid)
    _spares[found.pid] = found
    return found.pid


def _resume(pid: int, descriptors: list[int]) -> dict[str, int]:
    """Lets a copy go on as a group: its number, and that of the copy that it has left in turn. 0 where it cannot."""
    kept = _spares.pop(pid, None)
    try:
        if kept is None or not kept.unchanged():
            return {"pid": 0, "spare": 0}
        kept.resume(descriptors)
        _lines[pid] = kept.line
        return {"pid": pid, "spare": _keep_spare(pid, kept.folder, kept.held)}
    except OSError:
        return {"pid": 0, "spare": 0}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


# -- ending ------------------------------------------------------------------------------------------------------------


def _end(pid: int, uid: int | None) -> int:
    """Ends a group and whatever it has left behind. Gives its exit status: its own, where it had ended itself."""
    for line in (_lines.pop(pid, None), _spares[pid].line if pid in _spares else None):
        if line is not None:
            line.close()
    _spares.pop(pid, None)
    if pid in _leaders:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _statuses[pid] = os.waitpid(pid, 0)[1]
        _leaders.discard(pid)
    if _left_behind():
        if uid is not None:
            _end_user(uid)
        _end_family()
    return _statuses.pop(pid, 0)


def _left_behind() -> bool:
    """Whether there are children other than living leaders: orphans come here once their group's leader is dead."""
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:  # a kernel that does not say
        return True
    return any(int(child) not in _leaders for child in children)


def _end_user(uid: int) -> None:
    """Kills every process of a user, in one stroke that no fork escapes."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(pid, 0)


def _end_family() -> None:
    """Kills every process below this one but living groups: all are stopped first, so that none forks on meanwhile."""
    for _ in range(100):
        stopped: set[int] = set()
        while new := _descendants() - stopped:
            for pid in new:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new
        for pid in stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _collect()
        if not stopped:
            return
        time.sleep(0.001)


def _collect() -> None:
    """Takes the exit statuses of children that have ended, and keeps those that the judge may ask for."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in _leaders:
                _leaders.discard(pid)
                _statuses[pid] = status


def _descendants() -> set[int]:
    """Living processes below this one, without living leaders and what is below them."""
    below: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z" or int(parent) != os.getpid():
                    below.setdefault(int(parent), []).append(int(entry.name))
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        children = [pid for pid in below.get(todo.pop(), []) if pid not in _leaders and pid not in found]
        found.update(children)
        todo += children
    return found


# -- a group -----------------------------------------------------------------------------------------------------------


def _child(request: dict[str, Any], parent: int, line: int, wire_descriptor: int, output_descriptor: int) -> None:
    os.setsid()
    line = fcntl.fcntl(line, fcntl.F_DUPFD, 100)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_descriptor, 1)
    os.dup2(output_descriptor, 2)
    os.close(output_descriptor)
    os.close(null)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)  # for a judge that asks where a call is
    os.dup2(wire_descriptor, 3)
    os.dup2(line, 4)
    os.closerange(5, 2**16)
    link = socket.socket(fileno=3)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    plan = request["plan"]
    folder = Path(request["folder"])
    in_memory = request["in_memory"] and fence.own_folder(str(folder), plan["folder_bytes"], plan["folder_files"])
    root, scratch = furnish(folder, Path(request["source"]), plan["uid"])
    os.environ.update(HOME=str(scratch), TMPDIR=str(scratch))
    tempfile.tempdir = None  # the worker has asked once, and its own is out of reach from here
    os.chdir(root)
    plan["read"].append(f"/proc/{os.getpid()}")
    layers = [*(["folder"] if in_memory else []), *fence.raise_fence(plan, parent)]
    gpu = use_device(plan["device"], plan["device_memory"])
    wire.send(link, wire.encode({"is": "ready", "layers": layers, "device": gpu}))
    _serve(link, root, request["stand_ins"], socket.socket(fileno=4), parent)


def use_device(name: str, memory: int) -> str:
    """Makes torch's tensors lie on this device from now on, at most `memory` bytes of them. Gives its model.

    CUDA begins here, after the fork and behind the fence: no other group shares its context, or the fault that breaks it.
    """
    if name == "cpu":
        return ""
    import torch

    torch.set_default_device(name)
    total = torch.cuda.get_device_properties(name).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory / total))
    torch.zeros(1)
    torch.cuda.synchronize()
    return str(torch.cuda.get_device_name(name))


def furnish(folder: Path, source: Path, uid: int | None) -> tuple[Path, Path]:
    """Puts a copy of the submission and an empty scratch folder into a group's folder. Gives both."""
    root, scratch = folder / "submission", folder / "scratch"
    scratch.mkdir()
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, root, symlinks=True, ignore=skip, copy_function=shutil.copyfile)
    (root / "report").mkdir(exist_ok=True)  # where figures are saved to
    if uid is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    return root, scratch


def _serve(link: socket.socket, root: Path, stand_ins: bool, line: socket.socket, worker: int) -> None:
    """Answers the judge's calls until the wire closes."""
    turn = threading.RLock()  # a student's thread may call back while another waits
    answering = False

    def invoke(number: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with turn:
            if not answering:
                raise RuntimeError("the call that lent this function is over")
            frame = wire.encode({"is": "callback", "number": number, "args": args, "kwargs": kwargs})
            try:
                frames.measure(frame)
            except wire.BadFrame as error:
                raise MemoryError(str(error)) from None
            wire.send(link, frame)
            try:
                reply = wire.decode(wire.receive(link), back)
            except wire.Closed:
                os._exit(0)
        if "raise" in reply:
            kinds = {"MemoryError": MemoryError, "ValueError": ValueError, "TypeError": TypeError}
            raise kinds.get(reply["raise"][0], RuntimeError)(reply["raise"][1])
        return reply["value"]

    def back(number: int, rest: Any) -> Any:
        return Proxy(number, tuple(rest[0])) if isinstance(rest, tuple) else Callback(number, rest)  # type: ignore[arg-type]

    lent = wire.decode(wire.receive(link), back) if stand_ins else {}
    asked = executor.Executor(root, lent, invoke)
    with asked.active():
        while True:
            request = wire.decode(wire.receive(link), back)
            if request["name"] == "@spare":
                resumed = False
                while (own := spare.leave(line, worker)) is not None:  # in a copy, which leaves one in turn
                    line, resumed = own, True
                if resumed:
                    wire.send(link, wire.encode({"is": "ready"}))
                else:
                    _answer(link, Outcome("value", True))
                continue
            if request["name"] == "@lend":
                _answer(link, Outcome("value", asked.lend(request["args"][0])))
                continue
            call = Call(request["name"], tuple(request["args"]), request["kwargs"], request["keep"], request["echo"])
            answering = True
            outcome = asked.run(call)
            with turn:
                answering = False
                _answer(link, outcome)


def _answer(link: socket.socket, outcome: Outcome) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    try:
        frame = wire.encode({"is": "outcome", **as_data(outcome)})
    except Exception as error:  # a name that is no text, say, or a function
        kind = "MemoryError" if isinstance(error, MemoryError) else "ValueError"
        frame = _instead(kind, f"the result cannot be handed over: {type(error).__name__}")
    try:
        frames.measure(frame)
    except wire.BadFrame as error:
        frame = _instead("MemoryError", f"the result is too large to hand over: {error}")
    wire.send(link, frame)


def _instead(kind: str, text: str) -> bytes:
    return wire.encode({"is": "outcome", **as_data(Outcome("raised", type=kind, text=text))})


def as_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "value": _crossing(outcome.value),
        "echo": [_crossing(value) for value in outcome.echo],
        "code": outcome.code,
        "type": outcome.type,
        "text": outcome.text[: values.MAX_TEXT],
        "frames": [[f.file, f.line, f.text] for f in outcome.frames],
    }


def _crossing(value: Any) -> Any:
    """The value, with names in place of arrays of more dimensions than the wire takes."""
    if isinstance(value, np.ndarray):
        return values.Opaque("array of more than 32 dimensions") if value.ndim > 32 else value
    if isinstance(value, list | tuple):
        return type(value)(_crossing(item) for item in value)
    return {name: _crossing(item) for name, item in value.items()} if isinstance(value, dict) else value
