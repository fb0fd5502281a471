"""Every command line of every page, copied from the page and typed in order in a fresh container: Python, and nothing else.

No git, no compiler, no environment: the repository's files (or, for a student, the zip alone) and a network for pip."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docker import engine
from tests.test_docs import DOCS, PAGES, ROOT, blocks, sample

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PYTHON = "python:3.11-slim-bookworm"
SET_UP = "attnlab-test-set-up"
MADE = ("__pycache__", "out", "build", "dist")
OWN_SUITE = "scripts/test"  # which runs this test

# After each page's commands, what shows that they did what the page says.
AFTER = {
    "staff.md": "ls autograder.zip report.html results.json junit.xml secret.txt",
    "ta.md": "ls results/ann/earlier-1/report.json && grep -E '^ann,Ann Example,[0-9.]+' scores.csv",
    "adding-a-fault.md": "grep -F '| `causal-mask-window` | **Only a window is visible.**' docs/codes.md",
}


def index() -> tuple[list[str], str]:
    """Docker's options by which a container reaches a package index, and the version of torch that is to be had there.

    PyTorch's CPU build comes from where DOCKER_BUILD_ARGS says that images get it, else from its own index.
    """
    given = dict(
        word.partition("=")[::2] for word in shlex.split(os.environ.get("DOCKER_BUILD_ARGS", "")) if "=" in word
    )
    found = {name: value for name, value in given.items() if name.startswith("PIP_")}
    found = found or {"PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/cpu"}
    options = ["--network=host"] if given else []
    for name, value in (found | {"PIP_CONSTRAINT": "/etc/torch.txt", "COLUMNS": "100"}).items():
        options += ["-e", f"{name}={value}"]
    torch = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert torch
    return options, torch[0] + "\n"


class Machine:
    """A container in which lines are typed, one terminal for all of them."""

    def __init__(self, image: str) -> None:
        options, torch = index()
        self.name = f"attnlab-test-{uuid.uuid4().hex[:8]}"
        start = ["docker", "run", "-d", "--init", "--name", self.name, *options, "-w", "/lab", image, "sleep", "3600"]
        started = subprocess.run(start, capture_output=True, text=True)
        assert started.returncode == 0, started.stderr
        self.put({"/etc/torch.txt": torch.encode()})

    def put(self, files: dict[str, bytes | Path]) -> None:
        """Copies files into the container; a path keeps its permissions."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                data = content if isinstance(content, bytes) else content.read_bytes()
                entry.size, entry.mode = (
                    len(data),
                    0o644 if isinstance(content, bytes) else content.stat().st_mode & 0o777,
                )
                tar.addfile(entry, io.BytesIO(data))
        command = ["docker", "cp", "-q", "-", f"{self.name}:/"]
        copied = subprocess.run(command, input=packed.getvalue(), capture_output=True)
        assert copied.returncode == 0, copied.stderr.decode()

    def get(self, name: str) -> bytes:
        """A file of the container."""
        return subprocess.run(["docker", "exec", self.name, "cat", name], stdout=subprocess.PIPE, check=True).stdout

    def type(self, *lines: str) -> dict[str, str]:
        """What each line prints. Every line must succeed; a pytest may also find failures."""
        mark = uuid.uuid4().hex
        script = "exec 2>&1\n" + "".join(f"{line}\ncode=$?; echo; echo {mark} $code\n" for line in lines)
        done = subprocess.run(
            ["docker", "exec", self.name, "bash", "-c", script], capture_output=True, text=True, timeout=1800
        )
        said: dict[str, str] = {}
        parts = re.split(rf"^{mark} (\d+)\n", done.stdout, flags=re.MULTILINE)
        for line, printed, code in zip(lines, parts[0::2], parts[1::2], strict=False):
            said[line] = printed
            if "No matching distribution" in printed:
                pytest.skip("no package index can be reached from a container")
            allowed = ("0", "1") if re.search(r"\bpytest\b", line) and "pip" not in line else ("0",)
            assert code in allowed, f"{line}\nexit {code}\n{printed[-3000:]}"
        assert len(said) == len(set(lines)), done.stdout[-3000:] + done.stderr
        return said


@contextlib.contextmanager
def machine(image: str) -> Iterator[Machine]:
    if not engine():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode:
        pulled = subprocess.run(["docker", "pull", "-q", image], capture_output=True, text=True)
        if pulled.returncode:
            pytest.skip(f"{image} cannot be had: {pulled.stderr.strip()}")
    found = Machine(image)
    try:
        yield found
    finally:
        subprocess.run(["docker", "rm", "-f", found.name], capture_output=True)


def typed(page: Path) -> list[str]:
    """A page's command lines, but for those that need an engine inside the container."""
    return [line for block in blocks(page.read_text(), "sh") for line in block.splitlines() if line.strip()]


def repository() -> dict[str, bytes | Path]:
    """The repository's files, as a clone or an archive of it has them: nothing that was made here."""
    files: dict[str, bytes | Path] = {}
    for folder, below, names in os.walk(ROOT):
        below[:] = [n for n in below if not n.startswith(".") and n not in MADE and not n.endswith(".egg-info")]
        files |= {f"/lab/{Path(folder, name).relative_to(ROOT)}": Path(folder, name) for name in names}
    return files


@pytest.fixture(scope="module")
def set_up() -> Iterator[str]:
    """An image of a container in which the README's commands were typed."""
    with machine(PYTHON) as fresh:
        fresh.type("! command -v git gcc cc make")
        fresh.put(repository())
        lines = [line for line in typed(ROOT / "README.md") if not line.startswith(OWN_SUITE)]
        demo = next(line for line in lines if line.startswith("scripts/demo"))
        said = fresh.type(*lines, "ls out/report.html report.html report.json")
        assert "Softmax over the queries" in said[demo] and " of 100 points" in said[demo]
        committed = subprocess.run(["docker", "commit", fresh.name, SET_UP], capture_output=True, text=True)
        assert committed.returncode == 0, committed.stderr
    yield SET_UP
    subprocess.run(["docker", "image", "rm", "-f", SET_UP], capture_output=True)


@pytest.mark.parametrize("page", [page.name for page in PAGES if page.parent == DOCS and page.name != "student.md"])
def test_a_pages_commands_work_in_a_fresh_container(set_up: str, page: str) -> None:
    """In order, in one terminal, in the repository's folder as the README's two commands left it."""
    lines = typed(DOCS / page)
    if not lines:
        pytest.skip("this page has no commands, or none that do without an engine")
    with machine(set_up) as own:
        if blocks((DOCS / page).read_text(), "diff"):  # which the reader makes by hand
            done = f'by_hand(ROOT, (DOCS / "{page}").read_text())'
            own.type(f".venv/bin/python -c 'from tests.test_docs import DOCS, ROOT, by_hand; {done}'")
        own.type(*lines, AFTER.get(page, "true"))


def test_a_students_page_works_from_the_zip_on(set_up: str) -> None:
    """The course's commands give the zip; the rest, and the README in the zip, want Python alone."""
    page = typed(DOCS / "student.md")
    course = page[: next(i for i, line in enumerate(page) if line.startswith("attnlab release")) + 1]
    with machine(set_up) as staff:
        staff.type(*course)
        lab = staff.get("/lab/lab.zip")
        mistaken = staff.get("/lab/examples/one_mistake/attention.py")
    with machine(PYTHON) as student:
        student.type("! command -v git gcc cc make")
        student.put({"/lab/lab.zip": lab})
        said = student.type(*page[len(course) :])
        first = said[".venv/bin/python -m pytest -x"]
        assert "Write softmax: subtract the maximum along axis" in first
        assert "1 failed in" in first
        assert "submission.zip: 4 files" in said[".venv/bin/attnlab pack"]

        inside = "cd attention-lab", "source .venv/bin/activate"
        readme = student.get("/lab/attention-lab/README.md").decode()
        tests = re.findall(r"^    ((?:pytest|attnlab|python)\b.*?)(?:  |$)", readme, re.MULTILINE)
        assert {"pytest -x", "pytest --step 4", "pytest -n auto", "attnlab check", "attnlab pack"} <= set(tests)
        parallel = 'python -m pip install ".[parallel]"'
        said = student.type(*inside, parallel, *(line for line in tests))
        assert "Write sinusoidal_positions" in said["pytest --step 4"]
        assert "attention.py: not written yet: softmax" in said["attnlab pack"]

        student.put({"/lab/attention-lab/attention.py": mistaken})
        printed = student.type(*inside, "pytest --step 1 -q")["pytest --step 1 -q"]
        assert sample(printed) == sample((DOCS / "student.md").read_text())
