"""What a student waits for: the public tests of steps 1 and 2, and the first line that names a mistake.

python benchmarks/student.py                  the tests of steps 1 and 2 on examples/base, by pytest, three times
python benchmarks/student.py FOLDER BASE      each case in FOLDER (files to be laid over BASE, with a case.toml that has `codes`):
                                              seconds of `pytest -x`, and the hint of its first failure (`unrecognised` where it
                                              names nothing, and says what is odd)
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from harness.messages import MESSAGES

ROOT = Path(__file__).resolve().parents[1]


def lab(folder: Path, *layers: Path) -> Path:
    """The students' folder with the files of a submission laid over it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "student_template", folder)
    for layer in layers:
        for file in layer.glob("*.py"):
            shutil.copy(file, folder)
    return folder


def pytest(folder: Path, *options: str) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and the output of a run in that folder."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options], cwd=folder, env=environment, capture_output=True, text=True
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def first_two_steps(scratch: Path) -> None:
    folder = lab(scratch / "lab", ROOT / "examples" / "base")
    pytest(folder, "--collect-only")  # bytecode is written once in a student's life
    for _ in range(3):
        wall, cpu, output = pytest(folder, "--step", "1,2")
        print(f"steps 1 and 2: {wall:.2f} s wall, {cpu:.2f} s CPU; {output.splitlines()[-1]}")


def cases(scratch: Path, folder: Path, base: Path) -> None:
    codes = {words.short: code for code, words in MESSAGES.items()}
    right = named = count = 0
    for case in sorted(path.parent for path in folder.glob("*/case.toml")):
        about = tomllib.loads((case / "case.toml").read_text())
        if about["kind"] != "fault":
            continue
        wall, _, output = pytest(lab(scratch / "lab", base, case), "-x")
        hint = re.search(r"^E +hint: +(.*)$", output, re.MULTILINE)
        failed = re.search(r"^E   (.*)$", output, re.MULTILINE)
        code = next((c for short, c in codes.items() if hint and hint[1].startswith(f"{short}. ")), "unrecognised")
        fits = bool(hint) and code in {*about["codes"], *about.get("also", [])}
        count, named, right = count + 1, named + bool(hint), right + fits
        line = hint[1] if hint else failed[1] if failed else "nothing fails"
        print(
            f"{case.name:40} {wall:5.1f} s  {'right' if fits else 'other' if hint else '     '}  {code:28} {line[:70]}",
            flush=True,
        )
    print(f"{count} mistakes: {named} with a hint, {right} of these with the right code")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        if len(sys.argv) == 3:
            cases(Path(scratch), Path(sys.argv[1]), Path(sys.argv[2]))
        else:
            first_two_steps(Path(scratch))
