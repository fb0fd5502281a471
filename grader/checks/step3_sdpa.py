"""Step 3, over an attention of the judge: what compare_with_sdpa gives it, and whether a difference that is known is reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from grader.instruments import over_attention
from harness.check import check
from harness.checks.step3_sdpa import COMPARE, ERROR, of_dtype, rows_of, spoil
from harness.expect import Asked, ask
from harness.subject import Subject
from reference.variants.experiments import Compared, mask_kind

SHAPES = [(2, 3, 6, 8), (1, 2, 5, 16)]
PRECISION = {
    "float16": 2e-2,
    "float32": 2e-5,
    "float64": 1e-12,
}  # of a difference between two ways of rounding, at shapes as small as these


def split(calls: list[Compared], shapes: Sequence[tuple[int, ...]]) -> list[list[Compared]] | None:
    """The calls that belong to each shape, in order: one on all heads, or several on parts of them. None where they do not fit.

    A call with the inputs of an earlier one is that one again.
    """
    found: list[list[Compared]] = []
    left: list[Compared] = []
    for call in calls:
        if not any(_again(call, earlier) for earlier in left):
            left.append(call)
    for batch, heads, n, d in shapes:
        mine: list[Compared] = []
        matrices = 0
        while left and matrices < batch * heads and left[0].q.ndim >= 2 and left[0].q.shape[-2:] == (n, d):
            mine.append(left.pop(0))
            matrices += math.prod(mine[-1].q.shape[:-2])
        if matrices != batch * heads or any(c.k.shape != c.q.shape or c.v.shape != c.q.shape for c in mine):
            return None
        found.append(mine)
    return None if left else found


def _again(call: Compared, earlier: Compared) -> bool:
    return all(np.array_equal(a, b) for a, b in ((call.q, earlier.q), (call.k, earlier.k), (call.v, earlier.v)))


def _asked(subject: Subject, **options: Any) -> Asked:
    return ask(subject, COMPARE, SHAPES, **options)


@check(
    "step3.sdpa.known-difference",
    functions=COMPARE,
    families="compare_with_sdpa",
    stands_on="step3.sdpa.rows",
    needs="torch",
)
def known_difference(subject: Subject, rng: np.random.Generator) -> None:
    """An attention that is wrong is found out, by the largest of its errors."""
    _known(subject, rng, causal=False)


@check(
    "step3.sdpa.known-difference-causal",
    functions=COMPARE,
    families="compare_with_sdpa",
    stands_on="step3.sdpa.rows",
    needs="torch",
)
def known_difference_causal(subject: Subject, rng: np.random.Generator) -> None:
    """Both sides get the same causal mask: a known error is all that is left between them."""
    _known(subject, rng, causal=True)


def _known(subject: Subject, rng: np.random.Generator, causal: bool) -> None:
    with over_attention(subject) as (borrower, attention):
        for sign in (1, -1):
            factor = sign * float(rng.integers(8, 33)) / 16
            attention.spoil = partial(spoil, factor=factor)
            asked = _asked(borrower, dtype="float64", causal=causal)
            for row in rows_of(asked, SHAPES):
                if not abs(row["max_abs_diff"] - abs(factor) * ERROR) <= PRECISION["float64"]:
                    seen = f"max_abs_diff is {row['max_abs_diff']:.6g} at shape {row['shape']}"
                    wanted = f"{abs(factor) * ERROR:.6g}: the largest error of the attention that stood in for yours"
                    raise asked.fail(seen, wanted)
    if causal and any(mask_kind(call.mask, call.q.shape[-2]) != "causal" for call in attention.calls):
        seen = "attention was called without the causal mask, or with another one"
        raise asked.fail(seen, "causal=True: no query attends to a later key")


@check(
    "step3.sdpa.inputs",
    functions=COMPARE,
    families="compare_with_sdpa",
    stands_on="step3.sdpa.known-difference",
    needs="torch",
)
def inputs(subject: Subject) -> None:
    """Queries, keys and values have the shape that the row says: batch, heads, n and d."""
    with over_attention(subject) as (borrower, attention):
        asked = _asked(borrower)
    rows_of(asked, SHAPES)
    if split(attention.calls, SHAPES) is None:
        got = ", ".join(str(call.q.shape) for call in attention.calls[:6]) or "nothing"
        raise asked.fail(
            f"attention was called with {got}", f"queries, keys and values of shapes {SHAPES}", "sdpa-wrong-inputs"
        )
    for call in attention.calls:
        if not all(np.isfinite(a).all() and np.ptp(a.astype(float)) > 0 for a in (call.q, call.k, call.v)):
            raise asked.fail(
                "attention was called with constant inputs", "random inputs: constant ones hide every fault"
            )


@check(
    "step3.sdpa.dtype",
    functions=COMPARE,
    families="compare_with_sdpa",
    stands_on="step3.sdpa.known-difference",
    needs="torch",
)
def dtype(subject: Subject) -> None:
    """The comparison is made in the dtype asked for: float16, float32 or float64."""
    with over_attention(subject) as (borrower, attention):
        for name in ("float64", "float32", "float16"):
            attention.calls.clear()
            asked = _asked(borrower, dtype=name)
            rows = rows_of(asked, SHAPES)
            for call in attention.calls:
                for array in (call.q, call.k, call.v):
                    if not of_dtype(array, name):
                        raise asked.fail(
                            f"attention was called with {array.dtype}", f"inputs in {name}", "sdpa-wrong-dtype"
                        )
            for row in rows:
                if not 0 <= row["max_abs_diff"] <= PRECISION[name]:
                    seen = f"max_abs_diff is {row['max_abs_diff']:.3g} for a right attention in {name}"
                    raise asked.fail(seen, f"at most {PRECISION[name]:g}, {name}'s rounding")


@check(
    "step3.sdpa.seed",
    functions=COMPARE,
    families="compare_with_sdpa",
    stands_on="step3.sdpa.known-difference",
    needs="torch",
)
def seed(subject: Subject) -> None:
    """The seed decides the inputs: the same one gives the same, another one others."""
    drawn = []
    with over_attention(subject) as (borrower, attention):
        for number in (3, 3, 4):
            attention.calls.clear()
            asked = _asked(borrower, seed=number)
            rows_of(asked, SHAPES)
            drawn.append([call.q for call in attention.calls])
    same = len(drawn[0]) == len(drawn[1]) and all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    if not same:
        raise asked.fail("two calls with seed=3 drew different inputs", "the same inputs again")
    if len(drawn[0]) == len(drawn[2]) and all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True)):
        raise asked.fail("seed=4 drew the inputs of seed=3", "other inputs")
