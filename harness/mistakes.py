"""The distinct mistakes of a run, each once: its name, how many checks it fails, and where it was seen first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.mends import NO_BACKEND
from harness.messages import MESSAGES
from harness.subject import LIMITS
from harness.table import Told

OWN_WORDS = {"import-failed", "file-missing", "name-missing", "signature-mismatch", "forbidden-library", "raised"}
"""Codes of which what was seen says more than their sentence: a file and a line, or a name."""

HOW_IT_ENDED = {"wrong-shape", "wrong-dtype", "not-finite", "not-an-array"}
"""Codes of which two functions may have one each."""

PLACE = re.compile(r"(\S+\.py), line (\d+): ")


@dataclass
class Mistake:
    """`lost` are points of public checks; `told` are the failed checks that it explains, in their order."""

    name: str
    text: str
    look: str = ""
    told: list[Told] = field(default_factory=list)

    @property
    def lost(self) -> float:
        return sum(one.worth - one.earned for one in self.told)


def mistakes(found: Iterable[Told]) -> list[Mistake]:
    """What failed, by what explains it; what fails most comes first. A function that is not written yet is no mistake."""
    by_key: dict[tuple[str, str], Mistake] = {}
    for one in found:
        if one.status == "failed" and not one.unwritten:
            by_key.setdefault(_key(one), _mistake(one)).told.append(one)
    return sorted(by_key.values(), key=lambda mistake: (mistake.lost, len(mistake.told)), reverse=True)


def _key(one: Told) -> tuple[str, str]:
    """What makes two failures one mistake: its code; else the description of it, or the function that was called."""
    if NO_BACKEND in one.seen:
        return one.code, NO_BACKEND
    if one.code == "raised":
        return one.code, one.seen
    if one.code in OWN_WORDS:
        return one.code, one.seen.partition("(")[0]
    if one.code in LIMITS:
        return one.code, one.function
    if one.code in HOW_IT_ENDED or one.code not in MESSAGES:
        return one.code, one.hint or one.function
    return one.code, ""


def _mistake(one: Told) -> Mistake:
    words = MESSAGES.get(one.code)
    if NO_BACKEND in one.seen:
        return Mistake("kv_cache.py works with tensors and does not say so", f"{NO_BACKEND}.")
    if one.code == "raised":
        exception, _, place = one.seen.partition(" at ")
        return Mistake(f"{one.function}: {exception[:200]}", _spelled(place)[:200])
    if one.code in OWN_WORDS and words is not None:
        seen = _spelled(one.seen)
        return Mistake(words.short, seen, _to_see_it(seen) if one.code == "import-failed" else words.look)
    if one.code in LIMITS and words is not None:
        return Mistake(f"{one.function}: {words.short}", _spelled(one.seen), words.look)
    name = f"{one.function}: no known mistake fits" if words is None else words.short
    if one.hint:
        return Mistake(name, one.hint.removeprefix(f"{name}. "), words.look if words else "")
    if words is None or one.code in HOW_IT_ENDED:
        name = name if words is None else f"{one.function}: {words.short}"
        return Mistake(name, f"{one.title} Seen: {one.seen}.", words.look if words else "")
    return Mistake(name, words.says, words.look)


def _spelled(seen: str) -> str:
    """ "attention.py, line 3: …" as an editor's link."""
    return PLACE.sub(r"\1:\2: ", seen)


def _to_see_it(seen: str) -> str:
    file = PurePosixPath(seen.partition(":")[0])
    return f"python -c 'import {file.stem}' shows the whole error." if file.suffix == ".py" else ""


def render(found: Sequence[Told]) -> Group:
    """A paragraph a mistake."""
    parts: list[RenderableType] = []
    for number, mistake in enumerate(mistakes(found), 1):
        first, count = mistake.told[0], len(mistake.told)
        cost = f"{count} check{'s' * (count > 1)}"
        cost += f", {mistake.lost:.1f} points".replace(".0 ", " ") if mistake.lost else ""
        parts.append(Text.assemble((f"{number}. {mistake.name.rstrip('.')}", "bold red"), f"   {cost}"))
        lines = [Text(mistake.text)]
        lines += [Text(f"Look: {mistake.look}", "dim")] if mistake.look else []
        lines.append(Text(f"Seen first in step {first.step}: {first.title} [{first.id.partition('.')[2]}]", "dim"))
        parts += [Padding(line, (0, 0, 0, 3)) for line in lines]
    return Group(*parts)
