"""Reports made anew under another rubric: equal to what a rerun gives, applied whole, and taken back byte by byte."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from grader import evidence
from grader.course import batch
from grader.course.alone import alone
from grader.course.cli import rescore_command
from grader.course.rescore import undo
from grader.evidence import Evidence
from grader.grade import grade
from grader.render.html import to_html
from grader.render.json_file import to_data
from grader.report import Report
from grader.rubric import load_rubric
from tests.conftest import ROOT
from tests.labs.attention.edits import named, write

pytestmark = pytest.mark.slow
STEPS = {1, 2, 7}
RUBRIC = yaml.safe_load((ROOT / "rubrics" / "lab.yaml").read_text())
RUBRIC["points"] = {name: points for name, points in RUBRIC["points"].items() if int(name[4:]) in STEPS}


def written(tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "rubric.yaml"
    file.write_text(yaml.safe_dump({**RUBRIC, **changes}))
    return file


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict[str, tuple[Path, Report, Evidence]]:
    """Some submissions, their reports, and what these were made of, read back from a file."""
    found = {}
    for name in ("scale-left-out", "k-capital-t", "template"):
        folder = tmp_path_factory.mktemp("in") / name
        if name == "template":
            shutil.copytree(ROOT / "student_template", folder, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            write(named()[name], folder)
        kept: list[Evidence] = []
        report = grade(folder, rubric=load_rubric(), secret=b"ours", steps=STEPS, on_evidence=kept.append)
        file = folder.parent / "evidence.json"
        file.write_bytes(evidence.to_bytes(kept[0]))
        found[name] = (folder, report, evidence.from_file(file))
    return found


def test_the_same_rubric_makes_the_same_report_of_it(graded):
    for _, report, kept in graded.values():
        again = evidence.report_of(kept, load_rubric())
        assert to_data(again) == to_data(report)
        assert to_html(again) == to_html(report)


CHANGES: dict[str, dict[str, Any]] = {
    "points": {"points": {**RUBRIC["points"], "step1": 30, "step7": 4}},
    "a weight": {"checks": {"step1.attention.scale": {"weight": 9}, "step1.softmax.axis": {"weight": 0}}},
    "words": {"messages": {"scale-missing": {"says": "Divide by the root."}}},
    "visibility": {"visibility": "after_due_date", "show_hidden_inputs": False},
    "a waiver": {"waived": {"step1.attention.scale": "It was not taught."}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_rubric_gives_what_a_rerun_gives(graded, tmp_path, change):
    rubric = load_rubric(written(tmp_path, **CHANGES[change]))
    for folder, _, kept in graded.values():
        new = evidence.under(kept, rubric)
        rerun = grade(folder, rubric=rubric, secret=b"ours", steps=STEPS)
        told, expected = to_data(evidence.report_of(new.evidence, rubric)), to_data(rerun)
        assert (new.rerun, told["subtotal"], _untimed(told["steps"])) == (
            {},
            expected["subtotal"],
            _untimed(expected["steps"]),
        )


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if k not in ("seconds", "pictures")}
    return [_untimed(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"limits": {"cpu_seconds": 5}}, ""),
        ({"checks": {"step1.softmax.axis": {"tolerance": 2}}}, "step1.softmax.axis"),
        ({"adapters": {"attention": {"softmax": "my_softmax"}}}, ""),
    ],
    ids=["limits", "a tolerance", "names"],
)
def test_what_only_a_rerun_can_tell_is_told(graded, tmp_path, change, where):
    rubric = load_rubric(written(tmp_path, **change))
    assert list(evidence.under(graded["scale-left-out"][2], rubric).rerun) == [where]


def test_what_waited_for_a_check_that_counts_no_more_needs_a_rerun(graded, tmp_path):
    kept = graded["template"][2]
    blocked = next(v for v in kept.verdicts if v.status == "blocked")
    rubric = load_rubric(written(tmp_path, checks={blocked.reason: {"weight": 0}}))
    assert blocked.id in evidence.under(kept, rubric).rerun


def test_a_step_that_was_not_graded_needs_a_rerun(graded, tmp_path):
    """Else the report would have no final score, and take the place of one that has."""
    kept = graded["scale-left-out"][2]
    rubric = load_rubric(written(tmp_path, points={**RUBRIC["points"], "step3": 5}))
    assert evidence.under(kept, rubric).rerun[""] == "step 3 was not graded"


def test_what_another_version_found_needs_a_rerun(graded, tmp_path):
    kept = graded["scale-left-out"][2]
    old = replace(kept, environment={**kept.environment, "attnlab-grader": "0.0.9"})
    assert "0.0.9" in evidence.under(old, load_rubric(written(tmp_path))).rerun[""]


def test_no_text_of_a_submission_keeps_evidence_from_being_written(graded, tmp_path):
    kept = graded["scale-left-out"][2]
    failed = next(v for v in kept.verdicts if v.shown)
    odd = replace(failed, shown=replace(failed.shown, seen="half a \ud800 character"), told=("\udcff",))
    file = tmp_path / "evidence.json"
    file.write_bytes(evidence.to_bytes(replace(kept, verdicts=(odd,), note="\ud800")))
    assert evidence.from_file(file).verdicts[0].shown.seen == "half a ? character"


def test_a_waived_check_that_others_waited_for_needs_a_rerun_of_those(graded, tmp_path):
    kept = graded["template"][2]
    blocked = next(v for v in kept.verdicts if v.status == "blocked")
    rubric = load_rubric(written(tmp_path, waived={blocked.reason: "It was not taught."}))
    assert blocked.id in evidence.under(kept, rubric).rerun


def test_a_batch_is_rescored_and_put_back_byte_by_byte(graded, tmp_path):
    """Who moves and by which check is said first; two at once are refused; undo gives the earlier bytes."""
    out = tmp_path / "results"
    for name, (folder, report, kept) in graded.items():
        result = out / name
        result.mkdir(parents=True)
        whole = {**to_data(report), "final": True, "score": report.subtotal}
        (result / "report.json").write_text(batch.json.dumps(whole))
        (result / "report.html").write_text(to_html(report))
        (result / "evidence.json").write_bytes(evidence.to_bytes(kept))
        (result / "graded.json").write_text('{"submission": "1", "rubric": "old"}')
        (result / "submission.json").write_text(batch.json.dumps({"path": str(folder), "students": []}))
    before = {file: file.read_bytes() for file in out.rglob("*.*") if file.is_file()}
    rubric = written(tmp_path, **CHANGES["points"])
    words = [str(out), "--rubric", str(rubric)]

    said = CliRunner().invoke(rescore_command, words)
    assert said.exit_code == 0, said.output
    assert "scale-left-out: " in said.output and "Nothing has been replaced: --apply puts 3" in said.output
    assert {file: file.read_bytes() for file in before} == before
    with alone(out):
        second = CliRunner().invoke(rescore_command, words)
    assert (second.exit_code, "is being changed by another" in second.output) == (2, True)

    applied = CliRunner().invoke(rescore_command, [*words, "--apply"])
    assert "Applied to 3; --undo takes it back." in applied.output
    new = batch.load(out / "scale-left-out")
    assert new.report and new.report["rubric"] == load_rubric(rubric).fingerprint
    assert '"submission": "1"' in (out / "scale-left-out" / "graded.json").read_text()
    assert "3 stay" in CliRunner().invoke(rescore_command, words).output

    again = out / "k-capital-t" / "report.json"  # graded anew since: that is not taken back
    as_rescored = again.read_bytes()
    again.write_text('{"graded": "anew"}')
    assert [name for name in graded if undo(batch.load(out / name))] == ["scale-left-out", "template"]
    assert again.read_text() == '{"graded": "anew"}'
    again.write_bytes(as_rescored)
    assert "Applied to 3" in CliRunner().invoke(rescore_command, [*words, "--apply"]).output
    CliRunner().invoke(rescore_command, [str(out), "--undo"])
    back = CliRunner().invoke(rescore_command, [str(out), "--undo"])
    assert "Put back: k-capital-t\n" in back.output
    assert {file: file.read_bytes() for file in before} == before
    assert "there is nothing to put back" in CliRunner().invoke(rescore_command, [str(out), "--undo"]).output


def test_a_result_without_evidence_is_left_to_a_rerun(tmp_path):
    result = tmp_path / "results" / "ann"
    result.mkdir(parents=True)
    (result / "submission.json").write_text('{"path": "x", "students": []}')
    report = {"final": True, "score": 1.0, "subtotal": 1.0, "max_score": 2.0, "steps": [], "findings": []}
    (result / "report.json").write_text(batch.json.dumps(report))
    said = CliRunner().invoke(rescore_command, [str(tmp_path / "results"), "--apply"]).output
    assert "Needs a rerun: " in said and "evidence.json cannot be read" in said and "--only ann --apply" in said
