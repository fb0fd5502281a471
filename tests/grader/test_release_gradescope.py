"""The autograder's zip: what Gradescope needs at its top, everything the grader is made of, and the secret only on purpose."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from grader.release.cli import release
from grader.release.gradescope import IMAGE, rotate_secret, write_autograder
from grader.rubric import RubricError

ROOT = Path(__file__).resolve().parents[2]
RUBRIC = (ROOT / "rubrics" / "lab.yaml").read_text()


@pytest.fixture(scope="module")
def autograder(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("release")
    (folder / "rubric.yaml").write_text(RUBRIC.replace("Lab 7.9", "Our lab"))
    write_autograder(folder / "autograder.zip", folder / "rubric.yaml", b"of this course", 1200)
    return zipfile.ZipFile(folder / "autograder.zip")


def test_the_two_scripts_lie_at_the_top_and_can_be_run(autograder):
    for name in ("setup.sh", "run_autograder"):
        entry = autograder.getinfo(name)
        assert entry.external_attr >> 16 & 0o111 == 0o111
        assert autograder.read(name).startswith(b"#!/usr/bin/env bash\n")


def test_the_packages_are_whole_and_nothing_else_of_the_folder_comes_along(autograder):
    names = set(autograder.namelist())
    for package in ("harness", "reference", "grader", "rubrics", "student_template", "examples/base", "examples/torch"):
        sources = {
            p.relative_to(ROOT).as_posix() for p in (ROOT / package).rglob("*.py") if "__pycache__" not in p.parts
        }
        assert sources <= names
    assert {"pyproject.toml", "harness/pyproject.toml", "constraints.txt", "rubrics/lab.yaml"} <= names
    assert not [
        n
        for n in names
        if "__pycache__" in n or n.endswith(".pyc") or n.startswith((".", "tests", "examples/one", "out"))
    ]


def test_the_courses_own_rubric_secret_and_limit_go_in(autograder):
    assert b"Our lab" in autograder.read("rubric.yaml")
    assert (autograder.read("secret.txt"), autograder.read("time-limit")) == (b"of this course\n", b"1200\n")


def test_without_a_secret_and_a_rubric_none_is_in_it(tmp_path):
    names = write_autograder(tmp_path / "a.zip")
    assert "secret.txt" not in names and "rubric.yaml" not in names
    assert zipfile.ZipFile(tmp_path / "a.zip").read("time-limit") == b"600\n"


def test_the_same_sources_give_the_same_bytes_for_their_owner_alone(tmp_path):
    for name in ("a.zip", "b.zip"):
        write_autograder(tmp_path / name, secret=b"x")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert (tmp_path / "a.zip").stat().st_mode & 0o077 == 0


def test_a_mistake_in_the_rubric_is_told_before_anything_is_written(tmp_path):
    (tmp_path / "rubric.yaml").write_text(RUBRIC + "visibilty: visible\n")
    with pytest.raises(RubricError, match="write visibility"):
        write_autograder(tmp_path / "a.zip", tmp_path / "rubric.yaml")
    assert not (tmp_path / "a.zip").exists()


def test_a_new_secret_keeps_the_old_one_and_lets_nobody_else_read_it(tmp_path):
    file = tmp_path / "secret.txt"
    assert rotate_secret(file) is None
    first = file.read_text()
    kept = rotate_secret(file)
    assert kept.read_text() == first != file.read_text() and len(file.read_text().strip()) == 64
    assert kept.name.startswith("secret-") and kept.suffix == ".txt"
    assert file.stat().st_mode & 0o077 == kept.stat().st_mode & 0o077 == 0


def test_the_command_makes_zip_and_secret_and_says_where(tmp_path):
    out, seed = tmp_path / "autograder.zip", tmp_path / "secret.txt"
    done = CliRunner().invoke(release, ["gradescope", str(out), "--seed-file", str(seed), "--rotate"])
    assert done.exit_code == 0 and f"Written: {out}" in done.output
    assert zipfile.ZipFile(out).read("secret.txt").decode() == seed.read_text()
    assert seed.read_text().strip() not in done.output
    bare = CliRunner().invoke(release, ["gradescope", str(out)])
    assert "It has no secret" in bare.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/a.zip", "--rotate"], "--rotate needs --seed-file"),
        (["{tmp}/a.zip", "--seed-file", "{tmp}/none"], "cannot be read"),
        (["{tmp}/a.zip", "--rubric", "{tmp}/none"], "cannot be read"),
        (["{tmp}/a.zip", "--time-limit", "5"], "60"),
        (["{tmp}/none/a.zip"], "there is no folder"),
        (["{tmp}"], "is a folder: name a file in it"),
        (["{tmp}/a.zip", "--seed-file", "{tmp}/secret.txt", "--rotate", "--rubric", "{tmp}/none"], "cannot be read"),
        (["{tmp}/none/a.zip", "--seed-file", "{tmp}/secret.txt", "--rotate"], "there is no folder"),
        (["{tmp}/a.zip", "--seed-file", "{tmp}/none/s", "--rotate"], "cannot be written"),
    ],
)
def test_an_unusable_argument_is_exit_2(tmp_path, words, said):
    """And no secret has changed for an autograder that was not made."""
    (tmp_path / "secret.txt").write_text("the old one")
    done = CliRunner().invoke(release, ["gradescope", *[w.format(tmp=tmp_path) for w in words]])
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert [p.name for p in tmp_path.iterdir()] == ["secret.txt"] and (
        tmp_path / "secret.txt"
    ).read_text() == "the old one"


def test_what_stands_in_where_nothing_was_judged_is_to_the_platforms_schema():
    schema = json.loads((ROOT / "tests" / "grader" / "gradescope.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads((IMAGE / "not-graded.json").read_text()))


@pytest.mark.parametrize("script", sorted(p.name for p in IMAGE.glob("*.sh")))
def test_every_script_is_bash_that_parses(script):
    assert subprocess.run(["bash", "-n", str(IMAGE / script)]).returncode == 0


def test_what_hides_the_total_on_the_platform_is_said_at_release(tmp_path):
    """A row that is shown later hides it; of the lab's own rubric nothing is to be said."""
    (tmp_path / "rubric.yaml").write_text(RUBRIC.replace("visibility: visible", "visibility: after_due_date"))
    done = CliRunner().invoke(
        release, ["gradescope", str(tmp_path / "a.zip"), "--rubric", str(tmp_path / "rubric.yaml")]
    )
    assert " checks are shown after_due_date: Gradescope hides a student's total until then" in done.output
    own = CliRunner().invoke(release, ["gradescope", str(tmp_path / "b.zip")])
    assert "Note:" not in own.output
