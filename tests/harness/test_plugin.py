"""A student's pytest run: what it prints, and that its own result agrees with what it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.local import Held
from harness.plugin import Lab

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
    assert "E     came:" in output
    assert "E     hint:    Softmax over the queries. The columns sum to 1" in output
    assert "E   Q = float64" in output
    table = output.partition("the lab, step by step")[2]
    assert "Hint: Softmax over the queries. The columns sum to 1" in table
    assert "Q = [[" in table
    assert "[attention.weights-sum-to-one] - Failed" in output.partition("short test summary")[2]


def test_the_table_is_whole_on_several_cores(folder: Path) -> None:
    """Under `pytest -n 2` the table is that of a run on one core."""
    shutil.copy(BASE / "attention.py", folder)
    table = "the lab, step by step"
    alone = run_pytest(folder, "--step", "2,7")[1].partition(table)[2].rpartition("\n")[0]
    both = run_pytest(folder, "--step", "2,7", "-n", "2")[1].partition(table)[2]
    assert "passed (7)" in line_of(table + both, 2)
    for number in range(1, 9):
        assert line_of(table + both, number) == line_of(table + alone, number)


def test_steps_are_chosen_by_their_number(folder: Path) -> None:
    """--step 2,7 runs the checks of steps 2 and 7 alone; a step that is not there is named."""
    shutil.copy(BASE / "attention.py", folder)
    _, output = run_pytest(folder, "--step", "2,7", "--collect-only")
    assert {line.partition("[")[0] for line in output.splitlines() if "::" in line} == {
        "tests/test_step2.py::test_step2",
        "tests/test_step7.py::test_step7",
    }
    for where in ((), ("-n", "2")):
        code, output = run_pytest(folder, "--step", "12", *where)
        assert code == 4
        assert "--step 12: write some of 1, 2, 3" in output
        assert "INTERNALERROR" not in output


def test_an_editor_whose_project_begins_elsewhere_runs_one_test(folder: Path) -> None:
    """A test pane that names its own root folder and a single test finds the submission beside pytest.ini."""
    shutil.copy(BASE / "attention.py", folder)
    one = f"{folder.name}/tests/test_step2.py::test_step2[softmax]"
    code, output = run_pytest(folder.parent, f"--rootdir={folder.parent}", one)
    assert code == 0, output
    assert "1 passed" in output


def test_a_test_pane_shows_a_test_in_the_students_own_file(folder: Path) -> None:
    """Every collected test lies in tests/test_stepN.py, on the line that names it, and runs by its absolute node id."""
    (folder / "pane.py").write_text(
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        print('AT', item.path, item.location[0], item.location[1], item.nodeid.split('::')[1])\n"
    )
    _, output = run_pytest(folder, "-p", "pane", f"--rootdir={folder}", "--collect-only", ".")
    places = {tuple(line.split()[1:4]) for line in output.splitlines() if line.startswith("AT ")}
    assert len(places) == 8
    for path, relative, line in places:
        assert (folder / relative).samefile(path)
        assert "= checks_of_step(" in Path(path).read_text().splitlines()[int(line)]
    _, output = run_pytest(folder, f"--rootdir={folder}", f"{folder}/tests/test_step2.py::test_step2[softmax]")
    assert "1 failed" in output


def test_a_run_from_the_folder_above_finds_the_lab(folder: Path) -> None:
    """Without pytest.ini's help: the submission is the one beside the tests."""
    shutil.copy(BASE / "attention.py", folder)
    code, output = run_pytest(folder.parent, "-p", "harness.plugin", "-k", "step2")
    assert code == 0, output
    assert "passed (7)" in line_of(output, 2)


def test_two_labs_in_one_run_are_told_apart(folder: Path) -> None:
    """Each folder's tests ask that folder's submission."""
    other = Path(shutil.copytree(folder, folder.parent / "other"))
    shutil.copy(BASE / "attention.py", other)
    mode = "--import-mode=importlib"  # since both have a test_step2.py
    _, output = run_pytest(folder.parent, "-p", "harness.plugin", mode, "-k", "step2 and softmax")
    assert "1 failed, 1 passed" in output


def test_the_table_stands_alone_where_pytests_own_summary_is_off(folder: Path) -> None:
    """As an editor's runner asks for it: no header, no summary."""
    shutil.copy(BASE / "attention.py", folder)
    code, output = run_pytest(folder, "--no-header", "--no-summary", "--step", "2")
    assert code == 0, output
    assert "passed (7)" in line_of(output, 2)


def test_what_overflows_in_a_submission_is_no_warning_of_pytest(folder: Path) -> None:
    """NumPy's warnings from a student's function are not counted in pytest's last line."""
    source = (BASE / "attention.py").read_text().replace("np.exp(x - largest)", "np.exp(x)")
    (folder / "attention.py").write_text(source)
    code, output = run_pytest(folder, "-k", "step1 and softmax.large")
    assert (code, "warning" in output) == (1, False), output


def test_a_failure_fits_the_terminal(folder: Path) -> None:
    """At 80 columns no line of a failure is longer, but for an address."""
    source = (BASE / "attention.py").read_text()
    (folder / "attention.py").write_text(
        source.replace("/ np.sqrt(", "* np.sqrt(").replace("np.exp(x - largest)", "2 ** x")
    )
    _, output = run_pytest(folder, "-k", "step1")
    failures = output.partition("FAILURES")[2].partition("short test summary")[0]
    assert "E     look:" in failures
    assert [line for line in failures.splitlines() if len(line) > 80 and line[0] == "E" and "https:" not in line] == []


def test_a_forgotten_return_is_told(folder: Path) -> None:
    """None is no result, and the table says where it comes from."""
    (folder / "attention.py").write_text("def softmax(x, axis=-1):\n    x * 0\n")
    _, output = run_pytest(folder, "-k", "step1 and softmax.ratios")
    assert "Seen: the result is None (a function without a return gives that)" in output
    assert "1 of 1 failed" in line_of(output, 1)


def test_other_tests_of_the_student_run_beside_the_labs(folder: Path) -> None:
    """A student's own test file runs as ever, and its failure is pytest's own."""
    (folder / "tests" / "test_mine.py").write_text("def test_mine():\n    assert 1 == 2\n")
    code, output = run_pytest(folder, "tests/test_mine.py")
    assert code == 1
    assert "E       assert 1 == 2" in output
    assert "the lab, step by step" not in output


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


def test_a_lab_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is told so where it is loaded, and by the environment where it comes later; a student's own choice stands."""
    told: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=told.append))
    for before, after in (({}, "1"), ({"OMP_NUM_THREADS": "4"}, "4")):
        monkeypatch.setattr(os, "environ", before)
        Lab(Held(BASE))
        assert before["OMP_NUM_THREADS"] == after
    assert told == [1, 1]


def test_an_interrupted_run_tells_what_it_found(folder: Path) -> None:
    """Ctrl-C in the midst of a check ends the run; the mistakes and the table of what was run before it are printed."""
    source = (BASE / "attention.py").read_text().replace("    largest = x.max", "    largest = 0 * x.max")
    stop = "def project(X, W_Q, W_K, W_V):\n    raise KeyboardInterrupt\n"
    (folder / "attention.py").write_text(f"{source}\n\n{stop}")
    code, output = run_pytest(folder, "--step", "1")
    assert code == 2
    assert "1. Exponentials overflow" in output.partition("what is wrong")[2]
    assert "failed" in line_of(output, 1)


def test_the_mistakes_stand_before_the_table_each_once(folder: Path) -> None:
    """A file that does not import is one mistake, with its line and the command that shows the whole error."""
    (folder / "attention.py").write_text("import numpy as np\n\ndef softmax(x, axis=-1)\n    return x\n")
    _, output = run_pytest(folder, "--step", "1,2")
    told = output.partition("what is wrong")[2].partition("the lab, step by step")[0]
    assert "1. The file does not import" in told
    assert "attention.py:3: SyntaxError" in told
    assert "python -c 'import attention'" in told
    assert "2. " not in told


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


def test_a_run_loads_what_it_asks_for_and_no_more(folder: Path) -> None:
    """A run of step 2 that fails nothing loads no other step's checks and no hints; garbage is collected in its tests."""
    shutil.copy(BASE / "attention.py", folder)
    (folder / "tests" / "test_step2.py").write_text(
        "import gc\nimport sys\n\nfrom harness.plugin import checks_of_step\n\ntest_step2 = checks_of_step(2)\n\n\n"
        "def teardown_module():\n"
        "    print(sorted(name for name in sys.modules if name.startswith('harness.')), gc.isenabled())\n"
    )
    code, output = run_pytest(folder, "--step", "2", "-s")
    assert code == 0, output
    assert "'harness.checks.step2_chapter'" in output
    assert "'harness.checks.step1_attention'" not in output
    assert "'harness.hints'" not in output
    assert "] True\n" in output


def test_a_students_own_assertion_is_taken_apart(folder: Path) -> None:
    """A test of the student's own fails as in any pytest: with the values that were compared."""
    (folder / "tests" / "test_own.py").write_text("def test_own():\n    two = 2\n    assert two == 3\n")
    code, output = run_pytest(folder, "tests/test_own.py")
    assert code == 1
    assert "assert 2 == 3" in output
