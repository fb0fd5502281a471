"""One submission, from its folder to its report."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from grader.grade import PUBLIC_SECRET, grade
from grader.rubric import load_rubric

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
RUBRIC = load_rubric()


def graded(path: Path, steps: set[int] | None = None, secret: bytes = PUBLIC_SECRET):
    return grade(path, rubric=RUBRIC, steps=steps, secret=secret)


def codes(report, step: int | None = None) -> set[str]:
    found = [
        d.code for s in report.steps if step in (None, s.number) for c in s.checks for d in c.diagnoses if not d.note
    ]
    return {code for code in found if code != "blocked-by"}


def scores(report) -> dict[int, float]:
    return {s.number: s.score for s in report.steps}


def edited(folder: Path, file: str, old: str, new: str) -> Path:
    text = (folder / file).read_text()
    assert old in text, f"{file} has no {old!r}"
    (folder / file).write_text(text.replace(old, new))
    return folder


def without_times(report):
    steps = tuple(
        dataclasses.replace(s, checks=tuple(dataclasses.replace(c, seconds=0.0) for c in s.checks))
        for s in report.steps
    )
    return dataclasses.replace(report, steps=steps)


def test_the_bundled_submission_gets_full_marks(submission):
    """100 of 100, final, and no diagnosis but notes."""
    report = graded(submission())
    assert (report.score, report.max_score, report.provisional, codes(report)) == (100.0, 100.0, (), set())


def test_the_template_gets_nothing_and_says_what_to_write():
    """0 points; every step of code says that its functions are not written yet."""
    report = graded(ROOT / "student_template")
    assert report.subtotal == 0
    assert all(step.summary.startswith("Not written yet") for step in report.steps if step.number <= 8)


@pytest.mark.parametrize("body", ["np.zeros((2, 2))", "np.ones((2, 2))", "args[0]", "0", "None", "(args[0], args[0])"])
def test_functions_that_do_nothing_earn_next_to_nothing(tmp_path, body):
    """Zeros, ones or the first argument, without report files: at most 3 points."""
    from harness import contract

    for module in contract.MODULES:
        lines = ["import numpy as np", ""]
        for f in contract.functions_of(module):
            parameters = ", ".join([*f.required, *(f"{name}=None" for name in f.optional)])
            lines += [f"def {f.name}({parameters}):", f"    args = [{', '.join(f.required)}]", f"    return {body}", ""]
        (tmp_path / f"{module}.py").write_text("\n".join(lines))
    assert graded(tmp_path).subtotal <= 3


def test_a_fault_in_step_1_does_not_cost_the_cache_its_points(submission):
    """Follow-through: step 8 keeps its 20 points, and its checks say that they were judged over a right attention.py."""
    folder = edited(submission(), "attention.py", "Q.shape[-1]", "Q.shape[-2]")
    report = graded(folder)
    assert scores(report)[8] == 20.0 and scores(report)[1] < 18.0
    assert "scale-by-wrong-width" in codes(report, 1)
    assert codes(report, 8) == set()
    assert any(c.followed for s in report.steps if s.number == 8 for c in s.checks)


def test_a_missing_attention_file_costs_its_own_steps_alone(submission):
    """Without attention.py, what builds on it is still judged."""
    report = graded(submission(attention=None))
    assert (scores(report)[1], scores(report)[8]) == (0.0, 20.0)
    assert codes(report, 1) == {"file-missing"}


def test_only_attention_is_graded_as_far_as_it_goes(submission):
    """Steps 1 and 2 in full, the others told to be missing, nothing raised."""
    folder = submission(kv_cache=None, experiments=None)
    shutil.rmtree(folder / "report")
    report = graded(folder)
    assert (scores(report)[1], scores(report)[2], scores(report)[5]) == (18.0, 10.0, 0.0)
    assert "file-missing" in codes(report, 5) and report.score is not None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def softmax(:\n", "import-failed"),
        ("\xff\xfe", "import-failed"),
        ("raise RuntimeError('at import')\n", "import-failed"),
        ("def softmax(x):\n    return x\n", "signature-mismatch"),
        ("def soft_max(x, axis=-1):\n    return x\n", "name-missing"),
        ("def softmax(x, axis=-1):\n    return [1.0]\n", "not-an-array"),
        ("def softmax(x, axis=-1):\n    return None\n", "not-an-array"),
        ("import numpy as np\ndef softmax(x, axis=-1):\n    e = np.exp(x - x.max(axis, keepdims=True))\n    return (e / e.sum(axis, keepdims=True)).astype('float16')\n", "wrong-dtype"),
        ("import numpy as np\ndef softmax(x, axis=-1):\n    return np.array([None] * 3)\n", "not-an-array"),
        ("import torch\ndef softmax(x, axis=-1):\n    return torch.softmax(x, axis)\n", "forbidden-library"),
        ("def softmax(x, axis=-1):\n    import torch\n    return torch.softmax(x, axis)\n", "forbidden-library"),
    ],
)  # fmt: skip
def test_a_broken_file_is_a_clear_finding(submission, text, code):
    """Syntax, encoding, signature, lists, None, object arrays, narrow dtypes, torch: each by its code, and nothing is lost."""
    folder = submission()
    (folder / "attention.py").write_bytes(text.encode("latin-1"))
    report = graded(folder, {1})
    assert code in codes(report, 1)
    assert not any(c.status == "not-run" for s in report.steps for c in s.checks)


@pytest.mark.parametrize("files", [{}, {"main.py": "print('a lab of another course')\n", "data.csv": "1,2\n"}])
def test_an_empty_folder_and_another_labs_folder_are_graded_with_findings(tmp_path, files):
    """0 points, three files told to be missing, exit as any grading."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    report = graded(tmp_path)
    assert report.subtotal == 0
    assert {f["code"] for f in report.findings} == {"file-missing", "nothing-gradable"}


def test_the_same_seed_gives_the_same_report(submission):
    """Two gradings are equal but for times; another secret draws other cases and gives the same score."""
    folder = edited(submission(), "attention.py", "Q.shape[-1]", "Q.shape[-2]")
    first, second, other = (graded(folder, {1, 2}, secret) for secret in (b"a", b"a", b"b"))
    assert without_times(first) == without_times(second)
    assert scores(first) == scores(other) and first.seed != other.seed


def test_the_report_so_far_is_given_after_every_step(submission):
    """Each report is whole: what is not judged yet says so, and the last one is final."""
    seen = []
    last = grade(submission(), rubric=RUBRIC, on_step=seen.append)
    assert len(seen) >= 9
    assert all(r.provisional for r in seen[:-1]) and not last.provisional
    judged = [sum(c.status != "not-run" for s in r.steps for c in s.checks) for r in seen]
    assert judged == sorted(judged)


def test_two_faults_are_both_named(submission):
    """A missing scale and an inverted mask."""
    folder = edited(submission(), "attention.py", "np.where(mask", "np.where(np.logical_not(mask)")
    folder = edited(folder, "attention.py", "Q.shape[-1]", "1.0")
    report = graded(folder, {1, 7})
    assert {"scale-missing", "mask-inverted"} <= codes(report)


def test_an_unknown_fault_is_unrecognised_and_nothing_else(submission):
    """No code of the catalogue is named for a fault that none describes."""
    folder = edited(submission(), "attention.py", "* scale  #", "* scale * np.log(K.shape[-2] + 1)  #")
    assert codes(graded(folder, {1, 2})) == {"unrecognised"}


def test_a_check_that_breaks_makes_the_report_provisional(submission, monkeypatch):
    """The grader's own fault lowers no score: the final score is withheld, and staff are told which check it was."""
    from harness.check import CHECKS

    def broken(subject):
        raise ZeroDivisionError("the check's own bug")

    name = next(i for i, c in CHECKS.items() if c.step == 2)
    monkeypatch.setitem(CHECKS, name, dataclasses.replace(CHECKS[name], run=broken, cases=None))
    report = graded(submission(), {2})
    assert report.score is None and report.provisional
    assert "ZeroDivisionError" in report.faults[name]
