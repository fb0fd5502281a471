"""`attnlab grade` and `attnlab doctor`: what the judge adds to the command.

Exit 0: grading completed, whatever the score; 2: unusable arguments, told at the start; 3: the grader's own fault.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from grader.outputs import github_summary, output_options, writer
from grader.render.files import unwritable, write_atomically
from grader.render.github import muted
from grader.stopping import stopped_in_order

if TYPE_CHECKING:
    from grader.report import Report
    from grader.rubric import Rubric

MAX_SEED_BYTES = 4096
TIME_LIMIT = 3600.0  # seconds: all that a submission's calls may take, twice over


@click.command("grade")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--rubric", "rubric_file", type=click.Path(path_type=Path), help="Points, visibility and words.")
@click.option("--seed", type=int, metavar="N", help="A seed to try things with.")
@click.option("--seed-file", type=click.Path(path_type=Path), help="A file that holds the course's secret.")
@output_options
@click.option("--github", is_flag=True, help="In a job of GitHub Actions: add to its summary, and annotate lines.")
@click.option(
    "--measure",
    is_flag=True,
    help="Also say what attention and the cache take of time and memory: worth no points, and other numbers in every run.",
)
@click.option(
    "--trust-submission",
    "trust",
    is_flag=True,
    help="Grade even where this machine can fence nothing in: for work that you have read.",
)
@click.option(
    "--metadata",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Gradescope's submission_metadata.json: whose work it is, when it was due, and what came before.",
)
@click.option(
    "--student", "students", multiple=True, metavar="NAME", help="Whose work it is, as the rubric's overrides say."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=TIME_LIMIT,
    show_default=True,
    metavar="SECONDS",
    help="Wall time after which this process will be ended: at four fifths of it the rest is left unjudged.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where attention_torch.py and a kv_cache.py of tensors are judged.",
)
@click.option(
    "--container",
    metavar="IMAGE",
    help="Run the submission in a container of this image (Docker's, or a .sif of Apptainer's), the judge outside.",
)
@click.option("--gpus", metavar="all|0,1", help="The GPUs that the container may use.")
@click.option(
    "--evidence",
    "evidence_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write here what was found, for staff: attnlab rescore makes a report of it under another rubric.",
)
@click.option("--steps", metavar="1,2,7", help="Only these steps (the report is provisional then).")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def grade_command(
    path: Path,
    rubric_file: Path | None,
    seed: int | None,
    seed_file: Path | None,
    outputs: dict[str, Path],
    github: bool,
    measure: bool,
    trust: bool,
    metadata: Path | None,
    students: tuple[str, ...],
    time_limit: float,
    device: str,
    container: str | None,
    gpus: str | None,
    evidence_file: Path | None,
    steps: str | None,
    quiet: bool,
) -> None:
    """Grade the submission in PATH, a folder or an archive."""
    with _own_fault(), stopped_in_order():
        _check_paths(path, outputs | ({"--evidence": evidence_file} if evidence_file else {}))
        summary = github_summary() if github else None
        if gpus and not container:
            raise click.BadParameter("it says what a container may use: name one with --container", param_hint="--gpus")
        if container and device == "cuda" and not gpus:
            raise click.BadParameter("the container needs a GPU: say --gpus all", param_hint="--device")
        if device != "cpu" and not container:
            from grader.device import why_no_cuda

            if why := why_no_cuda():
                raise click.BadParameter(why, param_hint="--device")
        from grader.evidence import Evidence, to_bytes
        from grader.grade import grade
        from grader.intake import IntakeError
        from grader.policy import Metadata, read_metadata, refusal
        from grader.render.gradescope import write_refusal
        from grader.sandbox import Image, SandboxError

        rubric = _rubric(rubric_file)
        wanted = _steps(steps)
        secret = read_secret(seed, seed_file)
        about = read_metadata(metadata) if metadata else Metadata()
        keep = writer(outputs, rubric.submissions, about)
        refused = refusal(rubric.submissions, about)
        if refused and "--gradescope" in outputs:
            write_refusal(refused, outputs["--gradescope"])
            click.echo("\n".join(refused.lines))
            return
        found: list[Evidence] = []
        with _progress(quiet) as progress:

            def on_step(report: Report) -> None:
                keep(report)
                progress(report)

            try:
                report = grade(
                    path,
                    rubric=rubric,
                    secret=secret,
                    steps=wanted,
                    trust=trust,
                    measure=measure,
                    device=device,
                    students=(*students, *about.students),
                    time_limit=time_limit,
                    began=_started(),
                    image=Image(container, gpus or "") if container else None,
                    on_step=on_step,
                    on_evidence=found.append,
                )
            except IntakeError as error:
                raise click.BadParameter(str(error), param_hint="PATH") from None
            except SandboxError as error:
                click.echo(f"attnlab: {error}", err=True)
                sys.exit(3)
        keep(report)
        if evidence_file:  # last: whatever comes of it, the report is there
            write_atomically(evidence_file, to_bytes(found[0]))
        if not quiet:
            with muted() if github else contextlib.nullcontext():
                from grader.render.terminal import print_report

                print_report(report)
            for file in outputs.values():
                click.echo(f"Written: {file}")
        if summary:
            from grader.render.github import add_summary, to_annotations

            add_summary(report, summary)
            for line in to_annotations(report):
                click.echo(line)


@click.command("doctor")
def doctor_command() -> None:
    """Say what this machine gives, and whether it can grade."""
    with _own_fault():
        from grader.doctor import examine

        findings = examine()
        width = max(len(f.name) for f in findings)
        console = Console(highlight=False)
        for f in findings:
            console.print(f"[{'green' if f.ok else 'red'}]{'✓' if f.ok else '✗'}[/] {f.name:<{width}}  ", end="")
            console.print(f.text, markup=False)
        if not all(f.ok for f in findings):
            console.print("This machine cannot grade: see the lines marked ✗.")
            sys.exit(3)


@contextlib.contextmanager
def _own_fault() -> Iterator[None]:
    """Whatever is not about the arguments is the grader's own fault: exit 3, with what staff need to see."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        traceback.print_exc()
        click.echo(f"attnlab: this is the grader's own fault, and says nothing of the submission: {error}", err=True)
        sys.exit(3)


def _check_paths(path: Path, named: dict[str, Path]) -> None:
    if not path.exists():
        raise click.BadParameter(
            f"{path} is not there: name a submission's folder, or an archive of it", param_hint="PATH"
        )
    if len({file.resolve() for file in named.values()}) < len(named):
        raise click.BadParameter("two of them name the same file: give each its own", param_hint=", ".join(named))
    for name, file in named.items():
        if why := unwritable(file):
            raise click.BadParameter(why, param_hint=name)


def _rubric(file: Path | None) -> Rubric:
    from grader.rubric import RubricError, load_rubric

    try:
        return load_rubric(file)
    except RubricError as error:
        raise click.UsageError(str(error)) from None


def _steps(text: str | None) -> set[int] | None:
    from harness.check import CHECKS
    from harness.cli import parse_steps

    return parse_steps(text, {c.step for c in CHECKS.values()}) if text is not None else None


def read_secret(number: int | None, file: Path | None) -> bytes:
    """The bytes that all draws hang on; they stand in no output. Raises click.ClickException."""
    from harness.local import PUBLIC_SECRET

    if number is not None and file is not None:
        raise click.UsageError("--seed and --seed-file are both given: the secret comes from one of them.")
    if number is not None:
        return hashlib.sha256(f"attnlab seed {number}".encode()).digest()
    if file is None:
        return PUBLIC_SECRET
    try:
        with file.open("rb") as stream:
            secret = stream.read(MAX_SEED_BYTES + 1).strip()
    except OSError as error:
        cause = error.strerror or str(error)
        raise click.BadParameter(f"{file} cannot be read ({cause}): name a file", param_hint="--seed-file") from None
    if not secret or len(secret) > MAX_SEED_BYTES:
        size = "is empty" if not secret else f"is larger than {MAX_SEED_BYTES} bytes"
        raise click.BadParameter(f"{file} {size}: put a line of random text in it", param_hint="--seed-file")
    return secret


def _started() -> float:
    """When this process was started, by time.monotonic: whoever will end it counts from then. Now, where that is not told."""
    now = time.monotonic()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return now
    return now - age if 0 < age < 60 else now  # a container may have another idea of when it was


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Report], None]]:
    """A line on the terminal's error stream that says how far grading has come; nothing where that is no terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda report: None
        return
    with console.status("Grading: starting") as status:

        def tell(report: Report) -> None:
            checks = [c for s in report.steps for c in s.checks]
            done = sum(c.status != "not-run" for c in checks)
            status.update(f"Grading: {done} of {len(checks)} checks judged")

        yield tell
