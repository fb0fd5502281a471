"""Many streams of bytes over one: what a container's standard input and output carry.

A frame is a channel, a length, and that many bytes; a length of 0 says that the channel's end has closed. Both sides run the
same loop in a thread of its own, so that neither ever waits for the other while it has something to take.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
from collections import deque
from collections.abc import Callable

from harness import frames

_HEAD = struct.Struct("<II")
_PART = 2**18
_AHEAD = 8 * 2**20  # bytes that may wait for the other side before no more are taken from the channels
_MOST = frames.MAX_BYTES + 2**20  # bytes that may wait for a channel's reader: one answer; more is a flood, and ends it


class Mux:
    """Channels between descriptors of this process and their counterparts on the other side.

    `read` gives what has come from `source`: b"" for nothing yet, None at its end; `first` is the end of channel 0. Every
    descriptor handed in but `source` and `sink` is this object's to close.
    """

    def __init__(self, source: int, sink: int, read: Callable[[], bytes | None], first: int) -> None:
        self._source, self._sink, self._read = source, sink, read
        self._ends, self._waiting = {0: first}, {0: bytearray()}  # there before anything is read
        os.set_blocking(first, False)
        self._inbox, self._outbox = bytearray(), bytearray()
        self._new: deque[tuple[int, int]] = deque()
        self._woken, self._wake = os.pipe()
        os.set_blocking(sink, False)
        os.set_blocking(self._woken, False)
        self._thread = threading.Thread(target=self._run, name="mux", daemon=True)
        self._thread.start()

    def attach(self, channel: int, end: int) -> None:
        """From now on what comes on `channel` is written to `end`, and what can be read from `end` is sent.

        Called before the other side knows the channel: what comes on an unknown one is dropped.
        """
        os.set_blocking(end, False)
        self._new.append((channel, end))
        with contextlib.suppress(OSError):
            os.write(self._wake, b"!")

    def join(self, seconds: float) -> None:
        """Waits until the stream has ended."""
        self._thread.join(seconds)

    # -- the loop ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except OSError:  # the other side has gone
            pass
        finally:
            while self._new:
                os.close(self._new.popleft()[1])
            for end in self._ends.values():
                os.close(end)
            self._ends.clear()

    def _turn(self) -> bool:
        taking = list(self._ends.values()) if len(self._outbox) < _AHEAD else []
        giving = [self._ends[channel] for channel, waiting in self._waiting.items() if waiting]
        giving += [self._sink] if self._outbox else []
        readable, writable, _ = select.select([self._source, self._woken, *taking], giving, [])
        if self._woken in readable:
            os.read(self._woken, 4096)
        while self._new:
            channel, end = self._new.popleft()
            self._ends[channel], self._waiting[channel] = end, bytearray()
        if self._source in readable:
            part = self._read()
            if part is None:
                return False
            self._inbox += part
            self._deliver()
        for channel, end in list(self._ends.items()):
            if end in readable:
                self._take(channel, end)
            if end in writable and channel in self._ends:
                self._give(channel, end)
        if self._sink in writable:
            with contextlib.suppress(BlockingIOError):
                del self._outbox[: os.write(self._sink, self._outbox[:_PART])]
        return True

    def _deliver(self) -> None:
        """Hands whole frames to their channels."""
        while len(self._inbox) >= _HEAD.size:
            channel, length = _HEAD.unpack_from(self._inbox)
            if length > _PART:
                raise ConnectionError("bytes that no mux sends: what is waited for would never come whole")
            if len(self._inbox) < _HEAD.size + length:
                return
            body = self._inbox[_HEAD.size : _HEAD.size + length]
            del self._inbox[: _HEAD.size + length]
            if channel in self._ends:
                self._waiting[channel] += body
                if length:
                    self._give(channel, self._ends[channel])
                if not length or len(self._waiting.get(channel, b"")) > _MOST:
                    self._drop(channel)

    def _take(self, channel: int, end: int) -> None:
        try:
            part = os.read(end, _PART)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._outbox += _HEAD.pack(channel, len(part)) + part
        if not part:
            self._drop(channel)

    def _give(self, channel: int, end: int) -> None:
        try:
            del self._waiting[channel][: os.write(end, self._waiting[channel])]
        except BlockingIOError:
            pass
        except OSError:  # whoever read from it has gone
            self._waiting[channel].clear()

    def _drop(self, channel: int) -> None:
        os.close(self._ends.pop(channel))
        del self._waiting[channel]
