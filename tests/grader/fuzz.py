"""Odd answers to every question of every check: the bundled submission's own, with one of them changed.

    python -m tests.grader.fuzz [--rounds 20] [--seed 0] [--match step8]
    python -m tests.grader.fuzz --results               every entry of results.json in its turn
    python -m tests.grader.fuzz --whole 20 [--match step8]     whole gradings in a worker, one answer in thirty changed

An answer is changed where the judge reads it: what a worker could say in its place, as it comes out of the wire. Whatever is said,
a check passes, fails, or breaks on it (and has failed then); it takes neither long nor much memory; the report is final.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grader.grade import grade
from grader.report import Report
from grader.rubric import load_rubric
from grader.sandbox import WorkerSubject, answers
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
    reply = {"is": "outcome", **as_data(made)}
    if kind == 2:  # a part less: no outcome at all
        del reply[[*reply][1 + rng.integers(len(reply) - 1)]]
    try:
        return answers.outcome(answers.read(wire.encode(reply)))
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


# -- results.json --------------------------------------------------------------------------------------------------------

TEXTS = ("null", "true", "false", "0", "-1", "1", "-0.0", "0.5", "1e-320", "1e308", "1e400", "-1e400", "NaN", "Infinity", "-Infinity", str(2**53 + 1),
         str(2**63), str(10**400), "9" * 5000, "1e-400", '""', '"1"', '"\\u0000\\ud800"', '"' + "x" * 5000 + '"', "[]", "[[]]", "[null]", "[0, 0]",
         "[1, 2, 3]", "[1e308, 1e308, 1e308]", "[5e-324, 1, 1e308]", "[NaN]", "{}", '{"": {}}', '{"plain": {}}', "[" * 500 + "]" * 500,
         "[" * 10**5, "[" + "0," * 10**5 + "0]", "[" + "1.5," * 10**4 + '"x"]', "")  # fmt: skip
"""What stands in an entry's place, as it is written; the last is no JSON."""

_HERE = "the entry that is changed"


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every entry of a JSON value; of a list's to the first and the last."""
    if path:
        yield path
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        for i in sorted({0, len(value) - 1}):
            yield from places(value[i], (*path, i))


def results_with(path: tuple[str | int, ...], text: str | None) -> str:
    """The bundled results.json with this text in an entry's place; without the entry, where the text is None."""
    whole = json.loads((BASE / "report" / "results.json").read_bytes())
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    if text is None:
        del inner[path[-1]]
        return json.dumps(whole)
    inner[path[-1]] = _HERE
    return json.dumps(whole).replace(json.dumps(_HERE), text)


def of_results() -> list[Check]:
    return [c for c in CHECKS.values() if c.id.startswith("step9.results.")]


def judged_results(folder: Path) -> Iterator[tuple[tuple[str | int, ...], str | None, list[CheckResult]]]:
    """Every entry changed in every way, and what the checks of results.json say; `folder` is for a submission."""
    file = folder / "report" / "results.json"
    file.parent.mkdir(exist_ok=True)
    for path in places(json.loads((BASE / "report" / "results.json").read_bytes())):
        for text in (*TEXTS, None):
            file.write_text(results_with(path, text))
            yield path, text, [checking.run(check, folder, 0) for check in of_results()]  # type: ignore[arg-type]


# -- whole gradings --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_in(n: int, rng: np.random.Generator) -> Iterator[None]:
    """Every n-th answer, about, of a submission's worker is changed; the judge's own right submissions answer as ever."""
    read = WorkerSubject._outcome

    def odd_outcome(self: WorkerSubject, outcome: Outcome, ours: bool) -> Outcome:
        is_right = self._sandbox.root.parent == BASE.parent
        return read(self, outcome if is_right or rng.integers(n) else odd(outcome, rng), ours)

    WorkerSubject._outcome = odd_outcome  # type: ignore[method-assign]
    try:
        yield
    finally:
        WorkerSubject._outcome = read  # type: ignore[method-assign]


def graded_oddly(step: int, seed: int, n: int = 30) -> Report:
    """The report on the bundled submission, with one in n of its answers changed."""
    with one_in(n, np.random.default_rng(seed)):
        return grade(BASE, rubric=load_rubric(), steps={step})


def withheld(report: Report) -> list[str]:
    """The checks without a verdict."""
    return [c.id for s in report.steps for c in s.checks if c.status == "not-run"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="changed answers a check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="")
    parser.add_argument("--results", action="store_true")
    parser.add_argument("--whole", type=int, metavar="N", help="gradings a step")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    if options.results:
        with tempfile.TemporaryDirectory() as folder:
            for path, text, results in judged_results(Path(folder)):
                found.update(result.status for result in results)
                for result in results:
                    if result.broke:
                        print(f"{result.check.id}: {path} as {str(text)[:60]}: {result.reason} ({result.broke})"[:400])
    for step in sorted({c.step for c in checks(options.match)}) if options.whole else ():
        for seed in range(options.seed, options.seed + options.whole):
            began = time.monotonic()
            report = graded_oddly(step, seed)
            most = sum(s.max_score for s in report.steps)
            found["withheld" if withheld(report) else "whole"] += 1
            if withheld(report) or report.subtotal > most:
                print(
                    f"step {step} --seed {seed}: {report.subtotal} of {most}; {withheld(report)}; {report.faults}"[:900]
                )
            print(f"step {step} --seed {seed}: {report.subtotal:g}, {time.monotonic() - began:.0f} s", flush=True)
    if options.results or options.whole:
        print(f"{dict(found)}; peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
        return
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
