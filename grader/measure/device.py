"""What work on tensors costs, on a GPU or a CPU, and what part of the machine's own speed that is.

The process that does the work times it (harness.device), because only it can record CUDA events. So every time is held
against the judge's own clock, which no submission reaches; every repeat has inputs of its own, which were never anywhere
before; and sampled rows of what every repeat gave are held against the formula.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from grader.measure.clock import EMPTY, forget
from harness.check import Fail, fail_of
from harness.expect import spell
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Handle
from reference import attention, narrow
from reference.narrow import rounded

REPEATS = 5
ROWS = 3  # of a timed call's results that are looked at
CLEARLY = 10.0  # times the time that the events tell, and
NOTHING = 0.02  # seconds beside it, are needed before an outside clock contradicts them
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


@dataclass(frozen=True)
class Taken:
    """A call's cost over some repeats: the median of its seconds, the least that passed outside of its process meanwhile,
    and bytes on the GPU at its peak (None on a CPU)."""

    seconds: float
    outside: float
    allocated: int | None
    reserved: int | None

    @property
    def contradicted(self) -> bool:
        """Whether far more time passed outside in every repeat than the events tell: work that they do not see."""
        return self.outside > CLEARLY * self.seconds + NOTHING


@dataclass(frozen=True)
class Ceilings:
    """What the machine does at most, as measured on it: bytes copied and operations of a matrix product, a second."""

    bytes: float
    operations: float

    def share(self, bytes_: float, operations: float, seconds: float) -> tuple[float, float]:
        """The parts of both that so much work in so many seconds is."""
        return bytes_ / seconds / self.bytes, operations / seconds / self.operations


def ceilings(subject: Subject, dtype: str, gpu: bool) -> Ceilings:
    """The machine's ceilings, measured in a process that has loaded nothing of the submission."""
    with subject.lend({}) as fresh:
        found = fresh.call("@ceilings", dtype, *((512, 8192) if gpu else (64, 512)))
    if not found.ok or not isinstance(found.value, tuple | list):
        raise RuntimeError(f"the machine's ceilings cannot be measured: {found.text}")
    return Ceilings(*map(float, found.value))


def attention_at(subject: Subject, name: str, n: int, d: int, dtype: str) -> Taken:
    """What attention costs with n queries and keys of width d. Raises Fail where a call gives no value, or rows that are
    not the formula's."""

    def once(repeat: int) -> tuple[_Told, float]:
        seed = 1000 * n + repeat
        made = _value(subject, Call("@normal", ([[n, d]] * 3, dtype, seed)))
        told, wall = _asked(subject, name, tuple(made))
        hold(subject, told.result, n, d, dtype, seed)
        forget(subject, told.result, *made)
        return told, wall

    return _over(subject, once)


def call_at(subject: Subject, name: str, *args: Any) -> Taken:
    """What one call costs whose result is not looked at. Raises Fail where it gives no value."""

    def once(repeat: int) -> tuple[_Told, float]:
        told, wall = _asked(subject, name, args)
        forget(subject, told.result)
        return told, wall

    return _over(subject, once)


def _over(subject: Subject, once: Callable[[int], tuple[_Told, float]]) -> Taken:
    """The cost over some repeats; the first of them warms up, as libraries load and kernels are chosen."""
    empty = min(_wall(subject, EMPTY)[1] for _ in range(5))
    found = [once(repeat) for repeat in range(REPEATS + 1)][1:]
    return Taken(
        statistics.median(told.seconds for told, _ in found),
        max(min(wall for _, wall in found) - empty, 0.0),
        max((told.allocated for told, _ in found if told.allocated is not None), default=None),
        max((told.reserved for told, _ in found if told.reserved is not None), default=None),
    )


def hold(subject: Subject, whole: Handle, n: int, d: int, dtype: str, seed: int) -> None:
    """Holds rows of a timed call's result against float64: those of these inputs, and of none before. Raises Fail."""
    Q, K, V = inputs(n, d, dtype, seed)
    rows = np.random.default_rng(seed + 1).integers(0, n, ROWS).tolist()
    parts = _value(subject, Call("@parts", (whole,)))
    called = f"scaled_dot_product_attention of {n} {dtype} queries and keys, while it was timed"
    if not isinstance(parts, list) or len(parts) != 2:
        raise Fail("no pair came back", "(output, weights)", call=called)
    wide = [a.astype(np.float64) for a in (Q[rows], K, V)]
    right = attention.scaled_dot_product_attention(wide[0], wide[1], wide[2])
    bound = narrow.scaled_dot_product_attention(Q[rows], K, V, None, dtype)
    for part, wanted, near in zip(parts, right, (bound.output, bound.weights), strict=True):
        got = subject.call("@fetch", part, rows).value
        if not isinstance(got, np.ndarray) or got.shape != wanted.shape:
            raise Fail("rows of another shape came back", f"{wanted.shape[1]} numbers a row", call=called)
        off = float(np.abs(got - wanted).max())
        if not off <= near:
            seen = f"rows of a timed call's result are off by {off:.3g}"
            raise Fail(seen, "the result of that call's own inputs", call=called, got=got)
    forget(subject, *parts)


def inputs(n: int, d: int, dtype: str, seed: int) -> tuple[Array, Array, Array]:
    """Q, K and V as `@normal` makes them for this seed, in float32."""
    rng = np.random.default_rng(seed)
    Q, K, V = (rounded(rng.standard_normal((n, d)).astype(np.float32), dtype) for _ in range(3))
    return Q, K, V


def work(n: int, d: int, dtype: str) -> tuple[float, float]:
    """Bytes that attention must read and write at the least, its weights among them, and operations of its two products."""
    return float(ITEMSIZE[dtype] * (4 * n * d + n * n)), 4.0 * n * n * d


def _wall(subject: Subject, call: Call) -> tuple[Outcome, float]:
    began = time.perf_counter()
    outcome = subject.ask(call)[0]
    return outcome, time.perf_counter() - began


def _value(subject: Subject, call: Call) -> list[Handle]:
    outcome = subject.ask(call)[0]
    if not outcome.ok:
        raise fail_of(outcome, spell(call), {})
    return outcome.value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Told:
    """What `@bench` says of a call."""

    seconds: float
    wall: float
    allocated: int | None
    reserved: int | None
    result: Handle


def _asked(subject: Subject, name: str, args: tuple[Any, ...]) -> tuple[_Told, float]:
    """What the process tells of one call, by its exact kinds, and the seconds that passed outside. Raises Fail."""
    outcome, wall = _wall(subject, Call("@bench", (name, *args)))
    if not outcome.ok:
        raise fail_of(outcome, f"{name.split('.')[-1]}(…)", {}, name.partition(".")[0])
    value = outcome.value
    fits = isinstance(value, tuple | list) and len(value) == 5 and isinstance(value[4], Handle)
    if not fits or not all(type(v) is float and 0 < v < 1e6 for v in value[:2]):
        raise Fail("the times of a call are no times", "seconds", code="not-finite", call=name)
    if not all(v is None or type(v) is int for v in value[2:4]):
        raise Fail("the bytes of a call are no bytes", "bytes", code="not-finite", call=name)
    return _Told(*value), wall
