"""What a worker says, taken as data: every frame is measured, decoded, and held to the kinds that a worker sends.

A submission can take its process over and write on the wire whatever it likes. What is not of these kinds raises BadFrame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness import frames, wire
from harness.subject import Frame, Outcome
from harness.values import MAX_DEPTH, MAX_TEXT, Handle, Opaque
from harness.wire import BadFrame

KINDS = ("value", "raised", "missing")
CODES = ("file-missing", "name-missing", "signature-mismatch", "import-failed", "forbidden-library")
_MOST_FRAMES = 8


def read(frame: bytes) -> dict[str, Any]:
    """The reply in a frame: a dict with "is". Raises BadFrame, and nothing else."""
    try:
        frames.measure(frame)
        reply = wire.decode(frame)
        if type(reply) is not dict:
            raise BadFrame("no reply")
        checked = {name: _checked(value, 0) for name, value in reply.items()}
        if type(checked.get("is", "")) is not str:
            raise BadFrame("a reply of no kind")
        return checked
    except BadFrame:
        raise
    except Exception as error:  # whatever a library makes of bytes that are not what they should be
        raise BadFrame(f"{type(error).__name__}: {error}") from None


def outcome(reply: dict[str, Any]) -> Outcome:
    """An outcome in a reply. Raises BadFrame."""
    try:
        kind, code, name, text, echo = (reply[field] for field in ("kind", "code", "type", "text", "echo"))
        lines = tuple(_line(*line) for line in reply["frames"])
        value = reply["value"]
    except (KeyError, TypeError, ValueError) as error:
        raise BadFrame(f"an outcome without its parts: {error}") from None
    if (
        any(type(word) is not str for word in (kind, code, name, text))
        or kind not in KINDS
        or type(echo) is not list
        or len(lines) > _MOST_FRAMES
        or (kind == "missing" and code not in CODES)
    ):
        raise BadFrame("an outcome of no kind")
    return Outcome(kind, value, tuple(echo), code if kind == "missing" else "", name[:200], text, lines)


def callback(reply: dict[str, Any], lent: int) -> tuple[int, list[Any], dict[str, Any]]:
    """Which of the `lent` functions is called, and with what. Raises BadFrame."""
    number, args, kwargs = (reply.get(field) for field in ("number", "args", "kwargs"))
    if type(number) is not int or not 0 <= number < lent or type(args) is not list or type(kwargs) is not dict:
        raise BadFrame("a call of no function that was lent")
    return number, args, kwargs


def _line(file: Any, line: Any, text: Any) -> Frame:
    if type(file) is not str or type(line) is not int or type(text) is not str:
        raise BadFrame("a frame that is none")
    return Frame(file[:200], line, text[:200])


def _checked(value: Any, depth: int) -> Any:
    """A value of a kind that a worker sends, with nothing odd in it."""
    kind = type(value)
    if value is None or kind in (bool, float):
        return value
    if kind is int:  # no answer is as large, and NumPy's functions take no larger one
        return value if -(2**63) <= value < 2**63 else Opaque("number of more than 64 bits")
    if kind is str:
        return value[:MAX_TEXT]
    if kind is np.ndarray:
        # a byte that is neither 0 nor 1 would be a truth value of its own kind
        return value.view(np.uint8) != 0 if value.dtype == np.bool_ else value
    if kind is Handle:
        return _handle(value)
    if kind is Opaque:
        return Opaque(value.type_name[:300])
    if depth <= MAX_DEPTH + 1:
        if kind in (list, tuple):
            return kind(_checked(item, depth + 1) for item in value)
        if kind is dict and all(type(key) is str for key in value):
            return {key: _checked(item, depth + 1) for key, item in value.items()}
    raise BadFrame(f"a {kind.__name__} that no worker sends")


def _handle(handle: Handle) -> Handle:
    sizes = handle.shape or ()
    fits = len(sizes) <= 32 and all(size >= 0 for size in sizes) and math.prod(max(s, 1) for s in sizes) < 2**40
    if (
        not fits
        or len(handle.kind) > 200
        or type(handle.dtype) not in (str, type(None))
        or len(handle.dtype or "") > 40
    ):
        raise BadFrame("a handle of nothing that is kept")
    return handle
