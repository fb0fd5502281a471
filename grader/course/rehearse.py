"""Runs an autograder as Gradescope does, on submissions with expected verdicts: the same paths, user, memory, CPUs and time.

Where asked it grades each on this machine as well, by the autograder's own rubric and secret: what differs then is the platform's.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from grader.course.batch import PROGRAM
from grader.course.cases import Case, Verdict, between, differences
from grader.course.engine import EngineError

PLATFORM_IMAGE = "gradescope/autograder-base:ubuntu-22.04"

# What the platform does with a zip: it lies in source, setup.sh runs once, run_autograder stands above it.
_DOCKERFILE = """\
FROM {base}
{arguments}
COPY source /autograder/source
RUN mkdir -p /autograder/submission /autograder/results && cp /autograder/source/run_autograder /autograder/run_autograder \
 && chmod +x /autograder/run_autograder && bash /autograder/source/setup.sh
WORKDIR /autograder
CMD ["/autograder/run_autograder"]
"""


@dataclass(frozen=True)
class Machine:
    """What the platform gives a submission."""

    memory_mib: int = 768
    cpus: float = 0.5
    seconds: float = 600.0


@dataclass(frozen=True)
class Rehearsed:
    """What came of one case. `verdict` is None where the platform would have kept nothing, `host` where this machine was not
    asked or could not grade it; `printed` is for staff."""

    case: Case
    seconds: float
    verdict: Verdict | None
    told: tuple[str, ...]
    printed: str
    host: Verdict | None = None

    @property
    def as_expected(self) -> bool:
        return not self.told


def build(client: Any, file: Path, base: str, arguments: Mapping[str, str], network: str | None = None) -> str:
    """Makes an image of an autograder's zip, as the platform would, and gives its id. Raises EngineError."""
    import docker

    try:
        context = _context(file, base, arguments)
        options = {"network_mode": network} if network else {}
        image, _ = client.images.build(
            fileobj=context, custom_context=True, rm=True, forcerm=True, buildargs=dict(arguments), **options
        )
    except (OSError, zipfile.BadZipFile) as error:
        raise EngineError(
            f"{file} is no autograder's zip ({error}): attnlab release gradescope {file} makes one"
        ) from None
    except docker.errors.BuildError as error:
        log = "".join(line.get("stream", "") for line in error.build_log)
        raise EngineError(f"setup.sh failed in {base}: {error.msg}\n{log[-2000:]}") from None
    except docker.errors.APIError as error:
        raise EngineError(
            f"the image cannot be built on {base} ({error.explanation}): name a base image that the engine has or can "
            "fetch, as with --base-image python:3.12-slim"
        ) from None
    return str(image.id)


def rehearse(
    client: Any,
    image: str,
    cases: Sequence[Case],
    machine: Machine,
    metadata: Mapping[str, Any] | None = None,
    host: bool = False,
) -> Iterator[Rehearsed]:
    """Grades the cases one after the other, each in a fresh container of `image`, and with `host` here too. Raises EngineError."""
    with tempfile.TemporaryDirectory(prefix="attnlab-rehearsal-") as scratch:
        options = settings(client, image, Path(scratch)) if host else []
        for case in cases:
            done = _one(client, image, case, machine, metadata)
            yield compared(done, *on_host(case, options, metadata)) if host else done


def settings(client: Any, image: str, folder: Path) -> list[str]:
    """Takes an autograder's rubric, the tests that it names and its secret out of an image, into a folder that the caller takes
    away again; gives the options that name them. Raises EngineError."""
    import docker

    try:
        container = client.containers.create(image)
        try:
            parts, _ = container.get_archive("/autograder/source")
            data = io.BytesIO(b"".join(parts))
        finally:
            container.remove(force=True)
    except docker.errors.APIError as error:
        raise EngineError(
            f"{image} has no /autograder/source ({error.explanation}): name an image of the Dockerfile's target gradescope"
        ) from None
    with tarfile.open(fileobj=data) as packed:
        for member in packed:
            inside, file = PurePosixPath(member.name).parts[1:], packed.extractfile(member) if member.isreg() else None
            if file is not None and ".." not in inside:
                target = folder.joinpath(*inside)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())
    named = {"--rubric": folder / "rubric.yaml", "--seed-file": folder / "secret.txt"}
    return [word for option, file in named.items() if file.is_file() for word in (option, str(file))]


def on_host(
    case: Case, options: Sequence[str], metadata: Mapping[str, Any] | None = None
) -> tuple[Verdict | None, str]:
    """Grades a case on this machine, as the autograder does but for the container; the verdict, and what the grader printed."""
    with tempfile.TemporaryDirectory(prefix="attnlab-rehearsal-") as scratch:
        submission, page, results = (
            Path(scratch, n) for n in ("submission", "submission_metadata.json", "results.json")
        )
        case.assemble(submission)
        page.write_text(json.dumps(_metadata(case) if metadata is None else metadata))
        words = ["grade", str(submission), "--gradescope", str(results), "--metadata", str(page), *options]
        done = subprocess.run(
            [*PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        found = None
        with contextlib.suppress(OSError, ValueError):
            found = verdict_of(json.loads(results.read_bytes()))
        return found, f"{done.stdout}{done.stderr}"


def compared(done: Rehearsed, host: Verdict | None, printed: str) -> Rehearsed:
    """A rehearsal with what this machine made of the same submission, and in what they differ."""
    if host is None:
        last = (printed.strip().splitlines() or ["the grader said nothing"])[-1]
        told = (*done.told, f"it could not be graded on this host: {last.removeprefix('Error: ')}")
    else:
        told = (*done.told, *(between(done.verdict, host) if done.verdict else ()))
    return replace(done, told=told, host=host, printed=f"{done.printed}\nOn this host:\n{printed}")


def verdict_of(results: Mapping[str, Any]) -> Verdict:
    """What Gradescope's results.json says: codes of failed rows, and the steps whose rows add up to less than they may."""
    lost: set[int] = set()
    codes: set[str] = set()
    most = 0.0
    for row in results.get("tests", []):
        most += row.get("max_score", 0.0)
        if row.get("status") == "failed":
            codes |= set(row.get("tags", []))
        if row.get("score", 0.0) < row.get("max_score", 0.0):
            lost.add(int(str(row["number"]).partition(".")[0]))
    final = bool(results.get("extra_data", {}).get("final"))
    return Verdict(float(results["score"]), round(most, 2), final, frozenset(codes), frozenset(lost))


def _one(client: Any, image: str, case: Case, machine: Machine, metadata: Mapping[str, Any] | None) -> Rehearsed:
    import docker

    container = client.containers.create(
        image,
        command=["/autograder/run_autograder"],
        user="root",
        network_mode="none",
        mem_limit=f"{machine.memory_mib}m",
        memswap_limit=f"{machine.memory_mib}m",
        nano_cpus=int(machine.cpus * 1e9),
        working_dir="/autograder",
    )
    try:
        with tempfile.TemporaryDirectory(prefix="attnlab-rehearsal-") as scratch:
            submission = Path(scratch, "submission")
            case.assemble(submission)
            page = Path(scratch, "submission_metadata.json")
            page.write_text(json.dumps(_metadata(case) if metadata is None else metadata))
            container.put_archive("/autograder", _packed(submission, page))
        began = time.monotonic()
        container.start()
        ended, status = True, 0
        try:
            status = container.wait(timeout=machine.seconds)["StatusCode"]
        except Exception:  # the SDK says "too long" with whatever its transport raises
            ended = False
            container.kill()
        seconds = time.monotonic() - began
        printed = container.logs().decode(errors="replace")
        container.reload()
        killed = status == 137 and container.attrs["State"].get("OOMKilled", False)
        results = _results(container) if ended else None
    except docker.errors.APIError as error:
        raise EngineError(f"{case.name} cannot be run in {image}: {error.explanation}") from None
    finally:
        container.remove(force=True)
    told, verdict = [], None
    if not ended:
        told.append(f"the platform ended it after {machine.seconds:g} s and kept nothing")
    elif killed:
        told.append(f"more than {machine.memory_mib} MiB: the platform killed it")
    if results is None:
        told += ["it wrote no results.json"] if ended else []
    else:
        verdict = verdict_of(results)
        told += differences(case, verdict)
    return Rehearsed(case, seconds, verdict, tuple(told), printed)


def _results(container: Any) -> dict[str, Any] | None:
    import docker

    try:
        parts, _ = container.get_archive("/autograder/results/results.json")
    except docker.errors.NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as packed:
        file = packed.extractfile(packed.next() or "results.json")
        found = json.loads(file.read()) if file else None
    return found if isinstance(found, dict) else None


def _metadata(case: Case) -> dict[str, Any]:
    """A first submission, on time, by nobody."""
    now = datetime.now(UTC).isoformat()
    return {
        "id": 1,
        "created_at": now,
        "assignment": {"id": 1, "title": "rehearsal", "due_date": now, "late_due_date": None, "total_points": "100.0"},
        "submission_method": "upload",
        "users": [{"email": f"{case.name}@example.com", "id": 1, "name": case.name}],
        "previous_submissions": [],
    }


def _packed(*paths: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as packed:
        for path in paths:
            packed.add(path, arcname=path.name, filter=_owned_by_root)
    return stream.getvalue()


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    return info


def _context(file: Path, base: str, arguments: Mapping[str, str]) -> io.BytesIO:
    """What the image is built from: a Dockerfile, and the zip's files as it has them."""
    stream = io.BytesIO()
    declared = "\n".join(f"ARG {name}" for name in arguments)
    with zipfile.ZipFile(file) as source, tarfile.open(fileobj=stream, mode="w") as packed:
        if not {"setup.sh", "run_autograder"} <= set(source.namelist()):
            raise EngineError(
                f"{file} has no setup.sh and run_autograder at its top: attnlab release gradescope {file} makes one that has"
            )
        entries = [("Dockerfile", _DOCKERFILE.format(base=base, arguments=declared).encode(), 0o644)]
        entries += [(f"source/{i.filename}", source.read(i), i.external_attr >> 16 & 0o777) for i in source.infolist()]
        for name, data, mode in entries:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode or 0o644
            packed.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream
