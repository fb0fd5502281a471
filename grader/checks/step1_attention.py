"""Step 1 against the reference: the same numbers as the chapter's formulas, within a derived bound."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness import attend as asking
from harness.attend import PROJECT, SDPA, SELF, SOFTMAX, apart, largest
from harness.check import check
from harness.expect import Asked, ask
from harness.rounding import MILLIONTH, looseness
from harness.strategies import Heads, Table, Tokens, cubes, heads, tables, tokens, unequal_heads
from harness.subject import Subject
from harness.values import Array
from reference import attention, bounds

ATTENTION_CODES = ("scale-missing", "scale-by-dk", "scores-transposed", "weights-transposed", "values-swapped")

of_attention = partial(check, functions=SDPA, families="sdpa")


def wide(a: Array) -> Array:
    return a.astype(np.float64)


def factor() -> float:
    return bounds.FACTOR * looseness()


def agree(asked: Asked, what: str, got: Array, expected: Array, bound: float, formula: str) -> None:
    """Raises Fail where `got` lies further from the reference than `bound`. The expected values are not told."""
    off = apart(got, expected)
    if off > bound:
        raise asked.fail(f"{what} are off by up to {off:.3g}", f"{formula}, within {bound:.1g}", got=got)


def negligible(bound: float, size: float = 1.0) -> float:
    """A derived bound, or what the contract lets pass everywhere but in the checks of precision: a millionth of the size."""
    return max(bound, looseness() * MILLIONTH * size)


def agrees(subject: Subject, case: Heads, mask: Array | None = None, scale: float | None = None) -> None:
    """Attention of a drawn problem agrees with the reference, in numbers and dtype."""
    Q, K, V = case.qkv()
    named: dict[str, Any] = {"mask": mask} if mask is not None else {}
    if scale is not None:
        named["scale"] = scale
    asked, output, weights = asking.weigh(subject, Q, K, V, like=case.dtype, **named)
    right = attention.scaled_dot_product_attention(wide(Q), wide(K), wide(V), **named)
    bound = bounds.scaled_dot_product_attention(Q, K, V, mask, scale, factor())
    formula = "softmax(QKᵀ · scale)" + (", masked" if mask is not None else "")
    agree(asked, "the weights", weights, right[1], negligible(bound.weights), formula)
    agree(asked, "the outputs", output, right[0], negligible(bound.output, largest(V)), "weights @ V")


@check("step1.softmax.agrees", cases=tables(2), examples=10, functions=SOFTMAX, families="softmax")
def softmax_agrees(subject: Subject, case: Table) -> None:
    """softmax gives exp(x) / sum(exp(x)) along the last axis, to rounding, in the dtype of its input."""
    x = 3 * case.rng().standard_normal(case.shape).astype(case.dtype)
    asked = ask(subject, SOFTMAX, x)
    right = attention.softmax(wide(x))
    bound = bounds.softmax(x, factor=factor())
    weights = asked.array(x.shape, like=case.dtype)
    agree(asked, "the weights", weights, right, negligible(bound), "exp(x) / sum(exp(x))")


@check("step1.project.agrees", cases=tokens((), (2,), (2, 3)), examples=6, functions=PROJECT, families="project")
def project_agrees(subject: Subject, case: Tokens) -> None:
    """project gives X W_Q, X W_K and X W_V, to rounding, with or without batch axes."""
    X, *W = case.x_and_weights()
    asked = ask(subject, PROJECT, X, *W)
    shapes = tuple((*X.shape[:-1], w.shape[-1]) for w in W)
    for name, w, got in zip("QKV", W, asked.arrays(("Q", "K", "V"), shapes, like=case.dtype), strict=True):
        right = wide(X) @ wide(w)
        bound = negligible(bounds.product(X, w, factor()), largest(right))
        agree(asked, f"the entries of {name}", got, right, bound, f"X @ W_{name}")


@of_attention("step1.attention.agrees", cases=st.one_of(unequal_heads(), cubes()), examples=10, about=ATTENTION_CODES)
def attention_agrees(subject: Subject, case: Heads) -> None:
    """Attention gives softmax(QKᵀ/√d_k) V and its weights, to rounding, in the dtype of its inputs."""
    agrees(subject, case)


@of_attention("step1.attention.agrees-on-any-size", cases=heads(least=1), examples=8, about=ATTENTION_CODES)
def attention_agrees_on_any_size(subject: Subject, case: Heads) -> None:
    """Attention is right down to one query, one key, or a batch of one."""
    agrees(subject, case)


@of_attention(
    "step1.attention.agrees-with-everything-at-once",
    cases=st.one_of(unequal_heads((2,), (2, 3)), cubes(1)),
    examples=8,
    about=("batch-mixed", "batch-unsupported", "mask-not-broadcast"),
)
def attention_agrees_with_everything(subject: Subject, case: Heads) -> None:
    """Attention is right with all sizes unequal, batch axes, and another random mask for each item."""
    agrees(subject, case, mask=case.mask(*case.batch))


@of_attention(
    "step1.attention.agrees-with-scale",
    cases=st.tuples(unequal_heads(), st.sampled_from((0.1, 0.5, 1.0, 1.5)), st.booleans()),
    examples=8,
    about=("scale-ignored", "scale-compounded"),
)
def attention_agrees_with_scale(subject: Subject, case: tuple[Heads, float, bool]) -> None:
    """Attention is right with an explicit scale, with a mask and without."""
    problem, scale, masked = case
    agrees(subject, problem, problem.mask() if masked else None, scale)


@of_attention(
    "step1.attention.weights-agree",
    cases=st.tuples(unequal_heads((), (2,)), st.booleans()),
    examples=6,
    about=ATTENTION_CODES,
)
def returned_weights_agree(subject: Subject, case: tuple[Heads, bool]) -> None:
    """The weights that attention returns are softmax(QKᵀ/√d_k), masked or not, whatever its output is made with."""
    problem, masked = case
    Q, K, V = problem.qkv()
    mask = problem.mask(*problem.batch) if masked else None
    named: dict[str, Any] = {"mask": mask} if masked else {}
    asked, _, weights = asking.attend(subject, Q, K, V, like=problem.dtype, **named)
    right = attention.scaled_dot_product_attention(wide(Q), wide(K), wide(V), mask)[1]
    bound = bounds.scaled_dot_product_attention(Q, K, V, mask, None, factor()).weights
    agree(asked, "the weights", weights, right, negligible(bound), "softmax(QKᵀ/√d_k)" + (", masked" if masked else ""))


@check(
    "step1.self.precision",
    cases=tokens().map(lambda case: replace(case, dtype="float64")),
    examples=4,
    functions=SELF,
    families="self_attention",
    about=("softmax-epsilon", "narrow-arithmetic"),
)
def self_attention_precision(subject: Subject, case: Tokens) -> None:
    """self_attention of float64 tokens is right to float64's rounding."""
    self_agrees(subject, case, None, strict=True)


@check(
    "step1.self.agrees",
    cases=st.tuples(st.one_of(tokens(), tokens(square=True)), st.booleans()),
    examples=8,
    functions=SELF,
    families="self_attention",
    about=("scores-transposed", "values-swapped", "values-unprojected", "projection-transposed"),
)
def self_attention_agrees(subject: Subject, case: tuple[Tokens, bool]) -> None:
    """self_attention projects X and attends, to rounding, with a mask and without, in the dtype of its inputs."""
    problem, masked = case
    self_agrees(subject, problem, problem.mask() if masked else None)


@check(
    "step1.self.agrees-on-a-batch",
    cases=tokens((2,), (2, 3)),
    examples=6,
    functions=SELF,
    families="self_attention",
    about=("batch-unsupported", "batch-mixed", "mask-not-broadcast"),
)
def self_attention_agrees_on_a_batch(subject: Subject, case: Tokens) -> None:
    """self_attention is right with batch axes and another mask for each item."""
    self_agrees(subject, case, case.mask(*case.batch))


def self_agrees(subject: Subject, case: Tokens, mask: Array | None, strict: bool = False) -> None:
    """Self-attention of drawn tokens agrees with the reference, in numbers and dtype; `strict` for a check of precision."""
    X, W_Q, W_K, W_V = case.x_and_weights()
    named: dict[str, Any] = {} if mask is None else {"mask": mask}
    asked, output = asking.self_output(subject, X, W_Q, W_K, W_V, like=case.dtype, **named)
    right = attention.self_attention(wide(X), wide(W_Q), wide(W_K), wide(W_V), mask)[0]
    bound = bounds.self_attention(X, W_Q, W_K, W_V, mask, factor()).output
    if not strict:
        bound = negligible(bound, largest(X @ W_V))
    agree(asked, "the outputs", output, right, bound, "softmax(QKᵀ/√d_k) V with Q = X W_Q, K = X W_K, V = X W_V")


@of_attention(
    "step1.attention.agrees-with-torch",
    cases=st.tuples(unequal_heads((2, 3)), st.booleans(), st.sampled_from((None, 0.5))),
    examples=6,
    needs="torch",
    about=ATTENTION_CODES,
)
def attention_agrees_with_torch(subject: Subject, case: tuple[Heads, bool, float | None]) -> None:
    """Attention gives what torch's scaled_dot_product_attention gives for the same inputs, mask and scale."""
    problem, masked, scale = case
    Q, K, V = problem.qkv()
    mask = problem.mask(*problem.batch) if masked else None
    named: dict[str, Any] = {"mask": mask} if masked else {}
    if scale is not None:
        named["scale"] = scale
    asked, output = asking.blend(subject, Q, K, V, **named)
    right = attention.scaled_dot_product_attention(wide(Q), wide(K), wide(V), **named)[0]
    bound = bounds.scaled_dot_product_attention(Q, K, V, mask, scale, factor()).output
    theirs = subject.call("@sdpa", Q, K, V, mask, scale).value
    # torch answers in the submission's own process, which may have patched it: only an answer that is right is taken
    taken = isinstance(theirs, np.ndarray) and theirs.shape == right.shape and apart(theirs, right) <= bound
    wanted = theirs if taken else right
    agree(
        asked, "the outputs", output, wanted, negligible(2 * bound, largest(V)), "torch's scaled_dot_product_attention"
    )


# -- at size: blocks of 64, tables of 256 and loops that never end show at some hundreds alone -----------------------------


@check("step1.softmax.at-size", functions=SOFTMAX, families="softmax")
def softmax_at_size(subject: Subject, rng: np.random.Generator) -> None:
    """softmax of rows of some hundreds of scores, thousands in all, is right to the last."""
    x = 3 * rng.standard_normal((21, 301))
    asked = ask(subject, SOFTMAX, x)
    bound = negligible(bounds.softmax(x, factor=factor()))
    agree(asked, "the weights", asked.array(x.shape), attention.softmax(x), bound, "exp(x) / sum(exp(x))")


@check("step1.project.at-size", functions=PROJECT, families="project")
def project_at_size(subject: Subject, rng: np.random.Generator) -> None:
    """project of some hundreds of tokens is right to the last."""
    case = Tokens((), 301, 9, 8, 7, "float64", int(rng.integers(2**32)))
    X, *W = case.x_and_weights()
    asked = ask(subject, PROJECT, X, *W)
    shapes = tuple((case.n, w.shape[-1]) for w in W)
    for name, w, got in zip("QKV", W, asked.arrays(("Q", "K", "V"), shapes), strict=True):
        agree(asked, f"the entries of {name}", got, X @ w, negligible(bounds.product(X, w, factor())), f"X @ W_{name}")


@of_attention("step1.attention.at-size")
def attention_at_size(subject: Subject, rng: np.random.Generator) -> None:
    """Attention of some hundreds of queries over some hundreds of keys is right to the last."""
    Q, K, V = Heads((), 203, 301, 8, 5, "float64", int(rng.integers(2**32))).qkv()
    asked, output = asking.blend(subject, Q, K, V)
    right = attention.scaled_dot_product_attention(Q, K, V)[0]
    bound = bounds.scaled_dot_product_attention(Q, K, V, factor=factor()).output
    agree(asked, "the outputs", output, right, negligible(bound, largest(V)), "softmax(QKᵀ/√d_k) V")


@check("step1.self.at-size", functions=SELF, families="self_attention")
def self_attention_at_size(subject: Subject, rng: np.random.Generator) -> None:
    """self_attention of some hundreds of tokens is right to the last."""
    self_agrees(subject, Tokens((), 301, 9, 8, 7, "float64", int(rng.integers(2**32))), None)
