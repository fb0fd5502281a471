"""Many submissions: found by the platforms' names, graded into results that are gone on with, rerun, and filled into gradebooks."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader.course import batch, graded, rerun
from grader.course.cli import _gpus, _progress, batch_command, gradebook_command, rerun_command
from grader.course.gradebook import GradebookError, fill
from grader.course.submissions import FolderError, find, left_aside
from grader.grade import grade
from grader.render.json_file import to_json
from grader.rubric import load_rubric
from harness.loader import Finding
from tests.grader.lab_of_two import GREEDY, ROWS, broken, failed, report_of, wrong_rows
from tests.processes import all_end, family_of


def command(which, *words):
    return CliRunner().invoke(which, [str(w) for w in words], catch_exceptions=False)


def a_result(out, name, report, students=(), source="gone"):
    """A result's folder as a batch leaves it."""
    folder = out / name
    folder.mkdir(parents=True)
    (folder / "submission.json").write_text(json.dumps({"path": str(source), "students": [name, *students]}))
    if report is not None:
        (folder / "report.json").write_text(to_json(report))
    return folder


# -- finding -----------------------------------------------------------------------------------------------------------


def test_submissions_are_folders_and_archives_by_name(tmp_path):
    for name in ("bob", ".git", "__MACOSX", "_dan"):
        (tmp_path / name).mkdir()
    for name in (
        "ann.lee@example.edu.zip",
        "carol.TAR.gz",
        "notes.txt",
        "eve.rar",
        ".DS_Store",
        "submission_metadata.yml",
    ):
        (tmp_path / name).write_text("")
    names = ["_dan", "ann.lee@example.edu", "bob", "carol"]
    assert [(h.name, h.students) for h in find(tmp_path)] == [(name, (name,)) for name in names]
    assert left_aside(tmp_path) == ["eve.rar", "notes.txt"]


def test_the_one_archive_in_a_folder_is_what_was_handed_in(tmp_path):
    """As Moodle exports it; a folder with anything else in it is taken as it is."""
    for name in (
        "Ann Example_4321_assignsubmission_file_/lab.zip",
        "bob/lab.zip",
        "bob/attention.py",
        "cy/attention.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    ann, bob, cy = find(tmp_path)
    assert ann.path.name == "lab.zip" and ann.students[0] == "Ann Example"
    assert (bob.path, cy.path) == (tmp_path / "bob", tmp_path / "cy")


@pytest.mark.parametrize(
    ("name", "students"),
    [
        ("exampleann_12345_678_attention.zip", "12345"),  # Canvas
        ("exampleann_LATE_12345_678_attention-2.zip", "12345"),
        ("Ann Example_4321_assignsubmission_file_", "Ann Example"),  # Moodle
        ("Ann Example_4321_assignsubmission_file_", "Participant 4321"),
    ],
)
def test_a_platforms_names_say_whose_it_is(tmp_path, name, students):
    (tmp_path / name).mkdir() if not name.endswith(".zip") else (tmp_path / name).write_text("")
    assert students in find(tmp_path)[0].students


def test_gradescopes_export_says_who_handed_in_and_an_odd_page_says_nothing(tmp_path):
    (tmp_path / "submission_77").mkdir()
    page = tmp_path / "submission_metadata.yml"
    page.write_text(
        "---\nsubmission_77:\n  :submitters:\n  - :name: Ann Example\n    :sid: '99'\n    :email: ann@example.edu\n  - :name: Bob\n"
    )
    assert find(tmp_path)[0].students == ("ann@example.edu", "99", "Ann Example", "Bob", "submission_77")
    for odd in (
        "- 3\n",
        "submission_77: 3\n",
        "submission_77:\n  :submitters: x\n  :created_at: soon\n",
        "a: [\n",
        "\x00",
    ):
        page.write_text(odd)
        assert (find(tmp_path)[0].students, find(tmp_path)[0].created) == (("submission_77",), None)


def test_a_folder_without_submissions_and_two_of_one_name_are_told(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(FolderError):
            find(place)
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann.zip").write_text("")
    with pytest.raises(FolderError, match="both be ann"):
        find(tmp_path)
    with pytest.raises(FolderError, match="is an archive: unpack it"):
        find(tmp_path / "ann.zip")
    (tmp_path / "ann" / "submission_metadata.yml").write_text("")
    with pytest.raises(FolderError, match="ann is an export of Gradescope: name that folder"):
        find(tmp_path)


# -- batch -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_grades_each_keeps_a_broken_one_apart_and_goes_on_where_it_was(tmp_path):
    """A folder without the lab's files, one that is a bad archive, a name that begins as an option does."""
    folder, out = tmp_path / "in", tmp_path / "out"
    for name in ("ann", "--quiet"):
        (folder / name).mkdir(parents=True)
        (folder / name / "data.csv").write_text("1,2\n")
    (folder / "bob.zip").write_text("no archive")
    done = command(batch_command, folder, "--out", out, "--jobs", 2)
    assert done.exit_code == 0, done.output
    assert "ann: 0 of 100" in done.output and "3 results" in done.output
    found = {r.name: r for r in batch.results(out)}
    assert found["ann"].final and found["--quiet"].final and (out / "ann" / "report.html").exists()
    assert found["bob"].flags == ["no report"] and "bob.zip" in (out / "bob" / "printed.txt").read_text()
    rows = list(csv.reader(io.StringIO((out / "results.csv").read_text())))
    assert [row[0] for row in rows] == ["name", "'--quiet", "ann", "bob"]
    before = os.stat(out / "ann" / "report.json").st_mtime_ns
    command(batch_command, folder, "--out", out)
    assert os.stat(out / "ann" / "report.json").st_mtime_ns == before


def test_a_result_does_not_outlive_what_it_was_graded_from(machine, tmp_path):
    """A changed submission is graded again alone, a changed rubric or secret all; why is said, and the earlier one is kept."""
    place = machine({}, "ann", "bob")
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "ann" / "attention.py").write_text("one = 1")
    secret = tmp_path / "secret.txt"
    secret.write_text("a")
    words = [folder, "--out", out, "--jobs", 1, "--seed-file", secret]
    command(batch_command, *words)
    assert command(batch_command, *words).stdout.splitlines() == [f"2 results in {out / 'results.csv'}"]
    (folder / "ann" / "attention.py").write_text("one = 2")
    told = command(batch_command, *words).stdout.splitlines()
    assert told[0] == "ann: 100 of 100 (graded again: the submission has changed)"
    assert (out / "ann" / "earlier-1" / "report.json").exists() and not (out / "bob" / "earlier-1").exists()
    secret.write_text("b")
    told = command(batch_command, *words).stdout.splitlines()
    assert told[:2] == [f"{name}: 100 of 100 (graded again: the secret has changed)" for name in ("ann", "bob")]
    assert (out / "ann" / "earlier-2").exists() and len(ran(place)) == 5


def test_a_submission_that_is_a_symbolic_link_is_refused_and_flagged(machine, tmp_path):
    """Whose file it points to is not for the grader to read: neither a folder, nor an archive, nor the one archive in a folder."""
    place = machine({}, "ann")
    other = tmp_path / "solution.zip"
    other.write_bytes(b"PK")
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "bob.zip").symlink_to(other)
    (folder / "cy").mkdir()
    (folder / "cy" / "work.zip").symlink_to(other)
    (folder / "dan" / "report").mkdir(parents=True)
    (folder / "dan" / "report" / "results.json").symlink_to(other)
    (folder / "dan" / "attention.py").symlink_to(other)
    done = command(batch_command, folder, "--out", out)
    assert done.stdout.splitlines()[0] == "bob: no report (refused: bob.zip is a symbolic link)"
    assert ran(place) == [["ann", "ann"]]
    assert {r.name: r.flags for r in batch.results(out)}["cy"] == ["refused: work.zip is a symbolic link"]
    assert {r.name: r.flags for r in batch.results(out)}["dan"] == ["refused: it holds nothing but symbolic links"]
    (folder / "ann").rename(tmp_path / "elsewhere")
    (folder / "ann").symlink_to(tmp_path / "elsewhere")
    told = command(batch_command, folder, "--out", out).stdout.splitlines()
    assert told[0] == "ann: no report (refused: ann is a symbolic link)"  # the score from before is not its own
    assert (out / "ann" / "earlier-1" / "report.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/none", "--out", "{tmp}/o"], "is no folder"),
        (["{tmp}", "--out", "{tmp}/../o"], "holds no submission"),
        (["{tmp}", "--out", "{tmp}/o", "--rubric", "{tmp}/none"], "is no file"),
        (
            ["{tmp}", "--out", "{tmp}/../o", "--rubric", "{tmp}/typo.yaml"],
            "typo.yaml, line 4: limts is unknown here. Mend: write limits",
        ),
        (["{tmp}", "--out", "{tmp}/../o", "--seed-file", "{tmp}/empty"], "is empty: put a line of random text in it"),
        (["{tmp}", "--out", "{tmp}/o"], "name a folder beside it"),
        (["{tmp}/in", "--out", "{tmp}/empty"], "empty cannot be written (File exists): name another folder"),
        (["{tmp}", "--out", "{tmp}/o", "--gpus", "0"], "say --device cuda"),
        (["{tmp}", "--out", "{tmp}/o", "--device", "cuda", "--gpus", "all"], "write their numbers"),
        (["{tmp}", "--out", "{tmp}/o", "--container", "attnlab-worker"], "no container engine answers"),
        (["{tmp}", "--out", "{tmp}/o", "--container", "{tmp}/none.sif"], "is no file"),
        (["{tmp}"], "--out"),
    ],
)
def test_an_unusable_argument_of_a_batch_is_exit_2(tmp_path, monkeypatch, words, said):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "typo.yaml").write_text("schema: 1\ntitle: x\npoints: {step1: 3}\nlimts: {}\n")
    (tmp_path / "empty").write_text("")
    if "{tmp}/in" in words:
        (tmp_path / "in" / "ann").mkdir(parents=True)
    done = command(batch_command, *[w.format(tmp=tmp_path) for w in words])
    assert done.exit_code == 2 and said in " ".join(done.output.split())


# -- side by side ------------------------------------------------------------------------------------------------------

# A grading's stand-in, a process as any: it meets one that runs at the same time on another GPU, both ways through pipes that
# open when both ends are held, and keeps who it met. Nobody else may be on its GPU meanwhile.
GRADING = """
import json, os, pathlib, shutil, signal, sys
signal.alarm(60)  # who meets nobody ends
place, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3]).name
words = sys.argv[4:]
gpu = words[words.index("--gpus") + 1] if "--gpus" in words else os.environ.get("CUDA_VISIBLE_DEVICES", name)
taken = os.open(place / f"on-{gpu}", os.O_CREAT | os.O_EXCL)
pairs = json.loads((place / "pairs.json").read_text())
if gpu in pairs:
    mine, other = place / f"from-{gpu}", place / f"from-{pairs[gpu]}"
    for way in (mine, other) if gpu < pairs[gpu] else (other, mine):
        with open(way, "w" if way == mine else "r") as pipe:
            pipe.write("here") if way == mine else pipe.read()
os.unlink(place / f"on-{gpu}")
if name == "broken":
    sys.exit(f"Error: {name} is no archive")
shutil.copy(place / "report.json", words[words.index("--json") + 1])
with open(place / "ran", "a") as ran:
    ran.write(f"{name} {gpu}\\n")
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A place with GPUs as far as anybody can see, where gradings are stand-ins: `machine(pairs, names)` makes submissions and
    says who has to meet whom."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "grading.py").write_text(GRADING)
    (place / "report.json").write_text(to_json(report_of(tmp_path)))
    monkeypatch.setattr(batch, "PROGRAM", (sys.executable, str(place / "grading.py"), str(place)))
    monkeypatch.setattr("grader.device.why_no_cuda", lambda: "")
    monkeypatch.setattr("grader.course.cli._has_container", lambda image: None)

    def make(pairs: dict[str, str], *names: str) -> Path:
        (place / "pairs.json").write_text(json.dumps(pairs))
        for end in pairs:
            os.mkfifo(place / f"from-{end}")
        for name in names:
            (tmp_path / "in" / name).mkdir(parents=True)
        return place

    return make


def ran(place) -> list[list[str]]:
    return [line.split() for line in (place / "ran").read_text().splitlines()]


@pytest.mark.parametrize("more", [[], ["--container", "attnlab-worker-gpu"]])
def test_a_batch_and_a_rerun_use_every_gpu_for_one_grading_at_a_time(machine, tmp_path, more):
    """Each grading meets one on the other GPU, and finds nobody on its own: by the variable that CUDA reads, or by the
    container's option. What is told is in the order of names."""
    place = machine({"0": "3", "3": "0"}, "dan", "ann", "cy", "bob")
    out = tmp_path / "out"
    done = command(batch_command, tmp_path / "in", "--out", out, "--device", "cuda", "--gpus", "0,3", *more)
    assert done.exit_code == 0, done.output
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:4]] == ["ann", "bob", "cy", "dan"]
    assert sorted(name for name, _ in ran(place)) == ["ann", "bob", "cy", "dan"]
    assert sorted(gpu for _, gpu in ran(place)) == ["0", "0", "3", "3"]
    done = command(rerun_command, out, "--only", "all", "--device", "cuda", "--gpus", "0,3", *more)
    told = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert told == ["ann (as asked)", "bob (as asked)", "cy (as asked)", "dan (as asked)"]
    assert sorted(gpu for _, gpu in ran(place)) == ["0"] * 4 + ["3"] * 4


@pytest.mark.slow
def test_a_submission_finds_the_gpu_of_its_job(submission, monkeypatch):
    """What CUDA reads goes through to the process that its functions run in."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    stub = (
        "import os\n\ndef softmax(x, axis=-1):\n    raise ValueError('on GPU ' + os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    assert "on GPU 3" in to_json(grade(submission(attention=stub), rubric=load_rubric(), steps={1}))


def test_on_cpus_as_many_run_at_the_same_time_as_asked(machine, tmp_path):
    """Two that meet each other; the one that fails loses nothing of the other, and says why."""
    place = machine({"ann": "broken", "broken": "ann"}, "broken", "ann")
    done = command(batch_command, tmp_path / "in", "--out", tmp_path / "out", "--jobs", 2)
    assert ran(place) == [["ann", "ann"]]
    assert done.stdout.splitlines()[:2] == ["ann: 100 of 100", "broken: no report (broken is no archive)"]
    done = command(rerun_command, tmp_path / "out", "--only", "all", "--jobs", 2, "--apply")
    assert done.stdout.splitlines() == [
        "ann (as asked)", "  nothing changed", "  applied", "broken (no report)", "  the rerun wrote no report: see printed.txt beside it",
        "  broken is no archive", "  the rerun of broken has no final score, and does not take the place of what there is",
    ]  # fmt: skip
    assert (tmp_path / "out" / "ann" / "earlier-1" / "report.json").exists()


def test_gpus_are_those_that_a_cluster_gave_unless_others_are_named(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5d1a")
    assert (_gpus(None), _gpus("0, 1")) == (["2", "GPU-5d1a"], ["0", "1"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert _gpus(None) == ["0"]


def test_what_ends_last_is_told_first_where_it_was_handed_first():
    """And one that raises keeps nobody else from ending."""
    met = threading.Barrier(2, timeout=60)

    def work(item):
        if item == "second":
            met.wait()
            raise OSError("full")
        if item == "first":
            met.wait()
        return item

    found = list(batch.Machines(jobs=2).each(work, ["first", "second", "third"]))
    assert [(item, future.exception() is None) for item, future in found] == [
        ("first", True),
        ("second", False),
        ("third", True),
    ]


def test_when_the_caller_leaves_off_what_has_not_begun_never_begins():
    done = []
    each = batch.Machines(jobs=1).each(done.append, range(1000))
    next(each)
    each.close()
    assert 1 <= len(done) < 1000


def test_a_grading_that_does_not_end_is_ended():
    """The batch goes on, and what was printed says why."""
    done = batch.Machines(jobs=1).call([sys.executable, "-c", "import threading; threading.Event().wait()"], {}, 1)
    assert (done.returncode, done.stderr) == (-9, "\nit was ended after 1 s")


def test_another_time_limit_grades_nothing_anew():
    """What is final within one is final within another."""
    assert graded.inputs(["--time-limit", "60"]) == graded.inputs([])


# Another stand-in: ann's grading ends at once; any other stops the batch that began it, and says so when it is asked to end.
STOPPING = """
import os, pathlib, shutil, signal, sys
place, number, name = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[4]).name
if name == "ann":
    shutil.copy(place / "report.json", sys.argv[sys.argv.index("--json") + 1])
else:
    signal.alarm(60)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open(place / "ran", "a") as ran:
        print(name, "begun", file=ran, flush=True)
        try:
            os.kill(os.getppid(), number)
            signal.pause()
        except KeyboardInterrupt:
            print(name, "ended", file=ran)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_a_batch_loses_nothing_and_leaves_nothing_running(machine, tmp_path, number):
    """By Ctrl-C, or as a cluster does: what was done stands in the table, what runs is asked to end, the rest never begins."""
    place, out = machine({}, "ann", "bob", "cy"), tmp_path / "out"
    (place / "stopping.py").write_text(STOPPING)
    program = (sys.executable, str(place / "stopping.py"), str(place), str(int(number)))
    begin = f"from grader.course import batch; batch.PROGRAM = {program}; from harness.cli import main; main()"
    words = [sys.executable, "-c", begin, "batch", tmp_path / "in", "--out", out, "--jobs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("ann: 100 of 100") and done.returncode == 1
    assert "The same command goes on" in done.stderr
    assert ran(place) == [["bob", "begun"], ["bob", "ended"]]
    assert [row.split(",")[1] for row in (out / "results.csv").read_text().splitlines()] == ["score", "100.0", "", ""]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_batch_takes_its_running_grading_with_it_however_it_ends(submission, tmp_path, number):
    """Also where it was started in the background, with Ctrl-C ignored: the grading and its workers are gone, and so is their
    scratch."""
    shutil.copytree(submission(), tmp_path / "in" / "ann")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    begin = (
        "from signal import *; signal(SIGINT, SIG_IGN); signal(SIGHUP, SIG_DFL); from harness.cli import main; main()"
    )
    words = [sys.executable, "-c", begin, "batch", tmp_path / "in", "--out", tmp_path / "out"]
    with subprocess.Popen(
        words, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as started:
        family = family_of(started.pid, at_least=3)
        started.send_signal(number)
        _, told = started.communicate(timeout=60)
    assert all_end(family, 20.0)
    assert list(scratch.iterdir()) == []
    assert ("The same command goes on" in told) == (number != signal.SIGKILL)
    assert (tmp_path / "out" / "results.csv").read_text().splitlines()[1].startswith("ann,")


def test_a_batch_says_how_far_it_has_come_and_keeps_its_table_as_it_goes(machine, tmp_path):
    """Of all that were handed in, those graded before and those refused too; the table has a line each from the start."""
    machine({}, "ann", "bob", "cy")
    folder, out, seen = tmp_path / "in", tmp_path / "out", []
    shutil.rmtree(folder / "cy")
    options, machines = [], batch.Machines(jobs=1)

    def note(pace):
        scores = [row.split(",")[1] for row in (out / "results.csv").read_text().splitlines()[1:]]
        seen.append((pace.done, pace.of, pace.graded, scores))

    assert len(list(batch.grade_all(find(folder), out, options, machines, note))) == 2
    assert seen == [(0, 2, 0, ["", ""]), (1, 2, 1, ["100.0", ""]), (2, 2, 2, ["100.0", "100.0"])]
    (folder / "cy").mkdir()
    (folder / "dan").symlink_to(folder / "ann")
    seen.clear()
    assert [r.name for r in batch.grade_all(find(folder), out, options, machines, note)] == ["dan", "cy"]
    assert seen == [(3, 4, 0, ["100.0", "100.0", "", ""]), (4, 4, 1, ["100.0", "100.0", "100.0", ""])]


@pytest.mark.parametrize(
    ("pace", "said"),
    [
        (batch.Pace(0, 12, 0, 0.0), "  0 of 12"),
        (batch.Pace(8, 12, 0, 0.0), "  8 of 12 need no grading now"),
        (batch.Pace(3, 12, 3, 42.0), "  3 of 12, one every 14 s, about 2 min left"),
        (batch.Pace(9, 12, 1, 14.0), "  9 of 12, one every 14 s, about 42 s left"),
        (batch.Pace(20, 1000, 20, 600.0), "  20 of 1000, one every 30 s, about 8.2 h left"),
        (batch.Pace(12, 12, 4, 56.0), "  12 of 12"),
    ],
)
def test_the_rate_is_of_what_this_batch_has_graded(capsys, pace, said):
    _progress(pace)
    assert capsys.readouterr().err.rstrip("\n") == said


# -- rerun -------------------------------------------------------------------------------------------------------------


def test_what_staff_should_look_at_is_flagged(tmp_path):
    a_result(tmp_path, "fine", report_of(tmp_path))
    a_result(tmp_path, "open", report_of(tmp_path, broken(GREEDY)))
    a_result(tmp_path, "odd", report_of(tmp_path, integrity=["x"]))
    a_result(tmp_path, "none", None)
    a_result(
        tmp_path,
        "part",
        report_of(tmp_path, findings=[Finding("entry-refused", "", "'x' was left out: it is a link.")]),
    )
    flags = {r.name: r.flags for r in batch.results(tmp_path)}
    assert flags == {
        "fine": [],
        "open": ["not final", "a fault of the grader"],
        "odd": ["integrity"],
        "none": ["no report"],
        "part": ["files left out"],
    }
    assert [r.name for r in rerun.chosen(tmp_path, ["flagged"])] == ["none", "odd", "open", "part"]
    assert [r.name for r in rerun.chosen(tmp_path, ["fine", "odd"])] == ["fine", "odd"]
    assert len(rerun.chosen(tmp_path, ["all"])) == 5


def test_what_changed_is_told_check_by_check(tmp_path):
    before = json.loads(to_json(report_of(tmp_path, broken(GREEDY))))
    after = json.loads(to_json(report_of(tmp_path, failed(ROWS, wrong_rows(), ("softmax-wrong-axis", "")))))
    told = list(rerun.differences(before, after))
    assert told[0] == "score: 80 (not final) → 80"
    assert f"{ROWS.id}: passed 20 → failed 0 (softmax-wrong-axis)" in told
    assert f"{GREEDY.id}: not-run 0 → passed 20" in told and len(told) == 3
    assert list(rerun.differences(after, after)) == []
    other = list(rerun.differences(after, {**after, "seed": "abc", "rubric": "def"}))
    assert other == [
        f"another rubric than before, by its fingerprint: {after['rubric']} → def",
        "another secret than before, by its fingerprint:  → abc",
    ]
    assert "wrote no report" in next(rerun.differences(before, None))


@pytest.fixture
def regraded(tmp_path, monkeypatch):
    """A flagged result, and a stand-in for the process that grades it again."""
    (tmp_path / "ann").mkdir()
    folder = a_result(tmp_path / "out", "ann", report_of(tmp_path, broken(GREEDY)), source=tmp_path / "ann")
    asked = []

    monkeypatch.setattr("grader.device.why_no_cuda", lambda: "")

    def run(path, place, students, options, machines):
        asked.append((path, tuple(students), list(options)))
        (place / "report.json").write_text(to_json(report_of(tmp_path)))
        return batch.load(place)

    monkeypatch.setattr(rerun, "run", run)
    return folder, asked


def test_a_rerun_replaces_nothing_until_it_is_applied(regraded, tmp_path):
    """Then both are kept."""
    folder, asked = regraded
    first = (folder / "report.json").read_text()
    done = command(rerun_command, tmp_path / "out", "--device", "cuda")
    assert done.exit_code == 0 and "score: 80 (not final) → 100" in done.output
    assert asked == [(tmp_path / "ann", ("ann",), ["--device", "cuda"])]
    assert (folder / "report.json").read_text() == first and batch.load(folder / "rerun").final
    command(rerun_command, tmp_path / "out", "--apply")
    assert batch.load(folder).final and (folder / "earlier-1" / "report.json").read_text() == first
    assert "ann,100.0" in (tmp_path / "out" / "results.csv").read_text()
    assert "No result is flagged" in command(rerun_command, tmp_path / "out").output
    command(rerun_command, tmp_path / "out", "--only", "ann", "--apply")
    assert (folder / "earlier-2").is_dir()


def test_a_rerun_without_a_final_score_takes_no_place(regraded, tmp_path, monkeypatch):
    folder, _ = regraded
    first = (folder / "report.json").read_text()
    monkeypatch.setattr(rerun, "run", lambda path, place, *_: batch.load(place))
    done = command(rerun_command, tmp_path / "out", "--apply")
    assert "wrote no report" in done.output and "no final score" in done.output and "applied" not in done.output
    assert (folder / "report.json").read_text() == first


def test_what_a_rerun_lacks_is_told(tmp_path):
    a_result(tmp_path / "out", "ann", report_of(tmp_path, broken(GREEDY)), source=tmp_path / "moved")
    (a_result(tmp_path / "out", "bob", None) / "submission.json").write_text("{")
    said = command(rerun_command, tmp_path / "out").output
    assert "is not at" in said and "bob/submission.json does not say where the submission is: attnlab batch" in said
    for words, said in (
        ([tmp_path / "none"], "holds no results"),
        ([tmp_path / "out", "--only", "cy"], "no result cy"),
    ):
        done = command(rerun_command, *words)
        assert done.exit_code == 2 and said in " ".join(done.output.split())


# -- gradebooks --------------------------------------------------------------------------------------------------------

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Essay (11),Attention lab (12)
    Points Possible,,,,,10,
"Example, Ann",12345,s1,ann,A,7,
"Sample, Bob",678,s2,bob,A,8,55
"Other, Cy",9,s3,cy,A,9,
"""
MOODLE = "Identifier,Full name,Email address,Status,Grade,Maximum grade\nParticipant 1,Ann Example,ann@example.edu,Submitted,,100\nParticipant 2,Bob,bob@example.edu,Submitted,,100\n"
GRADESCOPE = "Name,SID,Email,Role\nAnn Example,99,ann@example.edu,Student\n"


@pytest.fixture
def results(tmp_path):
    out = tmp_path / "out"
    a_result(out, "one", report_of(tmp_path, failed(ROWS, wrong_rows())), ["12345", "ann@example.edu"])
    a_result(out, "two", report_of(tmp_path, broken(GREEDY)), ["bob"])
    a_result(out, "stray", report_of(tmp_path), ["nobody"])
    return batch.results(out)


def filled(tmp_path, text, results, column="Attention lab"):
    (tmp_path / "students.csv").write_text(text, "utf-8-sig")
    done = fill(tmp_path / "students.csv", results, column)
    return done, list(csv.reader(io.StringIO(done.text)))


def test_canvas_gets_its_columns_with_the_assignments_own_and_no_other_grade(tmp_path, results):
    """Final scores alone: who has none is left out, so that nothing is overwritten with nothing."""
    done, rows = filled(tmp_path, CANVAS, results)
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Attention lab (12)"]
    assert rows[1][0].strip() == "Points Possible" and rows[1][-1] == "100"
    assert rows[2:] == [["Example, Ann", "12345", "s1", "ann", "A", "80"]]
    without = ("Sample, Bob (the report of two is not final)", "Other, Cy (no result is of that name)")
    assert (done.kind, done.without, done.unmatched) == ("Canvas", without, ("stray",))


def test_a_score_of_the_list_is_not_lowered_and_one_that_is_flagged_not_written_unless_asked(tmp_path, results):
    """Ann has 88 there and 80 here; a folder with nothing to grade has a final 0. What is overwritten is told."""
    nothing = report_of(
        tmp_path, findings=[Finding("nothing-gradable", "", "Nothing here can be graded: lab.ipynb is there.")]
    )
    a_result(tmp_path / "out", "cy", nothing, ["9"])
    found = batch.results(tmp_path / "out")
    text = CANVAS.replace("A,7,", "A,7,88").replace("A,9,", "A,9,61")
    done, rows = filled(tmp_path, text, found)
    assert len(rows) == 2
    assert done.withheld == (
        "Example, Ann (80 is less than 88)",
        "Other, Cy (Nothing here can be graded: lab.ipynb is there)",
    )
    done = fill(tmp_path / "students.csv", found, "Attention lab", include_flagged=True)
    assert (done.withheld, done.overwritten) == ((), ("Example, Ann: 88 becomes 80", "Other, Cy: 61 becomes 100"))


def test_a_column_that_the_list_does_not_have_is_refused_with_the_nearest(tmp_path, results):
    """A typing error would add a column; a list with no assignment in it at all gets one."""
    with pytest.raises(GradebookError, match="no column 'Atention lab': the nearest is 'Attention lab"):
        filled(tmp_path, CANVAS, results, "Atention lab")
    bare = (
        CANVAS.replace(",Essay (11),Attention lab (12)", "").replace(",7,", "").replace(",8,55", "").replace(",9,", "")
    )
    assert filled(tmp_path, bare.replace(",10,", ""), results, "Lab 7")[1][0][-1] == "Lab 7"


def test_moodles_worksheet_is_filled_in(tmp_path, results):
    done, rows = filled(tmp_path, MOODLE, results)
    assert done.kind == "Moodle" and rows[1] == [
        "Participant 1",
        "Ann Example",
        "ann@example.edu",
        "Submitted",
        "80",
        "100",
    ]
    assert len(rows) == 2
    _, rows = filled(tmp_path, "Email address;Last name\nann@example.edu;Example\n".replace(";", ","), results)
    assert rows == [["Email address", "Last name", "Attention lab"], ["ann@example.edu", "Example", "80"]]


def test_gradescopes_roster_gets_totals(tmp_path, results):
    done, rows = filled(tmp_path, GRADESCOPE, results)
    assert done.kind == "Gradescope"
    assert rows == [
        ["Name", "SID", "Email", "Role", "Total Score", "Max Points"],
        ["Ann Example", "99", "ann@example.edu", "Student", "80", "100"],
    ]


def test_a_list_with_semicolons_keeps_them(tmp_path, results):
    (tmp_path / "students.csv").write_text("Email address;Grade\nann@example.edu;\n")
    assert fill(tmp_path / "students.csv", results, "x").text == "Email address;Grade\r\nann@example.edu;80\r\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: name the file"),
        ("a,b\n1,2\n", "is no list of students that is known here"),
        ("Full name\nAnn\n", "is no list of students that is known here"),
        ("Email,SID,Name\nann@example.edu,99,Example, Ann\n", "row 2: 4 cells under 3 columns: put quotes around"),
        ("Email,SID,Name,Name\nann@example.edu,99,Ann,A\n", "two columns 'Name'"),
        (
            "Email,SID,Name\nann@example.edu,99,Ren\xe9e\n".encode("latin-1"),
            "is not UTF-8: name the file as the platform",
        ),
        ("Email,SID,Name\n" + "x" * 200_000, "cannot be read (field larger"),
    ],
)
def test_a_list_that_cannot_be_filled_in_is_told(tmp_path, results, text, said):
    (tmp_path / "students.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GradebookError, match=re.escape(said)):
        fill(tmp_path / "students.csv", results, "Attention lab")


def test_what_a_list_says_of_a_student_comes_back_as_it_was(tmp_path, results):
    """Commas, accents however they are spelled, quotes, and what a spreadsheet takes for a formula: the platform finds its
    students by them."""
    names = ("Example, Ann", "Rene\u0301e O'Hara", '=HYPERLINK("x")', "-1+2", " Ann  Bell ")
    for i, name in enumerate(("Ren\u00e9e o'hara", *names[2:])):
        a_result(tmp_path / "out", f"more-{i}", report_of(tmp_path), [name])
    stream = io.StringIO()
    table = csv.writer(stream)
    table.writerows([["Name", "SID", "Email"], [names[0], "99", "ann@example.edu"], *([n, "", ""] for n in names[1:])])
    _, rows = filled(tmp_path, stream.getvalue(), batch.results(tmp_path / "out"))
    assert [row[0] for row in rows[1:]] == list(names)
    assert [row[3] for row in rows[1:]] == ["80", "100", "100", "100", "100"]


def test_people_of_one_name_are_told_apart_by_address_or_id_and_never_guessed(tmp_path):
    out = tmp_path / "out"
    a_result(out, "first", report_of(tmp_path), ["lee1@example.edu", "Kim Lee"])
    a_result(out, "second", report_of(tmp_path, failed(ROWS, wrong_rows())), ["lee2@example.edu", "Kim Lee"])
    a_result(out, "other", report_of(tmp_path), ["Jo Park"])
    roster = "Name,SID,Email\nKim Lee,1,lee1@example.edu\nKim Lee,2,lee2@example.edu\nJo Park,3,a@x\nJo Park,4,b@x\n"
    done, rows = filled(tmp_path, roster, batch.results(out))
    assert [row[3] for row in rows[1:]] == ["100", "80"] and done.unmatched == ("other",)
    assert len(done.without) == 2 and "others in the list have that name: call the folders" in done.without[0]


def test_a_section_says_of_nobody_who_he_is(tmp_path):
    a_result(tmp_path / "out", "A", report_of(tmp_path))
    done, rows = filled(tmp_path, CANVAS, batch.results(tmp_path / "out"))
    assert len(rows) == 2 and done.unmatched == ("A",)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"final": true, "steps": [{}]}', '{"final": true, "steps": [], "score": null}']
)
def test_a_report_that_somebody_broke_is_no_grade_and_is_told(tmp_path, text):
    """It is flagged, its student is left out with the cause, a rerun says what is there now."""
    folder = a_result(tmp_path / "out", "ann", None, ["99"], source=tmp_path)
    (folder / "report.json").write_text(text)
    done, _ = filled(tmp_path, GRADESCOPE, batch.results(tmp_path / "out"))
    assert done.without == ("ann@example.edu (ann has no report that can be read)",)
    assert batch.load(folder).flags == ["no report"]
    batch.write_table(tmp_path / "out")
    after = json.loads(to_json(report_of(tmp_path)))
    assert next(rerun.differences(batch.load(folder).report, after)) == "score: no report → 100"


# -- lateness ----------------------------------------------------------------------------------------------------------

LATE = "submissions: {late: {percent_a_day: 10, most_percent: 50, grace_minutes: 15}}\n"
DUE = "2026-03-05T12:00-08:00"


@pytest.fixture
def late(tmp_path):
    """A result that Gradescope's export gives a time of, and one that nobody knows the time of; a gradebook of both."""
    folder = tmp_path / "in"
    for name in ("submission_1", "bob"):
        (folder / name).mkdir(parents=True)
    (folder / "submission_metadata.yml").write_text(
        "---\nsubmission_1:\n  :submitters:\n  - :name: Ann\n    :email: ann@example.edu\n  :created_at: 2026-03-06 21:00:00.000000000 Z\n"
    )
    (tmp_path / "students.csv").write_text("Name,SID,Email\nAnn,1,ann@example.edu\nBob,2,bob\n")
    report = to_json(report_of(tmp_path, extra=LATE))

    def run(path, place, *_):
        (place / "report.json").write_text(report)
        return batch.load(place)

    def go(*due):
        out = tmp_path / "scores.csv"
        out.unlink(missing_ok=True)
        words = [part for d in due for part in ("--due", d)]
        done = command(gradebook_command, tmp_path / "out", tmp_path / "students.csv", out, *words)
        rows = list(csv.reader(io.StringIO(out.read_text()))) if out.exists() else []
        return {row[2]: row[3] for row in rows[1:]}, " ".join(done.output.split())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "run", run)
        assert command(batch_command, folder, "--out", tmp_path / "out").exit_code == 0
    return go


def test_lateness_takes_off_in_a_gradebook_what_it_takes_off_on_gradescope(late):
    """A day and an hour late is two begun days; whose time is not known keeps the score, and is named."""
    scores, said = late(DUE)
    assert scores == {"ann@example.edu": "80", "bob": "100"}
    assert "ann@example.edu: Handed in after 2026-03-05 12:00 UTC-08:00, 2 days late: 20 percent less" in said
    assert "nothing was taken off for bob: when they handed in is not known" in said


def test_an_extension_counts_as_the_due_date_of_who_has_it(late):
    scores, said = late(DUE, "Ann@Example.edu=2026-03-06T22:00Z")
    assert scores["ann@example.edu"] == "100" and "Handed in after" not in said
    assert late("ann@example.edu=2026-03-06T20:00Z")[0]["ann@example.edu"] == "90"
    assert late(DUE, "ann@example.edu=2026-03-01T12:00Z")[0]["ann@example.edu"] == "80"  # the later of the two


def test_without_a_due_date_nothing_is_taken_off_and_that_is_said(late):
    scores, said = late()
    assert set(scores.values()) == {"100"}
    assert "nothing was taken off for ann@example.edu: say when it was due, as --due" in said


@pytest.mark.parametrize(
    ("due", "said"),
    [
        (["soon"], "'soon' is no time with a zone"),
        (["2026-03-05T12:00"], "is no time with a zone"),
        (["=2026-03-05T12:00Z"], "is no time with a zone"),
        ([DUE, DUE], "the due date of all is given twice"),
        (["cy=" + DUE], "--due names cy, and no result is of that name"),
    ],
)
def test_a_due_date_that_cannot_be_held_against_anything_is_told(late, due, said):
    scores, told = late(*due)
    assert said in told and not scores


def test_a_due_date_means_nothing_to_a_rubric_without_lateness(tmp_path, results):
    (tmp_path / "students.csv").write_text(GRADESCOPE)
    done = command(gradebook_command, tmp_path / "out", tmp_path / "students.csv", tmp_path / "x.csv", "--due", DUE)
    assert done.exit_code == 2 and "takes nothing off for lateness" in " ".join(done.output.split())


def test_two_results_of_one_student_are_told_and_not_chosen_from(tmp_path, results):
    a_result(tmp_path / "out", "again", report_of(tmp_path), ["12345"])
    with pytest.raises(GradebookError, match="again, one"):
        filled(tmp_path, CANVAS, batch.results(tmp_path / "out"))


def test_the_command_writes_it_and_says_who_is_left_out(tmp_path, results):
    (tmp_path / "students.csv").write_text(CANVAS)
    done = command(gradebook_command, tmp_path / "out", tmp_path / "students.csv", tmp_path / "canvas.csv")
    assert done.exit_code == 0 and "Written for Canvas" in done.output
    assert "Results of nobody in students.csv: stray" in done.output and "without a final score" in done.output
    before = (tmp_path / "students.csv").read_text()
    for words, said in (
        ([tmp_path, tmp_path / "students.csv", tmp_path / "x.csv"], "holds no results"),
        ([tmp_path / "out", tmp_path / "none.csv", tmp_path / "x.csv"], "none.csv cannot be read (No such file"),
        ([tmp_path / "out", tmp_path / "students.csv", tmp_path / "students.csv"], "is the list of students itself"),
        ([tmp_path / "out", tmp_path / "students.csv", tmp_path / "none" / "x.csv"], "there is no folder"),
    ):
        done = command(gradebook_command, *words)
        assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output
    assert (tmp_path / "students.csv").read_text() == before
