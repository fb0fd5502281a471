"""adapters.toml: which function of a submission stands for which of the lab's, where it has another name.

    [attention]
    softmax = "my_softmax"        # the lab's name = the submission's

A course's rubric may hold the same for all its submissions; where both name one, the submission's own file counts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import contract

FILE = "adapters.toml"
COURSE_FILE = "adapters.course.toml"
"""A rubric's own mapping, laid beside the submission's where it is graded."""

MOST_BYTES = 2**13  # a name of 64 KiB with a dot after every letter takes the reader of TOML a quarter of a minute


@dataclass(frozen=True)
class Adapters:
    """`names` is "module.function" of the lab -> the submission's name in that module; `problems` are plain sentences."""

    names: Mapping[str, str]
    problems: tuple[str, ...] = ()


def read(root: Path) -> Adapters:
    """What both files in a folder map. Entries that cannot be used are left out, and told."""
    names: dict[str, str] = {}
    problems: list[str] = []
    for file in (COURSE_FILE, FILE):
        path = root / file
        if not path.is_file() or path.is_symlink():
            continue
        try:
            with path.open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                problems.append(
                    f"{file} is larger than {MOST_BYTES >> 10} KiB, and is not used: keep the names alone in it."
                )
                continue
            tables = tomllib.loads(data.decode("utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            mend = 'write [attention], and below it softmax = "my_softmax"'
            problems.append(f"{file} is not valid TOML ({str(error)[:120]}), and is not used: {mend}.")
            continue
        for entry in _entries(tables):
            if isinstance(entry, str):
                problems.append(f"{file}: {entry}")
            else:
                names[entry[0]] = entry[1]
    return Adapters(names, tuple(problems))


def _entries(tables: Mapping[str, Any]) -> Iterator[tuple[str, str] | str]:
    """(full name of the lab, name in the submission), or a sentence for an entry that is none."""
    modules = (*contract.MODULES, *contract.OPTIONAL_MODULES)
    for module, table in tables.items():
        if module not in modules or not isinstance(table, dict):
            yield f"[{module[:60]}] is not a file of the lab: its files are {', '.join(modules)}."
            continue
        known = {f.name for f in contract.functions_of(module if module in contract.MODULES else "attention")}
        for name, other in table.items():
            if name not in known:
                yield f"{name[:60]} is not a function of the lab in {module}.py: the names on the left are {', '.join(sorted(known))}."
            elif not isinstance(other, str) or not other.isidentifier() or other.startswith("__"):
                yield f"{module}.{name} is mapped to {str(other)[:60]!r}: write the name of a function in {module}.py."
            else:
                yield f"{module}.{name}", other


def spell(tables: Mapping[str, Mapping[str, str]]) -> str:
    """A mapping as TOML; its names are identifiers."""
    return "".join(
        f"[{module}]\n" + "".join(f'{name} = "{other}"\n' for name, other in table.items())
        for module, table in tables.items()
    )
