"""What the staff's and the TA's pages say works: their commands in order, their rubrics, their tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from grader.rubric import load_rubric
from tests.test_docker import engine
from tests.test_docs import DOCS, ROOT, Shell, blocks, commands

SOURCES = ("harness", "reference", "grader", "rubrics", "examples", "student_template")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A copy of the project, with submissions and a list of students in it."""
    project = tmp_path / "project"
    for name in SOURCES:
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "Dockerfile", ".dockerignore"):
        shutil.copy(ROOT / name, project / name)
    for student in ("ann", "bob"):
        (project / "submissions" / student).mkdir(parents=True)
        (project / "submissions" / student / "notes.txt").write_text("Nothing yet.\n")
    (project / "secret.txt").write_text("of this course\n")
    (project / "students.csv").write_text("Email address,Full name\nann,Ann Example\ncy,Cy Other\n")
    return Shell(project, project)


def docker_lines(page: str) -> list[str]:
    text = (DOCS / page).read_text().replace("```sh docker\n", "```docker\n")
    return [line for block in blocks(text, "docker") for line in block.splitlines()]


@pytest.mark.slow
def test_the_staffs_journey_works_as_written(shell: Shell) -> None:
    """A graded submission, an autograder with a new secret beside the old, the other platforms' files."""
    for line in commands("staff.md"):
        shell.type(line)
    report = json.loads((shell.folder / "report.json").read_text())
    assert report["final"] and (shell.folder / "report.html").exists()
    assert (shell.folder / "autograder.zip").exists() and len(list(shell.folder.glob("secret*.txt"))) == 2
    assert json.loads((shell.folder / "results.json").read_text())["gradable"] and (shell.folder / "junit.xml").exists()


@pytest.mark.slow
def test_the_tas_journey_works_as_written(shell: Shell) -> None:
    """A batch, a rerun of what is flagged and of one by name, the gradebook."""
    for line in commands("ta.md"):
        shell.type(line)
    assert {p.name for p in (shell.folder / "results").iterdir()} == {"ann", "bob", "results.csv"}
    assert (shell.folder / "results" / "ann" / "earlier-1" / "report.json").exists()
    assert (shell.folder / "scores.csv").read_text().splitlines() == [
        "Email address,Full name,Attention lab",
        "ann,Ann Example,0",
    ]


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("page", ["staff.md", "ta.md"])
def test_what_needs_an_engine_works_as_written(shell: Shell, page: str) -> None:
    """The images are built and used; where no index can be reached, by the arguments that this machine gives."""
    if not engine():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")
    extra = shlex.split(os.environ.get("DOCKER_BUILD_ARGS", ""))
    said = ""
    for line in docker_lines(page):
        here = shlex.join(["--network=host", *extra]) if extra else ""
        said += shell.type(line.replace("docker build ", f"docker build {here} "))
    assert "✓ base" in said if page == "staff.md" else "76.31 of 100 points" in said


@pytest.mark.slow
def test_the_rubrics_command_and_tests_work_as_written(shell: Shell) -> None:
    """The page's own tests earn their points on the bundled submission."""
    (shell.folder / "rubric.yaml").write_text(blocks((DOCS / "rubric.md").read_text(), "yaml")[-1])
    (shell.folder / "test_ours.py").write_text(blocks((DOCS / "rubric.md").read_text(), "python")[0])
    assert "5 of 5" in " ".join(shell.type(commands("rubric.md")[0].replace("one_mistake", "base")).split())


@pytest.mark.parametrize("number", range(len(blocks((DOCS / "rubric.md").read_text(), "yaml"))))
def test_every_rubric_of_the_page_is_one(tmp_path: Path, number: int) -> None:
    text = (DOCS / "rubric.md").read_text()
    (tmp_path / "test_ours.py").write_text(blocks(text, "python")[0])
    (tmp_path / "rubric.yaml").write_text(blocks(text, "yaml")[number])
    assert load_rubric(tmp_path / "rubric.yaml").points


@pytest.mark.parametrize("page", ["staff.md", "ta.md", "rubric.md"])
def test_every_option_that_a_page_names_is_there(page: str) -> None:
    """Of the commands themselves, in running text too."""
    from click.testing import CliRunner

    from harness.cli import main

    text = (DOCS / page).read_text()
    used = {
        (name, option)
        for name, rest in re.findall(r"attnlab (\w+)([^`\n]*)", text)
        for option in re.findall(r"--[a-z-]+", rest)
    }
    for name, option in used:
        words = ["release", "gradescope"] if name == "release" else [name]
        assert option in CliRunner().invoke(main, [*words, "--help"]).output, (name, option)
