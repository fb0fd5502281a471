"""What a report says of evidence: points, words, and nothing of hidden inputs."""

import dataclasses

import numpy as np
import pytest

from grader.render.json_file import to_json
from grader.report import NOT_YET, Judged, build_report, clean, tables
from harness.check import Fail
from harness.loader import Finding
from harness.messages import MESSAGES
from tests.grader.lab_of_two import (
    AGREES,
    BYTES,
    CHECKS,
    GREEDY,
    ROWS,
    SHIFT,
    all_passed,
    blocked,
    broken,
    failed,
    passed,
    report_of,
    rubric,
    stub,
    wrong_rows,
)


def check_of(report, id):
    return next(c for s in report.steps for c in s.checks if c.id == id)


def test_all_passed_is_exactly_the_full_mark(tmp_path):
    report = report_of(tmp_path)
    assert (report.score, report.max_score, report.final) == (100.0, 100.0, True)
    assert [s.status for s in report.steps] == ["passed", "passed"]
    assert all(c.diagnoses == () for s in report.steps for c in s.checks)


def test_only_passed_checks_earn(tmp_path):
    wrong = failed(ROWS, wrong_rows(), ("softmax-wrong-axis", ""))
    report = report_of(tmp_path, wrong, blocked(SHIFT, ROWS))
    assert [(s.score, s.max_score) for s in report.steps] == [(20.0, 60.0), (40.0, 40.0)]
    assert report.score == 60.0


def test_weights_split_a_steps_points(tmp_path):
    report = report_of(tmp_path, extra="checks:\n  step2.bytes: {weight: 3}\n")
    assert [c.max_score for c in report.steps[1].checks] == [10.0, 30.0]


def test_parts_of_a_step_add_up_to_it_in_hundredths(tmp_path):
    report = report_of(tmp_path, extra="checks:\n  step1.softmax.rows: {weight: 0.7}\n")
    assert sum(round(c.max_score * 100) for c in report.steps[0].checks) == 6000
    assert report.score == 100.0


def test_a_named_fault_has_the_catalogues_words_and_its_proof(tmp_path):
    report = report_of(tmp_path, failed(ROWS, wrong_rows(), ("softmax-wrong-axis", "on three probes")))
    (fault,) = check_of(report, ROWS.id).diagnoses
    words = MESSAGES["softmax-wrong-axis"]
    assert (fault.code, fault.title, fault.message, fault.look) == (
        "softmax-wrong-axis",
        words.short,
        words.says,
        words.look,
    )
    assert (fault.evidence, fault.chapter, fault.note) == ("on three probes", words.chapter, False)


def test_two_faults_are_both_named(tmp_path):
    codes = (("mask-multiplied", ""), ("scale-by-dk", ""))
    report = report_of(tmp_path, failed(AGREES, wrong_rows(), *codes))
    assert [d.code for d in check_of(report, AGREES.id).diagnoses] == ["mask-multiplied", "scale-by-dk"]


def test_a_failure_without_a_code_is_unrecognised(tmp_path):
    report = report_of(tmp_path, failed(ROWS, wrong_rows()))
    assert [d.code for d in check_of(report, ROWS.id).diagnoses] == ["unrecognised"]


def test_a_code_that_the_check_saw_itself_is_used(tmp_path):
    report = report_of(tmp_path, failed(ROWS, Fail("changed", code="input-mutated")))
    assert [d.code for d in check_of(report, ROWS.id).diagnoses] == ["input-mutated"]


def test_a_blocked_check_names_the_failed_one_that_it_waits_for(tmp_path):
    report = report_of(tmp_path, failed(ROWS, wrong_rows()), blocked(SHIFT, ROWS), blocked(AGREES, SHIFT))
    for check in (SHIFT, AGREES):
        (fault,) = check_of(report, check.id).diagnoses
        assert (fault.code, fault.message) == ("blocked-by", "Not judged: it stands on “Every row sums to 1”.")


def test_hidden_inputs_and_what_came_of_them_are_in_no_report(tmp_path):
    secret = Fail(
        "row 0 sums to 424242", "1 of 424242", call="softmax(424242)", inputs={"x": np.full((2, 2), 424242.0)}
    )
    report = report_of(tmp_path, failed(ROWS, secret, ("softmax-wrong-axis", "")))
    assert "424242" not in to_json(report) + repr(report)
    assert check_of(report, ROWS.id).output == "Seen on inputs that are not shown."


def test_what_the_public_seed_showed_again_is_shown(tmp_path):
    report = report_of(tmp_path, failed(ROWS, wrong_rows("hidden"), shown=wrong_rows("row 1 sums to 2")))
    check = check_of(report, ROWS.id)
    assert (check.evidence.seen, check.evidence.expected) == ("row 1 sums to 2", "1")
    assert check.evidence.inputs[0].rows == (("1", "-0.5"), ("nan", "inf"))
    assert "row 1 sums to 2" in check.output
    assert "hidden" not in check.output


def test_a_course_may_keep_inputs_of_hidden_checks_back(tmp_path):
    extra = "show_hidden_inputs: false\n"
    report = report_of(
        tmp_path,
        failed(AGREES, wrong_rows(), shown=wrong_rows()),
        failed(ROWS, wrong_rows(), shown=wrong_rows()),
        extra=extra,
    )
    assert check_of(report, AGREES.id).evidence.inputs == check_of(report, AGREES.id).evidence.got == ()
    assert check_of(report, AGREES.id).evidence.call == ""
    assert len(check_of(report, ROWS.id).evidence.inputs) == 1  # students have this check


def test_a_stub_reads_as_not_written_and_says_what_to_write(tmp_path):
    unwritten = failed(ROWS, stub(), shown=stub())
    report = report_of(tmp_path, unwritten, blocked(SHIFT, ROWS), failed(AGREES, stub("scaled_dot_product_attention")))
    (fault,) = check_of(report, ROWS.id).diagnoses
    assert (fault.code, fault.title) == ("raised", "Not written yet")
    assert fault.message == "softmax(x, axis=…) is not written yet."
    assert fault.look == "Write softmax. attention.py, line 7."
    assert report.steps[0].summary == "Not written yet: softmax, scaled_dot_product_attention"


def test_a_function_behind_a_stub_is_to_be_written_too_unless_it_is_seen_to_work(tmp_path):
    waiting = blocked(BYTES, GREEDY)
    unwritten = failed(GREEDY, stub("generate"))
    report = report_of(tmp_path, unwritten, waiting)
    assert "kv_cache_bytes" in report.steps[1].summary
    works = dataclasses.replace(BYTES, id="step2.bytes.again")
    report = build_report([unwritten, waiting, passed(works)], rubric(tmp_path))
    assert "kv_cache_bytes" not in report.steps[0].summary


def test_an_exception_is_told_with_the_students_own_line(tmp_path):
    shown = Fail("ValueError: no at attention.py, line 3: x.T", "a result", code="raised", call="softmax(…)")
    report = report_of(tmp_path, failed(ROWS, Fail("ValueError: 42"), ("raised", ""), shown=shown))
    (fault,) = check_of(report, ROWS.id).diagnoses
    assert fault.message == "The call ended with an exception. ValueError: no at attention.py, line 3: x.T."


def test_a_finding_about_a_file_is_the_whole_message(tmp_path):
    shown = Fail("attention.py has no softmax(x, axis=…); soft_max is there, and looks like it.", code="name-missing")
    report = report_of(tmp_path, failed(ROWS, shown, shown=shown))
    assert check_of(report, ROWS.id).diagnoses[0].message == shown.seen


def test_a_limit_is_named_with_its_number_and_how_far_the_check_came(tmp_path):
    extra = "limits: {cpu_seconds: 7, idle_seconds: 2}\n"
    report = report_of(tmp_path, failed(ROWS, Fail("", code="timeout"), ("timeout", ""), examples=13), extra=extra)
    message = check_of(report, ROWS.id).diagnoses[0].message
    assert "7 s of CPU time, and 2 s without progress" in message
    assert "12 inputs before it passed" in message


def test_a_note_costs_nothing(tmp_path):
    noted = passed(ROWS)
    noted.result.notes = (("wrong-dtype", "float64 for float32: right."),)
    report = report_of(tmp_path, noted)
    (note,) = check_of(report, ROWS.id).diagnoses
    assert (note.code, note.message, note.note) == ("wrong-dtype", "float64 for float32: right.", True)
    assert check_of(report, ROWS.id).faults == ()
    assert report.score == 100.0


def test_a_followed_check_says_so(tmp_path):
    report = report_of(tmp_path, passed(GREEDY, followed=True))
    assert check_of(report, GREEDY.id).followed
    assert "right attention.py" in check_of(report, GREEDY.id).output
    assert report.score == 100.0


def test_a_check_that_broke_withholds_the_score_and_tells_staff(tmp_path):
    report = report_of(tmp_path, broken(ROWS), broken(SHIFT, ROWS.id), failed(BYTES, wrong_rows()))
    assert (report.score, report.final, report.subtotal) == (None, False, 40.0)
    assert report.provisional == ("2 checks could not be judged, which is the grader's own fault and lowers no score",)
    assert report.faults == {ROWS.id: "TypeError: oops"}
    assert check_of(report, ROWS.id).diagnoses == ()
    assert "TypeError" not in check_of(report, ROWS.id).output


def test_a_check_that_is_worth_nothing_withholds_no_score(tmp_path):
    """One that only measures could not be run: staff are told, and the score stands."""
    report = report_of(tmp_path, broken(BYTES), extra="checks:\n  step2.bytes: {weight: 0}\n")
    assert (report.provisional, report.score) == ((), 100.0)
    assert BYTES.id in report.faults


def test_a_report_on_the_way_is_provisional(tmp_path):
    report = report_of(tmp_path, broken(GREEDY, NOT_YET), broken(BYTES, NOT_YET))
    assert (report.score, report.subtotal, report.faults) == (None, 60.0, {})
    assert report.provisional == ("the grading has not come to its end",)


def test_steps_left_out_withhold_the_score(tmp_path):
    report = build_report([j for j in all_passed() if j.check.step == 1], rubric(tmp_path))
    assert (report.score, report.subtotal, report.max_score) == (None, 60.0, 100.0)
    assert report.provisional == ("step 2 not graded",)


def test_findings_and_integrity_are_kept(tmp_path):
    finding = Finding("file-missing", "kv_cache", "kv_cache.py is missing.")
    report = report_of(tmp_path, findings=[finding], integrity=["spoke on the wire"], seed="abc")
    assert report.findings[0]["message"] == "kv_cache.py is missing."
    assert report.integrity == ({"code": "tampering", "message": "spoke on the wire"},)


def test_visibility_is_the_rubrics(tmp_path):
    report = report_of(tmp_path, extra="checks:\n  step2.bytes: {visibility: hidden}\n")
    assert [c.visibility for c in report.steps[1].checks] == ["visible", "hidden"]


def test_the_same_evidence_gives_the_same_report(tmp_path):
    def make():
        return to_json(report_of(tmp_path, failed(ROWS, wrong_rows(), shown=wrong_rows())))

    assert make() == make()


# -- values as text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a\x1b[31mb", "a�[31mb"),
        ("right\u202eleft", "right�left"),
        ("half\ud800", "half�"),
        ("two\nlines\tkept", "two\nlines\tkept"),
        ("x" * 3000, "x" * 1999 + "…"),
    ],
)
def test_text_is_made_safe_to_print(text, safe):
    assert clean(text) == safe


@pytest.mark.parametrize(
    ("value", "part", "rows"),
    [
        (np.array(1.5), "", (("1.5",),)),
        (np.array([1, 2]), "", (("1", "2"),)),
        (np.array([[True, False]]), "", (("True", "False"),)),
        (np.zeros((2, 1, 1)), "[0]", (("0",),)),
        (np.zeros((0, 3)), "", ()),
        (np.ones((1, 9)), "the first 8 columns", (("1",) * 8,)),
        ([1, 2.5], "", (("1", "2.5"),)),
        ("text", "", (("'text'",),)),
        (None, "", (("None",),)),
    ],
)
def test_a_value_is_drawn_as_rows_of_text(value, part, rows):
    (table,) = tables("x", value)
    assert (table.part, table.rows) == (part, rows)


def test_a_pair_of_arrays_is_two_tables():
    assert [t.name for t in tables("result", (np.zeros(1), np.ones(1)))] == ["result, part 1", "result, part 2"]


def test_judged_holds_no_code_until_one_is_found():
    judged = Judged(CHECKS[ROWS.id], passed(ROWS).result)
    assert (judged.codes, judged.followed, judged.shown) == ((), False, None)
