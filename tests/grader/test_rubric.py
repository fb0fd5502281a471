"""A rubric is read whole, or refused with the line."""

import dataclasses
import json

import jsonschema
import pytest

from grader.rubric import RubricError, load_rubric, schema
from grader.sandbox import Limits
from harness import check
from harness.messages import MESSAGES
from tests.grader.lab_of_two import CHECKS, RUBRIC, SHIFT, rubric


def refused(tmp_path, text: str) -> RubricError:
    file = tmp_path / "rubric.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RubricError) as caught:
        load_rubric(file, CHECKS)
    assert str(file) in str(caught.value)
    return caught.value


def test_schema_is_a_json_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_part_of_the_schema_that_can_be_wrong_says_what_to_write():
    def parts(part):
        if isinstance(part, dict):
            if "type" in part or "enum" in part or "const" in part:
                yield part
            for inner in part.values():
                yield from parts(inner)

    silent = [p for p in parts(schema()) if "description" not in p]
    assert silent == [{"type": "string"}]  # an item of stands_on: an unknown id is told apart


def test_labs_own_rubric_gives_the_contracts_points():
    own = load_rubric()
    assert own.points == {1: 18, 2: 10, 3: 8, 4: 10, 5: 10, 6: 8, 7: 10, 8: 20, 9: 6}
    assert own.limits == Limits()


def test_precision_is_worth_a_tenth_of_a_step_at_most():
    rubric = load_rubric()
    for step in rubric.points:
        weight = {c.id: rubric.weight_of(c) for c in check.CHECKS.values() if c.step == step}
        assert sum(weight[id] for id in weight if id.endswith("precision")) <= sum(weight.values()) / 10


def test_every_limit_can_be_set():
    assert set(schema()["properties"]["limits"]["properties"]) == {f.name for f in dataclasses.fields(Limits)}


def test_what_is_not_said_has_a_default(tmp_path):
    read = rubric(tmp_path)
    assert (read.rule("step1.softmax.rows").weight, read.visibility_of("step1.softmax.rows")) == (1, "visible")
    assert (read.tolerance_of("step2.bytes"), read.show_hidden_inputs, read.limits) == (1, True, Limits())


def test_a_checks_own_words_come_before_the_rubrics_and_those_before_the_catalogues(tmp_path):
    extra = """
messages:
  mask-inverted: {says: "Ours.", look: "Here."}
checks:
  step1.softmax.rows:
    messages: {mask-inverted: {says: "Of this check."}}
"""
    read = rubric(tmp_path, extra)
    assert read.words("mask-inverted", "step1.softmax.rows").says == "Of this check."
    assert read.words("mask-inverted", "step1.softmax.rows").look == "Here."
    assert read.words("mask-inverted", "step2.bytes").says == "Ours."
    assert read.words("mask-ignored") == MESSAGES["mask-ignored"]


def test_a_code_without_words_reads_as_unrecognised(tmp_path):
    assert rubric(tmp_path).words("of-another-lab") == MESSAGES["unrecognised"]


def test_prerequisites_are_the_rubrics_where_it_names_them(tmp_path):
    read = rubric(tmp_path, "checks:\n  step1.softmax.shift: {stands_on: []}\n")
    assert read.with_prerequisites(SHIFT).stands_on == ()
    assert read.with_prerequisites(CHECKS["step2.bytes"]) is CHECKS["step2.bytes"]


def test_limits_and_weights_are_read(tmp_path):
    extra = "limits: {cpu_seconds: 3, memory_mib: 512.0}\nchecks:\n  step2.bytes: {weight: 2.5, visibility: hidden}\n"
    read = rubric(tmp_path, extra)
    assert read.limits == Limits(cpu_seconds=3.0, memory_mib=512)
    assert type(read.limits.memory_mib) is int
    assert (read.rule("step2.bytes").weight, read.visibility_of("step2.bytes")) == (2.5, "hidden")


def test_fingerprint_tells_versions_apart(tmp_path):
    assert rubric(tmp_path).fingerprint != rubric(tmp_path, "visibility: hidden\n").fingerprint


@pytest.mark.parametrize(
    ("extra", "line", "said"),
    [
        ("limit: {}\n", 6, "limits"),
        ("visibility: seen\n", 6, "after_published"),
        ("tolerance: 0\n", 6, "above 0"),
        ("tolerance: .inf\n", 6, "inf"),
        ("limits:\n  cpu_seconds: -1\n", 7, "above 0"),
        ("limits:\n  memory_mib: 1e9\n", 7, "whole number"),
        ("checks:\n  step1.softmax.row: {}\n", 7, "step1.softmax.rows"),
        ("checks:\n  step2.bytes:\n    weight: -2\n", 8, "0 or more"),
        ("checks:\n  step2.bytes:\n    weigth: 2\n", 8, "weight"),
        ("checks:\n  step2.bytes:\n    stands_on:\n      - step2.bites\n", 9, "step2.bytes"),
        ("checks:\n  step2.bytes:\n    stands_on: [step2.bytes]\n", 8, "stands on itself"),
        ("checks:\n  step1.softmax.rows:\n    stands_on: [step1.softmax.shift]\n", 8, "stands on itself"),
        ("messages:\n  mask-inversed: {says: x}\n", 7, "mask-inverted"),
        ("messages:\n  mask-inverted: {}\n", 7, "empty"),
        ("messages:\n  mask-inverted: {says: ''}\n", 7, "empty"),
        ("manual:\n  - {step: 2, title: words}\n", 7, "points"),
        ("title: again\n", 6, "after line 2"),
        ("checks: [step2.bytes]\n", 6, "a list"),
        ("checks:\n  7: {}\n", 7, '"7"'),
        ("checks: &a\n  step2.bytes: *a\n", 6, "holds itself"),
        ("visibility: 'visible\n", 7, "quote"),
        ("visibility:\n\tvisible\n", 7, "no YAML"),
        ("manual: !!python/object:os.system x\n", 6, "no YAML"),
        ("checks:\n  step2.bytes: {weight: 0}\n  step2.generate.greedy: {weight: 0}\n", 5, "weight 0"),
        ("submissions:\n  counts: worst\n", 7, "latest or best"),
        ("submissions:\n  attempts: {most: 3}\n", 7, "no hours"),
        ("submissions:\n  late:\n    percent: 3\n", 8, "write percent_a_day"),
        ("manual:\n  - {step: 2, title: words, point: 1}\n", 7, "write points"),
        ("submissions:\n  attempts:\n    most: 0\n    hours: 1\n", 8, "1 or more"),
        ("submissions:\n  late:\n    percent_a_day: 101\n", 8, "from 0 to 100"),
        ("submissions:\n  later: {}\n", 7, "late"),
        ("waived:\n  step2.bites: why\n", 7, "step2.bytes"),
        ("waived:\n  step2.bytes: ''\n", 7, "empty"),
        ("overrides:\n  - {student: ann, check: step2.bytes}\n", 7, "no reason"),
        ("overrides:\n  - {student: ann, reason: x}\n", 7, "check or points"),
        ("overrides:\n  - student: ann\n    reason: x\n    check: step2.bites\n", 9, "step2.bytes"),
        ("overrides:\n  - student: ann\n    reason: x\n    check: step2.bytes\n    points: 20.5\n", 10, "worth 20"),
        (
            "overrides:\n  - {student: ann, reason: x, points: 1}\n  - {student: Ann, reason: y, points: 2}\n",
            8,
            "twice",
        ),
    ],
)
def test_a_broken_rubric_is_refused_with_the_line_and_how_to_mend_it(tmp_path, extra, line, said):
    error = refused(tmp_path, RUBRIC + extra)
    assert error.line == line
    assert f"line {line}:" in str(error)
    assert said in str(error)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("schema: 1\ntitle: x\n", 1, "no points"),
        ("schema: 1\ntitle: x\npoint: {step1: 1}\n", 3, "write points"),
        ("schema: 1\ntitle: x\npoints: {step1: 0, step2: 0}\n", 3, "no step has points"),
        ("schema: 1\ntitle: x\npoints:\n  step1: eighteen\n", 4, "eighteen"),
        ("schema: 1\ntitle: x\npoints:\n  step1: -1\n", 4, "-1"),
        ("schema: 1\ntitle: x\npoints:\n  step1: 1.005\n", 4, "two decimals"),
        ("schema: 1\ntitle: x\npoints:\n  stepone: 1\n", 4, "name of a step"),
        ("schema: 1\ntitle: x\npoints:\n  step7: 1\n", 4, "no step7"),
        ("schema: 9\ntitle: x\npoints: {step1: 1}\n", 1, "version"),
        ("", None, "empty"),
        ("just a word", 1, "just a word"),
        (b"schema: 1\ntitle: \xff\n", 2, "UTF-8"),
    ],
)
def test_a_page_without_what_it_needs_is_refused(tmp_path, monkeypatch, text, line, said):
    monkeypatch.setattr("harness.check.STEPS", {})
    error = refused(tmp_path, text)
    assert (error.line, said in str(error)) == (line, True)


def test_first_fault_in_the_file_is_the_one_told(tmp_path):
    assert refused(tmp_path, RUBRIC + "visibility: seen\ntolerance: 0\n").line == 6


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for place in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(RubricError, match="cannot be read"):
            load_rubric(place, CHECKS)


def test_schema_is_the_one_that_editors_are_pointed_at():
    assert json.dumps(schema()["properties"]["schema"]["const"]) == "1"


def test_names_of_functions_are_mapped_for_a_course(tmp_path):
    """A rubric's adapters map the lab's functions; one that the lab has not is told with its line."""
    file = tmp_path / "rubric.yaml"
    text = "schema: 1\ntitle: A lab\npoints:\n  step1: 1\nadapters:\n  attention:\n    softmax: my_softmax\n"
    file.write_text(text)
    assert load_rubric(file).adapters == {"attention": {"softmax": "my_softmax"}}
    file.write_text(text.replace("softmax: my", "sofmax: my"))
    with pytest.raises(RubricError, match=r"line 7: sofmax is no function of this lab\. Mend: write softmax"):
        load_rubric(file)
    file.write_text(text.replace("my_softmax", "my softmax"))
    with pytest.raises(RubricError, match=r"line 7: .*write the name of a function"):
        load_rubric(file)
