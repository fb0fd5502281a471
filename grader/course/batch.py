"""Grades a folder of submissions, each in a process of its own, into a folder of results that can be gone on with.

A result is a folder: report.json and report.html, submission.json (where it came from, and whose it is), and what the grader
printed. One that is final is not graded again, so a batch that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.course.submissions import Handed
from grader.render.files import write_atomically

REPORT = "report.json"


class Machines:
    """Where gradings run: on this machine's CPUs, or on GPUs by number, one grading at a time on each."""

    def __init__(self, gpus: Sequence[str] = (), in_containers: bool = False) -> None:
        self.count = len(gpus)
        self._in_containers = in_containers
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for gpu in gpus:
            self._free.put(gpu)

    @contextlib.contextmanager
    def one(self) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Waits for a GPU that is free, where there are any; gives the options and variables that name it."""
        if not self.count:
            yield [], {}
            return
        gpu = self._free.get()
        try:
            yield (["--gpus", gpu], {}) if self._in_containers else ([], {"CUDA_VISIBLE_DEVICES": gpu})
        finally:
            self._free.put(gpu)


@dataclass(frozen=True)
class Result:
    """What stands in a result's folder. `report` is None where there is none that can be read."""

    name: str
    folder: Path
    source: Path
    students: tuple[str, ...]
    report: dict[str, Any] | None

    @property
    def final(self) -> bool:
        return bool(self.report and self.report.get("final"))

    @property
    def flags(self) -> list[str]:
        """Why staff should look: no report, no final score, faults of the grader, findings of integrity."""
        if self.report is None:
            return ["no report"]
        flags = [] if self.final else ["not final"]
        flags += ["a fault of the grader"] if self.report.get("faults") else []
        return flags + (["integrity"] if self.report.get("integrity") else [])


def load(folder: Path) -> Result:
    """Reads a result's folder, whatever state it is in."""
    about, report = _read(folder / "submission.json") or {}, _read(folder / REPORT)
    students = about.get("students", [])
    return Result(folder.name, folder, Path(str(about.get("path", ""))), tuple(map(str, students)), report)


def results(out: Path) -> list[Result]:
    """All results in a batch's folder, by name."""
    return [load(path.parent) for path in sorted(out.glob("*/submission.json"))]


def grade_all(
    handed: Sequence[Handed], out: Path, options: Sequence[str], jobs: int, machines: Machines
) -> Iterator[Result]:
    """Grades what has no final report yet, so many at a time, on GPUs no more than there are; gives each result as it is
    there. Raises OSError."""
    todo = []
    for one in handed:
        folder = out / one.name
        folder.mkdir(parents=True, exist_ok=True)
        about = {"path": str(one.path.resolve()), "students": list(one.students)}
        write_atomically(folder / "submission.json", json.dumps(about, indent=1) + "\n")
        if not load(folder).final:
            todo.append(one)
    with ThreadPoolExecutor(machines.count or jobs) as pool:
        running = [pool.submit(run, one.path, out / one.name, one.students, options, machines) for one in todo]
        for done in as_completed(running):
            yield done.result()
    write_table(out)


def run(path: Path, folder: Path, students: Sequence[str], options: Sequence[str], machines: Machines) -> Result:
    """Grades one submission into a folder, in a process of its own."""
    named = [f"--student={student}" for student in students]  # a name may begin with anything
    files = ["--json", str(folder / REPORT), "--html", str(folder / "report.html")]
    with machines.one() as (more, variables):
        command = [sys.executable, "-m", "grader", "grade", str(path.resolve()), *files, *named, *options, *more]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
        )
    (folder / "printed.txt").write_text(
        f"{done.stdout}{done.stderr}\nexit status {done.returncode}\n", errors="replace"
    )
    return load(folder)


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


def _read(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
