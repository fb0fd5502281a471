"""What a result was graded from: digests of the submission, the rubric and the secret, and the versions that graded it.

A batch holds them against what it would grade now, so that no result stays after what it came from has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from grader.intake import opened
from grader.render.files import write_atomically

FILE = "graded.json"
_PACKAGES = ("attnlab-harness", "attnlab-grader", "hypothesis", "numpy", "torch")
_WORDS = {"submission": "the submission", "rubric": "the rubric", "secret": "the secret", "options": "how it is graded"}


def digest(path: Path) -> str:
    """The digest of an archive's bytes, or of a folder's files by name; a link is what it points to, and is not followed."""
    found = hashlib.sha256()
    for name, file in [("", path)] if path.is_file() and not path.is_symlink() else _files(path):
        found.update(name.encode(errors="surrogateescape") + b"\0")
        if file.is_symlink():
            found.update(os.fsencode(os.readlink(file)))
        else:
            with opened(file) as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *links]):
            file = Path(place, name)
            if file.is_symlink() or file.is_file():
                yield file.relative_to(folder).as_posix(), file


def inputs(options: Sequence[str]) -> dict[str, str]:
    """What all submissions of one batch are graded by: its rubric, its secret, its other options, the versions installed."""
    from grader.cli import read_secret
    from grader.rubric import load_rubric

    given = dict(zip(options[::2], options[1::2], strict=True))
    rubric, seed = given.pop("--rubric", None), given.pop("--seed-file", None)
    given.pop("--time-limit", None)  # what is final within one is so within another
    secret = read_secret(None, Path(seed) if seed else None)
    return {
        "rubric": load_rubric(Path(rubric) if rubric else None).fingerprint,
        "secret": hashlib.sha256(secret).hexdigest()[:12],
        "options": " ".join(f"{name}={value}" for name, value in sorted(given.items())),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def record(folder: Path, now: Mapping[str, str]) -> None:
    """Notes beside a result what it is graded from. Raises OSError."""
    write_atomically(folder / FILE, json.dumps(now, indent=1) + "\n")


def changed(folder: Path, now: Mapping[str, str]) -> list[str]:
    """What is another than when the result in this folder was graded, in words; nothing where all is as it was."""
    try:
        then = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        then = None
    if not isinstance(then, dict):
        return ["it is not known what it was graded from"]
    found = [name for name in now if then.get(name) != now[name]]
    words = [f"{_WORDS[name]} has changed" for name in found if name in _WORDS]
    return words + [f"{name} {then.get(name)} is now {now[name]}" for name in found if name not in _WORDS]
