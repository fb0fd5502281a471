"""A limit on a call in this very process: what a student's own run ends an endless loop with.

A signal raises TimeLimit in the main thread, whatever runs there; where a system has no such signals, a watching thread does. A
student's `except:` may catch it: it comes again and again.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

WALL = 6
"""How many times its CPU seconds a call may take of wall time: one that waits for something ends too."""

_AGAIN = 0.5  # seconds after which it is raised once more, where it was caught
_running = False


def running() -> bool:
    """Whether a limit is set: a call that is made within another ends with that one."""
    return _running


class TimeLimit(BaseException):
    """The call has taken too long."""


@contextlib.contextmanager
def of(seconds: float) -> Iterator[None]:
    """Raises TimeLimit in what runs in here beyond these CPU seconds, or WALL times as many in all.

    Outside of the main thread nothing is limited.
    """
    global _running
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _running = True
    try:
        with _by_signals(seconds) if hasattr(signal, "setitimer") else _by_watching(seconds):
            yield
    finally:
        _running = False


def _text(seconds: float, what: str) -> str:
    return f"more than {seconds:g} s of {what} in one call"


@contextlib.contextmanager
def _by_signals(seconds: float) -> Iterator[None]:
    clocks = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds, "CPU"),
        (signal.SIGALRM, signal.ITIMER_REAL, WALL * seconds, "time"),
    )
    before = []
    for number, clock, most, what in clocks:

        def end(_number: int, _frame: FrameType | None, text: str = _text(most, what)) -> None:
            raise TimeLimit(text)

        before.append(signal.signal(number, end))
        signal.setitimer(clock, most, _AGAIN)
    try:
        yield
    finally:
        for (number, clock, *_), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


@contextlib.contextmanager
def _by_watching(seconds: float) -> Iterator[None]:
    over, thread = threading.Event(), threading.get_ident()
    began, used = time.monotonic(), time.process_time()

    def watch() -> None:
        while not over.wait(_AGAIN):
            if time.process_time() - used > seconds or time.monotonic() - began > WALL * seconds:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeLimit))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except TimeLimit:
        raise TimeLimit(_text(seconds, "CPU")) from None
    finally:
        over.set()
        watcher.join()
