"""JUnit, GitHub Actions and PrairieLearn: each to its published format, and a student's text is never a command."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from grader.render import prairielearn
from grader.render.github import MOST_ANNOTATIONS, add_summary, muted, to_annotations, to_summary
from grader.render.junit import to_junit
from grader.render.prairielearn import to_prairielearn, write_prairielearn
from harness.check import Fail
from harness.subject import Frame
from tests.grader.lab_of_two import AGREES, GREEDY, ROWS, SHIFT, blocked, broken, failed, report_of, wrong_rows

AXIS = ("softmax-wrong-axis", "seen")
EVIL = "::error::x\n::add-mask::y ##[error]z 100%\r| `a` <b>"


def at_a_line(text: str) -> Fail:
    return Fail(text, "1", call="softmax(x)", frames=(Frame("attention.py", 7, "::stop::"),))


def test_junit_has_a_suite_a_step_and_a_case_a_check(tmp_path):
    """failed is a failure, blocked is skipped, the grader's own fault an error; the counts say so."""
    judged = (failed(ROWS, wrong_rows(), AXIS), blocked(SHIFT, ROWS), broken(GREEDY))
    root = ET.fromstring(to_junit(report_of(tmp_path, *judged)).encode())
    assert (root.tag, [s.tag for s in root]) == ("testsuites", ["properties", "testsuite", "testsuite"])
    assert "Softmax over the queries (−40 points)" in root.find(".//property").get("value")
    assert [root.get(k) for k in ("tests", "failures", "skipped", "errors")] == ["5", "1", "1", "1"]
    tags = {case.get("classname"): [child.tag for child in case] for case in root.iter("testcase")}
    assert (tags[ROWS.id], tags[SHIFT.id], tags[GREEDY.id], tags[AGREES.id]) == (
        ["failure"],
        ["skipped"],
        ["error"],
        [],
    )
    failure = root.find(".//failure")
    assert failure.get("type") == "softmax-wrong-axis" and "query axis" in failure.get("message")


def test_junit_is_xml_whatever_a_student_prints(tmp_path):
    fail = wrong_rows("\x00\x1b[31m ]]> & <a> \ud800 \ufffe")
    assert ET.fromstring(to_junit(report_of(tmp_path, failed(ROWS, fail, shown=fail))).encode()) is not None


def test_annotations_are_one_line_each_and_obey_nothing_of_a_students(tmp_path):
    fail = at_a_line(EVIL)
    lines = to_annotations(report_of(tmp_path, failed(ROWS, fail, ("raised", ""), shown=fail)), folder="lab")
    assert len(lines) == 1 and "\n" not in lines[0] and "\r" not in lines[0]
    assert lines[0].startswith("::error file=lab/attention.py,line=7,title=")
    assert "100%25" in lines[0] and "%0A" in lines[0]


def test_a_fault_is_annotated_once(tmp_path):
    fail = wrong_rows()
    judged = [failed(c, fail, AXIS) for c in (ROWS, AGREES, GREEDY)]
    assert len(to_annotations(report_of(tmp_path, *judged))) == 1
    assert MOST_ANNOTATIONS == 10  # what the platform shows of a kind, a step of a job


def test_a_provisional_report_is_a_warning_first(tmp_path):
    lines = to_annotations(report_of(tmp_path, broken(GREEDY), failed(ROWS, wrong_rows(), AXIS)))
    assert lines[0].startswith("::warning ") and "not final" in lines[0] and lines[1].startswith("::error ")


def test_summary_is_a_table_that_no_text_breaks(tmp_path):
    fail = at_a_line(EVIL)
    text = to_summary(report_of(tmp_path, failed(ROWS, fail, ("raised", ""), shown=fail)))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4 and all(line.count("|") == 5 for line in table)
    assert "<b>" not in text and "&lt;b&gt;" in text
    assert "80 of 100 points" in text


HOSTILE = (
    "\n \n# All checks passed!",
    "\n\t\n![x](https://a.example/x.png)",
    "\r \r**All**",
    "see https://a.example, WWW.a.example, a@a.example",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_read_as_markdown_in_a_summary(tmp_path, text):
    """A block of HTML has no line of blanks before its end, and no address is made a link."""
    fail = at_a_line(text)
    summary = to_summary(report_of(tmp_path, failed(ROWS, fail, ("raised", ""), shown=fail)))
    blocks = summary.partition("<details>")[2].split("</details>")[0]
    assert [line for line in re.split("\r\n?|\n", blocks) if not line.strip()] == []
    before = summary.partition("<details>")[0]
    assert not re.search(r"(?i)\w://|(?<!;)www\.|\w@", before)


def test_summary_is_added_to_what_other_steps_wrote(tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("# Build\n")
    add_summary(report_of(tmp_path), file)
    assert file.read_text().startswith("# Build\n## A lab\n")


def test_what_is_printed_meanwhile_stands_between_commands_that_nobody_can_guess(capsys):
    seen = set()
    for _ in range(2):
        with muted():
            print("::error::x")
        start, _, end = capsys.readouterr().out.splitlines()
        token = start.removeprefix("::stop-commands::")
        assert end == f"::{token}::" and len(token) >= 32
        seen.add(token)
    assert len(seen) == 2


def test_prairielearn_gets_a_share_and_a_row_a_check(tmp_path):
    found = to_prairielearn(report_of(tmp_path, failed(ROWS, wrong_rows(), AXIS)))
    assert (found["gradable"], found["score"], len(found["tests"])) == (True, 0.8, 5)
    rows = {r["description"]: r for r in found["tests"]}
    assert (rows[ROWS.id]["points"], rows[ROWS.id]["max_points"]) == (0.0, 20.0)
    assert "query axis" in rows[ROWS.id]["message"]


def test_a_report_that_is_not_final_costs_no_attempt_on_prairielearn(tmp_path):
    found = to_prairielearn(report_of(tmp_path, broken(GREEDY)))
    assert not found["gradable"] and "not final" in found["format_errors"][0]
    assert GREEDY.id not in [r["description"] for r in found["tests"]]


def test_prairielearns_file_stays_below_the_platforms_limit(tmp_path, monkeypatch):
    """Drawn values go first; scores and messages stay."""
    fail = wrong_rows("x" * 1500)
    report = report_of(tmp_path, failed(ROWS, fail, shown=fail))
    monkeypatch.setattr(prairielearn, "MAX_BYTES", 2500)
    write_prairielearn(report, tmp_path / "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert not any(r["output"] for r in found["tests"]) and len(found["tests"]) == 5
