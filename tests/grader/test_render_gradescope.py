"""results.json: to Gradescope's published format, with every point once and nothing hidden given away."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from grader.policy import Metadata
from grader.render.gradescope import to_results, write_gradescope
from grader.rubric import load_rubric
from tests.grader.lab_of_two import (
    AGREES,
    BYTES,
    CHECKS,
    GREEDY,
    ROWS,
    SHIFT,
    blocked,
    broken,
    failed,
    report_of,
    wrong_rows,
)

SCHEMA = json.loads(Path(__file__).with_name("gradescope.schema.json").read_text())
AXIS = ("softmax-wrong-axis", "on 3 inputs")


def results(tmp_path, *judged, **options):
    found = to_results(report_of(tmp_path, *judged, **options), seconds=3.21)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def row(found, name):
    return next(r for r in found["tests"] if r["name"] == name)


def test_schema_refuses_what_the_platform_refuses():
    """No score anywhere, an unknown visibility, a status of our own."""
    for bad in (
        {},
        {"tests": [{"name": "x"}]},
        {"score": 1, "visibility": "secret"},
        {"score": 1, "tests": [{"status": "blocked"}]},
    ):
        assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(bad))


def test_a_row_a_step_carries_the_points_and_they_add_up_to_the_score(tmp_path):
    found = results(tmp_path, failed(ROWS, wrong_rows(), AXIS), blocked(SHIFT, ROWS))
    assert sum(r.get("score", 0) for r in found["tests"]) == found["score"] == 60.0
    assert sum(r.get("max_score", 0) for r in found["tests"]) == 100.0
    assert [r["number"] for r in found["tests"]] == ["1", "1.1", "2"]
    assert [r.get("score") for r in found["tests"]] == [20.0, None, 40.0]
    assert found["execution_time"] == 3.2


def test_a_mistake_is_told_once_in_full_beneath_its_step_and_by_its_name_at_the_top(tmp_path):
    found = results(tmp_path, failed(ROWS, wrong_rows(), AXIS, shown=wrong_rows()), failed(AGREES, wrong_rows(), AXIS))
    told = row(found, "Mistake: Softmax over the queries (−40 points)")
    assert "The softmax runs over the query axis" in told["output"] and "row 0 sums to 1.7" in told["output"]
    assert "<li>Softmax over the queries: −40 points, seen first in step 1.</li>" in found["output"]
    assert found["tests"][0]["output"].count("Softmax over the queries (2 checks)</summary>") == 1
    assert f"<li>{AGREES.title}</li>" in found["tests"][0]["output"]
    assert json.dumps(found).count("The softmax runs over the query axis") == 1


def test_a_blocked_check_says_what_it_waits_for_once(tmp_path):
    found = results(tmp_path, failed(ROWS, wrong_rows(), AXIS), blocked(SHIFT, ROWS))
    assert found["tests"][0]["output"].count("Every row sums to 1”") == 1
    assert f"Every row sums to 1”</summary><ul><li>{SHIFT.title}</li></ul>" in found["tests"][0]["output"]


def test_many_checks_of_one_cause_are_folded_away(tmp_path):
    """Three stand open, more are a line that can be opened."""
    three = results(tmp_path, *(failed(c, wrong_rows(), AXIS) for c in (ROWS, SHIFT, AGREES)))
    assert "<details open><summary>Softmax over the queries (3 checks)" in three["tests"][0]["output"]
    one = report_of(tmp_path, failed(ROWS, wrong_rows(), AXIS)).steps[0]
    four = to_results(replace(report_of(tmp_path), steps=(replace(one, checks=one.checks[:1] * 4),)))
    assert "<details><summary>Softmax over the queries (4 checks)" in four["tests"][0]["output"]


def test_a_hidden_check_counts_in_its_steps_row_which_names_the_fault_and_shows_no_input(tmp_path):
    """A hidden row would hide the student's total; its number, its inputs and its proof stay inside."""
    extra = f"checks:\n  {ROWS.id}: {{visibility: hidden}}\n"
    seen = wrong_rows("row 0 sums to 1.7")
    found = results(tmp_path, failed(ROWS, seen, AXIS, shown=seen), extra=extra)
    step = found["tests"][0]
    assert (step["visibility"], step["status"], step["score"]) == ("visible", "failed", 40.0)
    assert "Softmax over the queries" in step["output"]
    assert not any(text in json.dumps(found["tests"]) for text in ("1.7", "-0.5", "on 3 inputs", "<pre>"))


@pytest.mark.parametrize("code", ["raised", "wrong-shape", "not-finite", "wrong-dtype", "not-an-array"])
def test_a_hidden_check_keeps_what_was_seen_of_a_generic_fault_too(tmp_path, code):
    extra = f"checks:\n  {ROWS.id}: {{visibility: hidden}}\n"
    seen = wrong_rows("index 41 at [0, 3]")
    found = results(tmp_path, failed(ROWS, seen, (code, ""), shown=seen), extra=extra)
    assert "41" not in json.dumps(found["tests"])


def test_a_hidden_check_that_nothing_explains_says_only_that_it_failed(tmp_path):
    extra = f"checks:\n  {ROWS.id}: {{visibility: hidden}}\n"
    seen = wrong_rows("row 0 sums to 1.7")
    found = results(tmp_path, failed(ROWS, seen, shown=seen), extra=extra)
    assert f"Wrong on inputs that are not shown</summary><ul><li>{ROWS.title}</li>" in found["tests"][0]["output"]
    assert "1.7" not in json.dumps(found["tests"])


def test_other_visibilities_are_the_platforms_own(tmp_path):
    extra = f"visibility: after_published\nchecks:\n  {ROWS.id}: {{visibility: after_due_date}}\n"
    found = results(tmp_path, extra=extra)
    assert row(found, ROWS.title)["visibility"] == "after_due_date"
    assert row(found, BYTES.title)["visibility"] == "after_published"
    steps = [r for r in found["tests"] if r["name"].startswith("Step ")]
    assert all(r["visibility"] == "visible" and r["max_score"] == 0 for r in steps)


def test_a_total_that_the_platform_hides_stands_in_no_text(tmp_path):
    """What lateness takes off is told in percent, what is shown later is not counted, and no sum gives it away."""
    extra = f"checks:\n  {BYTES.id}: {{visibility: after_due_date}}\nsubmissions: {{late: {{percent_a_day: 10}}}}\n"
    report = report_of(tmp_path, failed(BYTES, wrong_rows()), failed(ROWS, wrong_rows(), AXIS), extra=extra)
    now = datetime(2026, 3, 6, tzinfo=UTC)
    about = Metadata(created=now, due=now - timedelta(hours=3))
    found = to_results(report, policy=load_rubric(tmp_path / "rubric.yaml", CHECKS).submissions, about=about)
    assert (report.score, found["score"]) == (60.0, 54.0)
    assert (
        "60 of 80 points in what is shown now. The rest and the total are shown after the due date." in found["output"]
    )
    assert "10 percent less.</p>" in found["output"] and "54" not in found["output"]
    later = to_results(report_of(tmp_path, broken(GREEDY), extra="visibility: after_published\n"))
    assert "0 of 0 points in what is shown now" in later["output"] and "80" not in later["output"]
    assert "when grades are published" in later["output"]


def test_a_provisional_report_says_so_and_asks_staff_to_rerun(tmp_path):
    """In plain words, with the cause kept for staff; what was not judged is neither red nor worth nothing."""
    found = results(tmp_path, broken(GREEDY, "TypeError: oops"))
    assert (
        "This score is not final." in found["output"]
        and "run the autograder on this submission again" in found["output"]
    )
    assert "oops" not in json.dumps({k: v for k, v in found.items() if k != "extra_data"})
    assert found["extra_data"]["faults"] == {GREEDY.id: "TypeError: oops"} and not found["extra_data"]["final"]
    assert f"Not judged, which costs nothing</summary><ul><li>{GREEDY.title}</li>" in found["tests"][1]["output"]


def test_staff_find_seed_versions_and_integrity_where_no_student_looks(tmp_path):
    found = results(tmp_path, integrity=["it spoke in the worker's place"], seed="abc", environment={"python": "3.11"})
    kept = found.pop("extra_data")
    assert (kept["seed"], kept["environment"], len(kept["rubric"])) == ("abc", {"python": "3.11"}, 12)
    assert kept["integrity"][0]["code"] == "tampering"
    assert "tampering" not in json.dumps(found) and "spoke" not in json.dumps(found)


def test_text_of_a_student_is_text(tmp_path):
    fail = wrong_rows("<script>alert(1)</script> & \ud800")
    found = results(tmp_path, failed(ROWS, fail, shown=fail))
    assert "<script>" not in json.dumps(found) and "&lt;script&gt;" in found["tests"][0]["output"]


def test_what_a_person_grades_is_a_row_without_points(tmp_path):
    found = results(tmp_path, extra="manual:\n  - {step: 2, title: a note, points: 5}\n")
    by_hand = row(found, "Graded by a person: a note")
    assert "Up to 5 points" in by_hand["output"] and "score" not in by_hand


def test_the_file_is_replaced_whole(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.json").write_text("old")
    write_gradescope(report_of(tmp_path), folder / "results.json", 1.0)
    assert json.loads((folder / "results.json").read_text())["score"] == 100.0
    assert [f.name for f in folder.iterdir()] == ["results.json"]
