"""What runs in a container: starts workers for a judge outside, who speaks over standard input and output alone.

    python -P -s -c "from harness.hosting.bridge import main; main()"

The judge's requests come on channel 0, a line of JSON each; a group's wire and its output are channels of their own.
Whatever a submission prints goes to its group's output: the container's own streams are put away before any worker starts.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import wire
from harness.hosting.host import SandboxError, Worker
from harness.hosting.mux import Mux

SUBMISSION = Path("/submission")
_PASSED_ON = frozenset(
    (
        "end",
        "where",
        "clean",
        "cpu",
        "delay",
        "peak_memory",
        "has_ended",
        "family",
        "family_cpu",
        "outgrown",
        "keep_spare",
    )
)


def main() -> None:
    """Serves until the judge closes channel 0."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)

    def read() -> bytes | None:
        return os.read(source, 2**18) or None

    ours, theirs = socket.socketpair()
    mux = Mux(source, sink, read, theirs.detach())
    workers: dict[str, Worker] = {}
    scratch = Path(tempfile.mkdtemp(prefix="attnlab-"))
    try:
        while True:
            request = json.loads(wire.receive(ours))
            wire.send(ours, json.dumps(_answer(request, workers, scratch, mux)).encode())
    except wire.Closed:
        pass
    finally:
        for worker in workers.values():
            worker.close()


def _answer(request: dict[str, Any], workers: dict[str, Worker], scratch: Path, mux: Mux) -> dict[str, Any]:
    """{"value": …}, or {"error": text} where a worker does not start or answer."""
    kind, args = request["kind"], request["args"]
    try:
        if request["do"] == "prepare":
            if kind not in workers or not workers[kind].alive():
                workers[kind] = Worker(kind, scratch, sys.executable, SUBMISSION)
            return {"value": workers[kind].pid}
        worker = workers[kind]
        if request["do"] == "greet":
            worker.greet()
            return {"value": worker.about}
        if request["do"] == "fork":
            wired, spoken, plan, stand_ins = args
            forked = worker.fork(SUBMISSION, plan, stand_ins)
            mux.attach(wired, forked.link.detach())
            mux.attach(spoken, forked.heard)
            return {"value": forked.pid}
        if request["do"] == "resume":
            wired, spoken, spare = args
            resumed = worker.resume(spare)
            if resumed is None:
                return {"value": None}
            mux.attach(wired, resumed[0].link.detach())
            mux.attach(spoken, resumed[0].heard)
            return {"value": resumed[1]}
        if request["do"] == "close":
            workers.pop(kind).close()
            return {"value": None}
        if request["do"] in _PASSED_ON:
            return {"value": getattr(worker, request["do"])(*args)}
        return {"error": f"no request {request['do']}"}
    except SandboxError as error:
        return {"error": str(error)}
