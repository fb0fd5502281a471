"""adapters.toml maps functions of another name; what cannot be used of it is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import adapters, loader
from harness.local import check_folder
from harness.subject import LocalSubject
from harness.values import Callback

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "examples" / "base"
MAPPED = '[attention]\nsoftmax = "my_softmax"\n'


def renamed(submission, mapping: str = MAPPED, other: str = "my_softmax") -> Path:
    """The bundled submission with its softmax called otherwise, and an adapters.toml."""
    folder = submission(attention=(BASE / "attention.py").read_text().replace("softmax(", f"{other}("))
    (folder / "adapters.toml").write_text(mapping)
    return folder


def test_a_mapped_function_is_asked_by_its_own_name(submission):
    """With the mapping the public checks of softmax pass as ever, and the look at the files says what was mapped."""
    folder = renamed(submission)
    assert {r.status for r in check_folder(folder, {1, 2})} == {"passed"}
    (finding,) = loader.inspect(folder).findings
    assert (finding.code, finding.text) == (
        "name-mapped",
        "attention.py: my_softmax stands for softmax, as adapters.toml says.",
    )


def test_without_the_mapping_the_name_is_missing(submission):
    """The same submission without adapters.toml lacks softmax."""
    folder = renamed(submission)
    (folder / "adapters.toml").unlink()
    assert [f.code for f in loader.inspect(folder).findings] == ["name-missing"]


def test_the_other_files_find_a_stand_in_by_the_mapped_name(submission):
    """Over a lent attention.py, what a student's own file imports by its own name is there."""
    folder = submission(
        kv_cache="from attention import my_softmax\n\ndef kv_cache_bytes(*sizes):\n    return my_softmax(sizes)\n"
    )
    (folder / "adapters.toml").write_text(MAPPED)
    with LocalSubject(folder).lend({"attention": {"softmax": Callback(lambda x: 42)}}) as subject:
        assert subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value == 42


def test_a_name_that_is_not_there_is_missing_by_both_names(submission):
    """A mapping to nothing is a missing name, and the sentence says who names it."""
    folder = renamed(submission, other="another_softmax")
    (finding,) = loader.inspect(folder).findings
    assert finding.code == "name-missing"
    assert finding.text == "attention.py has no my_softmax, which adapters.toml names for softmax(x, axis=…)."
    outcome = LocalSubject(folder).call("attention.softmax", 1)
    assert (outcome.kind, outcome.text) == ("missing", "attention.py has no my_softmax.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("softmax: my_softmax", "adapters.toml is not valid TOML"),
        ("[atention]\nsoftmax = 'x'", "[atention] is not a file of the lab"),
        ("attention = 3", "[attention] is not a file of the lab"),
        ("[attention]\nsoft = 'x'", "soft is not a function of the lab in attention.py"),
        ("[attention]\nsoftmax = 3", "attention.softmax is mapped to '3'"),
        ("[attention]\nsoftmax = 'a b'", "attention.softmax is mapped to 'a b'"),
        ("[attention]\nsoftmax = '__import__'", "write the name of a function in attention.py"),
        ("#" * 9_000, "larger than 8 KiB"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path, text, said):
    """A bad file or entry is a finding with its mend, and the rest of the submission is judged as if it were not there."""
    folder = tmp_path / "lab"
    shutil.copytree(BASE, folder)
    (folder / "adapters.toml").write_text(text)
    (finding,) = loader.inspect(folder).findings
    assert finding.code == "adapters-unusable"
    assert said in finding.text
    assert LocalSubject(folder).call("experiments.score_bytes", 3).value == 18


def test_bytes_that_are_no_text_are_told(tmp_path):
    (tmp_path / "adapters.toml").write_bytes(b"\xff\xfe\x00")
    assert len(adapters.read(tmp_path).problems) == 1


def test_good_entries_beside_bad_ones_hold(tmp_path):
    """One bad line costs that line."""
    (tmp_path / "adapters.toml").write_text('[attention]\nsoftmax = "mine"\nnothing = "x"\n')
    found = adapters.read(tmp_path)
    assert (dict(found.names), len(found.problems)) == ({"attention.softmax": "mine"}, 1)


def test_the_submissions_own_file_counts_before_the_courses(tmp_path):
    """Where both name one function the submission's name is taken; what only the course names holds too."""
    (tmp_path / adapters.COURSE_FILE).write_text(
        adapters.spell({"attention": {"softmax": "theirs", "project": "proj"}})
    )
    (tmp_path / adapters.FILE).write_text('[attention]\nsoftmax = "mine"\n')
    assert adapters.read(tmp_path).names == {"attention.softmax": "mine", "attention.project": "proj"}
