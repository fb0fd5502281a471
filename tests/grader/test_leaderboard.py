"""A rubric's leaderboard: columns that were measured, and none that were not."""

from __future__ import annotations

import dataclasses

import pytest

import grader.grade  # which registers every check
from grader.leaderboard import COLUMNS, rows
from grader.render.gradescope import to_results
from grader.report import Judged
from grader.rubric import RubricError, load_rubric, schema
from harness.check import CHECKS, CheckResult
from tests.grader.lab_of_two import rubric


def measured(name: str, **curves) -> Judged:
    return Judged(CHECKS[name], CheckResult(CHECKS[name], "passed", curves=tuple(curves.items())))


def test_every_column_is_measured_by_a_check_and_known_to_the_schema():
    assert {c.check for c in COLUMNS.values()} <= set(CHECKS)
    assert schema()["properties"]["leaderboard"]["items"]["enum"] == list(COLUMNS)


def test_columns_are_what_was_measured():
    """The last token that both were measured at; the slope on log-log axes."""
    judged = [
        measured("step8.cost.decode", cached={8: 1.0, 16: 1.0, 32: 9.0}, recomputed={8: 2.0, 16: 7.0}),
        measured("step5.cost.attention", seconds={64: 1.0, 128: 4.0, 256: 16.0}),
    ]
    assert rows(["speed-up", "exponent"], judged) == (("speed-up", 7.0, "desc"), ("exponent", 2.0, "asc"))
    assert rows(["exponent"], judged) == (("exponent", 2.0, "asc"),)


@pytest.mark.parametrize(
    "judged",
    [
        [],
        [measured("step5.cost.attention", seconds={64: 1.0, 128: 0.0})],
        [measured("step8.cost.decode", cached={8: 0.0}, recomputed={8: 1.0})],
    ],
)
def test_what_was_not_measured_is_no_row(judged):
    assert rows(["speed-up", "exponent"], judged) == ()


def test_a_column_that_nobody_knows_is_told(tmp_path):
    with pytest.raises(RubricError, match="speed-up or exponent"):
        rubric(tmp_path, "leaderboard: [fastest]\n")


@pytest.mark.slow
def test_a_grading_measures_what_its_leaderboard_asks_for_and_nothing_else(submission):
    """For no points: the score stays."""
    report = grader.grade.grade(
        submission(), rubric=dataclasses.replace(load_rubric(), leaderboard=("exponent",)), steps={5}
    )
    assert [row[0] for row in report.leaderboard] == ["exponent"] and report.subtotal == 10.0
    assert 1.0 < report.leaderboard[0][1] < 3.0
    assert to_results(report)["leaderboard"][0]["order"] == "asc"
    assert [c.id for s in report.steps for c in s.checks if ".cost." in c.id] == ["step5.cost.attention"]
