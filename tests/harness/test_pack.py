"""`attnlab pack`: what a student hands in, and what is said of it."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from click.testing import CliRunner

from harness.cli import main
from harness.pack import choose

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "examples" / "base"


def pack(folder: Path, out: Path) -> str:
    done = CliRunner().invoke(main, ["pack", str(folder), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_whole_lab_is_packed_and_nothing_is_missing(tmp_path: Path) -> None:
    """The bundled submission goes in file by file, and comes out of the zip as it was."""
    said = pack(BASE, tmp_path / "in.zip")
    assert "Nothing is missing." in said
    zipfile.ZipFile(tmp_path / "in.zip").extractall(tmp_path)
    for name in ("attention.py", "kv_cache.py", "experiments.py", "model.py", "report/note.md"):
        assert (tmp_path / "submission" / name).read_bytes() == (BASE / name).read_bytes()


def test_what_is_not_handed_in_stays_out(tmp_path: Path) -> None:
    """Tests, tools, environments of any name, earlier zips and bytecode are left out in silence; other files are told."""
    lab = Path(shutil.copytree(ROOT / "student_template", tmp_path / "lab"))
    for name in (
        "env/lib/site-packages/x.py",
        "env/pyvenv.cfg",
        "tools/harness/y.py",
        "__pycache__/z.py",
        "old.zip",
        "data.npz",
    ):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("x")
    (lab / "helpers").mkdir()
    (lab / "helpers" / "shapes.py").write_text("")
    packed = choose(lab)
    assert packed.files == ("attention.py", "experiments.py", "kv_cache.py", "model.py", "helpers/shapes.py")
    assert packed.left_out == ("data.npz: it is not a Python file, and not in report/",)


def test_stubs_names_and_the_report_are_told_as_missing(tmp_path: Path) -> None:
    """What is not written, what has another name, and what the report lacks are told, each in a sentence; a method by its class."""
    lab = Path(shutil.copytree(ROOT / "student_template", tmp_path / "lab"))
    (lab / "attention.py").write_text((BASE / "attention.py").read_text().replace("def softmax", "def soft_max"))
    (lab / "report").mkdir()
    (lab / "report" / "results.json").write_text("{")
    said = pack(lab, tmp_path / "in.zip")
    assert "attention.py has no softmax(x, axis=…); soft_max is there, and looks like it." in said
    assert "kv_cache.py: not written yet: KVCache.__init__" in said
    assert "report/note.md is missing: write it yourself." in said
    assert "report/results.json is not valid JSON" in said


def test_the_limits_that_will_hold_are_told(tmp_path: Path) -> None:
    """A student reads the numbers before handing in."""
    said = pack(BASE, tmp_path / "in.zip")
    assert "20 s of CPU time and 5 s without progress, 2048 MiB" in said


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    """Packing twice gives equal zips."""
    pack(BASE, tmp_path / "a.zip")
    pack(BASE, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_folder_without_python_is_refused(tmp_path: Path) -> None:
    """Where there is nothing to hand in the command ends with 2, and says which folder to name."""
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(main, ["pack", str(tmp_path / "empty"), "--out", str(tmp_path / "in.zip")])
    assert done.exit_code == 2
    assert "name the folder that attention.py is in" in " ".join(done.output.replace("│", " ").split())
    assert not (tmp_path / "in.zip").exists()


def test_what_cannot_be_packed_is_told_with_its_cause(tmp_path: Path) -> None:
    """No folder, a file in its place, a zip that cannot be written, a file that goes away meanwhile."""
    (tmp_path / "notes.txt").write_text("")
    for words, said in (
        ([tmp_path / "none"], "none is not a folder: name the one that attention.py is in"),
        ([tmp_path / "notes.txt"], "notes.txt is not a folder: name the one that attention.py is in"),
        ([BASE, "--out", tmp_path], "cannot be written (Is a directory): name another file"),
        (
            [BASE, "--out", tmp_path / "none" / "in.zip"],
            "cannot be written (No such file or directory): name another file",
        ),
    ):
        done = CliRunner().invoke(main, ["pack", *map(str, words)])
        assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output


def test_a_mapped_name_goes_in_with_its_mapping_and_is_not_missing(tmp_path: Path) -> None:
    """adapters.toml is handed in, and what it maps is not told as missing."""
    lab = Path(shutil.copytree(BASE, tmp_path / "lab"))
    (lab / "attention.py").write_text((BASE / "attention.py").read_text().replace("softmax(", "my_softmax("))
    (lab / "adapters.toml").write_text('[attention]\nsoftmax = "my_softmax"\n')
    packed = choose(lab)
    assert "adapters.toml" in packed.files
    assert packed.missing == ()


def test_steps_that_left_no_results_are_told(submission) -> None:
    """By the names that are not there, each step with the command that measures it."""
    folder = submission()
    results = json.loads((folder / "report" / "results.json").read_text())
    assert not [line for line in choose(folder).missing if "results.json" in line]
    for name in ("sdpa", "exponent", "local_slopes"):
        del results[name]
    (folder / "report" / "results.json").write_text(json.dumps(results))
    assert [line for line in choose(folder).missing if "results.json" in line] == [
        "report/results.json has no sdpa (step 3): run make_report.py 3.",
        "report/results.json has no exponent, local_slopes (step 5): run make_report.py 5.",
    ]
