"""results.json: to Gradescope's published format, with every point once and nothing hidden given away."""

import json
from pathlib import Path

import jsonschema
import pytest

from grader.render.gradescope import to_results, write_gradescope
from tests.grader.lab_of_two import AGREES, BYTES, GREEDY, ROWS, SHIFT, blocked, broken, failed, report_of, wrong_rows

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


def test_points_of_the_rows_add_up_to_the_score_and_steps_carry_none(tmp_path):
    found = results(tmp_path, failed(ROWS, wrong_rows(), AXIS), blocked(SHIFT, ROWS))
    assert sum(r.get("score", 0) for r in found["tests"]) == found["score"] == 60.0
    assert sum(r.get("max_score", 0) for r in found["tests"]) == 100.0
    steps = [r for r in found["tests"] if r["name"].startswith("Step ")]
    assert len(steps) == 2 and not any({"score", "max_score"} & set(r) for r in steps)
    assert [r["number"] for r in found["tests"]] == ["1", "1.1", "1.2", "1.3", "2", "2.1", "2.2"]
    assert found["execution_time"] == 3.2


def test_a_fault_is_told_once_in_full_and_then_by_its_name_and_row(tmp_path):
    found = results(tmp_path, failed(ROWS, wrong_rows(), AXIS), failed(AGREES, wrong_rows(), AXIS))
    assert "The softmax runs over the query axis" in row(found, ROWS.title)["output"]
    assert "<p>Softmax over the queries, as in 1.1.</p>" in row(found, AGREES.title)["output"]


def test_a_hidden_check_is_a_visible_row_that_names_the_fault_and_shows_no_input(tmp_path):
    """A hidden row would hide the student's total; its number, its inputs and its proof stay inside."""
    extra = f"checks:\n  {ROWS.id}: {{visibility: hidden}}\n"
    seen = wrong_rows("row 0 sums to 1.7")
    found = results(tmp_path, failed(ROWS, seen, AXIS, shown=seen), extra=extra)
    hidden = row(found, ROWS.title)
    assert (hidden["visibility"], hidden["status"], hidden["score"]) == ("visible", "failed", 0.0)
    assert "Softmax over the queries" in hidden["output"]
    assert not any(text in hidden["output"] for text in ("1.7", "-0.5", "on 3 inputs", "<pre>"))


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
    assert row(found, ROWS.title)["output"] == "<p>The result is wrong on inputs that are not shown.</p>"


def test_other_visibilities_are_the_platforms_own(tmp_path):
    extra = f"visibility: after_published\nchecks:\n  {ROWS.id}: {{visibility: after_due_date}}\n"
    found = results(tmp_path, extra=extra)
    assert row(found, ROWS.title)["visibility"] == "after_due_date"
    assert row(found, BYTES.title)["visibility"] == "after_published"
    assert all(r["visibility"] == "visible" for r in found["tests"] if r["name"].startswith("Step "))


def test_a_provisional_report_says_so_and_asks_staff_to_rerun(tmp_path):
    """In plain words, with the cause kept for staff; what was not judged is neither red nor worth nothing."""
    found = results(tmp_path, broken(GREEDY, "TypeError: oops"))
    assert (
        "This score is not final." in found["output"]
        and "run the autograder on this submission again" in found["output"]
    )
    assert "oops" not in json.dumps({k: v for k, v in found.items() if k != "extra_data"})
    assert found["extra_data"]["faults"] == {GREEDY.id: "TypeError: oops"} and not found["extra_data"]["final"]
    assert not {"score", "max_score", "status"} & set(row(found, GREEDY.title))


def test_staff_find_seed_versions_and_integrity_where_no_student_looks(tmp_path):
    found = results(tmp_path, integrity=["it spoke in the worker's place"], seed="abc", environment={"python": "3.11"})
    kept = found.pop("extra_data")
    assert (kept["seed"], kept["environment"], len(kept["rubric"])) == ("abc", {"python": "3.11"}, 12)
    assert kept["integrity"][0]["code"] == "tampering"
    assert "tampering" not in json.dumps(found) and "spoke" not in json.dumps(found)


def test_text_of_a_student_is_text(tmp_path):
    fail = wrong_rows("<script>alert(1)</script> & \ud800")
    found = results(tmp_path, failed(ROWS, fail, shown=fail))
    assert "<script>" not in json.dumps(found) and "&lt;script&gt;" in row(found, ROWS.title)["output"]


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
