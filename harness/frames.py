"""How large a frame of the worker may be, decided by its bytes before anything is made of them.

A frame of a few megabytes can stand for gigabytes of small objects, or claim them in a header. Counting its parts costs
microseconds for an honest frame, and stops at the cap for any other.
"""

from __future__ import annotations

from harness import values
from harness.wire import BadFrame

MAX_BYTES = 32 * 2**20  # 2048 × 2048 numbers
MAX_PARTS = 50_000  # of lists, tuples and dicts; an array is one, however large
MAX_TEXT_BYTES = 4 * values.MAX_TEXT

# Bytes after a token's first that say its length (of text, bytes, extensions) or its number of parts (of lists, maps).
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_EXTENSIONS = {
    0xC7: 2,
    0xC8: 3,
    0xC9: 5,
    **dict.fromkeys(range(0xD4, 0xD9), 1),
}  # length and kind; what is inside is parts too
_FIXED = {
    0xC0: 0,
    0xC2: 0,
    0xC3: 0,
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}


def measure(frame: bytes) -> int:
    """The number of parts in a frame. Raises BadFrame where it, its parts or one of its texts are too many or too large."""
    if len(frame) > MAX_BYTES:
        raise BadFrame(f"a value of {len(frame)} bytes is too large to cross")
    at = parts = 0
    promised = 1
    size = len(frame)
    while at < size:
        token = frame[at]
        at += 1
        parts += 1
        if token <= 0x7F or token >= 0xE0:
            continue
        if token <= 0x8F:
            promised += 2 * (token & 0x0F)
        elif token <= 0x9F:
            promised += token & 0x0F
        elif token <= 0xBF:
            at += token & 0x1F
        elif token in _FIXED:
            at += _FIXED[token]
        elif token in _EXTENSIONS:
            at += _EXTENSIONS[token]
            promised += 1
        elif token in _BYTES:
            at += _BYTES[token] + int.from_bytes(frame[at : at + _BYTES[token]], "big")
        elif token in _TEXT:
            length = int.from_bytes(frame[at : at + _TEXT[token]], "big")
            if length > MAX_TEXT_BYTES:
                raise BadFrame(f"a text of {length} bytes is too long to cross")
            at += _TEXT[token] + length
        elif token in _LISTS:
            promised += int.from_bytes(frame[at : at + _LISTS[token]], "big")
            at += _LISTS[token]
        elif token in _MAPS:
            promised += 2 * int.from_bytes(frame[at : at + _MAPS[token]], "big")
            at += _MAPS[token]
        else:
            raise BadFrame("a byte that begins nothing")
        if parts > MAX_PARTS or promised > MAX_PARTS:
            raise BadFrame(f"a value of more than {MAX_PARTS} parts is too large to cross")
    return parts
