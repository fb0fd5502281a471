"""How results of public checks read: the lab's step table, and the text of one failure."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.check import STEPS, CheckResult, Fail
from harness.contract import FUNCTIONS, MODULES, functions_of
from harness.course import Course, course
from harness.local import NOT_WRITTEN, not_written
from harness.messages import MESSAGES
from harness.signs import Hint
from harness.subject import LIMITS
from harness.values import Array

Cause = tuple[str, str, str]

ABSENT = {"file-missing", "name-missing", "signature-mismatch", "import-failed", "forbidden-library"}
"""Codes of what could not be called: its own words say where, and its input says nothing."""

UNNAMED = {"raised", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array", *LIMITS}
"""Codes that two functions may each have for a reason of its own."""

SHOWN_ENTRIES = 60
SMALL = 30
"""Entries of an array that the table shows whole; of a larger one it shows the corners."""

DRAWN_LINES = 9

_DTYPES = ("float16", "float32", "int8", "int32", "uint8")
"""Those that an array's own spelling names."""


@dataclass(frozen=True)
class Told:
    """What the table has to say of one check: plain data, which travels from a worker of pytest-xdist.

    code       of the catalogue: the hint's, or that which the check saw itself
    unwritten  the stub's own sentence, where the function is not written yet
    blocks     each argument of the smallest failing input, as lines
    """

    id: str
    step: int
    title: str
    status: str
    code: str = ""
    reason: str = ""
    unwritten: str = ""
    call: str = ""
    blocks: list[list[str]] = field(default_factory=list)
    seen: str = ""
    hint: str = ""
    read: str = ""
    earned: float = 0.0
    worth: float = 0.0

    @property
    def function(self) -> str:
        """The function that the failing call is of."""
        return self.call.partition("(")[0] or self.id.split(".")[1]


def told(result: CheckResult, hint: Hint | None = None, of: Course | None = None) -> Told:
    """The table's view of a result."""
    of = of or course()
    failure = result.failure
    earned, worth = of.earned([result])
    stub = not_written(result) or ""
    words = MESSAGES.get(hint.code or "") if hint else None
    about = words.chapter if words else STEPS[result.check.step].chapter if result.check.step in STEPS else ""
    return Told(
        id=result.check.id,
        step=result.check.step,
        title=result.check.title,
        status=result.status,
        code=(hint.code or "") if hint else (failure.code or "") if failure else "",
        reason=result.reason,
        unwritten=stub,
        call=failure.call if failure else "",
        blocks=[] if failure is None or stub or failure.code in ABSENT else _blocks(failure),
        seen=failure.seen if failure else "",
        hint=named(hint) if hint else "",
        read=of.section(about) if about else "",
        earned=earned,
        worth=worth,
    )


def render(found: Iterable[Told], width: int = 80) -> Group:
    """The step table: a line a step with its points, and what to look at next under each step that failed."""
    of_step: dict[int, list[Told]] = {number: [] for number in sorted(STEPS)}
    for one in found:
        of_step[one.step].append(one)
    with_points = any(one.worth for views in of_step.values() for one in views)
    parts: list[RenderableType] = []
    hints: dict[Cause, int] = {}
    for number, views in of_step.items():
        state, style = state_of(views)
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(justify="right", width=2)
        line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        line.add_column(justify="right", width=15, no_wrap=True)
        cells = [Text(str(number), style), Text(STEPS[number].title), Text(state, style)]
        if with_points:
            line.add_column(justify="right", width=12, no_wrap=True)
            cells.append(Text(points_of(views), style))
        line.add_row(*cells)
        parts += [line, *(Padding(text, (0, 0, 0, 3)) for text in _below(views, width - 3, hints))]
    if with_points:
        parts.append(Padding(Text(_total(of_step), "bold"), (0, 0, 0, 3)))
    return Group(*parts)


def named(hint: Hint) -> str:
    """What was seen, after the name of the mistake that it proves, where it proves one."""
    words = MESSAGES.get(hint.code or "")
    return f"{words.short}. {hint.seen}" if words else hint.seen


def state_of(found: Sequence[Told]) -> tuple[str, str]:
    """What a step's results come to, in a few words, and its colour."""
    run = [t for t in found if t.status != "not-run"]
    passed = sum(t.status == "passed" for t in run)
    if not run:
        return "not run", "dim"
    if passed == len(run):
        return f"passed ({passed})", "green"
    failed = sum(
        t.status == "failed" and not t.unwritten for t in run
    )  # as pytest counts them, less what is still to write
    if failed:
        return f"{failed} of {len(run)} failed", "red"
    return (f"{passed} of {len(run)} passed" if passed else "not written"), "yellow"


def points_of(found: Sequence[Told]) -> str:
    """ "9.5 of 11.2", where any of it was run."""
    run = [t for t in found if t.status != "not-run"]
    return f"{_short(sum(t.earned for t in run))} of {_short(sum(t.worth for t in run))}" if run else ""


def _total(of_step: Mapping[int, Sequence[Told]]) -> str:
    run = [t for views in of_step.values() for t in views if t.status != "not-run"]
    earned, worth = (_short(sum(getattr(t, name) for t in run)) for name in ("earned", "worth"))
    whole = _short(sum(course().steps.values()))
    return f"{earned} of {worth} points of the tests run here; the course's grader judges more, {whole} in all."


def _short(points: float) -> str:
    return f"{points:.1f}".removesuffix(".0")


def _below(found: Sequence[Told], width: int, hints: dict[Cause, int]) -> list[Text]:
    """What there is to say under a step: each distinct mistake by the first check that it fails, the first with its input.

    `hints` holds what was said so far and the step of each.
    """
    failed = [t for t in found if t.status == "failed"]
    if not failed:
        reasons = [t.reason for t in found if t.status == "not-run"]
        return [Text(reasons[0], "dim")] if reasons else []
    first_of: dict[Cause, Told] = {}
    for one in failed:
        first_of.setdefault(_cause(one), one)
    lines: list[Text] = []
    for cause, one in first_of.items():
        if not one.unwritten and cause in hints:
            lines += [Text(one.title), Text(f"Hint: as in step {hints[cause]}.", "italic")]
            continue
        hints[cause] = one.step
        lines += _about(one, width, drawn=not lines)
    return lines


def _cause(one: Told) -> Cause:
    """What makes two failures one mistake: the same words on the same fault, or on the same function where no fault has a name."""
    if one.unwritten:
        return NOT_WRITTEN, one.unwritten, ""
    proven = one.code and one.code not in UNNAMED
    return (one.code, one.hint, "") if proven else (one.code, one.hint or one.seen, one.function)


def _about(one: Told, width: int, drawn: bool) -> list[Text]:
    read = [Text(f"Read: {one.read}", "dim")] if one.read and drawn else []
    if one.unwritten:
        return [Text(one.unwritten, "dim"), *read]
    lines = [Text(one.title)]
    if drawn:
        arrays = beside(one.blocks, width)
        lines += [Text(line, "cyan", no_wrap=True) for line in arrays[:DRAWN_LINES]]
        lines += [Text("… the test itself shows all of it", "dim")] if len(arrays) > DRAWN_LINES else []
    lines.append(Text(f"Hint: {one.hint}" if one.hint and one.code not in ABSENT else f"Seen: {one.seen}", "italic"))
    return [*lines, *read, *([Text(f"Again: {again(one.id)}", "dim")] if one.blocks else [])]


def beside(blocks: Sequence[Sequence[str]], width: int) -> list[str]:
    """Blocks of lines next to each other as far as `width` allows, then below."""
    rows: list[list[str]] = []
    for block in blocks:
        wide = max(map(len, block), default=0)
        if rows and max(map(len, rows[-1])) + 3 + wide <= width:
            left = rows[-1]
            at = max(map(len, left)) + 3
            rows[-1] = [
                f"{left[i] if i < len(left) else '':<{at}}{block[i] if i < len(block) else ''}".rstrip()
                for i in range(max(len(left), len(block)))
            ]
        else:
            rows.append(list(block))
    return [line for row in rows for line in row]


def _blocks(failure: Fail) -> list[list[str]]:
    """The arguments of a failing call, each small: `Q = [[…]]`."""
    names = _parameters(failure.call)
    blocks = []
    for name, value in failure.inputs.items():
        name = names.get(name, name)
        lines = small(value).splitlines() if isinstance(value, np.ndarray) else [str(value)[:60]]
        head = f"{name} = "
        blocks.append([head + lines[0], *(" " * len(head) + line for line in lines[1:])])
    return blocks


def small(array: Array) -> str:
    """A small array in full, the corners of a large one, numbers to two decimals."""
    return np.array2string(array, precision=2, suppress_small=True, threshold=SMALL, edgeitems=2, max_line_width=72)


def failure_text(result: CheckResult, hint: Hint | None = None, width: int = 104) -> str:
    """One failure as pytest shows it: the call, then what came, what should be, and the smallest failing input."""
    stub = not_written(result)
    if stub is not None:
        return f"E   Not written yet: {stub}"
    failure = result.failure
    if failure is None:
        return f"E   {result.check.title}"
    lines = [f">   {failure.call}"] if failure.call else []
    lines += [_e(line) for line in textwrap.wrap(result.check.title, width - 4)]
    said = {"came": failure.seen, "should": failure.expected}
    if hint is not None:
        said |= {"hint": named(hint), "look": hint.look}
    for name, text in said.items():
        if text:
            lines += textwrap.wrap(
                text, width, initial_indent=f"E     {name + ':':<9}", subsequent_indent="E" + 14 * " "
            )
    chapter = MESSAGES[hint.code].chapter if hint is not None and hint.code in MESSAGES else ""
    lines += [f"E     {'read:':<9}{course().section(chapter)}"] if chapter else []
    lines += [f"E     {'again:':<9}{again(result.check.id)}"] if failure.inputs else []
    names = _parameters(failure.call)
    for name, value in failure.inputs.items():
        lines += _drawn(names.get(name, name), value, width)
    if failure.got is not None:
        lines += _drawn("came back", failure.got, width)
    if len(failure.frames) > 1:
        lines += [_e(), *(_e(f"{frame.file}:{frame.line}: {frame.text}") for frame in failure.frames)]
    return "\n".join(lines)


def again(id: str) -> str:
    """The command that runs this check alone, and prints the failing case to be pasted."""
    return f"attnlab check --case {id}"


def case_text(failure: Fail) -> str:
    """The failing call as Python: what it imports, the arguments in full precision, and the call."""
    names = _parameters(failure.call)
    given = {names.get(name, name).replace(" ", "_"): value for name, value in failure.inputs.items()}
    call = failure.call
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            call = call.replace(f"{value.dtype} array {value.shape}", name, 1)
    whole = " array (" not in call and "a function" not in call
    with np.printoptions(threshold=sys.maxsize, floatmode="unique", suppress=False, linewidth=100):
        lines = [f"{name} = {value!r}" for name, value in given.items()]
    text = "\n".join(lines)
    numpys = [word for word in ("array", "inf", "nan", *_DTYPES) if re.search(rf"\b{word}\b", text)]
    modules: dict[str, list[str]] = {}
    for module in MODULES:
        for function in functions_of(module):
            if re.search(rf"\b{function.name}\(", call):
                modules.setdefault(module, []).append(function.name)
    imports = [f"from numpy import {', '.join(numpys)}"] if numpys else []
    imports += [f"from {module} import {', '.join(found)}" for module, found in modules.items()]
    return "\n".join([*imports, "", *lines, "", call if whole else f"# {call}"])


def _e(text: str = "") -> str:
    return f"E   {text}".rstrip()


def _parameters(call: str) -> dict[str, str]:
    """The contract's names of a call's arguments, which a failure knows by number."""
    name = call.split("(")[0]
    function = next((f for f in FUNCTIONS.values() if f.name == name), None)
    return {f"argument {i}": p for i, p in enumerate(function.required, 1)} if function else {}


def _drawn(name: str, value: Any, width: int) -> list[str]:
    """A small array in full, the corners of a large one, anything else in a line."""
    if not isinstance(value, np.ndarray):
        return [_e(), _e(f"{name} = {str(value)[:200]}")]
    drawn = (_e(f"    {line}") for line in draw(value, width - 8).splitlines())
    return [_e(), _e(f"{name} = {value.dtype} {value.shape}"), *drawn]


def draw(array: Array, width: int = 100) -> str:
    return np.array2string(
        array, precision=4, suppress_small=True, threshold=SHOWN_ENTRIES, edgeitems=3, max_line_width=width
    )
