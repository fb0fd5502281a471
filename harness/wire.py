"""The wire between judge and worker: frames of a four-byte length and msgpack, data only, size-capped.

Arrays travel as dtype, shape, order and bytes. Functions of the judge travel as a number that the judge gave them. A frame
that is not of this form raises `BadFrame`, on either side, whatever its bytes.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from harness import values
from harness.values import Blank, Callback, Dtype, Handle, Laid, Opaque, Proxy

MAX_FRAME = 512 * 2**20
_KINDS = "fiub"
_ARRAY, _HANDLE, _CALLBACK, _OPAQUE, _DTYPE, _BLANK, _TUPLE, _PROXY, _BIG = range(1, 10)
Number = Callable[[Any], int]
Back = Callable[[int, Any], Any]


class BadFrame(Exception):
    """Bytes on the wire that are not a frame of this protocol."""


class Closed(Exception):
    """The other end has gone."""


def _pack(code: int, *fields: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(fields))


def _no_functions(value: Any) -> int:
    raise BadFrame("a function cannot cross in this direction")


def encode(value: Any, number: Number = _no_functions) -> bytes:
    """Plain data and the kinds of harness.values as bytes; `number` gives a function of the judge its number."""

    def walk(item: Any) -> Any:
        kind = type(item)
        if item is None or kind is bool or kind is float:
            return item
        if kind is dict:
            return {str(k): walk(v) for k, v in item.items()}
        if isinstance(item, np.ndarray):
            return array(item)
        if isinstance(item, Laid):
            return array(item.array, item.order, item.writeable)
        if isinstance(item, Handle):
            return _pack(_HANDLE, item.id, item.kind, item.shape, item.dtype)
        if isinstance(item, Callback):
            return _pack(_CALLBACK, number(item.function), item.by_handle)
        if isinstance(item, Proxy):
            return _pack(_PROXY, number(item.callback), item.properties)
        if isinstance(item, Opaque):
            return _pack(_OPAQUE, item.type_name)
        if isinstance(item, Dtype):
            return _pack(_DTYPE, item.name, item.form)
        if isinstance(item, Blank):
            return _pack(_BLANK, item.shape, item.dtype)
        if isinstance(item, tuple):
            return msgspec.msgpack.Ext(_TUPLE, msgspec.msgpack.encode([walk(i) for i in item]))
        if isinstance(item, list):
            return [walk(i) for i in item]
        if isinstance(item, dict):
            return {str(k): walk(v) for k, v in item.items()}
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, int) and not isinstance(item, bool) and not -(2**63) <= item < 2**63:
            return _pack(_BIG, str(item))
        if isinstance(item, str):
            return item.encode("utf-8", "replace").decode()
        return item

    def array(item: Any, order: str = "C", writeable: bool = True) -> Any:
        return _pack(_ARRAY, item.dtype.str, item.shape, order, writeable, np.ascontiguousarray(item).tobytes())

    return msgspec.msgpack.encode(walk(value))


def decode(data: bytes, back: Back | None = None) -> Any:
    """The value in a frame; `back(number, value)` turns a numbered function into one that can be called. Raises BadFrame."""

    def extension(code: int, body: memoryview) -> Any:
        fields = msgspec.msgpack.decode(body, ext_hook=extension) if code == _TUPLE else msgspec.msgpack.decode(body)
        if code == _TUPLE:
            return tuple(fields)
        if code == _ARRAY:
            dtype_text, shape, order, writeable, raw = fields
            dtype = np.dtype(str(dtype_text))
            if dtype.kind not in _KINDS or len(shape) > 32 or any(type(s) is not int or s < 0 for s in shape):
                raise BadFrame("an array of a kind that may not cross")
            if math.prod(shape) * dtype.itemsize != len(raw) or values.is_hollow(shape):
                raise BadFrame("an array whose size is not that of its bytes")
            found = np.frombuffer(raw, dtype).reshape(shape).copy()
            return found if order == "C" and writeable else Laid(found, str(order), bool(writeable))
        if code == _HANDLE:
            id_, kind, shape, dtype_name = fields
            if type(id_) is not int or not 0 <= id_ < 2**63:
                raise BadFrame("a handle of no number that a frame holds")
            return Handle(id_, str(kind), None if shape is None else tuple(int(s) for s in shape), dtype_name)
        if code == _OPAQUE:
            return Opaque(str(fields[0]))
        if code == _DTYPE:
            return Dtype(str(fields[0]), str(fields[1]))
        if code == _BLANK:
            return Blank(tuple(int(s) for s in fields[0]), str(fields[1]))
        if code == _BIG:
            if len(fields[0]) > 400:
                raise BadFrame("a number of too many digits")
            return int(fields[0])
        if code in (_CALLBACK, _PROXY) and back is not None:
            return back(int(fields[0]), tuple(fields[1:]) if code == _PROXY else bool(fields[1]))
        raise BadFrame(f"an unknown kind {code}")

    try:
        return msgspec.msgpack.decode(data, ext_hook=extension)
    except BadFrame:
        raise
    except (
        msgspec.DecodeError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        OverflowError,
        RecursionError,
        AttributeError,
    ) as error:
        raise BadFrame(f"not a frame: {error}") from None


def send(wire: socket.socket, data: bytes) -> None:
    """Raises BadFrame for a frame that is too large, Closed where nobody listens."""
    if len(data) > MAX_FRAME:
        raise BadFrame(f"a value of {len(data)} bytes is too large to cross")
    try:
        wire.sendall(struct.pack("<I", len(data)) + data)  # in one: the other side wakes once a frame
    except (BrokenPipeError, ConnectionError):
        raise Closed from None


def receive(wire: socket.socket) -> bytes:
    """One whole frame. Raises Closed at the end of the stream, BadFrame for a length that no frame has."""
    (size,) = struct.unpack("<I", _exactly(wire, 4))
    if size > MAX_FRAME:
        raise BadFrame(f"a frame of {size} bytes")
    return _exactly(wire, size)


def _exactly(wire: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = wire.recv(min(size - len(parts), 2**20))
        except (ConnectionError, BrokenPipeError):
            raise Closed from None
        if not part:
            raise Closed
        parts += part
    return bytes(parts)
