"""Points split over checks add up to the hundredth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.score import hundredths, split


@given(st.integers(0, 10_000), st.lists(st.floats(0, 1000), min_size=1, max_size=40))
def test_shares_add_up_to_the_points(cents, weights):
    assert sum(split(cents / 100, weights)) == (cents if sum(weights) else 0)


@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 1000), min_size=1, max_size=40))
def test_a_share_is_within_a_hundredth_of_its_weight(cents, weights):
    exact = [cents * w / sum(weights) for w in weights]
    assert all(abs(s - e) < 1 + 1e-6 for s, e in zip(split(cents / 100, weights), exact, strict=True))


def test_a_check_of_weight_0_gets_nothing():
    assert split(10, [1, 0, 1]) == [500, 0, 500]


def test_what_is_left_goes_to_the_earlier_ones():
    assert split(10, [1, 1, 1]) == [334, 333, 333]


@pytest.mark.parametrize(("points", "whole"), [(18, 1800), (0.1, 10), (6.66, 666), (0, 0)])
def test_points_are_whole_hundredths(points, whole):
    assert hundredths(points) == whole
