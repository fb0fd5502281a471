"""What a rubric comes to is told before it counts: each check's worth, and what a student sees at each date."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from grader import rubric_view as view
from grader.rubric import known_checks, load_rubric
from grader.rubric_cli import rubric as command
from tests.grader.lab_of_two import AGREES, BYTES, CHECKS, ROWS, rubric

TESTS = """
import unittest
from gradescope_utils.autograder_utils.decorators import visibility, weight


class Ours(unittest.TestCase):
    @weight(2)
    @visibility("after_published")
    def test_late(self):
        pass

    def test_free(self):
        pass
"""


def said(*words: str) -> str:
    done = CliRunner().invoke(command, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_each_check_has_its_share_of_the_steps_points(tmp_path):
    """As the report has it: weights are shares, a check of weight 0 is not asked, a waived one is passed by all."""
    extra = (
        "checks:\n  step1.softmax.rows: {weight: 2}\n  step2.bytes: {weight: 0}\nwaived: {step1.softmax.shift: why}\n"
    )
    found = {row.id: row for row in view.rows(rubric(tmp_path, extra), CHECKS)}
    assert [found[c.id].points for c in (ROWS, AGREES)] == [30, 15]
    assert (BYTES.id in found, found["step1.softmax.shift"].waived) == (False, True)
    assert (found[ROWS.id].public, found[AGREES.id].public) == (True, False)


def test_all_points_of_the_labs_own_rubric_are_shown_at_once():
    found = view.rows(load_rubric(), known_checks())
    assert round(sum(row.points for row in found), 2) == 100
    assert (view.total_from(found), view.notices(load_rubric(), known_checks())) == (0, [])


def test_what_is_kept_back_is_told_with_what_gradescope_makes_of_it(tmp_path):
    """A row that is shown later hides the total until then; one that is hidden does not."""
    late = rubric(tmp_path, "checks:\n  step2.bytes: {visibility: after_due_date}\n")
    found = view.rows(late, CHECKS)
    assert [sum(row.points for row in found if row.is_shown(when)) for when in range(3)] == [80, 100, 100]
    assert view.total_from(found) == 1
    (notice,) = view.notices(late, CHECKS)
    assert notice.startswith("1 check is shown after_due_date: Gradescope hides a student's total until then")
    both = rubric(tmp_path, f"visibility: after_published\nchecks:\n  {ROWS.id}: {{visibility: after_due_date}}\n")
    assert "5 checks are shown after_due_date or after_published" in view.notices(both, CHECKS)[0]
    assert "hides a student's total until grades are published." in view.notices(both, CHECKS)[0]
    hidden = rubric(tmp_path, "visibility: hidden\n")
    assert (view.total_from(view.rows(hidden, CHECKS)), view.notices(hidden, CHECKS)) == (0, [])


def test_a_step_that_is_left_out_is_told(tmp_path):
    (tmp_path / "mine.yaml").write_text("schema: 1\ntitle: x\npoints: {step1: 20, step2: 10}\n")
    told = said("check", tmp_path / "mine.yaml")
    assert "can be used: 30 points, 2 steps, " in told
    assert told.endswith(
        "Note: Not graded, since points does not list them: step3, step4, step5, step6, step7, step8, step9."
    )


def test_the_courses_own_tests_are_told_with_their_points_and_their_date(tmp_path):
    (tmp_path / "test_ours.py").write_text(TESTS)
    (tmp_path / "mine.yaml").write_text("schema: 1\ntitle: x\npoints: {step1: 0}\ntests: [test_ours.py]\n")
    assert "can be used: 2 points, 1 step, 0 checks, 2 of your own Note: 1 check is shown after_published" in said(
        "check", tmp_path / "mine.yaml"
    )
    shown = said("show", tmp_path / "mine.yaml")
    assert "The course's own tests, 2 points" in shown
    assert "2.00 1 own after_published own.test_ours.Ours.test_late" in shown
    assert "own tests 0.00 of 2 0.00 of 2 2 total hidden hidden shown" in said("preview", tmp_path / "mine.yaml")


def test_rules_that_a_student_meets_are_in_the_preview(tmp_path):
    text = (
        "schema: 1\ntitle: Ours\npoints: {step1: 20}\nshow_hidden_inputs: false\n"
        "submissions:\n  attempts: {most: 5, hours: 24}\n  late: {percent_a_day: 10, most_percent: 50}\n"
        "waived: {step1.attention.memory-layout: why}\n"
        "checks:\n  step1.softmax.agrees: {visibility: hidden}\n"
        "manual:\n  - {step: 9, title: the note, points: 5}\n"
    )
    (tmp_path / "mine.yaml").write_text(text)
    told = said("preview", tmp_path / "mine.yaml")
    for words in (
        "is told in words, without an input",
        "1 check is hidden: the report leaves it out",
        "1 check is waived: passed by all",
        "10 % of the score less for each begun day, 50 % at most",
        "At most 5 submissions in 24 hours",
        "“the note”: 5 points",
    ):
        assert words in told


@pytest.mark.parametrize("name", ["check", "show", "preview"])
def test_a_rubric_that_cannot_be_used_is_refused_with_its_line(tmp_path, name):
    (tmp_path / "mine.yaml").write_text("schema: 1\ntitle: x\npoint: {step1: 20}\n")
    done = CliRunner().invoke(command, [name, str(tmp_path / "mine.yaml")])
    assert done.exit_code == 2
    assert "mine.yaml, line 3: point is unknown here. Mend: write points" in " ".join(done.output.split())
