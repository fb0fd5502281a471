"""report.json: the documented format, whole or not there."""

import dataclasses
import json

import pytest

from grader.render.files import write_atomically
from grader.render.json_file import to_data, to_json, write_json
from tests.grader.lab_of_two import ROWS, failed, passed, report_of, wrong_rows


def test_format_is_the_documented_one(tmp_path):
    report = report_of(tmp_path, failed(ROWS, wrong_rows(), ("softmax-wrong-axis", "seen")), seed="abc")
    data = json.loads(to_json(report))
    assert list(data)[:4] == ["schema", "score", "max_score", "final"]
    assert (data["schema"], data["score"], data["max_score"], data["final"]) == (1, 80.0, 100.0, True)
    assert (data["seed"], data["environment"], data["integrity"]) == ("abc", {}, [])
    step = data["steps"][0]
    assert (step["number"], step["score"], step["max_score"]) == (1, 40.0, 60.0)
    check = step["checks"][0]
    assert {"id", "title", "status", "score", "max_score", "visibility", "seconds", "diagnoses", "output"} <= set(check)
    assert {"code", "message", "evidence", "note"} <= set(check["diagnoses"][0])


def test_a_number_that_json_has_no_word_for_becomes_null(tmp_path):
    report = dataclasses.replace(report_of(tmp_path), subtotal=float("nan"))
    assert to_data(report)["subtotal"] is None
    assert "NaN" not in to_json(report)


def test_any_text_of_a_student_can_be_written(tmp_path):
    fail = wrong_rows("half a character: \ud800, ünï")
    report = report_of(tmp_path, failed(ROWS, fail, shown=fail))
    write_json(report, tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["steps"][0]["checks"][0]["evidence"]["seen"] == "half a character: �, ünï"


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "report.json"
    target.write_text("old")
    write_json(report_of(tmp_path), target)
    assert json.loads(target.read_text())["score"] == 100.0
    assert [f.name for f in folder.iterdir()] == ["report.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "report.json"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert (target.read_text(), [f.name for f in folder.iterdir()]) == ("old", ["report.json"])


def test_seconds_are_the_only_thing_that_a_slower_run_changes(tmp_path):
    slow = passed(ROWS)
    slow.result.seconds = 9.0
    one, other = to_data(report_of(tmp_path)), to_data(report_of(tmp_path, slow))
    other["steps"][0]["checks"][0]["seconds"] = one["steps"][0]["checks"][0]["seconds"]
    assert one == other
