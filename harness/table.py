"""How results of public checks read: the lab's step table, and the text of one failure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from harness.check import STEPS, CheckResult
from harness.contract import FUNCTIONS
from harness.local import not_written
from harness.signs import Hint
from harness.values import Array

SHOWN_ENTRIES = 60
NO_HINTS: Mapping[int, Hint] = {}


def render(results: Iterable[CheckResult], hints: Mapping[int, Hint] = NO_HINTS) -> Table:
    """The step table: a line a step, and under a step that failed its first failing check and one hint."""
    of_step: dict[int, list[CheckResult]] = {number: [] for number in sorted(STEPS)}
    for result in results:
        of_step[result.check.step].append(result)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", width=2)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for number, found in of_step.items():
        state, style = state_of(found)
        table.add_row(Text(str(number), style), Text(STEPS[number].title), Text(state, style))
        for line in _below(found, hints.get(number)):
            table.add_row("", line, "")
    return table


def state_of(results: list[CheckResult]) -> tuple[str, str]:
    """What a step's results come to, in a few words, and its colour."""
    run = [r for r in results if r.status != "not-run"]
    passed = sum(r.status == "passed" for r in run)
    if not run:
        return "not run", "dim"
    if passed == len(run):
        return f"passed ({passed})", "green"
    failed = [r for r in run if r.status == "failed"]
    if passed == 0 and failed and all(not_written(r) for r in failed):
        return "not written", "yellow"
    return f"{len(run) - passed} of {len(run)} failed", "red"


def _below(results: list[CheckResult], hint: Hint | None) -> list[Text]:
    failed = [r for r in results if r.status == "failed"]
    if not failed:
        reasons = [r.reason for r in results if r.status == "not-run"]
        return [Text(reasons[0], "dim")] if reasons else []
    stub = not_written(failed[0])
    lines = [Text(stub or failed[0].check.title, "dim")]
    if hint is not None:
        lines.append(Text(f"Hint: {hint.seen}", "italic"))
    return lines


def failure_text(result: CheckResult, hint: Hint | None = None) -> str:
    """One failure as pytest shows it: the call, what came, what should be, the smallest failing input."""
    stub = not_written(result)
    if stub is not None:
        return f"Not written yet: {stub}"
    failure = result.failure
    if failure is None:
        return result.check.title
    lines = [result.check.title, ""]
    if failure.call:
        lines += [f">   {failure.call}", ""]
    said = {"came": failure.seen, "should": failure.expected}
    if hint is not None:
        said |= {"hint": hint.seen, "look": hint.look}
    for name, text in said.items():
        if text:
            lines += textwrap.wrap(text, 100, initial_indent=f"E   {name + ':':<9}", subsequent_indent="E" + 12 * " ")
    names = _parameters(failure.call)
    for name, value in failure.inputs.items():
        lines += _drawn(names.get(name, name), value)
    if failure.got is not None:
        lines += _drawn("came back", failure.got)
    if len(failure.frames) > 1:
        lines += ["", *(f"{frame.file}:{frame.line}: {frame.text}" for frame in failure.frames)]
    return "\n".join(lines)


def _parameters(call: str) -> dict[str, str]:
    """The contract's names of a call's arguments, which a failure knows by number."""
    name = call.split("(")[0]
    function = next((f for f in FUNCTIONS.values() if f.name == name), None)
    return {f"argument {i}": p for i, p in enumerate(function.required, 1)} if function else {}


def _drawn(name: str, value: Any) -> list[str]:
    """A small array in full, the corners of a large one, anything else in a line."""
    if not isinstance(value, np.ndarray):
        return ["", f"{name} = {str(value)[:200]}"]
    return ["", f"{name} = {value.dtype} {value.shape}", *(f"    {line}" for line in draw(value).splitlines())]


def draw(array: Array) -> str:
    return np.array2string(
        array, precision=4, suppress_small=True, threshold=SHOWN_ENTRIES, edgeitems=3, max_line_width=100
    )
