"""attention_torch.py, the optional companion: held to what attention.py is held to, on tensors.

A check or a family of faults that asks attention.py asks the companion through `OnTensors`, and knows nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from harness.check import Check
from harness.subject import Asking, Call, Clocks, Outcome, StandIns, Subject

OWN, COMPANION = "attention.", "attention_torch."


class OnTensors(Asking):
    """A subject whose attention.py is its attention_torch.py: what is asked by the one name goes to the other, as tensors."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def ask(self, *calls: Call) -> list[Outcome]:
        return self._subject.ask(*map(_renamed, calls))

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[OnTensors]:
        with self._subject.lend(stand_ins) as borrower:
            yield OnTensors(borrower)

    def clocks(self) -> Clocks:
        return self._subject.clocks()

    @property
    def backend(self) -> str:
        return self._subject.backend


def _renamed(call: Call) -> Call:
    if call.name == "@array":
        return replace(call, name="@torch")
    return replace(call, name=companion(call.name))


def companion(name: str) -> str:
    """The companion's name for a function of attention.py; any other name as it is."""
    return COMPANION + name.removeprefix(OWN) if name.startswith(OWN) else name


def asks_attention_alone(check: Check) -> bool:
    return bool(check.functions) and all(name.startswith((OWN, COMPANION)) for name in check.functions)


def on_tensors(check: Check, step: int) -> Check:
    """The check of attention.py as a check of the companion, in another step; named after the original."""

    def moved(id: str) -> str:
        return f"step{step}.{id}"

    return replace(
        check,
        id=moved(check.id),
        step=step,
        run=_through(check.run),
        functions=tuple(map(companion, check.functions)),
        families=tuple(f"{name} on tensors" for name in check.families),
        stands_on=tuple(map(moved, check.stands_on)),
        needs="companion",
        public=False,
    )


def _through(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def asked(subject: Subject, **named: Any) -> Any:
        return run(OnTensors(subject), **named)

    asked.__module__ = __name__
    return asked
