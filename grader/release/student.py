"""The lab as students get it: one zip of the template, the public tests and the tools they run with.

What goes in is named, never what stays out: the template's own files, and of `harness` the modules that a student's pytest and
`attnlab` import. Entries are sorted, dated alike and stored as they are, so that the same sources give the same bytes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import grader
import harness
from grader.render.files import write_atomically
from grader.rubric import Rubric, load_rubric
from grader.score import split
from harness import check as checking
from harness import contract, course
from harness.loader import walk
from harness.pack import archive

SOURCES = Path(grader.__file__).parents[1]
TOP = "attention-lab"
TOOLS = "tools/harness"
TEMPLATE = (
    *(f"{module}.py" for module in contract.MODULES),
    *(contract.GIVEN, "make_report.py", "pytest.ini", "README.md"),
    *(f"tests/test_step{number}.py" for number in range(1, 9)),
)
JUDGES_OWN = frozenset({"fence.py", "frames.py", "hosting", "wire.py", "worker.py"})
"""The grader's side of harness: the worker and its wire, which run on Linux alone and which no student imports."""


class ReleaseError(Exception):
    """What is to be handed out is not fit for it: the file, the cause and the mend."""


def write_student(out: Path, rubric: Rubric | None = None, chapter_link: str = "") -> list[str]:
    """Writes the students' zip in one step and gives the names in it. Raises ReleaseError, OSError.

    `chapter_link` is the chapter's address, with {section} where a section's number goes.
    """
    template, tools = SOURCES / "student_template", Path(harness.__file__).parent
    files = student_files(template, tools, rubric or load_rubric(), chapter_link)
    write_atomically(out, archive(files, TOP))
    return list(files)


def student_files(template: Path, tools: Path, rubric: Rubric, chapter_link: str = "") -> dict[str, bytes]:
    """Every file of the students' lab by its name in the folder. Raises ReleaseError where the template holds a solution."""
    absent = [name for name in TEMPLATE if not (template / name).is_file()]
    if absent:
        raise ReleaseError(f"{absent[0]} is missing in {template}: put the template's own back")
    files = {name: (template / name).read_bytes() for name in TEMPLATE}
    for module in contract.MODULES:
        _hold_to_stubs(f"{module}.py", files[f"{module}.py"])
    for name in walk(tools):
        if name.endswith((".py", "py.typed", "LICENSE")) and name.partition("/")[0] not in JUDGES_OWN:
            files[f"{TOOLS}/{name}"] = (tools / name).read_bytes()
    files[f"{TOOLS}/course.json"] = _course(rubric, chapter_link)
    files["pyproject.toml"] = resources.files("grader.release").joinpath("student.toml").read_bytes()
    return {name: files[name] for name in sorted(files)}


def _course(rubric: Rubric, chapter_link: str) -> bytes:
    """What a student's own run may know of the rubric: its points where public checks carry them, limits, links."""
    points: dict[str, float] = {}
    for number, whole in rubric.points.items():
        checks = [c for c in checking.CHECKS.values() if c.step == number]
        shares = split(whole, [rubric.weight_of(c) for c in checks])
        points |= {c.id: share / 100 for c, share in zip(checks, shares, strict=True) if c.public}
    limits = rubric.limits
    told = {
        "title": rubric.title,
        "steps": {str(number): whole for number, whole in sorted(rubric.points.items())},
        "points": dict(sorted(points.items())),
        "limits": {name: getattr(limits, name) for name in course.Limits.__dataclass_fields__},
        "chapter_link": chapter_link,
    }
    return (json.dumps(told, indent=1) + "\n").encode()


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
