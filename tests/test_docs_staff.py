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
from tests.test_docs import DOCS, PAGES, ROOT, Shell, blocks, commands

SOURCES = ("harness", "reference", "grader", "rubrics", "examples", "student_template")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A copy of the project."""
    project = tmp_path / "project"
    for name in SOURCES:
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "Dockerfile", ".dockerignore"):
        shutil.copy(ROOT / name, project / name)
    return Shell(project, project)


def docker_lines(page: Path) -> list[str]:
    """A page's lines that need an engine."""
    text = page.read_text().replace("```sh docker\n", "```docker\n")
    return [line for block in blocks(text, "docker") for line in block.splitlines()]


# What the last line prints, for each page with such lines.
PRINTED = {"README.md": "Softmax over the queries", "staff.md": "✓ base", "ta.md": "2 results in results-in-containers"}


@pytest.mark.long
def test_the_staffs_journey_works_as_written(shell: Shell) -> None:
    """A graded submission, an autograder with a new secret beside the old, the other platforms' files."""
    (shell.folder / "secret.txt").write_text("of last year\n")
    for line in commands("staff.md"):
        shell.type(line)
    report = json.loads((shell.folder / "report.json").read_text())
    assert report["final"] and (shell.folder / "report.html").exists()
    assert (shell.folder / "autograder.zip").exists() and len(list(shell.folder.glob("secret*.txt"))) == 2
    assert json.loads((shell.folder / "results.json").read_text())["gradable"] and (shell.folder / "junit.xml").exists()


@pytest.mark.long
def test_the_tas_journey_works_as_written(shell: Shell) -> None:
    """A batch, a rerun of what is flagged and of one by name, the gradebook."""
    for line in commands("ta.md"):
        shell.type(line)
    assert {p.name for p in (shell.folder / "results").iterdir()} == {"ann", "bob", "results.csv"}
    assert (shell.folder / "results" / "ann" / "earlier-1" / "report.json").exists()
    head, ann = (shell.folder / "scores.csv").read_text().splitlines()
    assert (head, ann.rpartition(",")[0]) == ("Email address,Full name,Attention lab", "ann,Ann Example")
    assert 0 < float(ann.rpartition(",")[2]) < 100


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("page", [page for page in PAGES if docker_lines(page)], ids=lambda page: page.name)
def test_what_needs_an_engine_works_as_written(shell: Shell, page: Path) -> None:
    """The images are built and used; where no index can be reached, by the arguments that this machine gives."""
    if not engine():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")
    for line in commands(page.name) if page.name == "ta.md" else []:
        if not line.startswith("attnlab"):
            shell.type(line)  # the folder to try the page on
    extra = shlex.split(os.environ.get("DOCKER_BUILD_ARGS", ""))
    here = shlex.join(["--network=host", *extra]) if extra else ""
    said = [shell.type(line.replace("docker build ", f"docker build {here} ")) for line in docker_lines(page)]
    assert PRINTED[page.name] in said[-1]


@pytest.mark.slow
def test_the_rubrics_command_and_tests_work_as_written(shell: Shell) -> None:
    """The page's own tests earn their points on the bundled submission."""
    (shell.folder / "rubric.yaml").write_text(blocks((DOCS / "rubric.md").read_text(), "yaml")[-1])
    (shell.folder / "test_ours.py").write_text(blocks((DOCS / "rubric.md").read_text(), "python")[0])
    grade = next(line for line in commands("rubric.md") if line.startswith("attnlab grade"))
    assert "5 of 5" in " ".join(shell.type(grade.replace("one_mistake", "base")).split())


@pytest.mark.parametrize("number", range(len(blocks((DOCS / "rubric.md").read_text(), "yaml"))))
def test_every_rubric_of_the_page_is_one(tmp_path: Path, number: int) -> None:
    text = (DOCS / "rubric.md").read_text()
    (tmp_path / "test_ours.py").write_text(blocks(text, "python")[0])
    (tmp_path / "rubric.yaml").write_text(blocks(text, "yaml")[number])
    assert load_rubric(tmp_path / "rubric.yaml").points


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_that_a_page_names_is_there(page: Path) -> None:
    """Of the commands themselves, in running text too; the images' targets and arguments, and the scripts."""
    from click.testing import CliRunner

    from harness.cli import main

    text = page.read_text()
    for name, rest in re.findall(r"\battnlab (\w+)([^`\n]*)", text):
        words = [name, *re.findall(r"^ (student|gradescope|prices)\b", rest)]
        for option in ["--help", *re.findall(r"--[a-z-]+", rest)]:
            assert option in CliRunner().invoke(main, [*words, "--help"]).output, (words, option)
    dockerfile = (ROOT / "Dockerfile").read_text()
    for target in re.findall(r"--target ([a-z-]+)", text):
        assert f" AS {target}\n" in dockerfile
    for argument in re.findall(r"--build-arg ([A-Z_]+)", text):
        assert f"ARG {argument}" in dockerfile
    for script in re.findall(r"\bscripts/[a-z]+", text):
        assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_of_a_page_is_run_by_no_test(page: Path) -> None:
    """A page's commands stand in blocks that tests find by their kind, and in no other."""
    kinds = set(re.findall(r"^```(.+)\n(?:.*\n)*?```$", page.read_text(), re.MULTILINE))
    assert kinds <= {"sh", "sh docker", "bat", "yaml", "diff", "python", "toml"}
    fences = re.findall(r"^ *(?:```|~~~).*$", page.read_text(), re.MULTILINE)
    assert all(fence.startswith("```") for fence in fences)
    assert fences[1::2] == ["```"] * (len(fences) // 2)  # so that each block has a kind
    words = r"\$|attnlab|pytest|python3?|py|pip|docker|scripts/|\./|git|cd|source|cp|curl|apt"
    indented = re.findall(rf"^(?: {{4,}}|\t)(?:{words})\b.*$", page.read_text(), re.MULTILINE)
    if page.parent != ROOT / "student_template":  # whose list of commands is read by its indentation
        assert indented == []
