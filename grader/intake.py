"""From what was handed in to a folder that a worker may read: a folder, a zip or a tar becomes a clean copy.

Only regular files are copied, under names of their own, within caps. Links, absolute names, `..` and whatever is too many
or too large are left out and told as findings; nothing of an archive is ever extracted by name. Names are judged before
anything is unpacked, and all that is unpacked counts, whether it is kept or not. All of it is unpacked and parsed in a child
process with limits (grader.reading): what takes too long to read is left out.
"""

from __future__ import annotations

import ast
import bz2
import contextlib
import errno
import gzip
import importlib.resources
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from grader import reading
from grader.reading import Tell
from grader.scratch import Scratch
from harness import adapters, contract, loader
from harness.loader import Finding, Submission

MAX_FILES = 500
MAX_ENTRIES = 4 * MAX_FILES  # looked at, with those that are left out
MAX_FILE_BYTES = 16 * 2**20
MAX_BYTES = 64 * 2**20
MAX_UNPACKED = 2 * MAX_BYTES
MAX_LIST_BYTES = 2**20  # of a zip's list of contents
MAX_HEADER = 2**13  # of a tar's extended header: names and times of one file
MAX_SOURCE_BYTES = 512 * 2**10  # of one .py file: the judge parses them, which takes a hundred times their size
MAX_SOURCES_BYTES = 4 * MAX_SOURCE_BYTES
MAX_DEPTH = 8
MAX_NAME = 200

_PATIENCE = 3  # files that take too long to read, before none is read
_NOT_OF_THE_CACHE = {"attention.py", "experiments.py", "attention_torch.py", "make_report.py"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
_UNPACK: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class IntakeError(Exception):
    """What was named cannot be graded at all: it is no folder and no archive."""


class _TooMuch(Exception):
    """A cap on the whole was reached: what comes after it is not looked at."""


@dataclass(frozen=True)
class _Entry:
    """A regular file of what was handed in. `read` gives its bytes, up to a number; nothing is unpacked before that."""

    name: str
    read: Callable[[int], bytes]


@dataclass(frozen=True)
class Staged(Submission):
    """`torch` is whether kv_cache.py, or a helper, imports it."""

    torch: bool = False


@contextlib.contextmanager
def staged(
    path: Path, names: Mapping[str, Mapping[str, str]] | None = None, until: float | None = None
) -> Iterator[Staged]:
    """A clean copy of the submission in a folder of its own, with its findings; gone afterwards. Raises IntakeError.

    `names` are a course's own for functions of the lab, by file: they lie beside the submission's adapters.toml. `until` is
    when everything must have been read, by time.monotonic.
    """
    with Scratch() as scratch:
        folder = scratch / "submission"
        folder.mkdir()
        findings = _unpacked_into(folder, path, until)
        root = loader.find_root(folder)
        _gather_report(root, folder)
        given = root / contract.GIVEN
        if given.is_dir():
            shutil.rmtree(given)
        # given and not edited: the judge's own copy is the one that counts
        given.write_bytes(importlib.resources.files("harness.given").joinpath("model.py").read_bytes())
        if names:
            (root / adapters.COURSE_FILE).write_text(adapters.spell(names), encoding="utf-8")
        found = _inspected(root, findings, until)
        if not any(found.has(module) for module in contract.MODULES):
            for name in found.files:
                if name.lower().endswith(_ARCHIVES):
                    _refuse(
                        findings,
                        name,
                        "it is an archive in what was handed in; its files have to be handed in as they are",
                    )
        yield replace(found, findings=(*findings, *found.findings))


def _unpacked_into(folder: Path, path: Path, until: float | None) -> list[Finding]:
    """Copies what is handed in into a folder, and says what was left out. Raises IntakeError."""

    def work(tell: Tell) -> None:
        findings = _Told(tell)
        part = folder.with_name("part")  # a file is there as a whole, or not at all
        try:
            for name, data in _capped(_entries(path, findings), findings):
                target = folder.joinpath(*PurePosixPath(name).parts)
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    part.write_bytes(data)
                    part.replace(target)
                except (OSError, ValueError):
                    _refuse(findings, name, "its name is that of a folder, or cannot be a file's name here")
        except IntakeError as error:
            tell(str(error))

    done = reading.read(work, until)
    for said in done.told:
        if type(said) is str:
            raise IntakeError(said)
    findings = [Finding(**said) for said in done.told]
    if done.limit:
        _refuse(findings, path.name, f"to unpack it takes {done.limit}, and the rest was left out")
    return findings


class _Told(list[Finding]):
    """Findings that are told as they are made."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def append(self, finding: Finding) -> None:
        super().append(finding)
        self._tell(vars(finding))


def _inspected(root: Path, findings: list[Finding], until: float | None) -> Staged:
    """A look at the text of every file that is parsed; one that takes too long, or too much memory, is left out."""

    def work(tell: Tell) -> None:
        torch = False
        for name in _parsed(root):
            tell(name)
            torch |= name not in _NOT_OF_THE_CACHE and _imports_torch(root / name)
        tell(adapters.FILE)
        found = loader.inspect(root)
        tell({"files": found.files, "findings": [vars(finding) for finding in found.findings], "torch": torch})

    for _ in range(_PATIENCE):
        done = reading.read(work, until)
        if not done.limit:
            found = done.told[-1]
            return Staged(root, tuple(found["files"]), tuple(Finding(**f) for f in found["findings"]), found["torch"])
        _take_away(root, str(done.told[-1]) if done.told else adapters.FILE, done.limit, findings)
    for name in [*_parsed(root), adapters.FILE]:
        _take_away(root, name, done.limit, findings)
    bare = loader.inspect(root)  # nothing is left in it that is parsed
    return Staged(root, bare.files, bare.findings)


def _parsed(root: Path) -> list[str]:
    return [name for name in loader.walk(root) if name.endswith(".py") and "/" not in name]


def _take_away(root: Path, name: str, limit: str, findings: list[Finding]) -> None:
    if (root / name).exists():
        (root / name).unlink()
        _refuse(findings, name, f"to read it takes {limit}")


def _imports_torch(file: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "torch" for name in names):
                return True
    return False


def _gather_report(root: Path, folder: Path) -> None:
    """Report files of a flattened upload go where the contract has them."""
    for name in contract.REPORT_FILES:
        wanted = root / "report" / name
        if not wanted.exists():
            others = [folder / f for f in loader.walk(folder) if PurePosixPath(f).name == name]
            if len(others) == 1:
                with contextlib.suppress(OSError):  # a file that is called report
                    wanted.parent.mkdir(exist_ok=True)
                    others[0].rename(wanted)


def _entries(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    if path.is_symlink():
        raise IntakeError(f"{path} is a symbolic link: name the folder or the archive itself")
    if path.is_dir():
        return _of_folder(path, findings)
    if not path.is_file():
        raise IntakeError(f"{path} is neither a folder nor a file: name a submission's folder, or a .zip or .tar of it")
    with opened(path) as file:
        zipped = zipfile.is_zipfile(file)
    if zipped:
        return _of_zip(path, findings)
    if _is_tar(path):
        return _of_tar(path, findings)
    raise IntakeError(f"{path} is no zip and no tar archive: name a submission's folder, or a .zip or .tar of it")


def _refuse(findings: list[Finding], name: str, why: str) -> None:
    if len(findings) < 20:
        findings.append(Finding("entry-refused", "", f"{name[:80]!r} was left out: {why}."))


def _of_folder(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    todo = [("", 0)]
    while todo:
        inside, depth = todo.pop()
        try:
            found = sorted(os.scandir(path / inside), key=lambda entry: entry.name)
        except OSError as error:
            _refuse(findings, inside, f"it cannot be read ({error.strerror})")
            continue
        for entry in found:
            name = f"{inside}/{entry.name}" if inside else entry.name
            if loader.is_junk(entry.name):
                continue
            if entry.is_symlink():
                _refuse(findings, name, "it is a link")
            elif entry.is_file(follow_symlinks=False):
                yield _Entry(name, _reader_of(Path(entry.path)))
            elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                todo.append((name, depth + 1))
            else:
                _refuse(findings, name, "it is no regular file, or too deep")


def _reader_of(path: Path) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        with opened(path) as file:
            return file.read(limit)

    return read


def opened(path: Path) -> io.BufferedReader:
    """A regular file, to be read: no link that stands in its place by now, and nothing that waits. Raises OSError."""
    return io.BufferedReader(io.FileIO(path, opener=_no_link))


def _no_link(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor


class _Bounded(io.FileIO):
    """A file of which one read gives no more than `most` bytes: a zip's list of contents is read at once."""

    most = MAX_LIST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.most + 1 if size is None or size < 0 else size
        data = super().read(min(wanted, self.most + 1)) or b""
        if len(data) > self.most:
            raise _TooMuch(f"its list of contents is longer than {self.most >> 20} MiB")
        return data


def _of_zip(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    try:
        with _Bounded(str(path), opener=_no_link) as file, zipfile.ZipFile(file) as archive:
            file.most = MAX_UNPACKED
            for info in archive.infolist():
                if info.is_dir():
                    continue
                if stat.S_ISLNK(info.external_attr >> 16):
                    _refuse(findings, info.filename, "it is a link")
                elif info.flag_bits & 1:
                    _refuse(findings, info.filename, "it is encrypted")
                else:
                    yield _Entry(info.filename, _reader_in(archive, info))
    except _TooMuch as error:
        _refuse(findings, path.name, f"{error}, and the rest was left out")
    except Exception as error:  # whatever the standard library makes of bytes that are not what they should be
        _refuse(findings, path.name, f"the archive is damaged from here on ({type(error).__name__}: {error})"[:200])


def _reader_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        with archive.open(info) as file:
            return file.read(limit)

    return read


class _Counted:
    """What an unpacked stream gives, up to a number of bytes in all: skipping a member unpacks it too."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = MAX_UNPACKED

    def read(self, size: int) -> bytes:
        if size > self._left:
            raise _TooMuch(f"it unpacks to more than {MAX_UNPACKED >> 20} MiB")
        self._left -= size
        return self._stream.read(size)


class _Member(tarfile.TarInfo):
    """A member whose extended header is of a sane length: before 3.11.10 and 3.12.6 digits in it take quadratic time."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size > MAX_HEADER:
            raise _TooMuch(f"an extended header in it is longer than {MAX_HEADER >> 10} KiB")
        return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]


def _opened_tar(stream: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=_Counted(stream), mode="r|", tarinfo=_Member)  # type: ignore[call-overload, no-any-return]


def _unpacked(path: Path) -> IO[bytes]:
    file = opened(path)
    for start, unpack in _UNPACK.items():
        if file.peek(5).startswith(start):
            return unpack(file)  # type: ignore[no-any-return]
    return file


def _is_tar(path: Path) -> bool:
    try:
        with _unpacked(path) as stream, _opened_tar(stream):
            return True
    except (_TooMuch, RecursionError):  # header upon header
        return True
    except MemoryError:
        raise
    except Exception:  # no archive, or one whose first bytes are damaged
        return False


def _of_tar(path: Path, findings: list[Finding]) -> Iterator[_Entry]:
    try:
        with _unpacked(path) as stream, _opened_tar(stream) as archive:
            for number, info in enumerate(archive):
                if number >= MAX_ENTRIES:
                    raise _TooMuch(f"it has more than {MAX_ENTRIES} entries")
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                if info.isdir():
                    continue
                file = archive.extractfile(info) if info.isreg() else None
                if file is None:
                    _refuse(findings, info.name, "it is a link or no regular file")
                else:
                    yield _Entry(info.name, file.read)
    except _TooMuch as error:
        _refuse(findings, path.name, f"{error}, and the rest was left out")
    except Exception as error:  # as above
        _refuse(findings, path.name, f"the archive is damaged from here on ({type(error).__name__}: {error})"[:200])


def _capped(entries: Iterator[_Entry], findings: list[Finding]) -> Iterator[tuple[str, bytes]]:
    """Names that stay inside, with their bytes, until the caps on numbers and bytes are reached."""
    count = total = sources = unpacked = 0
    for number, entry in enumerate(entries):
        parts = PurePosixPath(entry.name.replace("\\", "/")).parts
        if any(loader.is_junk(part) for part in parts):
            continue
        if not parts or entry.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in entry.name:
            _refuse(findings, entry.name, "its name leads out of the submission")
            continue
        if len(parts) > MAX_DEPTH or any(len(part.encode(errors="replace")) > MAX_NAME for part in parts):
            _refuse(findings, entry.name, "its name is too long or too deep")
            continue
        try:
            data = bytes(entry.read(MAX_FILE_BYTES + 1))
        except _TooMuch as error:
            _refuse(findings, entry.name, str(error))
            return
        except Exception as error:  # damaged, unreadable, packed in a way that is not known here
            _refuse(findings, entry.name, f"it cannot be read ({type(error).__name__}: {error})"[:200])
            continue
        unpacked += len(data)
        source = len(data) if parts[-1].endswith(".py") else 0
        if number >= MAX_ENTRIES or unpacked > MAX_UNPACKED or count >= MAX_FILES:
            _refuse(findings, entry.name, f"the submission has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            return
        if len(data) > MAX_FILE_BYTES:
            _refuse(findings, entry.name, f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
        elif source > MAX_SOURCE_BYTES or sources + source > MAX_SOURCES_BYTES:
            _refuse(findings, entry.name, f"it is more than {MAX_SOURCE_BYTES >> 10} KiB of Python")
        elif total + len(data) > MAX_BYTES:
            _refuse(findings, entry.name, f"the submission has more than {MAX_BYTES >> 20} MiB")
        else:
            count, total, sources = count + 1, total + len(data), sources + source
            yield "/".join(parts), data
