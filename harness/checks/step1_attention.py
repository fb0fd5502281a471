"""Step 1: softmax, the projections, and scaled dot-product attention with its mask and scale (chapter section 7.2).

Most of these compare a submission with itself: an item of a batch with the batch, weights under a mask with the same
weights unmasked. So a fault of one kind does not fail the checks of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.attend import (
    PROJECT,
    SDPA,
    SELF,
    SOFTMAX,
    answer_to_scores,
    apart,
    attend,
    blend,
    follows,
    largest,
    output_of,
    self_attend,
    size_of,
    sum_to_one,
    weigh,
)
from harness.check import check, note
from harness.expect import Asked, ask, told_apart
from harness.rounding import negligible, rounding
from harness.strategies import (
    DTYPES,
    SEEDS,
    Heads,
    Table,
    Tokens,
    cubes,
    heads,
    tables,
    tokens,
    unequal_heads,
    visible,
)
from harness.subject import Subject
from harness.values import Array, Handle, Laid

of_softmax = partial(check, functions=SOFTMAX, families="softmax", public=True)
of_project = partial(check, functions=PROJECT, families="project", public=True)
of_attention = partial(check, functions=SDPA, families="sdpa", public=True)

# What a function must at least do before it earns anything for what it leaves alone.
SOFTMAX_ANSWERS = "step1.softmax.ratios"
ATTENTION_ANSWERS = "step1.attention.between-the-values"
SELF_ANSWERS = "step1.self.projects-then-attends"

AXIS = ("softmax-wrong-axis", "softmax-whole-matrix", "softmax-missing-keepdims", "softmax-positional-axis")
STABLE = ("softmax-overflow", "softmax-global-max", "softmax-max-wrong-axis", "softmax-clamped-max")
SCALE = ("scale-missing", "scale-by-dk", "scale-inverted", "scale-by-wrong-width", "scale-after-softmax")
MASK = ("mask-ignored", "mask-inverted", "mask-multiplied", "mask-added", "mask-transposed", "mask-not-broadcast")


# -- softmax --------------------------------------------------------------------------------------------------------


@of_softmax(
    "step1.softmax.rows-sum-to-one",
    cases=tables(2),
    examples=8,
    about=(*AXIS, "softmax-unnormalised", "softmax-epsilon", "softmax-not-applied"),
)
def softmax_rows_sum_to_one(subject: Subject, case: Table) -> None:
    """Every row that softmax returns sums to 1, and no weight in it is negative."""
    x = case.scores()
    asked = ask(subject, SOFTMAX, x)
    sum_to_one(asked, asked.array(x.shape), -1, negligible(case.dtype, 4, x.shape[-1]))


@of_softmax(
    "step1.softmax.ratios",
    cases=tables(2),
    examples=8,
    about=("softmax-wrong-base", "softmax-argmax", "softmax-not-applied", "softmax-wrong-axis"),
)
def softmax_ratios(subject: Subject, case: Table) -> None:
    """The ratio of two weights in a row of softmax is e to the power of the difference of their scores."""
    x = case.scores()
    asked = ask(subject, SOFTMAX, x)
    weights = asked.array(x.shape).astype(np.float64)
    if weights.min() <= 0:
        raise asked.fail(f"a weight is {weights.min():.4g}", "weights above 0, for scores this close", got=weights)
    top = x.argmax(axis=-1)[:, None]
    differences = (x - np.take_along_axis(x, top, -1)).astype(np.float64)
    largest_weights = np.take_along_axis(weights, top, -1)
    wrong = np.abs(weights - largest_weights * np.exp(differences))
    if wrong.max() > negligible(case.dtype, 8, x.shape[-1]):
        row, column = (int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        difference = float(differences[row, column])
        ratio, wanted = told_apart(float(weights[row, column] / largest_weights[row, 0]), float(np.exp(difference)))
        of = f"weight {int(top[row, 0])}"
        seen = f"in row {row}, weight {column} is {ratio} times {of}, for scores that differ by {difference:g}"
        raise asked.fail(seen, f"{wanted}, which is e to the power of {difference:g}", got=weights)


@of_softmax(
    "step1.softmax.any-number-of-axes",
    cases=tables(1, 3, 4),
    examples=8,
    about=("softmax-positional-axis", "softmax-wrong-axis", "softmax-whole-matrix"),
)
def softmax_any_number_of_axes(subject: Subject, case: Table) -> None:
    """softmax works on arrays of one, three or four axes, along the last one."""
    x = case.scores()
    asked = ask(subject, SOFTMAX, x)
    sum_to_one(asked, asked.array(x.shape), -1, negligible(case.dtype, 4, x.shape[-1]), "row (along the last axis)")


@of_softmax(
    "step1.softmax.axis", cases=tables(2, 3), examples=4, about=("softmax-ignores-axis", "softmax-max-wrong-axis")
)
def softmax_axis(subject: Subject, case: Table) -> None:
    """softmax(x, axis=k) does along axis k, counted from either end, what softmax(x) does along the last."""
    x = case.scores()
    for axis in (*range(x.ndim - 1), *range(-x.ndim, 0)):
        moved = ask(subject, SOFTMAX, np.ascontiguousarray(np.moveaxis(x, axis, -1)))
        expected = moved.array(np.moveaxis(x, axis, -1).shape)
        answer_to_scores(moved, expected)
        asked = ask(subject, SOFTMAX, x, axis=axis)
        got = asked.array(x.shape)
        if apart(np.moveaxis(got, axis, -1), expected) > negligible(case.dtype, 4, x.shape[axis]):
            sums = got.sum(axis=axis)
            raise asked.fail(
                f"along axis {axis} the sums run from {sums.min():.6g} to {sums.max():.6g}",
                f"what softmax gives when axis {axis} is moved to the end",
                got=got,
            )


def _same_when_shifted(subject: Subject, x: Array, shift: Array, what: str) -> None:
    """The weights of x + shift are those of x, where each row of `shift` is one number; both sums are exact."""
    plain = ask(subject, SOFTMAX, x)
    expected = plain.array(x.shape)
    answer_to_scores(plain, expected)
    asked = ask(subject, SOFTMAX, x + shift)
    got = asked.array(x.shape)
    off = apart(got, expected)
    if off > negligible(x.dtype, float(np.abs(shift).max()) + 4, x.shape[-1]):
        raise asked.fail(f"{what} moves the weights by {off:.3g}", "the same weights", got=got)


@of_softmax(
    "step1.softmax.shift-invariant",
    cases=st.tuples(tables(2), st.integers(-40, 40)),
    examples=5,
    about=("softmax-not-applied", "softmax-clamped-max", "softmax-epsilon"),
)
def softmax_shift_invariant(subject: Subject, case: tuple[Table, int]) -> None:
    """Adding one number to all scores of a row leaves softmax's weights as they are."""
    table, by = case
    x = table.scores()
    _same_when_shifted(subject, x, np.full_like(x, by), f"adding {by}")


LARGE = st.tuples(tables(2), st.sampled_from((1_000, 30_000, 1_000_000)))


@of_softmax("step1.softmax.large-scores", cases=LARGE, examples=5, about=("softmax-overflow",))
def softmax_large_scores(subject: Subject, case: tuple[Table, int]) -> None:
    """softmax stays finite, and right, when all scores are large."""
    table, size = case
    x = table.scores()
    _same_when_shifted(subject, x, np.full_like(x, size), f"adding {size:,}")


@of_softmax(
    "step1.softmax.rows-far-apart", cases=LARGE, examples=5, about=("softmax-global-max", "softmax-max-wrong-axis")
)
def softmax_rows_far_apart(subject: Subject, case: tuple[Table, int]) -> None:
    """softmax stays finite, and right, when one row's scores lie far above another's."""
    table, size = case
    x = table.scores()
    shift = np.zeros_like(x)
    shift[0], shift[-1] = -size, size
    _same_when_shifted(subject, x, shift, f"adding {size:,} to one row and taking it from another")


@of_softmax("step1.softmax.far-below-zero", cases=LARGE, examples=5, about=("softmax-clamped-max", "softmax-overflow"))
def softmax_far_below_zero(subject: Subject, case: tuple[Table, int]) -> None:
    """softmax stays finite, and right, when all scores are far below zero."""
    table, size = case
    x = table.scores()
    _same_when_shifted(subject, x, np.full_like(x, -size), f"taking away {size:,}")


@of_softmax("step1.softmax.spread-within-a-row", cases=LARGE, examples=5, about=("softmax-overflow",))
def softmax_spread_within_a_row(subject: Subject, case: tuple[Table, int]) -> None:
    """Where one score of a row lies far above the others, softmax gives it all the weight."""
    table, size = case
    x = table.scores()
    x[:, 1] += size
    asked = ask(subject, SOFTMAX, x)
    one_hot = np.zeros_like(x)
    one_hot[:, 1] = 1
    off = apart(asked.array(x.shape), one_hot)
    if off > negligible(case[0].dtype, size, x.shape[-1]):
        raise asked.fail(
            f"weights are off by {off:.3g}", "weight 1 for the score far above the others, 0 for these", got=asked.value
        )


@of_softmax("step1.softmax.any-size", cases=tables(2), examples=5, stands_on=SOFTMAX_ANSWERS, about=STABLE)
def softmax_any_size(subject: Subject, case: Table) -> None:
    """softmax is finite for finite scores of any size."""
    x = case.scores() / 4 * case.rng().choice([1e-30, 1.0, 1e30], case.shape).astype(case.dtype)
    asked = ask(subject, SOFTMAX, x * np.asarray(1e6 if case.dtype == "float32" else 1e200, case.dtype))
    asked.array(x.shape)


@of_softmax(
    "step1.softmax.precision",
    cases=tables(2, dtypes=st.just("float64")),
    examples=4,
    about=("softmax-epsilon", "narrow-arithmetic"),
)
def softmax_precision(subject: Subject, case: Table) -> None:
    """softmax of float64 scores is right to float64's rounding: in its rows' sums, and in the ratios of its weights."""
    x = case.scores()
    asked = ask(subject, SOFTMAX, x)
    weights = asked.array(x.shape, like=case.dtype)
    answer_to_scores(asked, weights)
    sum_to_one(asked, weights, -1, rounding(case.dtype, 4, x.shape[-1]))
    with np.errstate(divide="ignore"):
        off = np.abs(np.log(weights) - np.log(weights[:, :1]) - (x - x[:, :1])).max()
    if off > rounding(case.dtype, 8, x.shape[-1]):
        raise asked.fail(f"a weight is off by {off:.2g} of itself", "float64's precision: about 1e-15", got=weights)


@of_softmax(
    "step1.softmax.input-unchanged",
    cases=tables(2, 3),
    examples=3,
    stands_on=SOFTMAX_ANSWERS,
    about=("input-mutated",),
)
def softmax_input_unchanged(subject: Subject, case: Table) -> None:
    """softmax leaves its argument as it was."""
    asked = ask(subject, SOFTMAX, case.scores(), echo=True)
    asked.array(case.shape)
    asked.unchanged()


@of_softmax(
    "step1.softmax.memory-layout", cases=tables(2, 3), examples=2, stands_on=SOFTMAX_ANSWERS, about=("input-mutated",)
)
def softmax_memory_layout(subject: Subject, case: Table) -> None:
    """softmax gives the same for read-only arrays, and however its argument lies in memory."""
    x = case.scores()
    expected = ask(subject, SOFTMAX, x).array(x.shape)
    for order, writeable in LAYOUTS:
        asked = ask(subject, SOFTMAX, Laid(x, order, writeable))
        _as_laid(asked, not writeable)
        _same_again(
            asked,
            asked.array(x.shape),
            expected,
            negligible(case.dtype, 4, x.shape[-1]),
            _laid_in_words(order, writeable),
        )


@of_softmax("step1.softmax.fresh-each-time", about=("stale-result", "not-deterministic"))
def softmax_fresh_each_time(subject: Subject, rng: np.random.Generator) -> None:
    """softmax gives the same for the same scores, and new weights for new scores in the same memory."""
    x = rng.permutation(129)[:20].reshape(4, 5) / 16
    y = _rearranged(x)
    memory = subject.call("@array", x).value
    first = ask(subject, SOFTMAX, memory, shown="softmax(x)")
    before = first.array(x.shape)
    answer_to_scores(first, before)
    _unmoved(subject, first, memory, x)
    again = ask(subject, SOFTMAX, memory, shown="softmax(x), once more")
    if apart(again.array(x.shape), before) > rounding(x.dtype, 8, 5):
        raise again.fail("two calls with the same scores differ", "the same weights", "not-deterministic", again.value)
    subject.call("@set", memory, y)
    after = ask(subject, SOFTMAX, memory, shown="softmax(x), with new values in x")
    after.inputs = {"x before": x, "x": y}
    fresh = ask(subject, SOFTMAX, y).array(x.shape)
    among = ask(subject, SOFTMAX, np.concatenate([y, x, y])).array((12, 5))[:4]
    _not_remembered(after, after.array(x.shape), before, (fresh, among), negligible(x.dtype, 8, 5))


def _unmoved(subject: Subject, asked: Asked, memory: Handle, values: Array) -> None:
    """Raises Fail where a call has written into an array that it was given."""
    if not np.array_equal(subject.call("@fetch", memory).value, values):
        raise asked.fail("an argument was changed during the call", "arguments left as they were", "input-mutated")


def _not_remembered(
    asked: Asked, got: Array, before: Array, asked_otherwise: tuple[Array, Array], tolerance: float
) -> None:
    """Raises Fail where new values in the same memory give what the old ones gave, or not what they give elsewhere.

    `asked_otherwise` are the results for the new values in an array of their own, and among more rows. What is equal in
    all of these does not depend on the values, and so is not remembered.
    """
    if np.array_equal(got, before) and any(apart(got, other) > tolerance for other in asked_otherwise):
        raise asked.fail("the result of the earlier values came back", "that of the new values", "stale-result", got)
    if apart(got, asked_otherwise[0]) > tolerance:
        raise asked.fail("not what the same values give in arrays of their own", "the same numbers", got=got)


def _rearranged(x: Array) -> Array:
    """The same numbers in another order, the first and last in place: shape, sum and corners stay what they were."""
    flat = x.ravel().copy()
    flat[1:-1] = flat[1:-1][::-1]
    return flat.reshape(x.shape)


LAYOUTS = (("F", True), ("strided", True), ("reversed", True), ("C", False))


def _laid_in_words(order: str, writeable: bool) -> str:
    return {"F": "in column order", "strided": "with gaps", "reversed": "backwards", "C": ""}[order] + (
        "" if writeable else "read-only"
    )


def _as_laid(asked: Asked, read_only: bool) -> None:
    """Writing into a read-only argument is seen by the error that NumPy gives."""
    outcome = asked.outcome
    if read_only and outcome.kind == "raised" and outcome.type == "ValueError" and "read-only" in outcome.text:
        raise asked.fail(f"ValueError: {outcome.text}", "read-only arguments are only read", "input-mutated")


def _same_again(asked: Asked, got: Array, expected: Array, tolerance: float, laid: str) -> None:
    if apart(got, expected) > tolerance:
        raise asked.fail(f"other numbers when the arguments lie {laid} in memory", "the same numbers", got=got)


# -- project --------------------------------------------------------------------------------------------------------


@of_project(
    "step1.project.picks-columns",
    cases=tokens((), (2,), (2, 3)),
    examples=6,
    about=("projection-transposed", "values-swapped", "batch-unsupported"),
)
def project_picks_columns(subject: Subject, case: Tokens) -> None:
    """Weights with a single 1 in each column make project pick columns of X: Q, K and V, in this order."""
    X = case.x_and_weights()[0]
    picks = [
        case.rng().spawn(3)[i].integers(0, case.d, width) for i, width in enumerate((case.d_k, case.d_k, case.d_v))
    ]
    W = [np.eye(case.d, dtype=case.dtype)[:, columns] for columns in picks]
    asked = ask(subject, PROJECT, X, *W)
    got = asked.arrays(("Q", "K", "V"), tuple((*X.shape[:-1], len(columns)) for columns in picks))
    for name, columns, matrix in zip("QKV", picks, got, strict=True):
        if apart(matrix, X[..., columns]) > negligible(case.dtype, 1, case.d) * largest(X):
            raise asked.fail(
                f"{name} is not X with the columns that W_{name} picks", f"columns {columns.tolist()} of X", got=matrix
            )


# -- attention ------------------------------------------------------------------------------------------------------


@of_attention(
    "step1.attention.weights-sum-to-one",
    cases=unequal_heads(),
    examples=8,
    about=(*AXIS, "output-order", "weights-missing", "scale-after-softmax", "softmax-unnormalised", "softmax-epsilon"),
)
def weights_sum_to_one(subject: Subject, case: Heads) -> None:
    """Each query's weights sum to 1, and none is negative."""
    Q, K, V = case.qkv()
    asked, _, weights = attend(subject, Q, K, V)
    sum_to_one(asked, weights, -1, negligible(case.dtype, size_of(Q, K), case.m))


@of_attention(
    "step1.attention.weighted-mean",
    cases=unequal_heads(),
    examples=6,
    about=("weights-transposed", "values-swapped", "scale-after-softmax"),
)
def output_is_the_weighted_mean(subject: Subject, case: Heads) -> None:
    """The output is the mean of the values under the returned weights; with V = identity, the weights themselves."""
    Q, K, V = case.qkv()
    identity = np.eye(case.m, dtype=case.dtype)
    asked_about: tuple[tuple[Array, dict[str, Any]], ...]
    asked_about = (V, {}), (identity, {}), (identity, {"mask": case.mask()})
    for values, named in asked_about:
        asked, output, weights = attend(subject, Q, K, values, **named)
        if not weights.any():
            raise asked.fail("all weights are 0", "weights that sum to 1", got=weights)
        off = apart(output, weights.astype(np.float64) @ values.astype(np.float64))
        if off > negligible(case.dtype, 1, case.m) * largest(np.abs(weights).sum(axis=-1)) * largest(values):
            raise asked.fail(f"the output is {off:.3g} away from weights @ V", "weights @ V", got=output)


@of_attention(
    "step1.attention.between-the-values",
    cases=unequal_heads(),
    examples=5,
    about=("scale-after-softmax", "softmax-unnormalised", "values-swapped", "weights-transposed"),
)
def output_lies_between_the_values(subject: Subject, case: Heads) -> None:
    """Every output lies between the smallest and the largest value of its column: it blends, and adds nothing."""
    Q, K, V = case.qkv()
    for away in (5, -5):
        values = V + np.asarray(away, V.dtype)
        asked, output = blend(subject, Q, K, values)
        slack = negligible(case.dtype, size_of(Q, K), case.m) * 10
        if (output < values.min(axis=0) - slack).any() or (output > values.max(axis=0) + slack).any():
            raise asked.fail(
                "an output lies outside the values it blends",
                "each column between its smallest and largest value",
                got=output,
            )
        if case.n > 1 and np.ptp(output, axis=0).max() == 0:
            raise asked.fail("every query gets the same output", "outputs that depend on the queries", got=output)


@of_attention(
    "step1.attention.scale",
    cases=st.tuples(st.sampled_from((2, 3, 5, 8, 16, 64)), st.sampled_from((1, 4)), SEEDS),
    examples=8,
    about=SCALE,
)
def scores_are_divided_by_the_root_of_d_k(subject: Subject, case: tuple[int, int, int]) -> None:
    """Scores are divided by the square root of d_k, the width of a key, as two weights and their scores show."""
    d_k, n, seed = case
    _scale_is(subject, d_k, n, seed, d_k**-0.5)


@of_attention(
    "step1.attention.scale-argument",
    cases=st.tuples(st.sampled_from((2, 3, 5, 8, 16, 64)), st.sampled_from((0.05, 0.3, 1.0, 1.7)), SEEDS),
    examples=8,
    about=("scale-ignored", "scale-compounded"),
)
def the_scale_argument_replaces_the_root(subject: Subject, case: tuple[int, float, int]) -> None:
    """scale=s multiplies the scores by s and by nothing else."""
    d_k, scale, seed = case
    _scale_is(subject, d_k, 3, seed, scale, scale=scale)
    Q, K, V = Heads((), 3, 4, d_k, 5, "float64", seed).qkv()
    weights = weigh(subject, Q, K, V, scale=0.0)[2]
    room = negligible("float64", 1, 4)
    if apart(weights, np.full_like(weights, 0.25)) > room >= apart(weights, weigh(subject, Q, K, V)[2]):
        note("scale-ignored", "scale=0.0 is taken for no scale at all: it should give every key the same weight.")


def _scale_is(subject: Subject, d_k: int, n: int, seed: int, expected: float, **named: Any) -> None:
    """Reads the factor on the scores out of two weights: the log of their ratio is it times the scores' difference."""
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((n, d_k)), rng.standard_normal((2, d_k)), rng.standard_normal((2, 7))
    K[1] = K[0] + 2 * Q[0] / (Q[0] @ Q[0] * expected)  # for query 0 the scaled scores are 2 apart
    asked, _, weights = weigh(subject, Q, K, V, **named)
    if weights[0].min() <= 0:
        raise asked.fail(f"one of two weights is {weights[0].min():.4g}", "two weights above 0", got=weights)
    factor = float(np.log(float(weights[0, 1]) / float(weights[0, 0])) / (Q[0] @ (K[1] - K[0])))
    # one of the weights is 0.12, and the scores are 2 apart: the factor is known to about five times what a weight is
    if abs(factor / expected - 1) > 5 * negligible("float64", size_of(Q, K, expected) + 8, d_k):
        found, wanted = told_apart(factor, expected)
        seen = f"the scores are multiplied by {found}, as the ratio of two weights shows"
        raise asked.fail(seen, wanted if named else f"{wanted}, which is 1/sqrt({d_k})", got=weights)


@of_attention(
    "step1.attention.precision",
    cases=unequal_heads().map(lambda case: replace(case, dtype="float64")),
    examples=4,
    about=("softmax-epsilon", "narrow-arithmetic"),
)
def attention_precision(subject: Subject, case: Heads) -> None:
    """Attention of float64 arrays is right to float64's rounding: rows sum to 1, weights follow scores, outputs weights."""
    Q, K, V = case.qkv()
    room = rounding(case.dtype, size_of(Q, K) + 8, case.m)
    for named in ({}, {"mask": case.mask()}):
        asked, output, weights = weigh(subject, Q, K, V, like=case.dtype, **named)
        answer_to_scores(asked, weights)
        sum_to_one(asked, weights, -1, room)
        scores = Q @ K.T * case.d_k**-0.5
        shown: Array = named.get("mask", np.ones(weights.shape, bool))
        top = np.where(shown, weights, 0).argmax(axis=-1)[:, None]
        differences = scores - np.take_along_axis(scores, top, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(weights) - np.log(np.take_along_axis(weights, top, -1))
        off = max(np.abs(logs - differences)[shown].max(), apart(output, weights @ V) / largest(V))
        if not off <= room:
            raise asked.fail(
                f"a result is off by {off:.2g} of its size", "float64's precision: about 1e-15", got=weights
            )


@of_attention(
    "step1.attention.batch",
    cases=st.one_of(unequal_heads((2,), (3,)), cubes(1)),
    examples=6,
    about=("batch-unsupported", "batch-mixed", "softmax-positional-axis", "softmax-whole-matrix"),
)
def a_batch_is_its_items(subject: Subject, case: Heads) -> None:
    """With a leading batch axis, every item comes out as it does alone."""
    Q, K, V = case.qkv()
    asked, output, weights = weigh(subject, Q, K, V)
    answer_to_scores(asked, weights)
    _items_alone(subject, asked, (Q, K, V), output, weights)


def _items_alone(
    subject: Subject,
    asked: Asked,
    qkv: tuple[Array, Array, Array],
    output: Array,
    weights: Array,
    mask: Array | None = None,
) -> None:
    for i, (q, k, v) in enumerate(zip(*qkv, strict=True)):
        _, o, w = weigh(subject, q, k, v, **({} if mask is None else {"mask": mask[i]}))
        tolerance = negligible(q.dtype, size_of(q, k), k.shape[-2])
        off = max(apart(weights[i], w), apart(output[i], o) / largest(v))
        if off > tolerance:
            raise asked.fail(
                f"item {i} of the batch is {off:.3g} away from what it is alone", "the same numbers", got=weights
            )


@of_attention(
    "step1.attention.two-batch-axes",
    cases=st.one_of(unequal_heads((2, 3)), cubes(2)),
    examples=5,
    about=("batch-unsupported", "batch-mixed", "softmax-positional-axis"),
)
def two_batch_axes(subject: Subject, case: Heads) -> None:
    """Two batch axes, such as batch and head, come out as the same items along one."""
    Q, K, V = case.qkv()
    asked, output, weights = weigh(subject, Q, K, V)
    answer_to_scores(asked, weights)
    flat = [a.reshape(-1, *a.shape[2:]) for a in (Q, K, V)]
    _, o, w = weigh(subject, *flat)
    tolerance = negligible(case.dtype, size_of(Q, K), case.m) * largest(V)
    if max(apart(weights, w.reshape(weights.shape)), apart(output, o.reshape(output.shape))) > tolerance:
        raise asked.fail("other numbers than for the same items along one batch axis", "the same numbers", got=weights)


@of_attention(
    "step1.attention.large-scores",
    cases=st.tuples(st.integers(2, 6), st.sampled_from((1_000, 30_000, 1_000_000)), DTYPES, SEEDS),
    examples=5,
    about=STABLE,
)
def attention_with_large_scores(subject: Subject, case: tuple[int, int, str, int]) -> None:
    """Attention stays finite, and right, when scores are large, far below zero, or far apart between queries."""
    m, size, dtype, seed = case
    table = Table((4, m), dtype, seed).scores()
    plain, _, expected = weigh(subject, *with_scores(table))
    answer_to_scores(plain, expected)
    for by in ((size,) * 4, (-size,) * 4, (-size, 0, 0, size)):
        asked, _, weights = weigh(subject, *with_scores(table + np.array(by, dtype)[:, None]))
        off = apart(weights, expected)
        if off > negligible(dtype, size + 4, m):
            raise asked.fail(
                f"adding {by} to the four rows of scores moves the weights by {off:.3g}",
                "the same weights",
                got=weights,
            )


def with_scores(table: Array) -> tuple[Array, Array, Array]:
    """Q, K, V whose scaled scores are exactly this table (4, m): a query an axis, of length 2 = sqrt(d_k)."""
    Q = 2 * np.eye(4, dtype=table.dtype)
    return Q, np.ascontiguousarray(table.T), np.arange(3 * table.shape[1], dtype=table.dtype).reshape(-1, 3)


@of_attention(
    "step1.attention.inputs-unchanged",
    cases=heads(),
    examples=3,
    stands_on=ATTENTION_ANSWERS,
    about=("input-mutated",),
)
def attention_leaves_its_inputs(subject: Subject, case: Heads) -> None:
    """Attention leaves Q, K, V and the mask as they were."""
    mask = case.mask(*case.batch)
    kept = subject.call("@array", mask).value
    asked, _ = blend(subject, *case.qkv(), echo=True, mask=kept)
    asked.unchanged()
    after = subject.call("@fetch", kept).value
    if not np.array_equal(after, mask):
        raise asked.fail("the mask was changed during the call", "arguments left as they were", "input-mutated", after)


@of_attention(
    "step1.attention.memory-layout",
    cases=unequal_heads(),
    examples=2,
    stands_on=ATTENTION_ANSWERS,
    about=("input-mutated",),
)
def attention_memory_layout(subject: Subject, case: Heads) -> None:
    """Attention gives the same for read-only arrays, and however its arguments lie in memory."""
    arrays, mask = case.qkv(), case.mask()
    shapes = (*case.batch, case.n, case.d_v), (*case.batch, case.n, case.m)
    _, output = blend(subject, *arrays, mask=mask)
    tolerance = negligible(case.dtype, size_of(*arrays[:2]), case.m) * largest(arrays[2])
    for order, writeable in LAYOUTS:
        asked = ask(subject, SDPA, *(Laid(a, order, writeable) for a in arrays), mask=Laid(mask, order, writeable))
        _as_laid(asked, not writeable)
        _same_again(asked, output_of(asked, *shapes), output, tolerance, _laid_in_words(order, writeable))


@of_attention("step1.attention.fresh-each-time", about=("stale-result", "not-deterministic"))
def attention_fresh_each_time(subject: Subject, rng: np.random.Generator) -> None:
    """Attention gives the same for the same arrays, and new results for new values in the same memory."""
    sizes = {"Q": (3, 4), "K": (5, 4), "V": (5, 2)}
    arrays = {name: rng.permutation(129)[: n * d].reshape(n, d) / 64 - 1 for name, (n, d) in sizes.items()}
    memory = {name: subject.call("@array", a).value for name, a in arrays.items()}
    first, before = _attend_in_place(subject, memory, arrays, "")
    for name, array in arrays.items():
        _unmoved(subject, first, memory[name], array)
    for _ in range(3):  # dropout that leaves few weights out may leave the same ones out twice
        again, output = _attend_in_place(subject, memory, arrays, ", once more")
        if apart(output, before) > rounding("float64", 8, 5):
            raise again.fail("two calls with the same arrays differ", "the same output", "not-deterministic", output)
    for name in arrays:
        arrays[name] = _rearranged(arrays[name])
        subject.call("@set", memory[name], arrays[name])
        asked, output = _attend_in_place(subject, memory, arrays, f", with new values in {name}")
        fresh = blend(subject, *arrays.values())[1]
        among = blend(subject, np.tile(arrays["Q"], (3, 1)), arrays["K"], arrays["V"])[1][:3]
        _not_remembered(asked, output, before, (fresh, among), negligible("float64", 8, 5))
        before = output


def _attend_in_place(
    subject: Subject, memory: dict[str, Handle], arrays: dict[str, Array], how: str
) -> tuple[Asked, Array]:
    asked = ask(subject, SDPA, *memory.values(), shown=f"scaled_dot_product_attention(Q, K, V){how}")
    asked.inputs = dict(arrays)
    output = output_of(asked, (3, 2), (3, 5))
    follows(asked, output)
    return asked, output


# -- mask -----------------------------------------------------------------------------------------------------------


@of_attention(
    "step1.mask.true-shows-false-hides",
    cases=unequal_heads(),
    examples=8,
    about=(*MASK, "softmax-wrong-axis"),
)
def true_shows_false_hides(subject: Subject, case: Heads) -> None:
    """A key gets weight exactly 0 where the mask is False, and some weight where it is True."""
    Q, K, V = case.qkv()
    mask = case.mask()
    asked, _, weights = weigh(subject, Q / 2, K, V, mask=mask)
    if (weights[~mask] != 0).any():
        raise asked.fail(f"a key that the mask hides gets weight {weights[~mask].max():.4g}", "exactly 0", got=weights)
    if (weights[mask] <= 0).any():
        raise asked.fail(f"a key that the mask shows gets weight {weights[mask].min():.4g}", "more than 0", got=weights)


@of_attention(
    "step1.mask.rest-shares-the-weight", cases=unequal_heads(), examples=8, about=("mask-after-softmax", *MASK)
)
def the_rest_shares_the_weight(subject: Subject, case: Heads) -> None:
    """Under a mask, the keys that are shown share all the weight, in the proportions they have without it."""
    Q, K, V = case.qkv()
    mask = case.mask(*case.batch)
    plain, _, unmasked = weigh(subject, Q, K, V)
    answer_to_scores(plain, unmasked)
    shown = np.where(mask, unmasked.astype(np.float64), 0)
    if (shown.sum(axis=-1) <= 0).any():
        raise plain.fail("keys get no weight at all, without a mask", "some weight", got=unmasked)
    asked, _, weights = weigh(subject, Q, K, V, mask=mask)
    small = float(shown.sum(axis=-1).min())
    tolerance = negligible(case.dtype, size_of(Q, K), case.m)
    sums, before = weights.sum(axis=-1, dtype=np.float64), unmasked.sum(axis=-1, dtype=np.float64)
    if apart(sums, before) > tolerance:
        worst = np.unravel_index(np.abs(sums - before).argmax(), sums.shape)
        total, free = told_apart(float(sums[worst]), float(before[worst]))
        seen = f"a row sums to {total} under the mask, and to {free} without it"
        raise asked.fail(seen, "the same sum, shared by the keys that are shown", got=weights)
    if apart(weights, shown / shown.sum(axis=-1, keepdims=True)) > tolerance / min(1.0, small):
        raise asked.fail(
            "the keys that are shown have other proportions than without the mask", "the same proportions", got=weights
        )


@of_attention("step1.mask.broadcasts", cases=unequal_heads(), examples=4, about=MASK)
def the_mask_broadcasts(subject: Subject, case: Heads) -> None:
    """A mask (m,) or (1, m) does as the same mask written out for every query."""
    _broadcasts(subject, case, ((case.m,), (1, case.m)))


@of_attention("step1.mask.broadcasts-over-a-batch", cases=unequal_heads((2,), (2, 3)), examples=4, about=MASK)
def the_mask_broadcasts_over_a_batch(subject: Subject, case: Heads) -> None:
    """With batch axes, a mask (n, m), (b, 1, m) or (1, n, m) does as the same mask written out for every item."""
    n, m, b = case.n, case.m, case.batch
    shapes = [(n, m), (m,), (*b, 1, m), (*(1 for _ in b), n, m), (1, *b[1:], n, m)]
    _broadcasts(subject, case, shapes)


def _broadcasts(subject: Subject, case: Heads, shapes: Iterable[tuple[int, ...]]) -> None:
    Q, K, V = case.qkv()
    full = (*case.batch, case.n, case.m)
    tolerance = negligible(case.dtype, size_of(Q, K), case.m) * largest(V)
    for shape in shapes:
        mask = visible(case.rng(), shape)
        _, expected_output, expected = weigh(subject, Q, K, V, mask=np.broadcast_to(mask, full).copy())
        asked, output, weights = weigh(subject, Q, K, V, mask=mask)
        hidden = ~np.broadcast_to(mask, full)
        if (weights[hidden] != 0).any():
            most = float(np.abs(weights[hidden]).max())
            raise asked.fail(f"a key that the mask hides gets weight {most:.4g}", "exactly 0", got=weights)
        if not weights.any():
            raise asked.fail("every weight is 0", "weights that sum to 1", got=weights)
        if max(apart(weights, expected), apart(output, expected_output)) > tolerance:
            raise asked.fail(f"other numbers than with the mask written out as {full}", "the same", got=weights)


@of_attention(
    "step1.mask.per-item",
    cases=st.one_of(unequal_heads((2,), (3,)), cubes(1)),
    examples=5,
    about=(*MASK, "batch-mixed"),
)
def each_item_has_its_mask(subject: Subject, case: Heads) -> None:
    """Each item of a batch may have a mask of its own."""
    qkv = case.qkv()
    mask = case.mask(*case.batch)
    asked, output, weights = weigh(subject, *qkv, mask=mask)
    answer_to_scores(asked, weights)
    _items_alone(subject, asked, qkv, output, weights, mask)


LEVELS = (0, 2_000, -2_000, 200_000, -200_000, 999_000, -999_000)


@of_attention(
    "step1.mask.hides-whatever-the-scores",
    cases=st.tuples(st.integers(3, 6), DTYPES, SEEDS),
    examples=4,
    about=("mask-finite-fill",),
)
def the_mask_hides_whatever_the_scores(subject: Subject, case: tuple[int, str, int]) -> None:
    """A hidden key gets weight exactly 0, for scores up to a million, and up to 50 above the largest one shown."""
    m, dtype, seed = case
    table = Table((4, m), dtype, seed)
    mask = visible(table.rng(), (4, m))
    scores = np.where(mask, table.scores(), table.scores() + np.asarray(42, dtype))
    for level in LEVELS:
        Q, K, V = with_scores(scores + np.asarray(level, dtype))
        asked, _, weights = weigh(subject, Q, K, V, mask=mask)
        if (weights[~mask] != 0).any():
            seen = f"with scores of about {level:,}, a hidden key gets weight {weights[~mask].max():.4g}"
            raise asked.fail(seen, "exactly 0", got=weights)
        sum_to_one(asked, weights, -1, negligible(dtype, abs(level) + 50, m))


# -- self_attention -------------------------------------------------------------------------------------------------


@check(
    "step1.self.projects-then-attends",
    cases=tokens(),
    examples=6,
    functions=(SELF, PROJECT, SDPA),
    families="self_attention",
    public=True,
    about=(
        "scores-transposed",
        "values-swapped",
        "values-unprojected",
        "projection-transposed",
        "scale-by-wrong-width",
    ),
)
def self_attention_projects_then_attends(subject: Subject, case: Tokens) -> None:
    """self_attention(X, …, mask=…) is scaled_dot_product_attention of what project(X, …) gives, under the same mask."""
    given = case.x_and_weights()
    asked = ask(subject, PROJECT, *given)
    shapes = tuple((*given[0].shape[:-1], W.shape[-1]) for W in given[1:])
    Q, K, V = asked.arrays(("Q", "K", "V"), shapes)
    for mask in (None, case.mask()):
        named: dict[str, Any] = {} if mask is None else {"mask": mask}
        plain, expected_output, expected = attend(subject, Q, K, V, **named)
        follows(plain, expected_output)
        again, output, weights = self_attend(subject, *given, **named)
        size = size_of(np.abs(given[0]) @ np.abs(given[1]), np.abs(given[0]) @ np.abs(given[2]))
        tolerance = negligible(case.dtype, size, case.n + case.d) * max(
            1.0, float((np.abs(given[0]) @ np.abs(given[3])).max())
        )
        for what, got, wanted in (("outputs", output, expected_output), ("weights", weights, expected)):
            if apart(got, wanted) > tolerance:
                under = "under a mask, " if named else ""
                raise again.fail(
                    f"{under}other {what} than attention of project(X, W_Q, W_K, W_V)", f"the same {what}", got=got
                )


@check(
    "step1.self.inputs-unchanged",
    cases=tokens(),
    examples=3,
    functions=(SELF, PROJECT),
    families="self_attention",
    public=True,
    stands_on=SELF_ANSWERS,
    about=("input-mutated",),
)
def self_attention_leaves_its_inputs(subject: Subject, case: Tokens) -> None:
    """self_attention and project leave X and the weights as they were."""
    for name in (SELF, PROJECT):
        asked = ask(subject, name, *case.x_and_weights(), echo=True)
        if asked.value is not None:
            asked.unchanged()
