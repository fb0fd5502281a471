"""The autograder as Gradescope takes it: one zip with setup.sh, run_autograder, the packages, the rubric and the secret."""

from __future__ import annotations

import hashlib
import secrets
import zipfile
from io import BytesIO
from pathlib import Path

import grader
from grader.render.files import write_atomically
from grader.rubric import load_rubric

SOURCES = Path(grader.__file__).parents[1]
IMAGE = Path(__file__).parent / "image"
PACKAGES = ("harness", "reference", "grader", "rubrics", "student_template", "examples/base", "examples/torch")
PAGES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
TIME_LIMIT = 600.0  # seconds: what the platform gives where nobody has asked for more
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold: the same files give the same bytes


class ReleaseError(Exception):
    """What is to be handed out cannot be made: the cause and the mend."""


def write_autograder(
    out: Path, rubric: Path | None = None, secret: bytes | None = None, time_limit: float = TIME_LIMIT
) -> list[str]:
    """Writes the zip in one step and gives the names in it. Raises ReleaseError, RubricError, OSError."""
    files = autograder_files(rubric, secret, time_limit)
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # so that the mode below means the same wherever this runs
            entry.external_attr = (0o100755 if name.endswith(".sh") or name == "run_autograder" else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, files[name])
    write_atomically(out, stream.getvalue())
    out.chmod(0o600)  # it holds what students must not see
    return sorted(files)


def autograder_files(rubric: Path | None, secret: bytes | None, time_limit: float) -> dict[str, bytes]:
    """Every file of the zip by its name. Raises ReleaseError, RubricError."""
    if not (SOURCES / "pyproject.toml").is_file():
        raise ReleaseError(f"{SOURCES} holds no sources: clone the repository, and run this after scripts/setup in it")
    read = load_rubric(rubric)  # a mistake in it is told now, and not by the first student's submission
    files = {name: (SOURCES / name).read_bytes() for name in PAGES}
    for package in PACKAGES:
        for path in sorted((SOURCES / package).rglob("*")):
            inside = path.relative_to(SOURCES)
            if path.is_file() and not any(
                part == "__pycache__" or part.startswith(".") or part.endswith(".egg-info") for part in inside.parts
            ):
                files[inside.as_posix()] = path.read_bytes()
    files |= {path.name: path.read_bytes() for path in IMAGE.iterdir() if path.suffix in (".sh", ".json")}
    files["run_autograder"] = files.pop("run_autograder.sh")
    files["time-limit"] = f"{time_limit:g}\n".encode()
    if rubric is not None:
        files["rubric.yaml"] = rubric.read_bytes()
        files |= {test.relative_to(rubric.parent).as_posix(): test.read_bytes() for test in read.tests}
    if secret is not None:
        files["secret.txt"] = secret + b"\n"
    return files


def rotate_secret(file: Path) -> Path | None:
    """Puts a new secret into a file that its owner alone reads, and gives where the old one, if any, is kept: results
    that name its fingerprint can be had again with it. Raises OSError."""
    old = file.read_bytes() if file.exists() else None
    kept = None
    if old is not None:
        kept = file.with_name(f"{file.stem}-{hashlib.sha256(old.strip()).hexdigest()[:12]}{file.suffix}")
        file.replace(kept)
    file.touch(mode=0o600, exist_ok=False)
    file.write_text(secrets.token_hex(32) + "\n")
    return kept
