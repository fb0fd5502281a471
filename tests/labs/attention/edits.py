"""Fixtures that are edits of the bundled right submission, read from faults/*.toml.

    [[fault]]
    name = "k-transpose-negative-axes"
    codes = ["transpose-permutation"]     # each is reported by the grader beside some failed check
    also = ["batch-unsupported"]          # twins: allowed beside a code or in its place; whatever else is reported is a failure
    checks = ["step1.attention.batch"]    # these checks fail
    hinted = true                         # the student's own run names one of codes and also, and nothing else (default: true)
    steps = [1, 2, 7]                     # what is graded
    sandbox = false                       # true: in a worker with limits, and not in this process (slow)
    source = "https://…"                  # where people write it so; for reading only
    edits = [{ file = "attention.py", old = "K.swapaxes(-1, -2)", new = "K.transpose(-2, -1)" }]

    [[right]]                             # keeps full marks and gets no diagnosis: name, base, steps, edits, sandbox, source

`base = "einsum"` names a folder of bases/ whose files are laid over the bundled submission first: other right ways of writing
it, which are right entries of their own where they have no edits.

An edit replaces `old`, which occurs exactly once; or the whole of a function, method or class (`function = "softmax"`,
`function = "KVCache.append"`); or it has `append`, which goes at the file's end. A new file comes of `append` alone.

    python -m tests.labs.attention.edits NAME [--grade | --student | --write FOLDER]
"""

from __future__ import annotations

import argparse
import ast
import difflib
import shutil
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "faults"
BASES = HERE / "bases"
BASE = HERE.parents[2] / "examples" / "base"

_KEYS = {
    "fault": {"name", "base", "codes", "also", "checks", "hinted", "steps", "sandbox", "source", "edits"},
    "right": {"name", "base", "steps", "sandbox", "source", "edits"},
}


class EntryError(Exception):
    """An entry that cannot be used: the file, the entry, what is wrong, and how to mend it."""

    def __init__(self, file: str, entry: str, cause: str, mend: str) -> None:
        super().__init__(f"{file}, {entry}: {cause}. Mend: {mend}.")


@dataclass(frozen=True)
class Entry:
    """One fixture. `file` is the TOML file that it stands in."""

    file: str
    kind: str
    name: str
    steps: tuple[int, ...]
    edits: tuple[Mapping[str, str], ...] = ()
    codes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    hinted: bool = True
    sandbox: bool = False
    source: str = ""
    base: str = ""

    @property
    def expected(self) -> frozenset[str]:
        """Every code that may be reported."""
        return frozenset({*self.codes, *self.also})

    def bad(self, cause: str, mend: str) -> EntryError:
        return EntryError(self.file, f"entry {self.name!r}", cause, mend)


def entries(folder: Path = FOLDER) -> list[Entry]:
    """Every entry of every file in a folder. Raises EntryError."""
    found: dict[str, Entry] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in _read(path):
            if entry.name in found:
                raise entry.bad(f"{found[entry.name].file} has an entry of that name", "give it another name")
            found[entry.name] = entry
    return list(found.values())


def _read(path: Path) -> Iterator[Entry]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise EntryError(path.name, "the whole file", f"it is no TOML ({error})", "correct that line") from None
    for kind, tables in data.items():
        if kind not in _KEYS or not isinstance(tables, list):
            raise EntryError(path.name, f"the table {kind!r}", "it is unknown", "write [[fault]] or [[right]]")
        for number, table in enumerate(tables, 1):
            yield _entry(path.name, kind, number, table)


def _entry(file: str, kind: str, number: int, table: dict[str, Any]) -> Entry:
    """One table of a file, held against the catalogue of codes, the checks and the base."""
    from grader.grade import CHECKS
    from harness.messages import MESSAGES

    def bad(cause: str, mend: str) -> EntryError:
        return EntryError(file, f"[[{kind}]] number {number} ({table.get('name', 'without a name')})", cause, mend)

    wanted = (
        {"name": str, "steps": list}
        | ({} if "base" in table else {"edits": list})
        | ({"codes": list, "checks": list} if kind == "fault" else {})
    )
    for key, form in wanted.items():
        if not isinstance(table.get(key), form) or not table[key]:
            raise bad(f"{key} is missing, empty or no {form.__name__}", f"give {key}")
    for key in sorted(set(table) - _KEYS[kind]):
        raise bad(f"the key {key!r} is unknown", f"take it away; known are {', '.join(sorted(_KEYS[kind]))}")
    bases = [path.name for path in BASES.iterdir()]
    if table.get("base", bases[0]) not in bases:
        raise bad(f"there is no base {table['base']!r}", _nearest(table["base"], bases))
    for code in (*table.get("codes", ()), *table.get("also", ())):
        if code not in MESSAGES:
            raise bad(f"the code {code!r} is not in harness/messages.py", _nearest(code, MESSAGES))
    for id in table.get("checks", ()):
        if id not in CHECKS:
            raise bad(f"there is no check {id!r}", _nearest(id, CHECKS))
        if CHECKS[id].step not in table["steps"]:
            raise bad(f"the check {id} is not of the steps {table['steps']}", "add its step")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    entry = Entry(file=file, kind=kind, **values)
    edited(entry)
    return entry


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"write {' or '.join(near)}" if near else "correct its spelling"


def edited(entry: Entry) -> dict[str, str]:
    """The files that differ from examples/base, with their text. Raises EntryError where an edit does not fit the base."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (BASES / entry.base).glob("*.py") if entry.base}
    for edit in entry.edits:
        name = edit.get("file", "")
        path = BASE / name
        if name not in texts:
            if not path.is_file() and set(edit) != {"file", "append"}:
                raise entry.bad(f"examples/base has no file {name!r}", "name one that it has, or make one with append")
            texts[name] = path.read_text(encoding="utf-8") if path.is_file() else ""
        texts[name] = _edit(entry, edit, texts[name])
    return texts


def _edit(entry: Entry, edit: Mapping[str, str], text: str) -> str:
    keys = set(edit) - {"file"}
    if keys == {"append"}:
        return f"{text}\n\n{edit['append']}".lstrip("\n") + "\n"
    if keys == {"old", "new"}:
        count = text.count(edit["old"])
        if count != 1:
            raise entry.bad(
                f"old = {edit['old']!r} occurs {count} times in {edit['file']}",
                "copy it from the base" if count == 0 else "take more of the lines around it",
            )
        return text.replace(edit["old"], edit["new"])
    if keys == {"function", "new"}:
        lines = text.splitlines(keepends=True)
        node = _find(ast.parse(text), edit["function"].split("."))
        if node is None:
            raise entry.bad(f"{edit['file']} has no function {edit['function']!r}", "name one that it has")
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        new = textwrap.indent(textwrap.dedent(edit["new"]).strip("\n"), " " * node.col_offset)
        return "".join([*lines[:first], new, "\n", *lines[node.end_lineno :]])
    raise entry.bad(f"an edit has the keys {sorted(edit)}", "give file, and old and new, function and new, or append")


_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _find(node: ast.AST, names: Sequence[str]) -> Any:
    """The function, method or class of a dotted name; None where there is none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Named) and child.name == names[0]:
            return child if len(names) == 1 else _find(child, names[1:])
    return None


@cache
def named() -> Mapping[str, Entry]:
    """The entries of faults/, by name."""
    return {entry.name: entry for entry in entries()}


def text_of(name: str, file: str) -> str:
    """A file of the submission that an entry of faults/ stands for."""
    return edited(named()[name])[file]


def write(entry: Entry, folder: Path) -> Path:
    """Writes the whole submission into a new folder, and gives it back."""
    shutil.copytree(BASE, folder)
    for name, text in edited(entry).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def main() -> int:
    """Tries one entry by hand: says what each run reports, and what is not as the entry has it."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.attention.edits", description=main.__doc__)
    parser.add_argument("name", help="of an entry in tests/labs/attention/faults, or its beginning followed by *")
    parser.add_argument("--grade", action="store_true", help="the grader's judgement alone")
    parser.add_argument("--student", action="store_true", help="the student's own run alone")
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="write the submission there, and judge nothing")
    args = parser.parse_args()
    beginning = args.name.removesuffix("*")
    chosen = [e for e in entries() if e.name == args.name or (args.name.endswith("*") and e.name.startswith(beginning))]
    if not chosen:
        parser.error(f"no entry is called {args.name}")
    if args.write:
        for entry in chosen:
            print(write(entry, args.write if len(chosen) == 1 else args.write / entry.name))
        return 0
    from tests.labs.attention import verdicts

    both = args.grade == args.student
    wrong = 0
    for entry in chosen:
        graded = verdicts.graded(entry) if args.grade or both else None
        student = verdicts.student_run(entry) if args.student or both else None
        complaints = verdicts.complaints(entry, graded, student)
        print(f"{entry.name}: {'as it should be' if not complaints else '; '.join(complaints)}")
        for verdict in (graded, student):
            if verdict is not None:
                print(verdict)
        wrong += bool(complaints)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
