"""The command `attnlab`: bad arguments are named with a cause and a mend, before any work, with exit 2."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import grader.grade
import harness.cli
from grader import cli
from grader.report import build_report
from grader.rubric import load_rubric
from harness.check import CHECKS, CheckResult

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "examples" / "base"


@pytest.fixture
def command(monkeypatch):
    """Runs attnlab with its further commands at hand, installed or not."""

    def entries(group, name=None):
        found = {"grade": cli.grade_command, "doctor": cli.doctor_command}

        class Entry:
            def __init__(self, name):
                self.name = name

            def load(self):
                return found[self.name]

        return [Entry(n) for n in found if name in (None, n)]

    monkeypatch.setattr(harness.cli, "entry_points", entries)

    def run(*words):
        return CliRunner().invoke(harness.cli.main, [str(w) for w in words], catch_exceptions=False)

    return run


@pytest.fixture
def graded(monkeypatch):
    """A stand-in for the grading itself, which keeps what it was asked for."""
    asked = []

    def grade(path, **options):
        asked.append((path, options))
        rubric = options["rubric"]
        from grader.report import Judged

        judged = [Judged(c, CheckResult(c, "passed")) for c in CHECKS.values() if c.step == 1]
        options["on_step"](build_report(judged, rubric, seed="on the way"))
        return build_report(judged, rubric, seed="f1n9e4p41n75")

    monkeypatch.setattr(grader.grade, "grade", grade)
    return asked


def test_help_lists_what_packages_add(command):
    result = command("--help")
    assert result.exit_code == 0
    for name in ("check", "doctor", "grade"):
        assert f"\n  {name} " in result.output


def test_an_unknown_command_is_exit_2(command):
    assert command("grde").exit_code == 2


def test_grading_prints_and_writes_both_files(command, graded, tmp_path):
    result = command("grade", BASE, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--seed", 7)
    assert result.exit_code == 0
    assert "No final score." in result.output
    assert json.loads((tmp_path / "r.json").read_text())["seed"] == "f1n9e4p41n75"
    assert "f1n9e4p41n75" not in (tmp_path / "r.html").read_text()  # which is no business of a student


def test_quiet_prints_nothing(command, graded):
    assert command("grade", BASE, "--quiet").output == ""


def test_files_are_rewritten_after_every_step(command, graded, tmp_path, monkeypatch):
    seen = []
    writer = cli.writer

    def spying(outputs, *more):
        keep = writer(outputs, *more)

        def both(report):
            keep(report)
            seen.append(json.loads(outputs["--json"].read_text())["seed"])

        return both

    monkeypatch.setattr(cli, "writer", spying)
    command("grade", BASE, "--json", tmp_path / "r.json")
    assert seen == ["on the way", "f1n9e4p41n75"]


def test_steps_and_seed_reach_the_grading(command, graded, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this course\n")
    command("grade", BASE, "--steps", "1, 2", "--seed-file", secret)
    command("grade", BASE, "--seed", 5)
    command("grade", BASE, "--seed", 6)
    command("grade", BASE)
    (one, two, three, four) = [options for _, options in graded]
    assert (one["steps"], one["secret"]) == ({1, 2}, b"of this course")
    assert len({two["secret"], three["secret"], four["secret"]}) == 3
    assert (four["steps"], four["secret"]) == (None, grader.grade.PUBLIC_SECRET)


def test_the_secret_stands_in_no_output(command, tmp_path, graded):
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this course")
    result = command("grade", BASE, "--seed-file", secret, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert "of this course" not in result.output + (tmp_path / "r.json").read_text() + (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/none"], "is not there"),
        (["{base}", "--rubric", "{tmp}/none.yaml"], "cannot be read"),
        (["{base}", "--rubric", "{tmp}/broken.yaml"], "line 3"),
        (["{base}", "--steps", "1,99"], "'99' is not a step of the lab"),
        (["{base}", "--steps", "one"], "'one' is not a step of the lab"),
        (["{base}", "--steps", ""], "'' is not a step of the lab"),
        (["{base}", "--steps", "²"], "'²' is not a step of the lab"),
        (["{base}", "--seed", "x"], "not a valid integer"),
        (["{base}", "--seed-file", "{tmp}/none"], "cannot be read"),
        (["{base}", "--seed-file", "{tmp}/empty"], "is empty"),
        (["{base}", "--seed-file", "{tmp}/large"], "larger than"),
        (["{base}", "--seed-file", "{tmp}/large", "--seed", "1"], "both given"),
        (["{base}", "--json", "{tmp}/none/r.json"], "there is no folder"),
        (["{base}", "--json", "{tmp}"], "is a folder"),
        (["{base}", "--html", "/proc/r.html"], "nothing can be written"),
        (["{base}", "--json", "{tmp}/r", "--html", "{tmp}/r"], "the same file"),
        (["{base}", "--device", "cuda"], "CPU"),
        (["{base}", "--device", "tpu"], "tpu"),
        ([], "PATH"),
    ],
)
def test_an_unusable_argument_is_exit_2_before_grading(command, graded, tmp_path, words, said):
    (tmp_path / "broken.yaml").write_text("schema: 1\ntitle: x\npoints: []\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("x" * 5000)
    result = command("grade", *[w.format(tmp=tmp_path, base=BASE) for w in words])
    assert (result.exit_code, graded) == (2, [])
    assert said in " ".join(result.output.split())


def test_a_file_that_is_no_archive_is_exit_2(command, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("words")
    assert command("grade", file, "--quiet").exit_code == 2


def test_a_fault_of_the_grader_is_exit_3(command, monkeypatch):
    def grade(path, **options):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(grader.grade, "grade", grade)
    result = command("grade", BASE)
    assert result.exit_code == 3
    assert "the grader's own fault" in result.output
    assert "a wheel came off" in result.output


def test_steps_are_read_as_numbers():
    assert harness.cli.parse_steps("1, 2,7", {1, 2, 7, 8}) == {1, 2, 7}
    with pytest.raises(click.BadParameter, match="write some of 1, 2"):
        harness.cli.parse_steps("3", {1, 2})


def test_check_prints_the_step_table(command):
    result = command("check", BASE, "--steps", "2")
    assert result.exit_code == 0
    assert "chapter" in result.output


def test_check_of_a_missing_folder_is_exit_2(command, tmp_path):
    assert command("check", tmp_path / "none").exit_code == 2


def test_doctor_says_what_a_grading_needs(command, monkeypatch):
    from grader import doctor

    monkeypatch.setattr(doctor, "_torch", lambda: doctor.Finding("torch", False, "not installed"))
    result = command("doctor")
    assert result.exit_code == 3  # without torch two steps cannot be judged
    assert "✓ numpy worker" in result.output
    assert "✗ torch" in result.output


def test_labs_own_rubric_is_found():
    assert load_rubric().title.startswith("Lab 7.9")
