"""From what was handed in to a folder that a worker may read: a folder, a zip or a tar becomes a clean copy.

Only regular files are copied, under names of their own, within caps. Links, absolute names, `..` and whatever is too many
or too large are left out and told as findings; nothing of an archive is ever extracted by name.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import lzma
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from harness import contract, loader
from harness.loader import Finding, Submission

MAX_FILES = 500
MAX_FILE_BYTES = 16 * 2**20
MAX_BYTES = 64 * 2**20
MAX_DEPTH = 8
MAX_NAME = 200

# What the standard library raises on archives whose bytes are not what they should be.
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError, IndexError,
           struct.error, OverflowError)  # fmt: skip


class IntakeError(Exception):
    """What was named cannot be graded at all: it is no folder and no archive."""


@dataclass(frozen=True)
class _Entry:
    name: str
    data: bytes


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Submission]:
    """A clean copy of the submission in a folder of its own, with its findings; gone afterwards. Raises IntakeError."""
    with tempfile.TemporaryDirectory(prefix="attnlab-submission-") as scratch:
        folder = Path(scratch, "submission")
        folder.mkdir()
        findings: list[Finding] = []
        for entry in _capped(_entries(path, findings), findings):
            target = folder.joinpath(*PurePosixPath(entry.name).parts)
            with contextlib.suppress(OSError):  # a name that is a file here and a folder there
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(entry.data)
        root = loader.find_root(folder)
        _gather_report(root, folder)
        given = importlib.resources.files("harness.given").joinpath("model.py").read_bytes()
        (root / contract.GIVEN).write_bytes(given)  # given and not edited: the judge's own copy is the one that counts
        found = loader.inspect(root)
        yield replace(found, findings=(*findings, *found.findings))


def _gather_report(root: Path, folder: Path) -> None:
    """Report files of a flattened upload go where the contract has them."""
    for name in contract.REPORT_FILES:
        wanted = root / "report" / name
        if not wanted.exists():
            others = [folder / f for f in loader.walk(folder) if PurePosixPath(f).name == name]
            if len(others) == 1:
                wanted.parent.mkdir(exist_ok=True)
                others[0].rename(wanted)


def _entries(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    if path.is_dir():
        return _of_folder(path, findings)
    if not path.is_file():
        raise IntakeError(f"{path} is neither a folder nor a file: name a submission's folder, or a .zip or .tar of it")
    if zipfile.is_zipfile(path):
        return _of_zip(path, findings)
    with contextlib.suppress(*_DAMAGE):
        if tarfile.is_tarfile(path):
            return _of_tar(path, findings)
    raise IntakeError(f"{path} is no zip and no tar archive: name a submission's folder, or a .zip or .tar of it")


def _refuse(findings: list[Finding], name: str, why: str) -> None:
    if len(findings) < 20:
        findings.append(Finding("entry-refused", "", f"{name[:80]!r} was left out: {why}."))


def _of_folder(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    for link in sorted(path.rglob("*")):
        if link.is_symlink() and not loader.is_junk(link.name):
            _refuse(findings, link.relative_to(path).as_posix(), "it is a link")
    for name in loader.walk(path):
        file = path / name
        if file.stat().st_size > MAX_FILE_BYTES:
            _refuse(findings, name, f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
            continue
        try:
            yield _Entry(name, file.read_bytes())
        except OSError as error:
            _refuse(findings, name, f"it cannot be read ({error.strerror})")


def _of_zip(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                mode = info.external_attr >> 16
                if info.is_dir():
                    continue
                if stat.S_ISLNK(mode):
                    _refuse(findings, info.filename, "it is a link")
                elif info.flag_bits & 1:
                    _refuse(findings, info.filename, "it is encrypted")
                else:
                    with archive.open(info) as file:
                        yield from _read(file, info.filename, findings)
    except _DAMAGE as error:
        _refuse(findings, path.name, f"the archive is damaged from here on ({error})"[:200])


def _of_tar(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    try:
        with tarfile.open(path) as archive:
            for info in archive:
                if info.isdir():
                    continue
                file = archive.extractfile(info) if info.isreg() else None
                if file is None:
                    _refuse(findings, info.name, "it is a link or no regular file")
                else:
                    yield from _read(file, info.name, findings)
    except _DAMAGE as error:
        _refuse(findings, path.name, f"the archive is damaged from here on ({error})"[:200])


def _read(file: io.IOBase | zipfile.ZipExtFile, name: str, findings: list[Finding]) -> Iterator[_Entry]:
    """Reads what is there, not what the header says, and no more than the cap."""
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        _refuse(findings, name, f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    else:
        yield _Entry(name, bytes(data))


def _capped(entries: Iterator[_Entry], findings: list[Finding]) -> Iterator[_Entry]:
    """Entries with names that stay inside, until the caps on number and bytes are reached."""
    count = total = 0
    for entry in entries:
        parts = PurePosixPath(entry.name.replace("\\", "/")).parts
        if any(loader.is_junk(part) for part in parts):
            continue
        if not parts or entry.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in entry.name:
            _refuse(findings, entry.name, "its name leads out of the submission")
        elif len(parts) > MAX_DEPTH or any(len(part.encode(errors="replace")) > MAX_NAME for part in parts):
            _refuse(findings, entry.name, "its name is too long or too deep")
        elif count >= MAX_FILES or total + len(entry.data) > MAX_BYTES:
            _refuse(findings, entry.name, f"the submission has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            return
        else:
            count, total = count + 1, total + len(entry.data)
            yield _Entry("/".join(parts), entry.data)
