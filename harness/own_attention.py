"""The submission's own attention.py under the feet of its experiments: watched, and wrong on purpose where that is wanted.

What an experiment ought to find can be told without a right attention: an error that was added to the outputs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from harness import contract
from harness.subject import Call, Subject
from harness.values import Array, Callback
from harness.virtual_time import MOST_BYTES, MOST_CALLS, kept_bytes, lent

ATTEND = ("scaled_dot_product_attention", "self_attention")
Change = Callable[[Array], Array]


@dataclass(frozen=True)
class Attended:
    """One call of attention: its arrays (Q, K and V, or X and the matrices), and the mask."""

    arrays: tuple[Any, ...]
    mask: Any


@dataclass
class OwnAttention:
    """attention.py's functions, asked of the submission itself.

    spoil   changes every output before it is handed on
    turn    changes every mask before it is asked with
    calls   what was attended to, in order
    stopped what kept the submission from being asked: the asker's own matter

    It is asked one call at a time, from whichever of an experiment's threads.
    """

    subject: Subject
    spoil: Change | None = None
    turn: Change | None = None
    calls: list[Attended] = field(default_factory=list)
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    stopped: Exception | None = None
    noted: int = 0

    def lent(self) -> dict[str, Callback]:
        asking = {f: self._attend if f.name in ATTEND else self._ask for f in contract.functions_of("attention")}
        return {f.name: lent(partial(ask, f)) for f, ask in asking.items()}

    def _attend(self, function: contract.Function, *args: Any, **kwargs: Any) -> Any:
        if len(self.calls) >= MOST_CALLS:
            raise ValueError("called too often")
        given = dict(zip((*function.required, *function.optional), args, strict=False)) | kwargs
        arrays = tuple(given.pop(name, None) for name in function.required)
        mask = given.get("mask")
        self.noted += kept_bytes(*arrays, mask)
        if self.noted > MOST_BYTES:
            raise ValueError("called with more numbers than are noted")
        self.calls.append(Attended(arrays, mask))
        if self.turn is not None and isinstance(mask, np.ndarray):
            given["mask"] = self.turn(mask)
        value = self._ask(function, *arrays, **given)
        if self.spoil is None or not isinstance(value, tuple | list) or len(value) != 2:
            return value
        output, weights = value
        return (self.spoil(output).astype(output.dtype), weights) if isinstance(output, np.ndarray) else value

    def _ask(self, function: contract.Function, *args: Any, **kwargs: Any) -> Any:
        try:
            with self.one_at_a_time:
                outcome = self.subject.ask(Call(function.full_name, args, kwargs))[0]
        except Exception as error:
            self.stopped = error
            raise
        if not outcome.ok:
            raise ValueError(f"{function.name}: {outcome.text or outcome.kind}")
        return outcome.value


@contextlib.contextmanager
def over_own_attention(subject: Subject) -> Iterator[tuple[Subject, OwnAttention]]:
    """The submission's experiments over its own attention, as `OwnAttention` hands it on.

    Raises what kept attention from being asked, whatever the experiment made of it.
    """
    attention = OwnAttention(subject)
    with subject.lend({"attention": attention.lent()}) as borrower:
        borrower.load("experiments")
        attention.calls, attention.noted = [], 0
        try:
            yield borrower, attention
        finally:
            if attention.stopped is not None:
                raise attention.stopped
