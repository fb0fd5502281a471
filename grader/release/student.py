"""The lab as students get it: one zip of the template, the public tests and the tools they run with.

What goes in is named, never what stays out: the template's own files, and of `harness` the modules that a student's pytest and
`attnlab` import. Entries are sorted, dated alike and stored as they are, so that the same sources give the same bytes.
"""

from __future__ import annotations

import ast
import io
import json
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import grader
import harness
from grader.render.files import write_atomically
from grader.rubric import Rubric, load_rubric
from grader.score import split
from harness import check as checking
from harness import contract
from harness.loader import walk

SOURCES = Path(grader.__file__).parents[1]
TOP = "attention-lab"
TOOLS = "tools/harness"
SUFFIXES = (".py", ".md", ".ini", ".typed")
JUDGES_OWN = frozenset({"fence.py", "frames.py", "wire.py", "worker.py"})
"""The grader's side of harness: the worker and its wire, which run on Linux alone and which no student imports."""

_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold


class ReleaseError(Exception):
    """What is to be handed out is not fit for it: the file, the cause and the mend."""


def write_student(out: Path, rubric: Rubric | None = None) -> list[str]:
    """Writes the students' zip in one step and gives the names in it. Raises ReleaseError, OSError."""
    files = student_files(SOURCES / "student_template", Path(harness.__file__).parent, rubric or load_rubric())
    write_atomically(out, archive(files))
    return list(files)


def student_files(template: Path, tools: Path, rubric: Rubric) -> dict[str, bytes]:
    """Every file of the students' lab by its name in the folder. Raises ReleaseError where the template holds a solution."""
    files = {name: (template / name).read_bytes() for name in walk(template) if name.endswith(SUFFIXES)}
    if "attention.py" not in files:
        raise ReleaseError(f"there is no attention.py in {template}: the template is missing, install attnlab anew")
    for module in contract.MODULES:
        _hold_to_stubs(f"{module}.py", files[f"{module}.py"])
    for name in walk(tools):
        if name.endswith(SUFFIXES) and name not in JUDGES_OWN:
            files[f"{TOOLS}/{name}"] = (tools / name).read_bytes()
    files[f"{TOOLS}/course.json"] = _course(rubric)
    files["pyproject.toml"] = resources.files("grader.release").joinpath("student.toml").read_bytes()
    return {name: files[name] for name in sorted(files)}


def archive(files: dict[str, bytes], top: str = TOP) -> bytes:
    """A zip of these files under one folder, the same bytes for the same files on any machine."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"{top}/{name}", _DATE)
            entry.create_system = 3  # so that the mode below means the same wherever this runs
            entry.external_attr = 0o100644 << 16
            packed.writestr(entry, data)
    return stream.getvalue()


def _course(rubric: Rubric) -> bytes:
    """What a student's own run may know of the rubric: its points where public checks carry them, limits, links."""
    points: dict[str, float] = {}
    for number, whole in rubric.points.items():
        checks = [c for c in checking.CHECKS.values() if c.step == number]
        shares = split(whole, [rubric.weight_of(c) for c in checks])
        points |= {c.id: share / 100 for c, share in zip(checks, shares, strict=True) if c.public}
    limits = rubric.limits
    course = {
        "title": rubric.title,
        "steps": {str(number): whole for number, whole in sorted(rubric.points.items())},
        "points": dict(sorted(points.items())),
        "limits": {name: getattr(limits, name) for name in ("cpu_seconds", "idle_seconds", "memory_mib", "output_mib")},
    }
    return (json.dumps(course, indent=1) + "\n").encode()


def _hold_to_stubs(name: str, source: bytes) -> None:
    """Every function that the contract asks for ends by saying that it is not written yet."""
    for function in _functions(ast.parse(source, name)):
        last = function.body[-1]
        if not (isinstance(last, ast.Raise) and "NotImplementedError" in ast.unparse(last)):
            raise ReleaseError(
                f"student_template/{name}, line {function.lineno}: {function.name} is written out, and students would get "
                "it: put its raise NotImplementedError(...) back"
            )


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
