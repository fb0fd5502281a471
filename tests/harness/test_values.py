"""A student's value becomes data by its exact type, and none of its own code runs."""

import enum

import numpy as np
import pytest

from harness.values import Opaque, plain, type_name


class Yes(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


class Loud(np.ndarray):
    def __array_finalize__(self, other):
        if type(self) is not Loud:
            raise AssertionError("code of the value ran")


class Pair(tuple):
    def __iter__(self):
        raise AssertionError("code of the value ran")


class Colour(enum.Enum):
    RED = 1


class Disguised:
    __class__ = np.ndarray


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", [1, 2], (1, 2), {"a": 1}])
def test_plain_python_values_stay(value):
    """What is data already crosses as it is."""
    assert plain(value) == value and type(plain(value)) is type(value)


@pytest.mark.parametrize(
    "value", [Yes(1.0), object(), Disguised(), 1j, b"bytes", {1, 2}, lambda: 0, np.array([None]), np.array(["a"])]
)
def test_everything_else_becomes_opaque(value):
    """A subclass of float, a disguise, an object array: none of them is data."""
    assert type(plain(value)) is Opaque


def test_an_array_of_no_entries_crosses_while_its_rows_are_few():
    """An empty cache's keys do; 2**22 rows of nothing are named by their shape."""
    assert plain(np.zeros((0, 2, 3))).shape == (0, 2, 3)
    assert plain(np.zeros((2**22, 0))) == Opaque("numpy.ndarray of shape (4194304, 0)")


def test_numpy_scalars_become_python_numbers():
    """np.float32(0.5) is the number 0.5."""
    assert [plain(np.float32(0.5)), plain(np.int64(3)), plain(np.bool_(True))] == [0.5, 3, True]


def test_array_subclasses_are_stripped_by_a_copy():
    """Matrices, masked arrays and instrumented arrays become plain arrays that share nothing with them."""
    for value in (np.ma.masked_array([1.0, 2.0], [True, False]), np.matrix([[1.0, 2.0]]), np.arange(2.0).view(Loud)):
        got = plain(value)
        assert type(got) is np.ndarray and not np.shares_memory(got, np.ndarray.view(value, np.ndarray))


def test_subclasses_of_tuple_cross_by_what_they_hold():
    """A named tuple is a pair like any other; its own __iter__ is not asked."""
    assert plain(Pair((1, 2))) == (1, 2)


def test_an_enum_member_crosses_by_its_name():
    """Its name is data, its class is not."""
    assert plain(Colour.RED) == "RED"


def test_depth_and_size_are_capped():
    """A list in a list without end stops at a depth, a large number at a size."""
    endless = []
    endless.append(endless)
    assert "Opaque" in repr(plain(endless))
    assert type(plain(2**5000)) is Opaque


def test_a_type_is_named_without_asking_it():
    """A metaclass that lies about the name is not asked."""

    class Meta(type):
        @property
        def __name__(cls):
            return "ndarray"

    class Liar(metaclass=Meta):
        pass

    assert type_name(Liar()).endswith("Liar")
