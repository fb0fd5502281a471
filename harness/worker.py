"""The student side of the grader (Linux only): a process that knows nothing, and forks a child for every group of checks.

    python -P -s -S -c "…main(DESCRIPTOR)"      with the library's folder as the first of its path

The parent loads NumPy (and torch where asked), runs no operation, and forks on request, so that a group costs milliseconds
and cannot harm the next. A child gets a wire, a pipe for what it prints, its limits, and then the submission; it answers one
`Call` at a time and ends when its wire closes. Only plain data crosses (harness.wire).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from harness import executor, fence, values, wire
from harness.subject import Call, Outcome
from harness.values import Callback, Proxy

_PR_SET_CHILD_SUBREAPER = 36


def main(descriptor: int) -> None:
    """Serves the control socket: a line of JSON a request, descriptors beside it, a line of JSON an answer."""
    control = socket.socket(fileno=descriptor)
    _become_subreaper()
    hello = json.loads(wire.receive(control))
    for module in hello["preload"]:
        importlib.import_module(module)
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        importlib.import_module("pyseccomp")
    if "torch" in hello["preload"]:
        sys.modules["torch"].set_num_threads(1)
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
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
            request = json.loads(wire.receive(control)) if message else {"do": "end"}
        except (ConnectionError, wire.Closed):
            request = {"do": "end"}
        if request["do"] == "fork":
            _fork(control, request, descriptors)
        elif request["do"] == "wait":
            wire.send(control, json.dumps({"status": _reap(request["pid"])}).encode())
        else:  # the judge has gone, or is done: whatever is left of any group goes too
            _end_descendants()
            return


def _become_subreaper() -> None:
    """Orphans of a group come to this process, where the judge finds and ends them."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _fork(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        wire.send(control, json.dumps({"pid": pid}).encode())
        return
    status = 1
    try:
        control.close()
        _child(request, *descriptors)
        status = 0
    except wire.Closed:
        status = 0
    finally:
        os._exit(status)


def _reap(pid: int) -> int:
    """The child's exit status; the group's orphans are collected on the way."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return 0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return status


def _child(request: dict[str, Any], wire_descriptor: int, output_descriptor: int) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_descriptor, 1)
    os.dup2(output_descriptor, 2)
    os.close(output_descriptor)
    os.close(null)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)
    os.dup2(wire_descriptor, 3)
    os.closerange(4, 256)
    link = socket.socket(fileno=3)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root, scratch = Path(request["root"]), request["scratch"]
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    os.chdir(root)
    plan = request["plan"]
    plan["read"].append(f"/proc/{os.getpid()}")
    layers = fence.raise_fence(plan)
    wire.send(link, wire.encode({"is": "ready", "layers": layers}))
    _serve(link, root, request["stand_ins"])


def _end_descendants() -> None:
    """Kills every process below this one, until there is none."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            if not children:
                return
            for pid in children:  # orphans of these come here next: this process is their subreaper
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _serve(link: socket.socket, root: Path, stand_ins: bool) -> None:
    """Answers the judge's calls until the wire closes."""
    turn = threading.RLock()  # a student's thread may call back while another waits

    def invoke(number: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with turn:
            wire.send(link, wire.encode({"is": "callback", "number": number, "args": args, "kwargs": kwargs}))
            try:
                reply = wire.decode(wire.receive(link), back)
            except wire.Closed:
                os._exit(0)
        if "raise" in reply:
            kind = {"MemoryError": MemoryError, "ValueError": ValueError}.get(reply["raise"][0], RuntimeError)
            raise kind(reply["raise"][1])
        return reply["value"]

    def back(number: int, rest: Any) -> Any:
        return Proxy(number, tuple(rest[0])) if isinstance(rest, tuple) else Callback(number, rest)  # type: ignore[arg-type]

    lent = wire.decode(wire.receive(link), back) if stand_ins else {}
    asked = executor.Executor(root, lent, invoke)
    with asked.active():
        while True:
            request = wire.decode(wire.receive(link), back)
            call = Call(request["name"], tuple(request["args"]), request["kwargs"], request["keep"], request["echo"])
            _answer(link, asked.run(call))


def _answer(link: socket.socket, outcome: Outcome) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    try:
        frame = wire.encode({"is": "outcome", **as_data(outcome)})
        wire.send(link, frame)
    except (MemoryError, wire.BadFrame) as error:
        text = f"the result is too large to hand over: {error}"
        wire.send(link, wire.encode({"is": "outcome", **as_data(Outcome("raised", type="MemoryError", text=text))}))


def as_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "value": outcome.value,
        "echo": list(outcome.echo),
        "code": outcome.code,
        "type": outcome.type,
        "text": outcome.text[: values.MAX_TEXT],
        "frames": [[f.file, f.line, f.text] for f in outcome.frames],
    }

