"""What the checks of attention are drawn from, and what they may differ by."""

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import attend
from harness.check import CHECKS, Fail
from harness.rounding import loosened, looseness, negligible, rounding
from harness.strategies import SEEDS, cubes, heads, tables, tokens, unequal_heads, visible
from harness.subject import Call, Outcome

NAMES = ("step1_attention", "step2_chapter", "step4_equivariance", "step7_causal")
MODULES = [importlib.import_module(f"harness.checks.{name}") for name in NAMES]


def asked(value):
    return attend.Asked(Call(attend.SDPA, (np.ones((2, 4)),)), Outcome("value", value=value))


@given(st.tuples(SEEDS, st.integers(1, 4), st.integers(2, 5)))
def test_a_drawn_mask_shows_a_key_in_each_row_and_hides_one(case):
    seed, n, m = case
    mask = visible(np.random.default_rng(seed), (2, n, m))
    assert mask.any(axis=-1).all()
    assert not mask.all(axis=-1).any()


def test_a_drawn_mask_over_one_key_shows_it():
    assert visible(np.random.default_rng(0), (3, 1)).tolist() == [[True], [True], [True]]


@given(unequal_heads((), (2,), (2, 3)))
def test_sizes_that_are_to_differ_differ(case):
    Q, K, V = case.qkv()
    assert len({case.n, case.m, case.d_k, case.d_v}) == 4
    assert (Q.shape, K.shape, V.shape) == (
        (*case.batch, case.n, case.d_k),
        (*case.batch, case.m, case.d_k),
        (*case.batch, case.m, case.d_v),
    )
    assert {Q.dtype, K.dtype, V.dtype} == {np.dtype(case.dtype)}


@given(cubes(2))
def test_a_cube_has_one_size(case):
    assert {*case.qkv()[0].shape, *case.qkv()[2].shape} == {case.n}


@given(tables(1, 2, 3, 4))
def test_scores_of_a_table_differ_and_take_a_million_exactly(case):
    x = case.scores()
    assert len(np.unique(x)) == x.size
    assert ((x + np.asarray(1_000_000, x.dtype)) - np.asarray(1_000_000, x.dtype) == x).all()


@given(st.one_of(heads(), unequal_heads(), cubes()))
def test_the_same_problem_has_the_same_values(case):
    assert all(np.array_equal(a, b) for a, b in zip(case.qkv(), case.qkv(), strict=True))


@given(tokens((), (2,)))
def test_queries_of_drawn_tokens_are_about_as_large_as_the_tokens(case):
    X, W_Q, _, _ = case.x_and_weights()
    assert 0.05 < np.abs(X @ W_Q).mean() < 5


def test_scores_are_laid_out_exactly():
    table = np.arange(-10.0, 10.0).reshape(4, 5)
    Q, K, _ = MODULES[0].with_scores(table)
    assert (table == (Q @ K.T) / 2).all()


def test_rounding_is_that_of_the_dtype_and_grows_with_the_size():
    assert rounding("float64", 1, 1) < 1e-14
    assert rounding("float32", 1, 1) > 1e7 * rounding("float64", 1, 1)
    assert rounding("float64", 10, 0) == 10 * rounding("float64", 1, 0)


def test_a_millionth_is_negligible_in_float64_and_nothing_more_in_float32():
    assert negligible("float64", 4, 6) == 2e-6
    assert negligible("float32", 4, 6) == rounding("float32", 4, 6)


def test_tolerances_are_loosened_inside_the_block_alone():
    plain = rounding("float64", 1, 1)
    with loosened(4):
        assert (looseness(), rounding("float64", 1, 1)) == (4, 4 * plain)
    assert (looseness(), rounding("float64", 1, 1)) == (1, plain)


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_pair_may_come_as_a_tuple_or_a_list(kind):
    output, weights = np.ones((2, 3)), np.ones((2, 5))
    got = attend.pair(asked(kind((output, weights))), (2, 3), (2, 5))
    assert all(np.array_equal(a, b) for a, b in zip(got, (output, weights), strict=True))


def test_weights_in_front_of_the_output_are_seen():
    with pytest.raises(Fail) as seen:
        attend.pair(asked((np.ones((2, 5)), np.ones((2, 3)))), (2, 3), (2, 5))
    assert seen.value.code == "output-order"


class Answers:
    """A subject that answers every question with one value."""

    def __init__(self, value):
        self.value = value

    def ask(self, *calls):
        return [Outcome("value", value=self.value) for _ in calls]


def test_weights_are_read_off_the_output_whatever_comes_back_beside_it():
    Q, K, V = np.ones((2, 4)), np.ones((3, 4)), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    made_with = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
    output = made_with @ np.hstack([V, np.eye(3)])
    nonsense = np.full((2, 3), -np.inf)
    for value in (output, (output, nonsense), (nonsense, output)):
        _, got, weights = attend.weigh(Answers(value), Q, K, V)
        assert np.array_equal(got, made_with @ V)
        assert np.array_equal(weights, made_with)


def test_an_output_alone_is_seen():
    with pytest.raises(Fail) as seen:
        attend.pair(asked(np.ones((2, 3))), (2, 3), (2, 5))
    assert seen.value.code == "weights-missing"


def test_a_wider_answer_is_let_pass_and_a_narrower_one_is_not():
    wide = (np.ones((2, 3)), np.ones((2, 5)))
    attend.pair(asked(wide), (2, 3), (2, 5), like="float32")
    with pytest.raises(Fail) as seen:
        attend.pair(asked(tuple(a.astype("float32") for a in wide)), (2, 3), (2, 5), like="float64")
    assert seen.value.code == "wrong-dtype"


@pytest.mark.parametrize(
    "weights", [np.zeros((2, 3)), np.ones((2, 3)), np.array([[0.5, -0.5]]), np.array([[0.2, 3.0]])]
)
def test_weights_that_no_scores_lead_to_are_refused(weights):
    with pytest.raises(Fail):
        attend.answer_to_scores(asked(weights), weights)


@pytest.mark.parametrize(
    "id", sorted(id for id, c in CHECKS.items() if c.run.__module__ in {m.__name__ for m in MODULES})
)
def test_a_check_without_an_oracle_is_for_students_too(id):
    assert CHECKS[id].public
