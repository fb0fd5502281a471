"""Step 3: the comparison with torch's own scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.check import check, note
from harness.expect import Asked, ask, spell_value
from harness.own_attention import over_own_attention
from harness.subject import Subject
from harness.values import Array

COMPARE = "experiments.compare_with_sdpa"
SHAPES = [(1, 1, 5, 4), (2, 3, 7, 8)]
# 7.9, step 3: anything above about 1e-5 is very likely a real disagreement in float32; rounding grows with the scores, so a
# little room is left
FLOAT32_BOUND = 2e-5
BACKENDS = (
    "MATH",
    "FLASH_ATTENTION",
    "EFFICIENT_ATTENTION",
    "CUDNN_ATTENTION",
    "OVERRIDEABLE",
    "FLASH",
    "EFFICIENT",
    "CUDNN",
)


def rows_of(asked: Asked, shapes: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
    """The result as one dict a shape, each with a shape, a difference and a backend. Raises Fail."""
    value = asked.value
    if not isinstance(value, list | tuple) or len(value) != len(shapes):
        got = f"{len(value)} rows" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
        raise asked.fail(f"{got} came back", f"a list of {len(shapes)} dicts, one for each shape")
    rows = []
    for row, shape in zip(value, shapes, strict=True):
        if not isinstance(row, dict):
            raise asked.fail(f"a row is a {type(row).__name__}", "a dict with shape, max_abs_diff and backend")
        missing = [name for name in ("shape", "max_abs_diff", "backend") if name not in row]
        if missing:
            raise asked.fail(f"a row has no {' and no '.join(missing)}", "shape, max_abs_diff and backend in every row")
        given = row["shape"]
        if not isinstance(given, list | tuple | np.ndarray) or not np.array_equal(given, shape):
            raise asked.fail(f"the row of {shape} says shape {spell_value(given)}", f"shape {shape}")
        difference = row["max_abs_diff"]
        if hasattr(difference, "ndim") and difference.ndim == 0:
            difference = difference.item()
        if isinstance(difference, bool) or not isinstance(difference, int | float):
            raise asked.fail(f"max_abs_diff is a {type(difference).__name__}", "a float")
        rows.append({**row, "shape": shape, "max_abs_diff": float(difference)})
    return rows


@check("step3.sdpa.rows", functions=COMPARE, families="compare_with_sdpa", needs="torch", public=True)
def rows(subject: Subject) -> None:
    """compare_with_sdpa gives one row a shape: the shape, the difference, and what computed torch's side."""
    asked = ask(subject, COMPARE, SHAPES)
    for row in rows_of(asked, SHAPES):
        backend = row["backend"]
        if not isinstance(backend, str) or not backend.strip():
            raise asked.fail(f"backend is {backend!r}", "a text that names what computed torch's side")
        if backend.rsplit(".", 1)[-1].upper().replace(" ", "_") not in BACKENDS:
            text = f'compare_with_sdpa names its backend "{backend[:40]}"; a member of torch.nn.attention.SDPBackend says more.'
            note("sdpa-backend", text)


@check(
    "step3.sdpa.own-attention",
    functions=(COMPARE, "attention.scaled_dot_product_attention"),
    families=("compare_with_sdpa", "causal_mask"),
    about=("sdpa-scale-mismatch", "sdpa-mask-inverted"),
    stands_on=("step3.sdpa.rows", "step3.sdpa.known-difference"),
    needs="torch",
    public=True,
)
def own_attention(subject: Subject) -> None:
    """Your attention and torch's differ by rounding alone, with a causal mask and without one."""
    for causal in (False, True):
        asked = ask(subject, COMPARE, SHAPES, causal=causal)
        for row in rows_of(asked, SHAPES):
            if not 0 <= row["max_abs_diff"] <= FLOAT32_BOUND:
                shown = f"the largest difference at shape {row['shape']} is {row['max_abs_diff']:.3g}"
                raise asked.fail(shown, f"between 0 and {FLOAT32_BOUND:g} in float32")


ERROR = 0.75  # the largest that `spoil` makes


def spoil(output: Array, factor: float = 1.0) -> Array:
    """Every entry 0.125 too large, but for two of every matrix: the first 0.25 too small, the last 0.75 too large.

    So no other statistic of the errors is as large as their largest absolute value; below 0, `factor` makes the
    largest error a negative one, which signed statistics miss.
    """
    error = np.full(output.shape, 0.125)
    error[..., 0, 0] = -0.25
    error[..., -1, -1] = ERROR
    return output + factor * error


@check(
    "step3.sdpa.error-on-purpose",
    functions=(COMPARE, "attention.scaled_dot_product_attention"),
    families="compare_with_sdpa",
    stands_on="step3.sdpa.own-attention",
    needs="torch",
    public=True,
)
def error_on_purpose(subject: Subject) -> None:
    """With errors added to what your attention gives, the largest of them is what compare_with_sdpa reports."""
    with over_own_attention(subject) as (borrower, attention):
        own = rows_of(ask(borrower, COMPARE, SHAPES, dtype="float64"), SHAPES)
        for factor in (1.0, -1.0):
            attention.spoil = partial(spoil, factor=factor)
            asked = ask(borrower, COMPARE, SHAPES, dtype="float64")
            for row, before in zip(rows_of(asked, SHAPES), own, strict=True):
                if not abs(row["max_abs_diff"] - ERROR) <= abs(before["max_abs_diff"]) + 1e-9:
                    seen = f"max_abs_diff is {row['max_abs_diff']:.4g} at shape {row['shape']}"
                    raise asked.fail(seen, f"{ERROR}, the largest error that was added to your outputs")


@check(
    "step3.sdpa.given",
    functions=(COMPARE, "attention.scaled_dot_product_attention"),
    families="compare_with_sdpa",
    stands_on="step3.sdpa.rows",
    needs="torch",
    public=True,
)
def what_attention_is_given(subject: Subject) -> None:
    """Attention is given what the row says: inputs of that shape, in the dtype that was asked for, under a causal mask."""
    with over_own_attention(subject) as (borrower, attention):
        asked = ask(borrower, COMPARE, SHAPES, causal=True)
        rows_of(asked, SHAPES)
    if not attention.calls:
        seen = "scaled_dot_product_attention of attention.py was not asked"
        raise asked.fail(seen, "one side by attention.py, the other by torch", "sdpa-self-comparison")
    if all(call.mask is None for call in attention.calls):
        raise asked.fail("attention was given no mask", "causal=True: no query attends to a later key")
    for dtype in ("float64", "float32", "float16"):
        with over_own_attention(subject) as (borrower, attention):
            asked = ask(borrower, COMPARE, SHAPES, dtype=dtype)
            rows_of(asked, SHAPES)
        given = [array for call in attention.calls for array in call.arrays if isinstance(array, np.ndarray)]
        for batch, heads, n, d in SHAPES:
            tables = sum(math.prod(a.shape[:-2]) for a in given if a.shape[-2:] == (n, d)) / 3
            if tables < batch * heads:
                shapes = ", ".join(dict.fromkeys(str(a.shape) for a in given)) or "nothing"
                wanted = f"Q, K and V of shape {(batch, heads, n, d)}, all at once or head by head"
                raise asked.fail(f"attention was given {shapes}", wanted, "sdpa-wrong-inputs")
        for array in given:
            if not of_dtype(array, dtype):
                seen = f"attention was given {array.dtype}"
                raise asked.fail(seen, f"numbers of {dtype}", "sdpa-wrong-dtype")


def of_dtype(array: Array, name: str) -> bool:
    """Whether the values are of that dtype; a wider array that holds them exactly is as good (attention.py need not know float16)."""
    if array.dtype.kind != "f" or array.dtype.itemsize < np.dtype(name).itemsize:
        return False
    return bool(np.array_equal(array.astype(name).astype(array.dtype), array))
