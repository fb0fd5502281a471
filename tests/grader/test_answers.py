"""What a worker says is data of a few kinds: anything else is refused by its bytes, at a bounded cost, by one exception."""

from __future__ import annotations

import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.sandbox import answers
from harness import frames, wire
from harness.subject import Outcome
from harness.values import Blank, Dtype, Handle, Laid, Opaque
from harness.wire import BadFrame
from harness.worker import as_data

VALUES = (
    None, True, 7, -(2**62), 0.5, float("nan"), "text", np.ones((2, 3)), np.zeros((0, 4), np.float32), np.array(True), Opaque("set"),
    [1, [2, (3, "x")]], {"shape": (1, 2), "rows": [np.arange(3)]}, Handle(1_000_001, "array", (2, 3), "float64"),
)  # fmt: skip


def framed(value: object, **changes: object) -> bytes:
    return wire.encode({"is": "outcome", **as_data(Outcome("value", value)), **changes})


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_a_worker_sends_is_read_as_it_was(value):
    """Numbers, text, arrays, containers of them, handles and names of types."""
    found = answers.outcome(answers.read(framed(value)))
    np.testing.assert_equal(found.value, value)
    assert found.kind == "value"


@pytest.mark.parametrize(
    "value",
    [
        Laid(np.ones(2), "F"),
        Dtype("float32"),
        Blank((2, 2)),
        [Blank((2,))],
        Handle(1, "array", (2**50,)),
        Handle(1, "array", (2**39, 0, 4)),
        Handle("9" * 30),
        Handle(-1),
        Handle(1, "x" * 999),
    ],
)
def test_what_only_the_judge_sends_is_refused(value):
    """Layouts, dtypes, blanks, and handles of nothing that can be."""
    with pytest.raises(BadFrame):
        answers.read(framed(value))


@pytest.mark.parametrize(
    "changes",
    [{"is": np.ones(2)}, {"kind": np.ones(2)}, {"code": np.ones(2)}, {"text": Handle(1)}, {"kind": "passed"}, {"kind": "missing", "code": "unrecognised"}, {"echo": 1}, {"type": 1}, {"text": None}, {"frames": [[1, 2, 3]]}, {"frames": 7}],
    ids=str,
)  # fmt: skip
def test_an_outcome_of_no_kind_is_refused(changes):
    """Its kind, its code, its words and its lines are those that a worker has."""
    with pytest.raises(BadFrame):
        answers.outcome(answers.read(framed(1, **changes)))


@pytest.mark.parametrize("number", [-1, 2, None, "0", 0.0, True])
def test_a_call_of_no_lent_function_is_refused(number):
    """Only numbers of functions that were lent are called."""
    with pytest.raises(BadFrame):
        answers.callback({"number": number, "args": [], "kwargs": {}}, lent=2)


@pytest.mark.parametrize("value", [2**63, -(2**70), 2**1000])
def test_a_number_of_more_than_64_bits_is_no_number(value):
    """No answer is as large, and a check that asks NumPy whether it is finite would break on it."""
    assert answers.outcome(answers.read(framed([value]))).value == [Opaque("number of more than 64 bits")]


def test_an_array_of_no_entries_has_few_rows():
    """It has no bytes, and a list of its rows would take gigabytes."""
    with pytest.raises(BadFrame):
        answers.read(framed(np.zeros((2**22, 0))))


def test_an_array_of_many_dimensions_is_named():
    """The wire takes 32; nobody is accused."""
    found = answers.outcome(answers.read(framed({"a": (np.ones((1,) * 33),)})))
    assert found.value == {"a": (Opaque("array of more than 32 dimensions"),)}


def test_a_truth_value_is_true_or_false():
    """A byte that is neither becomes true."""
    raw = msgspec.msgpack.encode(("|b1", (3,), "C", True, b"\x00\x01\x02"))
    reply = answers.read(msgspec.msgpack.encode({"value": msgspec.msgpack.Ext(1, raw)}))
    assert reply["value"].view(np.uint8).tolist() == [0, 1, 1]


HOSTILE = {
    "deep lists": b"\x91" * 10**6,
    "deep tuples": b"\xc7\x80\x07" * 10**5,
    "wide": b"\xdd\x00\x10\x00\x00" + b"\x90" * 2**20,
    "claimed list": b"\xdd\xff\xff\xff\xff",
    "claimed map": b"\xdf\xff\xff\xff\xff",
    "claimed bytes": b"\xc6\xff\xff\xff\xff",
    "long text": b"\xdb\x00\x80\x00\x00" + b"x" * 2**23,
    "empty": b"",
    "no token": b"\xc1",
    "dtype": msgspec.msgpack.encode(
        {"value": msgspec.msgpack.Ext(1, msgspec.msgpack.encode(("(((((1,2", (1,), "C", True, b"x" * 8)))}
    ),
    "dtypes": msgspec.msgpack.encode(
        {"value": msgspec.msgpack.Ext(1, msgspec.msgpack.encode(("f8," * 20_000, (1,), "C", True, b"x")))}
    ),
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_frame_costs_little(frame):
    """It is refused before it has become gigabytes."""
    tracemalloc.start()
    with pytest.raises(BadFrame):
        answers.read(frame)
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_a_frame_is_measured_as_it_is():
    """Parts of a frame: its keys and values, and what is inside arrays, tuples and handles."""
    assert frames.measure(msgspec.msgpack.encode([1, "a", [2.5]])) == 5
    assert frames.measure(wire.encode({"a": (1, 2)})) == 6
    with pytest.raises(BadFrame, match="parts"):
        frames.measure(msgspec.msgpack.encode([0] * (frames.MAX_PARTS + 1)))
    with pytest.raises(BadFrame, match="bytes"):
        frames.measure(bytes(frames.MAX_BYTES + 1))


@st.composite
def corrupted(draw: st.DrawFn) -> bytes:
    """A frame of a worker with bytes changed, cut, doubled or put in."""
    frame = bytearray(framed(draw(st.sampled_from(VALUES)), echo=[np.ones(3)]))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(frame)))
        what = draw(st.sampled_from(("change", "cut", "put", "double")))
        if what == "change" and at < len(frame):
            frame[at] = draw(st.integers(0, 255))
        elif what == "cut":
            del frame[at : at + draw(st.integers(1, 30))]
        elif what == "put":
            frame[at:at] = draw(st.binary(max_size=12))
        else:
            frame[at:at] = frame[at : at + 20]
    return bytes(frame)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(corrupted())
def test_a_corrupted_frame_is_a_reply_or_a_bad_frame(frame):
    """A thousand corruptions: never another exception."""
    try:
        reply = answers.read(frame)
        answers.outcome(reply)
    except BadFrame:
        pass
