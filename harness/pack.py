"""`attnlab pack`: the zip that a student hands in, and what it lacks.

Nothing of the submission runs. What goes in: the contract's files, helper modules, adapters.toml and the report; tests, tools and
virtual environments stay out.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import adapters, contract, loader, mends
from harness.course import Limits
from harness.loader import Submission

MAX_FILE = 16 * 2**20
MAX_ALL = 64 * 2**20
"""What the intake of a grader takes; a file above that would be left out there."""

_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold: the same files give the same bytes
_OURS = ("tests", "tools", "profile")
_GIVEN = ("make_report.py", "conftest.py", "setup.py", "pytest.ini", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Packed:
    """`files` go in by these names; `left_out` says of others why not; `missing` is what a grader will not find."""

    root: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]


def choose(folder: Path) -> Packed:
    """What of a student's folder is handed in, and what is missing in it."""
    submission = loader.inspect(folder)
    chosen: list[str] = []
    left_out: list[str] = []
    total = 0
    for name in _candidates(submission):
        size = (submission.root / name).stat().st_size
        if not (name.endswith(".py") or name == adapters.FILE or name.startswith("report/")):
            left_out.append(f"{name}: it is not a Python file, and not in report/")
        elif size > MAX_FILE:
            left_out.append(f"{name}: it is larger than {MAX_FILE >> 20} MiB")
        elif total + size > MAX_ALL:
            left_out.append(f"{name}: with it the whole is larger than {MAX_ALL >> 20} MiB")
        else:
            chosen.append(name)
            total += size
    return Packed(submission.root, tuple(chosen), tuple(left_out), tuple(_missing(submission)))


def archive(files: Mapping[str, bytes], top: str) -> bytes:
    """A zip of these files under one folder: the same bytes for the same files, on any machine."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{top}/{name}", _DATE)
            entry.create_system = 3  # so that the mode below means the same wherever this runs
            entry.external_attr = 0o100644 << 16
            packed.writestr(entry, files[name])
    return stream.getvalue()


def limits_told(limits: Limits) -> list[str]:
    """Which limits will hold where it is graded, a sentence each."""
    return [
        f"A call may use {limits.cpu_seconds:g} s of CPU time and {limits.idle_seconds:g} s without progress, "
        f"{limits.memory_mib:g} MiB of memory above what the libraries take, and print {limits.output_mib:g} MiB.",
        f"Each file is imported once, and may use {limits.import_seconds:g} s of CPU time for it.",
        "There is no network, and no file outside your folder.",
        "attention.py has NumPy alone; torch is there for experiments.py and kv_cache.py.",
    ]


def _candidates(submission: Submission) -> Iterator[str]:
    environments = [
        file.parent.relative_to(submission.root).as_posix() + "/" for file in submission.root.glob("*/pyvenv.cfg")
    ]
    for name in submission.files:
        installed = any(name.startswith(place) for place in environments)
        ours = name.startswith(tuple(f"{folder}/" for folder in _OURS)) or name in _GIVEN
        if not (installed or ours or name.endswith(".zip")):
            yield name


def _missing(submission: Submission) -> Iterator[str]:
    yield from (finding.text for finding in submission.findings if finding.code != loader.NAME_MAPPED)
    if contract.GIVEN not in submission.files:
        yield f"{contract.GIVEN} is missing: take it from the lab's zip again."
    for module in contract.MODULES:
        if submission.has(module):
            yield from _unwritten(submission.root / f"{module}.py")
    yield from _not_there(submission)
    for name in contract.REPORT_FILES:
        if f"report/{name}" not in submission.files:
            how = "write it yourself" if name == "note.md" else "run make_report.py"
            yield f"report/{name} is missing: {how}."
    results = submission.root / "report" / "results.json"
    if results.is_file():
        try:
            found = json.loads(results.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            yield f"report/results.json is not valid JSON ({str(error)[:100]}): run make_report.py again."
        else:
            yield from _not_measured(found if isinstance(found, dict) else {})
    for picture in submission.root.glob("report/*.png"):
        if not picture.read_bytes().startswith(b"\x89PNG"):
            yield f"report/{picture.name} is no PNG, whatever its name says: save it with savefig, or run make_report.py."


def _not_measured(results: Mapping[str, object]) -> Iterator[str]:
    """The steps that have left no entry in results.json, or not all of theirs."""
    for number, names in contract.REPORT_ENTRIES.items():
        absent = [name for name in names if name not in results]
        if absent:
            yield f"report/results.json has no {', '.join(absent)} (step {number}): run make_report.py {number}."


def _not_there(submission: Submission) -> Iterator[str]:
    """Packages that a file imports and a grader does not have."""
    own = {name.partition("/")[0].removesuffix(".py") for name in submission.files} | {"model"}
    for name in submission.files:
        if name.endswith(".py") and "/" not in name and name not in _GIVEN:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # said by the findings
                tree = ast.parse((submission.root / name).read_bytes(), name)
                yield from (f"{name}: {mends.not_there(package)}." for package in mends.foreign(tree, own))


def _unwritten(file: Path) -> Iterator[str]:
    """The functions whose stubs still stand."""
    try:
        tree = ast.parse(file.read_bytes(), file.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # said by the findings
    names = [name for top in tree.body for name in _stubs(top)]
    if names:
        yield f"{file.name}: not written yet: {', '.join(names)}."


def _stubs(node: ast.AST, before: str = "") -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            yield from _stubs(inner, f"{node.name}.")
    elif isinstance(node, ast.FunctionDef):
        last = node.body[-1]
        if isinstance(last, ast.Raise) and "NotImplementedError" in ast.unparse(last):
            yield before + node.name
