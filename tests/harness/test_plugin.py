"""A student's pytest run: what it prints, and that its own result agrees with what it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = ROOT / "examples" / "base"
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A student's folder, as it is handed out."""
    return Path(shutil.copytree(ROOT / "student_template", tmp_path / "lab"))


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def line_of(output: str, step: int) -> str:
    """The step table's line of one step."""
    table = output.partition("the lab, step by step")[2]
    return next(line.rstrip() for line in table.splitlines() if line.startswith(f" {step} "))


def test_a_right_step_passes(folder: Path) -> None:
    """With a correct attention.py, step 2 passes and the table says so."""
    shutil.copy(BASE / "attention.py", folder)
    code, output = run_pytest(folder, "-k", "step2")
    assert code == 0, output
    assert "passed (" in line_of(output, 2)
    assert line_of(output, 1).endswith("not run")


def test_the_bare_template_says_what_to_write(folder: Path) -> None:
    """In the bare template a step that is not written is told by the stub's own sentence, once a function."""
    code, output = run_pytest(folder, "-k", "step1")
    assert code == 1
    assert line_of(output, 1).endswith("not written")
    failures = output.partition("FAILURES")[2].partition("short test summary")[0]
    assert failures.count("Write softmax:") == 1
    assert "Traceback" not in output


def test_a_wrong_axis_gets_a_hint(folder: Path) -> None:
    """A softmax over the wrong axis fails with the call, what came, and the hint that the columns sum to 1."""
    source = (BASE / "attention.py").read_text()
    (folder / "attention.py").write_text(
        source.replace("weights = softmax(scores)", "weights = softmax(scores, axis=-2)")
    )
    code, output = run_pytest(folder, "-k", "step1", "-x")
    assert code == 1
    assert ">   scaled_dot_product_attention(" in output
    assert "E   came:" in output
    assert "E   hint:    The columns sum to 1" in output
    assert "Q = float64" in output
    assert "Hint: The columns sum to 1" in output.partition("the lab, step by step")[2]


def test_what_the_code_prints_is_shown_beside_its_failure(folder: Path) -> None:
    """print() in a student's function appears under the failing test."""
    (folder / "attention.py").write_text(
        "def softmax(x, axis=-1):\n    print('seen by', 'softmax')\n    return x * 0\n"
    )
    _, output = run_pytest(folder, "-k", "step1 and softmax", "-x")
    assert "seen by softmax" in output


def test_a_module_that_does_not_import_is_a_failure(folder: Path) -> None:
    """A syntax error fails the step with its line, and does not stop pytest."""
    (folder / "attention.py").write_text("def softmax(x, axis=-1)\n    return x\n")
    code, output = run_pytest(folder, "-k", "step1", "-x")
    assert code == 1
    assert "attention.py, line 1: SyntaxError" in output


def test_checks_are_named_after_their_step(folder: Path) -> None:
    """A test's name is its step and the check's id without it, so that -k finds both."""
    _, output = run_pytest(folder, "--collect-only")
    assert "tests/test_step1.py::test_step1[softmax.rows-sum-to-one]" in output
    assert all(f"test_step{n}[" in output for n in range(1, 9))


def test_the_students_side_never_loads_the_reference(folder: Path) -> None:
    """A run of the public tests imports neither `reference` nor `grader`."""
    (folder / "tests" / "test_loaded.py").write_text(
        "import sys\n\ndef test_loaded():\n    assert not {'reference', 'grader'} & {m.split('.')[0] for m in sys.modules}\n"
    )
    shutil.copy(BASE / "attention.py", folder)
    code, output = run_pytest(folder, "-k", "step2 or loaded")
    assert code == 0, output
