"""The wire carries data and nothing else."""

import socket
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from harness import wire
from harness.values import Blank, Callback, Dtype, Handle, Laid, Opaque

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_went(value):
    """Numbers, texts, lists, tuples and dicts survive with their types, integers of any size among them."""
    assert wire.decode(wire.encode(value)) == value


@given(
    arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.bool_]), array_shapes(min_dims=0, min_side=0)
    )
)
def test_arrays_come_back_equal_with_shape_and_dtype(array):
    """Shape, dtype and every bit of an array survive."""
    back = wire.decode(wire.encode(array))
    assert (back.shape, back.dtype, back.tobytes()) == (array.shape, array.dtype, array.tobytes())


@pytest.mark.parametrize(
    "value", [Handle(3, "array", (2, 3), "float32"), Opaque("Yes"), Dtype("float16", "text"), Blank((2, 0))]
)
def test_the_kinds_of_harness_values_come_back_equal(value):
    """Handles, opaque values, dtypes and blanks are data."""
    assert wire.decode(wire.encode(value)) == value


def test_a_layout_is_kept():
    """An array that is to be read-only and strided arrives with that said."""
    back = wire.decode(wire.encode(Laid(np.arange(3.0), "strided", False)))
    assert (back.order, back.writeable, back.array.tolist()) == ("strided", False, [0.0, 1.0, 2.0])


def test_functions_cross_only_towards_the_submission():
    """A worker's side that sends a function is refused."""
    with pytest.raises(wire.BadFrame):
        wire.encode(Callback(len))
    with pytest.raises(wire.BadFrame):
        wire.decode(wire.encode(Callback(len), lambda function: 7))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_bad_frame(data):
    """Nothing but BadFrame comes of bytes that are no frame."""
    try:
        wire.decode(data)
    except wire.BadFrame:
        pass


@given(PLAIN, st.integers(0, 400), st.integers(0, 255))
def test_a_corrupted_frame_is_a_value_or_a_bad_frame(value, place, byte):
    """A flipped byte never becomes another kind of error."""
    data = bytearray(wire.encode([value, np.ones((2, 2)), Handle(1)]))
    data[place % len(data)] = byte
    try:
        wire.decode(bytes(data))
    except wire.BadFrame:
        pass


def test_an_array_that_lies_about_its_size_is_refused():
    """A shape that does not fit the bytes is no array."""
    import msgspec

    body = msgspec.msgpack.encode(("<f8", (1000, 1000), "C", True, b"12345678"))
    with pytest.raises(wire.BadFrame):
        wire.decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, body)))


def test_an_object_array_is_refused():
    """Only floats, integers and booleans may be in an array."""
    import msgspec

    body = msgspec.msgpack.encode(("|O", (1,), "C", True, b"12345678"))
    with pytest.raises(wire.BadFrame):
        wire.decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, body)))


def test_a_frame_longer_than_the_cap_is_refused_before_it_is_read():
    """The length alone decides."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<I", wire.MAX_FRAME + 1))
        with pytest.raises(wire.BadFrame):
            wire.receive(ours)


def test_a_closed_wire_says_closed():
    """An end of stream inside a frame is an end, not a frame."""
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(struct.pack("<I", 10) + b"abc")
        theirs.close()
        with pytest.raises(wire.Closed):
            wire.receive(ours)
