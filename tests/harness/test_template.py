"""The student's folder, the bundled examples, and what they have to do with each other."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import contract, loader
from harness.local import check_folder, not_written, public_checks
from harness.subject import LocalSubject

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "student_template"
BASE = ROOT / "examples" / "base"


def test_the_given_model_is_the_same_everywhere() -> None:
    """The template's model.py, the judge's copy and the examples' are equal."""
    copies = [TEMPLATE, ROOT / "harness" / "given", BASE, ROOT / "examples" / "one_mistake"]
    assert len({(folder / "model.py").read_bytes() for folder in copies}) == 1


@pytest.mark.parametrize("module", contract.MODULES)
def test_the_template_has_every_name_of_the_contract(module: str) -> None:
    """Nothing is missing in the template, and the contract's way of calling a function fits its stub."""
    assert loader.inspect(TEMPLATE).findings_of(module) == []
    subject = LocalSubject(TEMPLATE)
    for function in contract.functions_of(module):
        outcome = subject.call(function.full_name, *[1] * len(function.required), **dict.fromkeys(function.optional))
        assert (outcome.kind, outcome.type) == ("raised", "NotImplementedError"), function.full_name


@pytest.mark.parametrize("module", contract.MODULES)
def test_every_stub_says_what_to_write(module: str) -> None:
    """Every function and method of the template has a docstring or belongs to one that has, and raises with a sentence."""
    tree = ast.parse((TEMPLATE / f"{module}.py").read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        last = function.body[-1]
        assert isinstance(last, ast.Raise), function.name
        assert isinstance(last.exc, ast.Call)
        sentence = ast.literal_eval(last.exc.args[0])
        assert sentence.startswith("Write ") and sentence.endswith("."), function.name


def test_no_check_passes_on_the_bare_template() -> None:
    """Of the public checks none passes where nothing is written; each failure is a stub's sentence."""
    results = check_folder(TEMPLATE)
    assert results
    assert [r.check.id for r in results if r.status == "passed"] == []
    assert [r.check.id for r in results if r.status == "failed" and not_written(r) is None] == []


@pytest.mark.slow
def test_the_bundled_example_passes_every_public_check() -> None:
    """examples/base is correct."""
    results = check_folder(BASE)
    assert [(r.check.id, r.status) for r in results if r.status != "passed"] == []
    assert len(results) == len(public_checks())


def test_the_bundled_mistake_fails_in_step_1_alone_of_the_formulas() -> None:
    """examples/one_mistake fails in step 1, and its softmax itself is right."""
    failed = {r.check.id for r in check_folder(ROOT / "examples" / "one_mistake", {1}) if r.status == "failed"}
    assert "step1.attention.weights-sum-to-one" in failed
    assert not any(id.startswith("step1.softmax.") for id in failed)


def test_the_two_examples_differ_in_one_line() -> None:
    """examples/one_mistake is examples/base with one line of attention.py changed."""
    right, wrong = (
        (ROOT / "examples" / name / "attention.py").read_text().splitlines() for name in ("base", "one_mistake")
    )
    assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
    for name in ("kv_cache.py", "experiments.py"):
        assert (BASE / name).read_bytes() == (ROOT / "examples" / "one_mistake" / name).read_bytes()


def test_the_report_script_leaves_out_what_is_not_written(tmp_path: Path) -> None:
    """make_report.py in the bare template says what is missing, and ends without an error."""
    for file in TEMPLATE.glob("*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    done = subprocess.run([sys.executable, "make_report.py", "3", "4"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "left out: Write compare_with_sdpa" in done.stdout
    assert not (tmp_path / "report" / "results.json").exists()


def test_the_report_script_measures_with_the_students_own_functions(tmp_path: Path) -> None:
    """Step 4 of the report holds the gaps that the chapter prints; figures of other steps are kept."""
    for folder in (TEMPLATE, BASE):
        for file in folder.glob("*.py"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text('{"exponent": 2.0}')
    subprocess.run([sys.executable, "make_report.py", "4"], cwd=tmp_path, check=True, capture_output=True)
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    gaps = results["equivariance_gaps"]
    assert gaps["plain"] < 1e-15
    assert round(gaps["with_positions"], 4) == 0.3289
    assert gaps["causal"] > 0.1
    assert results["exponent"] == 2.0


def test_an_unknown_step_of_the_report_is_refused(tmp_path: Path) -> None:
    """make_report.py names the steps that have figures."""
    done = subprocess.run(
        [sys.executable, str(TEMPLATE / "make_report.py"), "7"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "choose from 3, 4, 5, 6, 8" in done.stderr
