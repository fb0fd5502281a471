"""What the pages say works: their commands are run, their figures of speech agree with the code, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.codes import page
from harness.messages import MESSAGES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    ROOT / "student_template" / "README.md",
]
SET_UP = ("scripts/setup", "source .venv/bin/activate")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(name: str) -> list[str]:
    """The lines of a page's shell blocks, but for those that set up what `Shell` stands in for."""
    lines = (line for block in blocks((DOCS / name).read_text(), "sh") for line in block.splitlines())
    return [line for line in lines if line.strip() and line not in SET_UP]


def sample(printed: str) -> str:
    """The lab's table of step 1 in what was printed, or in a page that shows it: its words, whatever the points are."""
    table = re.search(r"^ +1 Scaled dot-product attention.*?^ +Read:[^\n]*", printed, re.DOTALL | re.MULTILINE)
    assert table, printed
    return re.sub(r"\d+ of \d+ failed [\d.]+ of [\d.]+", "", " ".join(table[0].split()))


class Shell:
    """Runs a page's lines one by one in a folder, as a reader would type them."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        tools = folder.parent / "bin"
        tools.mkdir()
        (tools / "attnlab").write_text(
            f"#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -c 'from harness.cli import main; main()' \"$@\"\n"
        )
        (tools / "python").write_text(f'#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} "$@"\n')
        for tool in tools.iterdir():
            tool.chmod(0o755)
        path = [str(tools), str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]]
        unwanted = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        self.environment = {k: v for k, v in os.environ.items() if k not in unwanted} | {"PATH": os.pathsep.join(path)}
        self.said = ""

    def type(self, line: str, allowed: tuple[int, ...] = (0,)) -> str:
        if line.startswith("cd "):
            self.folder = self.folder / shlex.split(line)[1]
            return ""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        if "No matching distribution" in done.stderr:
            pytest.skip("no package index can be reached from here")
        assert done.returncode in allowed, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout


def test_the_page_of_codes_is_up_to_date() -> None:
    """docs/codes.md is what the message catalogue gives, and every code is in it once."""
    assert (DOCS / "codes.md").read_text(encoding="utf-8") == page(), (
        "make it anew: python -m grader.codes > docs/codes.md"
    )
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", page(), re.MULTILINE)
    assert sorted(named) == sorted(MESSAGES)
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in page().splitlines() if line.startswith("| `")}) == 1


@pytest.mark.parametrize("page", sorted(p.name for p in [*DOCS.glob("*.md"), ROOT / "README.md"]))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    """Every relative link of a page names a file that is there."""
    file = ROOT / page if page == "README.md" else DOCS / page
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (file.parent / target.partition("#")[0]).exists(), target


@pytest.mark.long
def test_a_students_journey_works_as_written(tmp_path: Path) -> None:
    """The commands of docs/student.md, in order, in an empty folder: a zip, a red test, a table, a packed submission."""
    (tmp_path / "work").mkdir()
    shell = Shell(tmp_path / "work", ROOT)
    said: dict[str, str] = {}
    for line in commands("student.md"):
        if "[torch,report]" in line:
            line += " --dry-run --no-deps"  # torch itself is several hundred MB
        said[line] = shell.type(line, (0, 1) if "pytest" in line else (0,))
    last = {name: next(out for line, out in said.items() if name in line) for name in ("-m pytest -x", "check", "pack")}
    assert "Write softmax: subtract the maximum along axis" in last["-m pytest -x"]
    assert "not written" in last["check"]
    assert "points of the tests run here" in last["check"]
    assert "submission.zip: 4 files" in last["pack"]

    shutil.copy(ROOT / "examples" / "one_mistake" / "attention.py", shell.folder)
    table = shell.type("COLUMNS=100 .venv/bin/pytest --step 1 -q", (1,)).partition("the lab, step by step")[2]
    assert sample(table) == sample((DOCS / "student.md").read_text())
    assert "Hint: Softmax over the queries. The columns sum to 1" in " ".join(table.split())
    assert "Read: section 7.2, step 4: https://example.org/book/7.2" in table
    assert re.search(r"\d of \d+ failed +[\d.]+ of [\d.]+", table)


@pytest.mark.slow
def test_a_fault_is_added_as_written(tmp_path: Path) -> None:
    """The edits of docs/adding-a-fault.md, made in a copy of the project, and its commands: the new code is named."""
    copy = tmp_path / "project"
    for name in ("harness", "reference", "grader", "rubrics", "examples", "docs", "student_template", "tests/labs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    by_hand(copy, (DOCS / "adding-a-fault.md").read_text())
    shell = Shell(copy, copy)
    said = [shell.type(line) for line in commands("adding-a-fault.md")]
    assert sum(": as it should be" in out for out in said) == 2
    assert any("causal-mask-window: step7.mask.square" in out for out in said)
    assert "| `causal-mask-window` | **Only a window is visible.**" in (copy / "docs" / "codes.md").read_text()


def by_hand(folder: Path, page: str) -> None:
    """What a reader of a page does by hand: its edits, and its new files, which begin with their own name."""
    for diff in blocks(page, "diff"):
        edit(folder, diff)
    for text in blocks(page, "toml"):
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)


def edit(folder: Path, diff: str) -> None:
    """Makes a page's edit: what is taken out must stand there once, and what is put in goes in its place."""
    file = folder / re.search(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE)[1]  # type: ignore[index]
    lines = [line for line in diff.splitlines() if line[:1] in " +-" and line[:3] not in ("+++", "---")]
    before = "\n".join(line[1:] for line in lines if line[0] in " -")
    after = "\n".join(line[1:] for line in lines if line[0] in " +")
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name} has this {text.count(before)} times:\n{before}"
    file.write_text(text.replace(before, after))
