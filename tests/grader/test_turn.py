"""Measurements on one machine wait for each other."""

from __future__ import annotations

import itertools

import pytest

from grader.measure import turn


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(turn, "PLACE", tmp_path / "lock")


def never() -> bool:
    return False


def test_a_second_one_waits_until_the_first_is_done():
    """While one measures another has no turn, and afterwards it has."""
    with turn.taken(never) as first:
        looks = itertools.count()
        with turn.taken(lambda: next(looks) > 0) as second:
            assert (first, second) == (True, False)
    with turn.taken(never) as third:
        assert third


def test_where_nothing_can_be_agreed_one_measures_all_the_same(tmp_path, monkeypatch):
    """A folder that is not there stops no grading."""
    monkeypatch.setattr(turn, "PLACE", tmp_path / "absent" / "lock")
    with turn.taken(never) as had:
        assert had
