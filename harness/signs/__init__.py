"""What a hint is, and how two of a submission's own answers are compared to find one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.messages import MESSAGES
from harness.subject import Asking, Call, Outcome
from harness.values import Array


@dataclass(frozen=True)
class Hint:
    """What was seen, and the code of the catalogue that it proves (None where it proves none).

    family   where it was seen: of harness.hints.FAMILIES
    like     a code that fails the same checks, for a hint without one or with one that can mean several things
    at       the file and line of the submission that raised, where what was seen is an exception
    """

    code: str | None
    seen: str
    family: str = ""
    like: str | None = None
    at: tuple[str, int] | None = None

    @property
    def look(self) -> str:
        """Where to look, in the catalogue's words."""
        return MESSAGES[self.code].look if self.code in MESSAGES else ""


Look = Callable[[Asking], Iterator[Hint]]
"""Looks at one family of functions."""


def array(outcome: Outcome, shape: tuple[int, ...]) -> Array | None:
    value = outcome.value
    if outcome.ok and isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in "fb":
        return value.astype(np.float64) if value.dtype.kind == "f" else value
    return None


def pair(outcome: Outcome, output: tuple[int, ...], weights: tuple[int, ...]) -> tuple[Array, Array] | None:
    value = outcome.value
    if not outcome.ok or not isinstance(value, tuple | list) or len(value) != 2:
        return None
    first, second = (array(Outcome("value", v), s) for v, s in zip(value, (output, weights), strict=True))
    return None if first is None or second is None else (first, second)


def said(outcome: Outcome) -> str:
    """An exception in a few words."""
    return f"{outcome.type.split('.')[-1]} ({textwrap.shorten(outcome.text, 64, placeholder='…')})"


def place(outcome: Outcome) -> tuple[str, int] | None:
    """The line of the submission that raised."""
    frame = outcome.frames[-1] if outcome.frames else None
    return None if frame is None else (frame.file, frame.line)


def same(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, rtol=1e-6, atol=1e-9))


def repeated(a: Any, b: Any) -> bool:
    """Whether two answers to one question are the same; NaN twice is the same answer twice."""
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True))


def changed(subject: Asking, name: str, *args: Array) -> bool:
    outcome = subject.ask(Call(name, args, echo=True))[0]
    return outcome.ok and any(not np.array_equal(a, b) for a, b in zip(args, outcome.echo, strict=True))


def numbers(*shapes: tuple[int, ...], seed: int = 7) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def slope(weights: Array, scores: Array) -> float | None:
    """c where the weights of every row stand to each other as exp(c · score) does, else None."""
    if not np.isfinite(weights).all() or weights.min() <= 0:
        return None
    slope, logs, apart = _fitted(weights, scores)
    return slope if same(logs, slope * apart) else None


def follows(weights: Array, scores: Array) -> bool:
    """Whether one factor explains the weights but for rounding, in float32 too; an infinity or a 0 says nothing against it."""
    if not np.isfinite(weights).all() or weights.min() <= 0:
        return True
    slope, logs, apart = _fitted(weights, scores)
    return float(np.abs(logs - slope * apart).max()) < 1e-2


def _fitted(weights: Array, scores: Array) -> tuple[float, Array, Array]:
    """The best c, the logs of each row's weights over its first, and the scores less the first."""
    logs = np.log(weights[:, 1:] / weights[:, :1])
    apart = scores[:, 1:] - scores[:, :1]
    return float((logs * apart).sum() / (apart * apart).sum()), logs, apart


def sums(weights: Array) -> Hint | None:
    """What row sums and column sums say of the axis."""
    if not np.isfinite(weights).all() or same(weights.sum(-1), np.ones(weights.shape[:-1])):
        return None
    rows = f"rows sum to {', '.join(f'{s:.3f}' for s in weights.sum(-1).ravel()[:3])}"
    if same(weights.sum(-2), np.ones((*weights.shape[:-2], weights.shape[-1]))):
        return Hint("softmax-wrong-axis", f"The columns sum to 1, the {rows}.")
    if same(weights.sum(), 1.0):
        return Hint("softmax-whole-matrix", f"All entries together sum to 1, the {rows}.")
    return None


def or_else(named: Look, described: Look) -> Look:
    """What has a name; where nothing has, what is odd."""

    def look(subject: Asking) -> Iterator[Hint]:
        found = list(named(subject))
        yield from found or described(subject)

    return look


def narrowed(array: Any) -> bool:
    """Whether a float64 array holds float32 numbers alone, and they are not as simple as those of a table of zeros and halves."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not np.isfinite(array).all():
        return False
    return np.array_equal(array, array.astype(np.float32)) and bool((array * 2**12 % 1).any())


def turned_inside(x: Array) -> Array:
    """The same numbers, all but the first and last in reverse."""
    flat = x.ravel().copy()
    flat[1:-1] = flat[-2:0:-1]
    return flat.reshape(x.shape)


def fixed_axis(outcome: Outcome) -> bool:
    """An error that says that an axis, counted from the front, is one too many."""
    if outcome.kind != "raised":
        return False
    beyond = re.search(r"axis (\d+) is out of bounds for array of dimension (\d+)", outcome.text)
    few = "axes don't match array", "tuple index out of range", "index 2 is out of range"
    return beyond is not None or any(text in outcome.text for text in few)


def rows_sum(weights: Array) -> str:
    if weights.min() < 0:
        return f"A weight is below 0: {weights.min():.3g}."
    return f"Rows of weights do not sum to 1, but to {', '.join(f'{s:.3f}' for s in weights.sum(-1))}."


def close(a: Array, b: Array) -> bool:
    """The same but for rounding, in float32 too."""
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3))


def form(outcome: Outcome, output: tuple[int, ...], weights: tuple[int, ...]) -> Iterator[Hint]:
    if array(outcome, output) is not None:
        yield Hint("weights-missing", "One array comes back: the output, without the weights.")
    if pair(outcome, weights, output) is not None:
        yield Hint("output-order", "The weights come first and the output second.")


def averaged(output: Array, weights: Array, V: Array, others: dict[str, Array]) -> Iterator[Hint]:
    if same(output, weights @ V):
        return
    if same(output, weights.T @ V):
        yield Hint("weights-transposed", "The output is the transposed weights times V.")
    for name, matrix in others.items():
        if same(output, weights @ matrix):
            yield Hint("values-swapped", f"The output is weights @ {name}, not weights @ V.")
