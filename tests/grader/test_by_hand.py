"""What staff decide beside the checks: a check waived for all, a result set by hand, a time limit."""

from __future__ import annotations

import dataclasses

import pytest

from grader.grade import grade
from grader.render.gradescope import to_results
from grader.report import TIME_UP
from grader.rubric import Override, load_rubric
from tests.grader.lab_of_two import BYTES, GREEDY, ROWS, broken, failed, report_of, wrong_rows

ANN = ("1234", "Ann@example.edu")


def check_of(report, wanted):
    return next(c for s in report.steps for c in s.checks if c.id == wanted.id)


def override(**more) -> str:
    told = ", ".join(f"{k}: {v}" for k, v in more.items())
    return f"overrides:\n  - {{student: ann@example.edu, reason: agreed in office hours, {told}}}\n"


def test_an_override_gives_the_points_to_that_student_alone(tmp_path):
    """By any of a student's names, in whatever case; what was found stays beside it, and the reason is told."""
    fault = failed(ROWS, wrong_rows(), ("softmax-wrong-axis", ""))
    extra = override(check=ROWS.id)
    assert check_of(report_of(tmp_path, fault, extra=extra), ROWS).score == 0
    assert check_of(report_of(tmp_path, fault, extra=extra, students=["other"]), ROWS).score == 0
    report = report_of(tmp_path, fault, extra=extra, students=ANN)
    mine = check_of(report, ROWS)
    assert (mine.score, mine.status, report.score) == (20.0, "passed", 100.0)
    assert "agreed in office hours" in mine.diagnoses[0].message and mine.faults[0].code == "softmax-wrong-axis"


def test_a_part_of_the_points_can_be_given(tmp_path):
    report = report_of(tmp_path, extra=override(check=ROWS.id, points=7.5), students=ANN)
    assert (check_of(report, ROWS).score, check_of(report, ROWS).status, report.score) == (7.5, "failed", 87.5)


def test_an_override_of_a_check_that_could_not_be_judged_makes_the_report_final(tmp_path):
    assert report_of(tmp_path, broken(GREEDY), extra=override(check=GREEDY.id), students=ANN).score == 100
    assert (
        report_of(tmp_path, broken(GREEDY), broken(BYTES), extra=override(check=GREEDY.id), students=ANN).score is None
    )


def test_the_whole_score_can_be_set(tmp_path):
    report = report_of(tmp_path, broken(GREEDY), extra=override(points=77), students=ANN)
    assert (report.score, report.final) == (77, True)
    assert "agreed in office hours" in to_results(report)["output"]


def test_a_hidden_check_still_tells_its_student_why_staff_gave_points(tmp_path):
    extra = f"checks:\n  {ROWS.id}: {{visibility: hidden}}\n" + override(check=ROWS.id)
    rows = to_results(report_of(tmp_path, extra=extra, students=ANN))["tests"]
    assert "agreed in office hours" in rows[0]["output"]


@pytest.mark.slow
def test_a_waived_check_is_not_asked_and_pays_everybody(submission, monkeypatch):
    """Even a check that is broken itself: what stands on it is judged, and the report is final for it."""
    from harness.check import CHECKS

    name = "step2.attention"

    def broken(*_, **__):
        raise ZeroDivisionError("the check's own bug")

    monkeypatch.setitem(CHECKS, name, dataclasses.replace(CHECKS[name], run=broken, cases=None))
    rubric = dataclasses.replace(load_rubric(), waived={name: "the handout had another table"})
    report = grade(submission(), rubric=rubric, steps={2})
    waived = next(c for s in report.steps for c in s.checks if c.id == name)
    assert (waived.status, waived.score) == ("passed", waived.max_score)
    assert waived.output == "Waived for all: the handout had another table"
    assert not report.faults


@pytest.mark.slow
def test_near_its_time_limit_a_grading_says_what_it_did_not_judge(submission):
    """A softmax that never ends: its check has no verdict, nothing is the grader's fault, the total is withheld."""
    folder = submission(attention="def softmax(x, axis=-1):\n    while True:\n        pass\n")
    report = grade(folder, rubric=load_rubric(), steps={1, 2}, time_limit=2.0)
    checks = [c for s in report.steps for c in s.checks]
    asked = [c for c in checks if c.id.startswith("step1.softmax")]
    assert {c.status for c in asked} == {"not-run"} and all(c.output.startswith("Not judged, since") for c in asked)
    assert report.score is None and not report.faults
    assert any(TIME_UP in reason for reason in report.provisional)
    assert not any("own fault" in reason for reason in report.provisional)
    assert "not final" in to_results(report)["output"]


@pytest.mark.slow
def test_a_time_limit_that_is_far_changes_nothing(submission):
    one, other = (grade(submission(), rubric=load_rubric(), steps={7}, time_limit=t) for t in (None, 3600.0))
    assert [s.score for s in one.steps] == [s.score for s in other.steps] and one.provisional == other.provisional


def test_names_are_compared_as_people_write_them():
    rubric = dataclasses.replace(load_rubric(), overrides=(Override(" Ann@Example.edu ", "x", points=1),))
    assert rubric.overrides_of(["ann@example.EDU"]) and not rubric.overrides_of(["bob"])
