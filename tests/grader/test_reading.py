"""What takes too long or too much to read costs what comes after it, and no grade."""

from __future__ import annotations

import os
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from grader import intake, reading
from harness import loader
from harness.check import Check, Fail


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SECONDS", 1)
    monkeypatch.setattr(reading, "MEMORY", 64 * 2**20)


def for_ever(*_: Any) -> Any:
    while True:
        pass


def much(*_: Any) -> Any:
    return bytearray(2**30)


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("by nothing")


def gone(*_: Any) -> Any:
    os._exit(0)


@pytest.mark.parametrize(
    ("work", "until", "limit"),
    [
        (for_ever, 60, "more than 1 s of CPU"),
        (much, 60, "more than 64 MiB"),
        (broken, 60, "more than it can (ZeroDivisionError: by nothing)"),
        (lambda tell: time.sleep(60), 2, "longer than there was time for"),
    ],
)
def test_a_limit_is_told_beside_what_came_before_it(work: Any, until: float, limit: str) -> None:
    """CPU, memory, an exception, and the time that is left."""

    def reads(tell: reading.Tell) -> None:
        tell({"first": (1, None, "word")})
        work(tell)

    assert reading.read(reads, time.monotonic() + until) == reading.Read(({"first": (1, None, "word")},), limit)


def test_what_is_read_within_its_limits_is_whole() -> None:
    """Everything that was told, and no limit."""
    assert reading.read(lambda tell: [tell(i) for i in range(3)] and None) == reading.Read((0, 1, 2))


def test_a_check_of_files_gets_the_result_that_it_has_here(submission: Any) -> None:
    """Passed, failed with its words, and broken, each as in this process."""

    def fails(folder: Path) -> None:
        raise Fail("seen", "expected", code="not-finite", call=str(folder.name))

    for run, status in ((lambda folder: None, "passed"), (fails, "failed"), (broken, "not-run")):
        found = reading.run(Check("step9.x", 9, "T.", run, needs="files"), submission(), 0)
        assert found.status == status
        if status == "failed":
            assert found.failure is not None
            assert (found.failure.seen, found.failure.code, found.failure.call) == ("seen", "not-finite", "submission")
        assert (found.reason, bool(found.broke)) == (
            ("ZeroDivisionError: by nothing", True) if run is broken else ("", False)
        )


@pytest.mark.parametrize("run", [for_ever, much])
def test_a_check_of_files_that_reaches_a_limit_has_failed(submission: Any, run: Any) -> None:
    """And says which."""
    found = reading.run(Check("step9.x", 9, "T.", run, needs="files"), submission(), 0)
    assert found.status == "failed" and found.failure is not None
    assert found.failure.seen.startswith("reading the file takes more than ")


def test_a_check_of_files_that_the_whole_gradings_limit_ends_has_not_failed(submission: Any) -> None:
    """That there was no time left is no fault of the file."""
    found = reading.run(Check("step9.x", 9, "T.", for_ever, needs="files"), submission(), 0, time.monotonic())
    assert (found.status, found.failure) == ("not-run", None)


def _staged(path: Path) -> tuple[set[str], list[str], bool]:
    with intake.staged(path) as found:
        return set(found.files), [f.text for f in found.findings], found.torch


@pytest.mark.parametrize("fault", [for_ever, much])
def test_an_archive_that_takes_too_long_is_taken_as_far_as_it_came(submission, tmp_path, monkeypatch, fault) -> None:
    """Files before it are there and whole; the finding says what became of the rest."""
    path = tmp_path / "up.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("attention.py", "kv_cache.py"):
            archive.write(submission() / name, name)
    read = zipfile.ZipFile.open
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda s, i: fault() if i.filename == "kv_cache.py" else read(s, i))
    monkeypatch.setattr(intake, "_reader_in", lambda archive, info: lambda limit: archive.open(info).read(limit))
    found, told, _ = _staged(path)
    assert "attention.py" in found and "kv_cache.py" not in found
    assert told[0].startswith(("'up.zip' was left out: to unpack it takes more than", "'kv_cache.py' was left out"))


@pytest.mark.parametrize("name", ["helper.py", "attention.py"])
def test_source_that_takes_too_long_to_parse_is_left_out(submission, monkeypatch, name) -> None:
    """The other files are there, and what is known of them too."""
    folder = submission(helper="import torch\n", slow="import torch\n")
    parse = intake._imports_torch
    monkeypatch.setattr(intake, "_imports_torch", lambda file: for_ever() if file.name == "slow.py" else parse(file))
    found, told, torch = _staged(folder)
    assert "slow.py" not in found and {"helper.py", "attention.py", "kv_cache.py"} <= found
    assert (told, torch) == (["'slow.py' was left out: to read it takes more than 1 s of CPU."], True)


def test_names_that_take_too_long_to_parse_are_left_out(submission, monkeypatch) -> None:
    """A file of names is no reason to leave the lab's own out."""
    folder = submission()
    (folder / "adapters.toml").write_text("[attention]\n")
    look = loader.inspect
    monkeypatch.setattr(loader, "inspect", lambda root: for_ever() if (root / "adapters.toml").exists() else look(root))
    found, told, _ = _staged(folder)
    assert "attention.py" in found
    assert told == ["'adapters.toml' was left out: to read it takes more than 1 s of CPU."]


def test_where_everything_takes_too_long_nothing_is_parsed(submission, monkeypatch) -> None:
    """After three files the rest is left out at once."""
    folder = submission(a="", b="", c="", d="")
    monkeypatch.setattr(intake, "_imports_torch", for_ever)
    found, told, _ = _staged(folder)
    assert not [name for name in found if name.endswith(".py") and name != "model.py"]
    assert "Nothing here can be graded" in " ".join(told)


def test_an_extended_header_of_digits_takes_no_time(submission, tmp_path) -> None:
    """Older tarfiles search them in quadratic time; here they have a length, and the child a limit."""
    path = tmp_path / "up.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(submission(), "lab")
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 2**20
    path.write_bytes(header.tobuf() + b"1" * 2**20 + path.read_bytes())
    found, told, _ = _staged(path)
    assert "attention.py" not in found
    assert "longer than 8 KiB" in told[0]
