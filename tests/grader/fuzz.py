"""Odd answers to every question of every check: the bundled submission's own, with one of them changed.

    python -m tests.grader.fuzz [--rounds 20] [--seed 0] [--match step8]

An answer is changed where the judge reads it: what a worker could say in its place, as it comes out of the wire. Whatever is said,
a check passes, fails, or breaks on it (and has failed then); it takes neither long nor much memory.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import grader.grade  # noqa: F401  it registers every check
from grader.sandbox import answers
from harness import check as checking
from harness import wire
from harness.check import CHECKS, Check, CheckResult
from harness.subject import Call, LocalSubject, Outcome, StandIns
from harness.values import Handle, Opaque
from harness.worker import as_data
from tests.conftest import BASE

Change = Callable[[Any, np.random.Generator], Any]


def _shaped(value: Any, rng: np.random.Generator) -> Any:
    shapes = [(), (0,), (1,), (65_536, 0), (0, 2**15), (1,) * 32, (2, 0, 3), (3, 5), (2**20,)]
    return np.zeros(shapes[rng.integers(len(shapes))])


def _typed(value: Any, rng: np.random.Generator) -> Any:
    names = ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "longdouble", ">f8", ">i2"]
    with np.errstate(all="ignore"):
        return np.asarray(value if isinstance(value, np.ndarray) else [0, 1]).astype(names[rng.integers(len(names))])


def _filled(value: Any, rng: np.random.Generator) -> Any:
    fills = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 1.0]
    return np.full(value.shape if isinstance(value, np.ndarray) else (3,), fills[rng.integers(len(fills))])


def _spotted(value: Any, rng: np.random.Generator) -> Any:
    spotted = np.array(value if isinstance(value, np.ndarray) and value.size else [1.0], dtype=float)
    spotted.flat[rng.integers(spotted.size)] = [np.nan, np.inf, 1e300, -1.0][rng.integers(4)]
    return spotted


def _turned(value: Any, rng: np.random.Generator) -> Any:
    turns = [lambda a: a.T, lambda a: a[..., :-1], lambda a: a[None], np.ravel, lambda a: np.concatenate([a, a])]
    return turns[rng.integers(len(turns))](np.atleast_1d(value if isinstance(value, np.ndarray) else np.ones((2, 3))))


def _other(value: Any, rng: np.random.Generator) -> Any:
    others = [None, True, False, 0, -1, 1, 2**62, -(2**63), 2**63, 0.0, -1.5, float("nan"), float("inf"), 1e308, "", "text", "9" * 5000,
              "\x00\ud7ff", [], [[]], (), {}, {"": None}, [0] * 40_000, [[1], [2, 3]], [None] * 3, (1,), (1, 2, 3), Handle(5), Handle(2**40),
              Handle(1_000_001, "array", (2**20, 2**18), "float64"), Handle(1, "array", (0, 2**30)), Opaque("x.Y"), Opaque(""), [Handle(3)] * 2]  # fmt: skip
    return others[rng.integers(len(others))]


def _cut(value: Any, rng: np.random.Generator) -> Any:
    """A part of a list or a dict less, or more."""
    if isinstance(value, dict) and value:
        name = [*value][rng.integers(len(value))]
        return {k: v for k, v in value.items() if k != name} if rng.integers(2) else {**value, name: _other(None, rng)}
    if isinstance(value, list | tuple):
        return [value[:-1], [*value, *value], value[:1], [*value][::-1]][rng.integers(4)]
    return _other(value, rng)


CHANGES: tuple[Change, ...] = (_shaped, _typed, _filled, _spotted, _turned, _other, _other, _cut)


def changed(value: Any, rng: np.random.Generator, depth: int = 0) -> Any:
    """The value with itself, or one of its parts, made into something odd."""
    if depth < 4 and isinstance(value, list | tuple | dict) and value and rng.integers(3):
        names = [*value] if isinstance(value, dict) else [*range(len(value))]
        name = names[rng.integers(len(names))]
        inner = changed(value[name], rng, depth + 1)
        if isinstance(value, dict):
            return {**value, name: inner}
        return type(value)(inner if i == name else item for i, item in enumerate(value))
    return CHANGES[rng.integers(len(CHANGES))](value, rng)


def odd(outcome: Outcome, rng: np.random.Generator) -> Outcome:
    """An outcome as a worker could send it, changed."""
    kind = rng.integers(8)
    if kind == 0:
        names = ["builtins.ValueError", "", "numpy.exceptions.AxisError", "KeyError", "a.b.C", "__import__", "\n"]
        made = Outcome("raised", type=names[rng.integers(len(names))], text=["", "x" * 900, "%s {}"][rng.integers(3)])
    elif kind == 1:
        made = replace(outcome, echo=tuple(changed(list(outcome.echo), rng)) if outcome.echo else (None,))
    else:
        made = replace(outcome, value=changed(outcome.value, rng))
    try:
        return answers.outcome(answers.read(wire.encode({"is": "outcome", **as_data(made)})))
    except wire.BadFrame:
        return Outcome("crashed", text="the process spoke in the worker's place")


@dataclass
class _Turn:
    """Which question's answer is changed, counted over a subject and those that borrow from it."""

    at: int
    rng: np.random.Generator
    asked: int = 0


class Odd(LocalSubject):
    """The bundled submission, which gives one odd answer."""

    def __init__(self, turn: _Turn, stand_ins: StandIns | None = None) -> None:
        super().__init__(BASE, stand_ins)
        self.turn = turn

    def ask(self, *calls: Call) -> list[Outcome]:
        outcomes = super().ask(*calls)
        for i, call in enumerate(calls):
            if call.name != "@import":
                self.turn.asked += 1
                if self.turn.asked - 1 == self.turn.at:
                    outcomes[i] = odd(outcomes[i], self.turn.rng)
        return outcomes

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[Odd]:
        yield Odd(self.turn, {**self._stand_ins, **stand_ins})


def checks(match: str = "") -> list[Check]:
    """Those that ask a submission and need no worker's clocks."""
    return [
        c
        for c in checking.ordered(CHECKS.values())
        if c.needs in ("numpy", "kv", "torch") and c.weight and match in c.id and not c.run.__module__.endswith("_cost")
    ]


def questions(check: Check) -> int:
    """How many the check asks of the bundled submission as it is."""
    turn = _Turn(-1, np.random.default_rng(0))
    result = checking.run(check, Odd(turn), 0)
    assert result.status == "passed", (check.id, result)
    return turn.asked


def round_of(check: Check, seed: int, of: int) -> CheckResult:
    rng = np.random.default_rng(seed)
    return checking.run(check, Odd(_Turn(int(rng.integers(of)), rng)), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="changed answers a check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for check in checks(options.match):
        of = questions(check)
        for i in range(options.rounds):
            began = time.process_time()
            result = round_of(check, options.seed + i, of)
            took = time.process_time() - began
            found[result.status] += 1
            if result.broke or took > 5:
                print(f"{check.id} --seed {options.seed + i}: {took:.1f} s {result.reason} ({result.broke})"[:400])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{dict(found)}; not-run are checks that broke on what was said; peak {peak} MiB")


if __name__ == "__main__":
    main()
