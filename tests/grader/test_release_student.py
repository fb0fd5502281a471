"""What students are handed holds the template, the public tests and their tools, and nothing of what is right."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader.release.student import JUDGES_OWN, TOP, ReleaseError, student_files, write_student
from grader.rubric import load_rubric
from harness.pack import archive

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-9d1f"
SECRET_PLACES = ("reference", "grader", "rubrics", "examples", "tests", "benchmarks")


def zipped(root: Path) -> bytes:
    return archive(student_files(root / "student_template", root / "harness", load_rubric()), TOP)


def planted(folder: Path) -> Path:
    """A copy of the project with a canary in everything that students must not get, bytecode and junk included."""
    root = folder / "project"
    for name in (*SECRET_PLACES, "harness", "student_template"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "submissions"))
    for name in SECRET_PLACES:
        for file in (root / name).rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes() + f"\n# {CANARY}\n".encode())
        (root / name / "__pycache__").mkdir()
        (root / name / "__pycache__" / "attention.cpython-311.pyc").write_text(CANARY)
    for name in JUDGES_OWN:
        own = root / "harness" / name
        for file in [own] if own.is_file() else own.glob("*.py"):
            file.write_text(f'"""{CANARY}"""\n')
    for place in ("harness", "harness/checks", "student_template", "student_template/tests"):
        (root / place / "__pycache__").mkdir()
        (root / place / "__pycache__" / "attention.cpython-311.pyc").write_text(CANARY)
        for junk in (
            ".secret.txt.swp",
            "attention.py~",
            "attention.py.orig",
            "seed.txt",
            "course.secret",
            "solution.ipynb",
            *(["solution.py"] if place.startswith("student_template") else []),
        ):
            (root / place / junk).write_text(CANARY)
        (root / place / ".git").mkdir()
        (root / place / ".git" / "config.py").write_text(CANARY)
    return root


def test_no_canary_of_what_is_hidden_comes_out(tmp_path: Path) -> None:
    """Of canaries in the reference, the judge, the rubrics, solutions, secrets and bytecode none is in the zip or its metadata."""
    data = zipped(planted(tmp_path))
    assert (
        CANARY.encode() not in data
    )  # entries are stored as they are, so their names, extras and bytes all stand in it
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        assert {entry.compress_type for entry in packed.infolist()} == {zipfile.ZIP_STORED}
        assert packed.comment == b"" and {entry.comment + entry.extra for entry in packed.infolist()} == {b""}
        assert not [
            name
            for name in packed.namelist()
            if not name.endswith((".py", ".md", ".ini", ".toml", ".json", ".typed", "LICENSE"))
        ]


class _Nameless(ast.NodeTransformer):
    """A function's tree without what a copyist changes: names, docstrings, annotations."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name, node.returns, node.type_comment = "f", None, None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("n", ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg("a")


def trees(sources: dict[str, bytes]) -> dict[str, str]:
    """Every function of some size: its nameless tree -> where it is."""
    found = {}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and sum(1 for _ in ast.walk(node)) > 40:
                at = f"{name}: {node.name}"
                found[ast.dump(_Nameless().visit(node))] = at
    return found


def test_no_function_of_a_solution_comes_out() -> None:
    """No function of the reference, the judge or a bundled solution has the syntax tree of one that students get, names aside."""
    given = {
        n: d
        for n, d in student_files(ROOT / "student_template", ROOT / "harness", load_rubric()).items()
        if n.endswith(".py")
    }
    hidden = {
        str(file.relative_to(ROOT)): file.read_bytes()
        for place in ("reference", "grader", "examples")
        for file in (ROOT / place).rglob("*.py")
        if file.name not in ("model.py", "make_report.py")  # the given files, which examples hold too
    }
    theirs, ours = trees(given), trees(hidden)
    assert len(theirs) > 100 and len(ours) > 200
    assert [(ours[tree], theirs[tree]) for tree in ours.keys() & theirs.keys()] == []


def test_a_solution_left_in_the_template_is_refused(tmp_path: Path) -> None:
    """A template whose softmax is written out is not handed out: the function is named."""
    template = tmp_path / "student_template"
    shutil.copytree(ROOT / "student_template", template)
    shutil.copy(ROOT / "examples" / "base" / "attention.py", template)
    with pytest.raises(ReleaseError, match=r"attention\.py, line \d+: softmax is written out"):
        student_files(template, ROOT / "harness", load_rubric())


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    """Two releases are equal byte for byte, whatever the dates and modes of the files are."""
    copy = tmp_path / "project"
    for name in ("harness", "student_template"):
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
    os.chmod(copy / "student_template" / "model.py", 0o755)
    assert zipped(copy) == zipped(ROOT)
    write_student(tmp_path / "lab.zip")
    assert (tmp_path / "lab.zip").read_bytes() == zipped(ROOT)


def test_every_module_that_students_tools_import_is_there() -> None:
    """No module of harness that is handed out imports one that is not, and none imports the judge's side or torch at its top."""
    files = student_files(ROOT / "student_template", ROOT / "harness", load_rubric())
    there = {
        n.removeprefix("tools/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for n in files
        if n.startswith("tools/")
    }
    for name, source in files.items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(source)):
            wanted = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = [node.module] if node.module != "harness" else [f"harness.{a.name}" for a in node.names]
            for module in wanted:
                assert module.split(".")[0] not in ("reference", "grader"), name
                assert not module.startswith("harness") or module in there, f"{name} imports {module}"
        tops = [a.name for node in ast.parse(source).body if isinstance(node, ast.Import) for a in node.names]
        assert "torch" not in tops, name


def test_the_students_ranges_hold_the_tools_own() -> None:
    """Each library of harness is in the student's pyproject.toml with the same lower bound, and an upper one."""
    import tomllib

    own = tomllib.loads((ROOT / "harness" / "pyproject.toml").read_text())["project"]
    students = tomllib.loads((ROOT / "grader" / "release" / "student.toml").read_text())["project"]
    assert (students["name"], students["version"], students["requires-python"]) == (
        own["name"],
        own["version"],
        own["requires-python"],
    )
    lower = {re.split(r"[<>=,]+", d)[0]: re.split(r"[<>=,]+", d)[1] for d in own["dependencies"]}
    ranges = {re.split(r"[<>=,]+", d)[0]: re.split(r"[<>=,]+", d)[1:] for d in students["dependencies"]}
    assert {name: bounds[0] for name, bounds in ranges.items()} == lower
    assert all(len(bounds) == 2 for bounds in ranges.values())


def test_points_that_students_see_are_those_of_public_checks(tmp_path: Path) -> None:
    """course.json splits each step's points as the rubric does, and holds no more of a step than it is worth."""
    import json

    course = json.loads(
        student_files(ROOT / "student_template", ROOT / "harness", load_rubric())["tools/harness/course.json"]
    )
    of_step: dict[str, float] = {}
    for id, points in course["points"].items():
        number = id.split(".")[0].removeprefix("step")
        of_step[number] = of_step.get(number, 0) + points
    assert set(of_step) == set("12345678")
    assert all(0 < of_step[n] <= course["steps"][n] for n in of_step)
    assert course["limits"]["cpu_seconds"] == 20


def blocks(text: str, language: str) -> list[list[str]]:
    return [found.strip().splitlines() for found in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


def test_the_commands_for_windows_are_the_same_three() -> None:
    """The README's block for Windows differs from the other in paths alone."""
    readme = (ROOT / "student_template" / "README.md").read_text()
    here = blocks(readme, "sh")[0]
    windows = [line.replace("\\", "/").replace("Scripts", "bin") for line in blocks(readme, "bat")[0]]
    assert windows == [here[0].replace("python3", "py"), *here[1:]]


def interpreter(version: str) -> str:
    """A Python of that version on this machine, or a skip."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return str(Path(sys.base_prefix) / "bin" / "python3")
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(f".pyenv/versions/{version}*/bin"))]
    for folder in folders:
        named = Path(folder) / f"python{version}"
        ask = [str(named), "-c", "import ensurepip, venv"]
        if named.is_file() and subprocess.run(ask, capture_output=True).returncode == 0:
            return str(named)
    pytest.skip(f"this machine has no Python {version}")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_three_commands_lead_from_unzip_to_the_first_red_test(tmp_path: Path, version: str) -> None:
    """The README's three commands, copied from the zip, end with a red test that says what to write; what was installed holds no reference."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {interpreter(version)} "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    write_student(tmp_path / "lab.zip")
    zipfile.ZipFile(tmp_path / "lab.zip").extractall(tmp_path)
    lab = tmp_path / TOP
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")}
    clean["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{clean['PATH']}"
    for command in blocks((lab / "README.md").read_text(), "sh")[0]:
        done = subprocess.run(command, shell=True, cwd=lab, env=clean, capture_output=True, text=True)
        if "pip install" in command and done.returncode and "No matching distribution" in done.stderr:
            pytest.skip("no package index can be reached from here")
        assert "pytest" in command or done.returncode == 0, done.stderr
    assert done.returncode == 1
    assert f"Python {version}." in done.stdout
    assert "Write softmax: subtract the maximum along axis" in done.stdout
    above = [lab / ".venv" / "bin" / "python", "-m", "pytest", "--step", "2"]  # a terminal in the folder above
    done = subprocess.run(above, cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "Write project: multiply X by each of the three matrices" in done.stdout
    site = next((lab / ".venv").rglob("site-packages"))
    installed = {path.name for path in site.iterdir()}
    assert not {"reference", "grader", "torch"} & installed
    assert "attnlab_harness-0.1.0.dist-info" in installed
    record = next(site.glob("attnlab_harness-*.dist-info/RECORD")).read_text()
    assert "harness/plugin.py" in record
    assert not [
        line
        for line in record.splitlines()
        if "reference" in line or "grader" in line or any(n in line for n in JUDGES_OWN)
    ]
    assert not (lab / "build").exists()
    assert not list(lab.glob("*.egg-info"))
