"""attention_torch.py in float32, float16 and bfloat16: each against float64, within what a run in that dtype may be off by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from harness.check import check, note
from harness.expect import Asked, ask, spell_value
from harness.rounding import looseness
from harness.strategies import SEEDS, visible
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Handle
from reference import attention, narrow
from reference.narrow import rounded

SOFTMAX = "attention_torch.softmax"
SDPA = "attention_torch.scaled_dot_product_attention"
SELF = "attention_torch.self_attention"
STABLE = ("softmax-overflow", "softmax-global-max", "softmax-max-wrong-axis", "softmax-clamped-max")
WIDTH = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
MANY = 1024  # keys in a long row


@dataclass(frozen=True)
class Problem:
    """Values of one dtype, held in float32: n queries, m keys, and the size of the scores."""

    n: int
    m: int
    d_k: int
    batch: tuple[int, ...]
    masked: bool
    seed: int

    def qkv(self, dtype: str, size: float = 1.0) -> tuple[Array, Array, Array]:
        """Scores are about normal, times `size`."""
        rng = self.rng()
        shapes = (self.n, self.d_k), (self.m, self.d_k), (self.m, self.d_k + 1)
        Q, K, V = (rng.standard_normal((*self.batch, *shape)) for shape in shapes)
        return rounded(Q * size, dtype), rounded(K, dtype), rounded(V, dtype)

    def mask(self) -> Array | None:
        return visible(self.rng(), (*self.batch, self.n, self.m)) if self.masked else None

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def problems(most: int = 24) -> SearchStrategy[Problem]:
    sizes = st.integers(6, most)
    widths = st.sampled_from((8, 16, 32))
    return st.builds(Problem, sizes, sizes, widths, st.sampled_from(((), (2,))), st.booleans(), SEEDS)


def in_each_dtype(id: str, **options: Any) -> Callable[[Callable[..., None]], None]:
    """Registers a check for every dtype: it gets the dtype's name, and its title ends with it."""

    def register(function: Callable[..., None]) -> None:
        title = (function.__doc__ or "").strip()
        for dtype in narrow.DTYPES:
            asked = partial(function, dtype)
            asked.__doc__ = f"In {dtype}: {title}"
            asked.__module__ = function.__module__
            check(f"{id}-in-{dtype}", **{"needs": "companion", **options})(asked)

    return register


def tensors(subject: Subject, dtype: str, arrays: tuple[Array, ...]) -> list[Handle]:
    """The arrays as tensors of this dtype, kept where the submission is."""
    return [ask(subject, "@torch", array, dtype).value for array in arrays]


def parts(
    subject: Subject, name: str, inputs: tuple[Array, ...], dtype: str, shapes: tuple[tuple[int, ...], ...], mask: Any
) -> tuple[Asked, list[Array]]:
    """Asks a function about tensors of `dtype`: its result as so many arrays of these shapes, none of a narrower dtype."""
    named = {} if mask is None else {"mask": ask(subject, "@torch", mask).value}
    call = Call(name, tuple(tensors(subject, dtype, inputs)), named, keep="whole")
    asked = Asked(call, subject.ask(call)[0], f"{name.split('.')[-1]}(…) of {dtype} tensors")
    asked.inputs = dict(zip(("QKV" if name == SDPA else ("X", "W_Q", "W_K", "W_V")), inputs, strict=False))
    whole = asked.value
    found = [whole] if len(shapes) == 1 else ask(subject, "@parts", whole).value
    if not isinstance(found, list) or len(found) != len(shapes):
        got = f"{len(found)} values" if isinstance(found, list) else spell_value(found)
        raise asked.fail(f"{got} came back", f"{len(shapes)} tensors", "wrong-shape")
    arrays = []
    for part, shape in zip(found, shapes, strict=True):
        if not isinstance(part, Handle) or part.kind != "array":
            raise asked.fail(f"{spell_value(part)} came back", "a tensor", "not-an-array")
        given = str(part.dtype)
        if WIDTH.get(given, 0) < WIDTH[dtype] or (given != dtype and WIDTH.get(given) == WIDTH[dtype]):
            raise asked.fail(f"a {given} tensor came back", dtype, "wrong-dtype")
        if given != dtype:
            note(
                "wrong-dtype", f"{name.split('.')[-1]} gives {given} for {dtype}: right, and wider than it needs to be."
            )
        fetched = Asked(call, Outcome("value", subject.call("@fetch", part).value), asked.text)
        fetched.inputs = asked.inputs
        arrays.append(fetched.array(shape))
    subject.call("@drop", [h.id for h in (*call.args, *named.values(), whole, *found) if isinstance(h, Handle)])
    return asked, arrays


def close(asked: Asked, what: str, got: Array, right: Array, bound: float) -> None:
    off = float(np.abs(got.astype(np.float64) - right).max())
    if off > bound:
        raise asked.fail(f"{what} are off by up to {off:.3g}", f"those in float64, within {bound:.1g}", got=got)


def attends(subject: Subject, dtype: str, Q: Array, K: Array, V: Array, mask: Array | None) -> None:
    shapes = ((*Q.shape[:-1], V.shape[-1]), (*Q.shape[:-1], K.shape[-2]))
    asked, (output, weights) = parts(subject, SDPA, (Q, K, V), dtype, shapes, mask)
    wide = [a.astype(np.float64) for a in (Q, K, V)]
    right = attention.scaled_dot_product_attention(wide[0], wide[1], wide[2], mask)
    bound = narrow.scaled_dot_product_attention(Q, K, V, mask, dtype, looseness())
    if mask is not None and (weights[~mask] != 0).any():
        raise asked.fail(f"a hidden key gets weight {np.abs(weights[~mask]).max():.3g}", "exactly 0", got=weights)
    close(asked, "the weights", weights, right[1], bound.weights)
    close(asked, "the outputs", output, right[0], bound.output)


@in_each_dtype("step10.dtype.softmax", cases=st.tuples(problems(), st.sampled_from((1, 100))), examples=4,
               functions=SOFTMAX, families="softmax on tensors", about=STABLE)  # fmt: skip
def softmax(dtype: str, subject: Subject, case: tuple[Problem, int]) -> None:
    """softmax is right, of scores up to 100 in size."""
    problem, size = case
    x = problem.rng().uniform(-size, size, (*problem.batch, problem.n, problem.m))
    x = rounded(x, dtype)
    asked, (weights,) = parts(subject, SOFTMAX, (x,), dtype, (x.shape,), None)
    close(asked, "the weights", weights, attention.softmax(x.astype(np.float64)), narrow.softmax(x, dtype, looseness()))


@in_each_dtype("step10.dtype.attention", cases=problems(), examples=5, functions=SDPA, families="sdpa on tensors")
def attention_agrees(dtype: str, subject: Subject, case: Problem) -> None:
    """attention is right, with a mask and without, in a batch and alone."""
    attends(subject, dtype, *case.qkv(dtype), case.mask())


@in_each_dtype(
    "step10.dtype.large-scores", cases=problems(), examples=4, functions=SDPA, families="sdpa on tensors", about=STABLE
)
def large_scores(dtype: str, subject: Subject, case: Problem) -> None:
    """attention stays finite, and right, with scores up to 100 in size."""
    Q, K, V = case.qkv(dtype)
    largest = np.abs(Q @ np.swapaxes(K, -1, -2)).max() / np.sqrt(case.d_k)
    attends(subject, dtype, rounded(Q * (90 / largest), dtype), K, V, case.mask())


@in_each_dtype(
    "step10.dtype.self", cases=problems(16), examples=3, functions=SELF, families="self_attention on tensors"
)
def self_attends(dtype: str, subject: Subject, case: Problem) -> None:
    """self_attention is right, its projections in the same dtype."""
    rng = case.rng()
    d = case.d_k
    X = rounded(rng.standard_normal((*case.batch, case.n, d)), dtype)
    W = [rounded(rng.standard_normal((d, width)) / np.sqrt(d), dtype) for width in (d, d, d + 1)]
    mask = visible(rng, (*case.batch, case.n, case.n)) if case.masked else None
    shapes = ((*X.shape[:-1], d + 1), (*X.shape[:-1], case.n))
    asked, (output, weights) = parts(subject, SELF, (X, *W), dtype, shapes, mask)
    wide = [a.astype(np.float64) for a in (X, *W)]
    right = attention.self_attention(wide[0], wide[1], wide[2], wide[3], mask)
    bound = narrow.self_attention(X, W[0], W[1], W[2], mask, dtype, looseness())
    close(asked, "the weights", weights, right[1], bound.weights)
    close(asked, "the outputs", output, right[0], bound.output)


LONG_ROWS = st.builds(Problem, *map(st.just, (3, MANY, 16, (), False)), SEEDS)


@in_each_dtype("step10.dtype.long-rows", cases=LONG_ROWS, examples=2, functions=SDPA, families="sdpa on tensors")
def long_rows(dtype: str, subject: Subject, case: Problem) -> None:
    """over a thousand keys of about the same score the weights still sum to 1."""
    Q, K, V = case.qkv(dtype, size=1 / 16)
    attends(subject, dtype, Q, K, V, None)
