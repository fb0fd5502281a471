"""What the judge lends a submission to measure with, beside virtual time: an attention of its own, and memory that runs out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import reference.attention
from harness.checks.step6_memory import MIB, Fn, Step, plan
from harness.expect import Asked
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Callback
from harness.virtual_decoder import Decoder, Decoding
from harness.virtual_time import MOST_BYTES, MOST_CALLS, Device, Watched, kept_bytes, lent
from reference.variants.experiments import ATTENTIONS, Compared, Search

MANY_CALLS = 400  # of `fits`: no search that asks a number of times like log n, or its square, comes near

# -- memory that runs out --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searched:
    """What came of one largest_n: its outcome, and the lengths it asked about, in order."""

    outcome: Outcome
    asked: list[int]


def largest_n(subject: Subject, scenario: Search) -> Searched:
    """Ask a submission's largest_n about a `fits` that is true up to the scenario's threshold."""
    asked: list[int] = []

    def fits(n: Any) -> bool:
        asked.append(int(n))
        if len(asked) > MANY_CALLS:
            raise ValueError(f"fits was called {MANY_CALLS} times already")
        if n > scenario.threshold and scenario.raises:
            raise MemoryError("there is no room")
        return bool(n <= scenario.threshold)

    options = {"start": scenario.start, "limit": scenario.limit}
    return Searched(subject.ask(Call("experiments.largest_n", (lent(fits),), options))[0], asked)


# -- attention of the judge -------------------------------------------------------------------------------------------


def _narrow(value: Array, like: Any) -> Array:
    """In the floating dtype of `like`, as a submission's own attention would give it."""
    dtype = getattr(like, "dtype", value.dtype)
    return value.astype(dtype) if dtype.kind == "f" else value


@dataclass
class Attention:
    """A module attention.py that computes one of ATTENTIONS, and notes its calls. Its fields may be set between two questions.

    `spoil` changes every output, for a submission to find out.
    """

    name: str = "right"
    spoil: Callable[[Array], Array] | None = None
    calls: list[Compared] = field(default_factory=list)
    noted: int = 0

    def attend(self, Q: Array, K: Array, V: Array, mask: Any = None, scale: Any = None) -> tuple[Array, Array]:
        self.noted += 2 * kept_bytes(Q, K, V, mask, scale)  # the output is noted too
        if len(self.calls) > MOST_CALLS or self.noted > MOST_BYTES:
            raise ValueError("called too often, or with too much")
        Q, K, V = (np.asarray(a) for a in (Q, K, V))
        mask = None if mask is None else np.asarray(mask)
        with np.errstate(all="ignore"):
            wide = (a.astype(np.float64) for a in (Q, K, V))
            output, weights = ATTENTIONS[self.name](*wide, mask=mask, scale=scale)
        output = _narrow(output if self.spoil is None else self.spoil(output), V)
        self.calls.append(Compared(Q, K, V, mask, None if scale is None else float(scale), output))
        return output, _narrow(weights, Q)

    def attend_itself(self, X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Any = None) -> tuple[Array, Array]:
        return self.attend(X @ W_Q, X @ W_K, X @ W_V, mask=mask)

    def lent(self) -> dict[str, Callback]:
        return {
            "softmax": lent(reference.attention.softmax),
            "project": lent(reference.attention.project),
            "scaled_dot_product_attention": lent(self.attend),
            "self_attention": lent(self.attend_itself),
            "causal_mask": lent(reference.attention.causal_mask),
            "sinusoidal_positions": lent(reference.attention.sinusoidal_positions),
        }


@contextlib.contextmanager
def over_attention(subject: Subject) -> Iterator[tuple[Subject, Attention]]:
    """The submission over an attention.py of the judge.

    Its kv_cache.py is lent too, so that a faulty one cannot stand in the way.
    """
    attention = Attention()
    decoder = Decoder(Decoding(1, 1, True, False, (1.0,), (1.0,)), Watched(Device(False)))
    with subject.lend({"attention": attention.lent(), "kv_cache": decoder.lent(subject.backend)}) as borrower:
        borrower.load("experiments")
        attention.calls, attention.noted = [], 0
        yield borrower, attention


# -- memory ----------------------------------------------------------------------------------------------------------

Plan = list[list[Step]]


def plans(rng: np.random.Generator, wait: int = 2) -> tuple[tuple[Plan, int], ...]:
    """What two `fn` do, and the bytes that each holds at its peak, drawn anew: no number is known before.

    The first block, the largest, all together and the end each differ from the peak by more than a measurement may.
    """
    first, second, before, third, fourth = (int(rng.integers(n, n + n // 8)) for n in (36, 28, 42, 46, 50))
    return (
        (plan([], [first, second], 8, wait), (first + second + 1) * MIB),
        (plan([before], [third, fourth], 1, wait), (third + fourth + 1) * MIB),
    )


def measure_peak(subject: Subject, pieces: Plan) -> tuple[Asked, Fn]:
    """Ask a submission's measure_peak_memory about an `fn` that takes and drops memory by plan, in a fresh process."""
    with over_attention(subject) as (borrower, _):
        fn = Fn(borrower, pieces)
        return fn.measured(), fn
