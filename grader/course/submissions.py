"""Which submissions a folder holds, and whose they are, by the names that platforms give to what they export."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from grader.policy import moment

_ARCHIVES = (".tar.gz", ".tar.bz2", ".tar.xz", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
_NOBODYS = ("__MACOSX", "__pycache__")
_CANVAS = re.compile(r"^[^_]+_(?:LATE_)?(\d+)_\d+_.+$")
_MOODLE = re.compile(r"^(.+)_(\d+)_assignsubmission_file_?$")
_GRADESCOPE = "submission_metadata.yml"


class FolderError(Exception):
    """A folder that holds no submissions: the cause and the mend."""


@dataclass(frozen=True)
class Handed:
    """One submission: `name` is its folder's among the results, `students` are names of whose it is, `created` is when it was
    handed in, where the platform says so, and `refused` is why it is not graded at all."""

    name: str
    path: Path
    students: tuple[str, ...]
    created: datetime | None = None
    refused: str = ""


def find(folder: Path) -> list[Handed]:
    """The submissions in a folder, a folder or an archive each, by name. Raises FolderError."""
    if folder.is_file() and _stem(folder.name) != folder.name:
        raise FolderError(f"{folder} is an archive: unpack it, and name the folder that holds the submissions")
    if not folder.is_dir():
        raise FolderError(f"{folder} is no folder: name one that holds a folder or an archive for each submission")
    if exports := sorted(folder.glob(f"*/{_GRADESCOPE}")):
        raise FolderError(f"{exports[0].parent} is an export of Gradescope: name that folder, and not the one above it")
    known = _gradescope(folder / _GRADESCOPE)
    found: dict[str, Handed] = {}
    for path in sorted(folder.iterdir()):
        name = path.name if path.is_dir() else _stem(path.name)
        if path.name.startswith(".") or path.name in _NOBODYS or not (path.is_dir() or name != path.name):
            continue
        if name in found:
            raise FolderError(f"{found[name].path.name} and {path.name} would both be {name}: take one of them away")
        people, created = known.get(path.name, ((), None))
        inside = _handed(path)
        refused = _refused(path, inside)
        students = tuple(dict.fromkeys([*people, *_named(name), name]))
        found[name] = Handed(name, inside, students, created, refused)
    if not found:
        raise FolderError(f"{folder} holds no submission: put a folder or an archive for each student in it")
    return list(found.values())


def left_aside(folder: Path) -> list[str]:
    """Names of files in a folder of submissions that are no archive and were not looked at."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file()
        and _stem(path.name) == path.name
        and not path.name.startswith(".")
        and path.name != _GRADESCOPE
    )


def _handed(path: Path) -> Path:
    """What was handed in: the one archive in a folder that a platform has made for it, as Moodle does, or the folder itself."""
    if path.is_symlink():
        return path
    inside = (
        [p for p in path.iterdir() if not p.name.startswith(".") and p.name not in _NOBODYS] if path.is_dir() else []
    )
    return inside[0] if len(inside) == 1 and inside[0].is_file() and _stem(inside[0].name) != inside[0].name else path


def _refused(path: Path, inside: Path) -> str:
    """Why it is not graded at all: whose files a link leads to is not known. "" where there is a file of its own."""
    for place in (path, inside):
        if place.is_symlink():
            return f"{place.name} is a symbolic link"
    entries = [entry for entry in inside.rglob("*") if entry.is_symlink() or entry.is_file()]
    return "it holds nothing but symbolic links" if entries and all(entry.is_symlink() for entry in entries) else ""


def _stem(name: str) -> str:
    """The name without the ending of an archive, where it has one."""
    ending = next((end for end in _ARCHIVES if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)] or name


def _named(name: str) -> tuple[str, ...]:
    """Whose a submission is, as Canvas (lastfirst_[LATE_]id_id_name) and Moodle (Full Name_id_assignsubmission_file) say it."""
    canvas, moodle = _CANVAS.match(name), _MOODLE.match(name)
    if moodle:
        return moodle.group(1), f"Participant {moodle.group(2)}"
    return (canvas.group(1),) if canvas else ()


def _gradescope(page: Path) -> dict[str, tuple[tuple[str, ...], datetime | None]]:
    """Folder -> names and time, of an export's submission_metadata.yml; empty where there is none, or where it is odd."""
    try:
        value = yaml.safe_load(page.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    found: dict[str, tuple[tuple[str, ...], datetime | None]] = {}
    for name, about in value.items() if isinstance(value, dict) else ():
        about = about if isinstance(about, dict) else {}
        people: Any = about.get(":submitters", [])
        people = [p for p in people if isinstance(p, dict)] if isinstance(people, list) else []
        names = tuple(str(p[key]) for p in people for key in (":email", ":sid", ":name") if p.get(key))
        created = about.get(":created_at")
        found[str(name)] = names, moment(created) if isinstance(created, str | datetime) else None
    return found
