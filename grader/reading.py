"""Reads what was handed in where that can do no harm: in a child process with limits.

Parsers of archives, Python, TOML, JSON and pictures take minutes or gigabytes over bytes that were made for it. What they
found crosses as plain data, piece by piece, so that a limit costs no more than what comes after it.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from grader.sandbox.guard import bounded_memory
from harness import check as checking
from harness import fence, wire
from harness.check import Check, CheckResult, Fail

SECONDS = 5  # of CPU
BUSY = 12  # times that, of wall time: a machine may have other things to do
MEMORY = 768 * 2**20
_END = {"the": "end"}

Tell = Callable[[Any], None]


@dataclass(frozen=True)
class Read:
    """What was told, and which limit was reached before the end: empty where none was."""

    told: tuple[Any, ...]
    limit: str = ""


def read(work: Callable[[Tell], None], until: float | None = None) -> Read:
    """Runs `work` in a child, which tells plain data as it comes to it. `until` is when it must have ended, by time.monotonic."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: the child needs none of them
        pid = os.fork()
    if pid == 0:
        ours.close()
        _child(work, theirs, parent)
    theirs.close()
    end = time.monotonic() + BUSY * SECONDS
    end = end if until is None else min(end, until)
    told: list[Any] = []
    limit = ""
    try:
        while True:
            ours.settimeout(max(end - time.monotonic(), 0.001))
            value = wire.decode(wire.receive(ours))
            if value == _END:
                break
            told.append(value)
    except TimeoutError:
        limit = "longer than there was time for"
    except wire.Closed:
        limit = f"more than {SECONDS} s of CPU"
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if told and type(told[-1]) is dict and "limit" in told[-1]:
        limit = str(told.pop()["limit"])
    return Read(tuple(told), limit)


def _child(work: Callable[[Tell], None], link: socket.socket, parent: int) -> NoReturn:
    try:
        fence.end_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the judge's to take
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def tell(value: Any) -> None:
            wire.send(link, wire.encode(value))

        try:
            with bounded_memory(MEMORY):
                work(tell)
        except MemoryError:
            tell({"limit": f"more than {MEMORY >> 20} MiB"})
        except Exception as error:
            tell({"limit": f"more than it can ({type(error).__name__}: {error})"[:300]})
        tell(_END)
    finally:
        os._exit(0)


def run(check: Check, folder: Any, seed: int, until: float | None = None) -> CheckResult:
    """The result of a check of files; one that reaches a limit over them has failed. It was not run where `until` came first."""
    began = time.monotonic()
    found = read(lambda tell: tell(_result(check, folder, seed)), until)
    if not found.told and until is not None and time.monotonic() >= until:
        return CheckResult(check, "not-run", reason="the time for it was up", seconds=time.monotonic() - began)
    if not found.told:
        failure = Fail(f"reading the file takes {found.limit}", "a file that opens at once")
        return CheckResult(check, "failed", failure, seconds=time.monotonic() - began)
    said = dict(found.told[0])
    failure = said.pop("failure")
    result = CheckResult(check, failure=Fail(**failure) if failure else None, **said)
    return replace(result, notes=tuple(result.notes), told=tuple(result.told))


def _result(check: Check, folder: Any, seed: int) -> dict[str, Any]:
    result = checking.run(check, folder, seed)
    if result.reason.startswith(MemoryError.__name__):
        raise MemoryError
    failure = result.failure
    words = {name: getattr(failure, name) for name in ("seen", "expected", "code", "call")} if failure else None
    names = ("status", "reason", "seconds", "notes", "examples", "told", "broke")
    return {"failure": words, **{name: getattr(result, name) for name in names}}
