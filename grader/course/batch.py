"""Grades submissions side by side, each in a process of its own, into a folder of results that can be gone on with.

A result is a folder: report.json and report.html, evidence.json (what they were made of), submission.json (where it came
from, and whose it is), and what the grader printed. One that is final and was graded from what there is now (graded.json) is
not graded again, so a batch that was stopped goes on where it was; where the submission, the rubric, the secret or a version is
another, it is graded anew, and the earlier result is kept beside it as `earlier-1`, `earlier-2`, …
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from grader.cli import TIME_LIMIT
from grader.course import graded
from grader.course.submissions import Handed
from grader.policy import moment
from grader.render.files import write_atomically
from harness.loader import NOTHING_GRADABLE

REPORT = "report.json"
EVIDENCE = "evidence.json"
KEPT = (REPORT, "report.html", EVIDENCE, "printed.txt", graded.FILE)
START = 120.0  # seconds that a grading may take to begin, on a busy machine
PROGRAM = (sys.executable, "-m", "grader.course.grading", str(os.getpid()))

T = TypeVar("T")
R = TypeVar("R")


class Machines:
    """Where gradings run: `jobs` of them at a time on this machine's CPUs, or on GPUs by number, one at a time on each."""

    def __init__(self, gpus: Sequence[str] = (), in_containers: bool = False, jobs: int = 1) -> None:
        self.count = len(gpus) or jobs
        self._gpus, self._in_containers = bool(gpus), in_containers
        self._running: set[subprocess.Popen[str]] = set()
        self._starting = threading.Lock()
        self.ended = False
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for gpu in gpus:
            self._free.put(gpu)

    @contextlib.contextmanager
    def one(self) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Waits for a GPU that is free, where there are any; gives the options and variables that name it."""
        if not self._gpus:
            yield [], {}
            return
        gpu = self._free.get()
        try:
            yield (["--gpus", gpu], {}) if self._in_containers else ([], {"CUDA_VISIBLE_DEVICES": gpu})
        finally:
            self._free.put(gpu)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[tuple[T, Future[R]]]:
        """Does `work` on the items, as many at a time as there is room for; gives each with what came of it, a value or what it
        raised, in the order of `items` whatever ends first. When it is closed, what has not begun never begins, and the programs
        that run are asked to end, and waited for."""
        self.ended = False
        pool = ThreadPoolExecutor(self.count)
        try:
            begun = [(item, pool.submit(work, item)) for item in items]
            for item, future in begun:
                future.exception()  # waits
                yield item, future
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            with self._starting:
                self.ended = True
                for program in self._running:
                    program.terminate()
            pool.shutdown()

    def call(
        self, command: Sequence[str], variables: Mapping[str, str], seconds: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, at most for `seconds`, and keeps what it prints. It is in a group of its own, where a
        terminal's Ctrl-C does not reach it: when all is to end, `each` says so to it, once. Raises OSError."""
        with self._starting:
            if self.ended:
                raise InterruptedError(0, "it was stopped before it began")
            program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, **variables},
                process_group=0,
            )
            self._running.add(program)
        try:
            with program:
                try:
                    printed, told = program.communicate(timeout=seconds)
                except subprocess.TimeoutExpired:
                    program.kill()
                    printed, told = program.communicate()
                    told += f"\nit was ended after {seconds:g} s"
        finally:
            self._running.discard(program)
        return subprocess.CompletedProcess(command, program.returncode, printed, told)


@dataclass(frozen=True)
class Pace:
    """How far a batch has come: `done` of `of` submissions, `graded` of them by itself, in `seconds`."""

    done: int
    of: int
    graded: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """What stands in a result's folder. `report` is None where there is none that can be read; `said` is why the grading that
    has just ended went wrong, where it did, `created` when it was handed in, where that is known, and `refused` why it is not
    graded at all. `anew` is why what was there before was graded again."""

    name: str
    folder: Path
    source: Path | None
    students: tuple[str, ...]
    report: dict[str, Any] | None
    said: str = ""
    created: datetime | None = None
    refused: str = ""
    anew: str = ""

    @property
    def final(self) -> bool:
        return bool(self.report and self.report.get("final"))

    @property
    def flags(self) -> list[str]:
        """Why staff should look: refused, no report, no final score, nothing that can be graded, faults of the grader, files
        that were left out, findings of integrity."""
        if self.refused:
            return [f"refused: {self.refused}"]
        if self.report is None:
            return ["no report"]
        flags = [] if self.final else ["not final"]
        flags += ["a fault of the grader"] if self.report.get("faults") else []
        findings = self.report.get("findings", [])
        flags += [str(f["message"]).rstrip(".") for f in findings if f["code"] == NOTHING_GRADABLE]
        left_out = any(f["code"] == "entry-refused" for f in findings)
        flags += ["files left out"] if left_out else []
        return flags + (["integrity"] if self.report.get("integrity") else [])


def load(folder: Path) -> Result:
    """Reads a result's folder, whatever state it is in."""
    about = _read(folder / "submission.json") or {}
    path, students = about.get("path"), about.get("students")
    names = tuple(map(str, students)) if isinstance(students, list) else ()
    source = Path(path) if isinstance(path, str) and path else None
    created, refused = moment(about.get("created")), str(about.get("refused", ""))
    return Result(folder.name, folder, source, names, _report(folder), created=created, refused=refused)


def results(out: Path) -> list[Result]:
    """All results in a batch's folder, by name."""
    return [load(path.parent) for path in sorted(out.glob("*/submission.json"))]


def grade_all(
    handed: Sequence[Handed], out: Path, options: Sequence[str], machines: Machines, on_end: Callable[[Pace], None]
) -> Generator[Result]:
    """Grades what has no final report of what there is now; gives the results in the order of `handed`, after those that
    are refused. The table is written anew, and `on_end` called, at the start and whenever a grading has ended. Raises OSError
    where `out` cannot be written."""
    todo = []
    common = graded.inputs(options)
    anew: dict[str, str] = {}
    for one in handed:
        folder = out / one.name
        folder.mkdir(parents=True, exist_ok=True)
        created = {"created": one.created.isoformat()} if one.created else {}
        refused = {"refused": one.refused} if one.refused else {}
        about = {"path": str(one.path.absolute()), "students": list(one.students), **created, **refused}
        write_atomically(folder / "submission.json", json.dumps(about, indent=1) + "\n")
        before = load(folder)
        if one.refused:
            if before.report is not None:
                set_aside(folder)
            yield load(folder)
        elif not before.final:
            todo.append(one)
        elif why := graded.changed(folder, {"submission": graded.digest(one.path), **common}):
            anew[one.name] = "; ".join(why)
            set_aside(folder)
            todo.append(one)
    write_table(out)
    began, ended, told = time.monotonic(), 0, threading.Lock()
    on_end(Pace(len(handed) - len(todo), len(handed), 0, 0.0))

    def grade(one: Handed) -> Result:
        nonlocal ended
        try:
            return run(one.path, out / one.name, one.students, options, machines)
        finally:
            with told:
                ended += 1
                write_table(out)
                if not machines.ended:
                    on_end(Pace(len(handed) - len(todo) + ended, len(handed), ended, time.monotonic() - began))

    with contextlib.closing(machines.each(grade, todo)) as each:
        for one, done in each:
            error = done.exception()
            found = replace(load(out / one.name), said=cause(error)) if error else done.result()
            yield replace(found, anew=anew.get(one.name, ""))


def run(path: Path, folder: Path, students: Sequence[str], options: Sequence[str], machines: Machines) -> Result:
    """Grades one submission into a folder, in a process of its own. Raises OSError."""
    graded.record(folder, {"submission": graded.digest(path), **graded.inputs(options)})
    named = [f"--student={student}" for student in students]  # a name may begin with anything
    files = [
        "--json",
        str(folder / REPORT),
        "--html",
        str(folder / "report.html"),
        "--evidence",
        str(folder / EVIDENCE),
    ]
    with machines.one() as (more, variables):
        limit = float(options[options.index("--time-limit") + 1]) if "--time-limit" in options else TIME_LIMIT
        command = [*PROGRAM, "grade", str(path.absolute()), *files, *named, *options, *more]
        done = machines.call(command, variables, limit + START)  # it ends itself before that
    (folder / "printed.txt").write_text(
        f"{done.stdout}{done.stderr}\nexit status {done.returncode}\n", errors="replace"
    )
    said = done.stderr.strip().splitlines() or [f"the grader ended with {done.returncode} and said nothing"]
    return replace(load(folder), said=said[-1].removeprefix("Error: ")[:500] if done.returncode else "")


def next_earlier(folder: Path) -> Path:
    """Where a result is kept beside itself: earlier-1, earlier-2, …"""
    number = 1
    while (folder / f"earlier-{number}").exists():
        number += 1
    return folder / f"earlier-{number}"


def set_aside(folder: Path, new: Path | None = None) -> None:
    """Keeps a result beside itself; what is in `new` takes its place. Raises OSError."""
    kept = next_earlier(folder)
    kept.mkdir()
    for name in KEPT:
        if (folder / name).exists() and new is None:
            (folder / name).replace(kept / name)
        elif (folder / name).exists():
            shutil.copy2(folder / name, kept / name)
        if new is not None and (new / name).exists():
            (new / name).replace(folder / name)  # in one step: no reader finds half a report


def cause(error: BaseException) -> str:
    """An error of the system as a sentence with the file and the mend; any other as it is."""
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    where = f"{error.filename} cannot be written" if error.filename else "the grading could not be run"
    return f"{where} ({error.strerror or error}): mend that, and the same command goes on where it was"


def write_table(out: Path) -> None:
    """results.csv: a line a submission, for a person. Raises OSError."""
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["name", "score", "of", "final", "faults named", "to be looked at"])
    for result in results(out):
        report = result.report or {}
        table.writerow(
            [
                _cell(result.name),
                report.get("subtotal", ""),
                report.get("max_score", ""),
                "yes" if result.final else "no",
                " ".join(codes(report)),
                ", ".join(result.flags),
            ]
        )
    write_atomically(out / "results.csv", stream.getvalue())


def codes(report: dict[str, Any]) -> list[str]:
    """The faults that a report names, each once."""
    found = [
        d["code"] for s in report.get("steps", []) for c in s["checks"] for d in c["diagnoses"] if not d.get("note")
    ]
    return sorted({code for code in found if code != "blocked-by"})


def _report(folder: Path) -> dict[str, Any] | None:
    """A report that has what is read of it here; None where somebody has cut it short or written it anew."""
    report = _read(folder / REPORT)
    try:
        if report is not None:
            codes(report)
            _ = [f["code"] for f in report.get("findings", [])]
            _ = [(c["id"], c["status"], float(c["score"])) for step in report["steps"] for c in step["checks"]]
            _ = [float(report[key]) for key in ("subtotal", "max_score", *(["score"] if report["final"] else []))]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return report


def _read(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
