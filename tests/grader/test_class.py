"""A class of twelve, the odd ones among them: graded, changed, killed, gone on with, and filled into a gradebook."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader.course import batch
from grader.course.cli import batch_command, gradebook_command
from tests.conftest import BASE, ROOT

pytestmark = pytest.mark.long

EMPTY, NOTEBOOK, OTHER = (
    f"Nothing here can be graded: {why}" for why in ("it is empty", "attention.ipynb is there", "sorting.py is there")
)
# What each has in the end: the score, where there is one, and why staff should look.
TOLD = {
    "ann": (20, []),
    "bob": (6, []),
    "cy": (0, [EMPTY]),
    "dan": (0, [NOTEBOOK]),
    "eve": (0, [OTHER]),
    "fay": (20, []),
    "gus": (None, ["refused: gus.zip is a symbolic link"]),
    "hal": (None, ["refused: it holds nothing but symbolic links"]),
    "ida": (20, []),
    "jon": (0, []),
    "kim": (None, ["no report"]),
    "lea": (0, []),
}


@pytest.fixture
def handed_in(tmp_path) -> Path:
    """A right and a wrong one, one each as a zip and as a link to it, and what people hand in by mistake."""
    folder = tmp_path / "in"
    for name in ("cy", "dan", "eve", "hal"):
        (folder / name).mkdir(parents=True)
    for name in ("ann", "lea"):
        shutil.copytree(BASE, folder / name)
    for name in ("bob", "ida"):
        shutil.copytree(ROOT / "examples" / "one_mistake", folder / name)
    shutil.copytree(ROOT / "student_template", folder / "jon", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "dan" / "attention.ipynb").write_text("{}")
    (folder / "eve" / "sorting.py").write_text("def bubble_sort(items): return sorted(items)\n")
    with zipfile.ZipFile(tmp_path / "solution.zip", "w") as packed:
        for file in BASE.glob("*.py"):
            packed.write(file, file.name)
    shutil.copy(tmp_path / "solution.zip", folder / "fay.zip")
    (folder / "gus.zip").symlink_to(tmp_path / "solution.zip")
    (folder / "hal" / "attention.py").symlink_to(BASE / "attention.py")
    (folder / "kim.zip").write_text("no archive")
    (folder / "lea" / "attention.py").write_text("def softmax(:\n")
    return folder


def test_a_class_gets_what_it_has_earned_and_nobody_an_unexplained_zero(handed_in, tmp_path):
    rubric, out = tmp_path / "rubric.yaml", tmp_path / "out"
    rubric.write_text("schema: 1\ntitle: x\npoints: {step2: 20}\n")
    words = [str(word) for word in (handed_in, "--out", out, "--rubric", rubric, "--jobs", "2")]

    # killed on its way, and gone on with
    begin = [sys.executable, "-c", "from harness.cli import main; main()", "batch", *words]
    with subprocess.Popen(begin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            if line.startswith("  5 of 12"):
                killed.send_signal(signal.SIGKILL)
    with (out / "results.csv").open() as table:
        rows = {row["name"]: row["of"] for row in csv.DictReader(table)}
    assert set(rows) == set(TOLD)
    graded = {name: (out / name / "report.json").read_bytes() for name, of in rows.items() if of}
    assert graded and len(graded) < 9
    again = CliRunner().invoke(batch_command, words)
    assert again.stdout.splitlines()[-1].endswith("results.csv, 6 to be looked at")
    finals = [name for name in graded if f"\n{name}: " not in again.stdout]
    assert {name: (out / name / "report.json").read_bytes() for name in finals} == {n: graded[n] for n in finals}

    # one hands in anew
    shutil.rmtree(handed_in / "ida")
    shutil.copytree(BASE, handed_in / "ida")
    assert (
        "\nida: 20 of 20 (graded again: the submission has changed)" in CliRunner().invoke(batch_command, words).stdout
    )
    assert {r.name: (r.report and r.report["score"], r.flags) for r in batch.results(out)} == TOLD

    # the gradebook has better scores of two, and a column of another name
    students, scores = tmp_path / "students.csv", tmp_path / "scores.csv"
    before = {"ann": "19", "bob": "18", "cy": "88"}
    lines = [f"{name},{name},{name},{name},A,{before.get(name, '')}" for name in TOLD]
    head = ["Student,ID,SIS User ID,SIS Login ID,Section,Attention lab (12)", "Points Possible,,,,,20"]
    students.write_text("\n".join([*head, *lines]) + "\n")
    files = [str(file) for file in (out, students, scores)]
    refused = CliRunner().invoke(gradebook_command, [*files, "--column", "Atention lab"])
    assert (refused.exit_code, scores.exists()) == (2, False)
    assert "the nearest is 'Attention lab" in " ".join(refused.output.split())
    told = CliRunner().invoke(gradebook_command, [*files, "--column", "Attention lab"]).stdout
    for part in ("ann: 19 becomes 20", "bob (6 is less than 18)", f"cy ({EMPTY})", "gus (refused: gus.zip is a"):
        assert part in told
    with scores.open() as table:
        filled = {row["Student"]: row["Attention lab (12)"] for row in csv.DictReader(table) if row["ID"]}
    kept = {name for name, (_, flags) in TOLD.items() if flags} | {"bob"}
    assert filled == {name: f"{score:g}" for name, (score, _) in TOLD.items() if name not in kept}
