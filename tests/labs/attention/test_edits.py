"""The fixtures' own machinery: an entry that does not fit is refused in clear words, and a wrong verdict does not pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.labs.attention.edits import Entry, EntryError, edited, entries, write
from tests.labs.attention.verdicts import Verdict, complaints

FAULT = """
[[fault]]
name = "one"
codes = ["scale-missing"]
checks = ["step1.attention.scale"]
steps = [1]
edits = [{ file = "attention.py", old = "1 / math.sqrt(Q.shape[-1])", new = "1" }]
"""


def read(folder: Path, text: str) -> list[Entry]:
    (folder / "some.toml").write_text(text)
    return entries(folder)


def test_an_entry_is_an_edit_of_the_base(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, FAULT)
    written = write(entry, tmp_path / "submission")
    assert "        scale = 1\n" in (written / "attention.py").read_text()
    assert (written / "kv_cache.py").is_file()


def test_a_method_is_replaced_with_its_decorators_and_keeps_its_place(tmp_path: Path) -> None:
    edit = """{ file = "kv_cache.py", function = "KVCache.nbytes", new = "@property\\ndef nbytes(self):\\n    return 0" }"""
    (entry,) = read(tmp_path, FAULT.replace(FAULT.splitlines()[-1], f"edits = [{edit}]"))
    text = edited(entry)["kv_cache.py"]
    assert "    @property\n    def nbytes(self):\n        return 0\n\n\ndef kv_cache_bytes" in text
    assert text.count("@property") == 1


def test_a_file_that_the_base_lacks_is_made(tmp_path: Path) -> None:
    (entry,) = read(
        tmp_path, FAULT.replace(FAULT.splitlines()[-1], 'edits = [{ file = "new.py", append = "here = 1" }]')
    )
    assert edited(entry) == {"new.py": "here = 1\n"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "1 / math.sqrt(Q.shape[-1])",
            "a line of nobody",
            "occurs 0 times in attention.py. Mend: copy it from the base",
        ),
        ("1 / math.sqrt(Q.shape[-1])", "weights", "times in attention.py. Mend: take more of the lines around it"),
        ("attention.py", "atention.py", "has no file 'atention.py'"),
        ("old = ", "older = ", "an edit has the keys ['file', 'new', 'older']"),
        (
            "scale-missing",
            "scale-mising",
            "the code 'scale-mising' is not in harness/messages.py. Mend: write scale-missing",
        ),
        (
            "step1.attention.scale",
            "step1.attention.scales",
            "there is no check 'step1.attention.scales'. Mend: write step1",
        ),
        ("steps = [1]", "steps = [2]", "is not of the steps [2]. Mend: add its step"),
        ("checks = ", "check = ", "checks is missing, empty or no list"),
        ("steps = [1]", 'steps = [1]\nbase = "einsums"', "there is no base 'einsums'. Mend: write einsum"),
        ("steps = [1]", "steps = [1]\nnote = 1", "the key 'note' is unknown"),
        ("[[fault]]", "[[faults]]", "the table 'faults': it is unknown"),
        ("[[fault]]", "[[fault]", "it is no TOML"),
        ("[[fault]]", FAULT + "[[fault]]", "some.toml has an entry of that name"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_with_cause_and_mend(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    with pytest.raises(EntryError) as error:
        read(tmp_path, FAULT.replace(old, new))
    assert str(error.value).startswith("some.toml, ")
    assert told in str(error.value)


SCALE, BATCH = "step1.attention.scale", "step1.attention.batch"
ENTRY = Entry("some.toml", "fault", "one", (1,), (), ("scale-missing",), ("scale-by-dk",), (SCALE,))
RIGHT = Entry("some.toml", "right", "two", (1,), ())


def grader(codes: dict[str, set[str]], lost: float = 1.0) -> Verdict:
    return Verdict("grader", list(codes), codes, {1: lost})


def student(codes: dict[str, set[str]]) -> Verdict:
    return Verdict("student", list(codes), codes)


@pytest.mark.parametrize(
    ("graded", "hinted", "told"),
    [
        (grader({SCALE: {"scale-missing"}}), student({SCALE: {"scale-missing"}}), []),
        (grader({SCALE: {"scale-by-dk"}}), student({SCALE: {"scale-by-dk"}}), []),
        (grader({SCALE: {"scale-missing"}, BATCH: {"raised"}}), student({SCALE: {"scale-missing"}}), []),
        (
            grader({BATCH: {"scale-missing"}}),
            student({SCALE: {"scale-missing"}}),
            ["grader: did not fail step1.attention.scale"],
        ),
        (
            grader({SCALE: {"scale-missing"}}, 0.0),
            student({SCALE: {"scale-missing"}}),
            ["grader: no points were lost in step 1"],
        ),
        (grader({SCALE: {"unrecognised"}}), student({SCALE: {"scale-missing"}}), ["grader: not named scale-missing"]),
        (
            grader({SCALE: {"scale-missing"}}),
            student({SCALE: set()}),
            ["student: named none of scale-by-dk, scale-missing"],
        ),
        (
            grader({SCALE: {"scale-missing"}, BATCH: {"batch-mixed"}}),
            student({SCALE: {"scale-missing"}}),
            ["grader: step1.attention.batch is told batch-mixed"],
        ),
        (
            grader({SCALE: {"scale-missing"}}),
            student({SCALE: {"scale-missing"}, BATCH: {"batch-mixed"}}),
            ["student: step1.attention.batch is told batch-mixed"],
        ),
        (
            grader({SCALE: {"scale-missing"}}),
            student({SCALE: {"scale-by-dk"}}),
            ["step1.attention.scale: the grader names scale-missing, the student's run scale-by-dk"],
        ),
    ],
)
def test_a_verdict_that_is_not_the_entrys_is_told(graded: Verdict, hinted: Verdict, told: list[str]) -> None:
    assert complaints(ENTRY, graded, hinted) == told


def test_a_fault_that_no_student_sees_asks_for_no_hint() -> None:
    seen = grader({SCALE: {"scale-missing"}})
    assert complaints(replace(ENTRY, hinted=False), seen, student({})) == []
    assert complaints(ENTRY, seen, student({})) == ["student: named none of scale-by-dk, scale-missing"]


def test_of_two_codes_one_may_be_told_by_a_twin() -> None:
    two = replace(ENTRY, codes=("scale-missing", "batch-mixed"))
    hinted = student({SCALE: {"scale-missing"}})
    assert complaints(two, grader({SCALE: {"scale-missing", "scale-by-dk"}}), hinted) == []
    assert complaints(two, grader({SCALE: {"scale-missing"}}), hinted) == ["grader: not named batch-mixed"]


def test_a_right_submission_loses_nothing_and_is_told_nothing() -> None:
    assert complaints(RIGHT, grader({}, 0.0), student({})) == []
    assert complaints(RIGHT, grader({}, 0.5), student({})) == ["grader: points were lost"]
    assert complaints(RIGHT, grader({SCALE: {"raised"}}, 0.0), student({})) == ["grader: failed step1.attention.scale"]
    assert complaints(RIGHT, grader({}, 0.0), student({SCALE: {"raised"}})) == ["student: failed step1.attention.scale"]
