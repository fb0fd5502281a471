"""`attnlab rehearse`, and what else is done with many submissions.

Exit 0: it was done, and a rehearsal was as expected; 1: a rehearsal was not; 2: unusable arguments; 3: the tool's own fault.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grader.stopping import stopped_in_order

if TYPE_CHECKING:
    from grader.course.batch import Machines, Pace


@click.command("rehearse")
@click.argument("autograder")
@click.argument("cases", type=click.Path(path_type=Path))
@click.option("--only", multiple=True, metavar="WORD", help="Only cases with this word in their names.")
@click.option("--base-image", help="What an image of a zip is built on; without it the platform's own base.")
@click.option(
    "--build-arg", "arguments", multiple=True, metavar="NAME=VALUE", help="Handed on to the build of an image."
)
@click.option("--network", metavar="NAME", help="The network that a build has, as host.")
@click.option("--memory", type=click.IntRange(min=64), default=768, show_default=True, metavar="MIB")
@click.option("--cpus", type=click.FloatRange(min=0.01), default=0.5, show_default=True)
@click.option("--time-limit", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS")
@click.option(
    "--host",
    is_flag=True,
    help="Grade every case on this machine too, by the autograder's rubric and secret, and compare.",
)
@click.option("--printed", is_flag=True, help="Also print what the autograder printed where something differs.")
def rehearse_command(
    autograder: str,
    cases: Path,
    only: tuple[str, ...],
    base_image: str | None,
    arguments: tuple[str, ...],
    network: str | None,
    memory: int,
    cpus: float,
    time_limit: float,
    host: bool,
    printed: bool,
) -> None:
    """Run AUTOGRADER, a zip or an image, as Gradescope does on the submissions in CASES, and say what is not as expected.

    CASES holds a folder for each submission. A case.toml in it says what must come out (codes, also, steps, score), and its
    files are laid over the submission in the folder base; a folder without one must get full marks.
    """
    from grader.course import cases as known
    from grader.course import rehearse as rehearsal
    from grader.course.engine import EngineError, connect, has_image

    pairs = dict(_pair(argument) for argument in arguments)
    try:
        found = known.find(cases, only)
        if autograder.endswith(".zip") and not Path(autograder).is_file():
            raise EngineError(f"{autograder} is not there: attnlab release gradescope {autograder} makes one")
        client = connect()
        if Path(autograder).is_file():
            click.echo(f"Building an image of {autograder}: this takes minutes", err=True)
            image = rehearsal.build(client, Path(autograder), base_image or rehearsal.PLATFORM_IMAGE, pairs, network)
        else:
            image = autograder
            has_image(client, image, "gradescope")
        width = max(len(case.name) for case in found)
        differ = 0
        for done in rehearsal.rehearse(client, image, found, rehearsal.Machine(memory, cpus, time_limit), host=host):
            score = f"{done.verdict.score:g} of {done.verdict.max_score:g}" if done.verdict else "nothing kept"
            score += (f", host {done.host.score:g}" if done.host else ", host nothing") if host else ""
            mark = "✓" if done.as_expected else "✗"
            click.echo(
                f"{mark} {done.case.name:<{width}}  {score:>{30 if host else 16}}  {done.seconds:4.0f} s  {'; '.join(done.told)}"
            )
            differ += not done.as_expected
            if printed and not done.as_expected:
                click.echo(done.printed)
    except (known.CaseError, EngineError) as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"{len(found) - differ} of {len(found)} as expected")
    sys.exit(1 if differ else 0)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} has no name and value: write NAME=VALUE", param_hint="--build-arg")
    return name, value


_PATH = click.Path(path_type=Path)
# What is handed on to each grading: the option's name, its kind and its help.
_HANDED_ON: dict[str, tuple[Any, str]] = {
    "rubric": (_PATH, "Points, visibility and words."),
    "seed_file": (_PATH, "A file that holds the course's secret."),
    "device": (click.Choice(["cpu", "cuda"]), "Where tensors lie; without it the CPU."),
    "container": (str, "Run every submission in a container of this image, the judge outside."),
    "time_limit": (click.FloatRange(min=1), "Seconds after which a grading is ended; without it an hour."),
}


def _grading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what says how and where gradings run: the command gets it as `options`, which are handed on to each, and `machines`."""

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        from grader.course.batch import Machines

        options: list[str] = []
        for name in _HANDED_ON:
            value, option = given.pop(name), f"--{name.replace('_', '-')}"
            if isinstance(value, Path) and not value.is_file():
                raise click.BadParameter(f"{value} is no file: name one", param_hint=option)
            options += [option, str(value)] if value is not None else []
        _usable(options)
        gpus, jobs = given.pop("gpus"), given.pop("jobs")
        if "cuda" in options and jobs:
            raise click.BadParameter("a GPU has one job at a time: name more of them with --gpus", param_hint="--jobs")
        if gpus and "cuda" not in options:
            raise click.BadParameter("it chooses among GPUs: say --device cuda", param_hint="--gpus")
        numbers = _gpus(gpus) if "cuda" in options else []
        if "--container" in options:
            _has_container(options[options.index("--container") + 1])
        elif "cuda" in options:
            _has_cuda()
        jobs = jobs or max(1, (os.cpu_count() or 2) // 2)
        with stopped_in_order():
            return command(options=options, machines=Machines(numbers, "--container" in options, jobs), **given)

    decorated: Callable[..., Any] = click.option(
        "--gpus",
        metavar="0,1",
        help="GPUs by number, one job at a time on each; without it what CUDA_VISIBLE_DEVICES names, or the first.",
    )(with_options)
    decorated = click.option(
        "--jobs",
        type=click.IntRange(1, 256),
        show_default="half of the CPUs",
        help="Submissions graded at the same time, where no GPU is used.",
    )(decorated)
    for name, (kind, about) in reversed(_HANDED_ON.items()):
        decorated = click.option(f"--{name.replace('_', '-')}", type=kind, help=about)(decorated)
    return decorated


def _usable(options: list[str]) -> None:
    """A mistake in the rubric or the secret is told once and at the start, and not by every grading. Raises click.ClickException."""
    from grader.cli import read_secret
    from grader.rubric import RubricError, load_rubric

    try:
        load_rubric(Path(options[options.index("--rubric") + 1]) if "--rubric" in options else None)
    except RubricError as error:
        raise click.UsageError(str(error)) from None
    read_secret(None, Path(options[options.index("--seed-file") + 1]) if "--seed-file" in options else None)


def _has_cuda() -> None:
    """Told once and at the start, and not by every grading. Raises click.BadParameter."""
    from grader.device import why_no_cuda

    if why := why_no_cuda():
        raise click.BadParameter(why, param_hint="--device")


def _has_container(image: str) -> None:
    """Told once and at the start, and not by every grading. Raises click.BadParameter."""
    from grader.course.engine import EngineError, connect, has_image

    try:
        if not image.endswith(".sif"):
            has_image(connect(), image, "worker-cpu")
        elif not Path(image).is_file():
            raise EngineError(
                f"{image} is no file: apptainer build {image} docker-daemon:attnlab-worker:latest makes one"
            )
    except EngineError as error:
        raise click.BadParameter(str(error), param_hint="--container") from None


def _gpus(named: str | None) -> list[str]:
    """The GPUs to work on: those named, else those that this process may use, else the first. Raises click.BadParameter."""
    if named is None:
        return [gpu.strip() for gpu in (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")]
    parts = [part.strip() for part in named.split(",")]
    numbers = [str(int(part)) for part in parts if part.isascii() and part.isdigit()]
    if len(set(numbers)) < len(parts):
        raise click.BadParameter(f"{named!r} is no list of GPUs: write their numbers, as 0,1", param_hint="--gpus")
    return numbers


@click.command("batch")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where the results go.")
@_grading
def batch_command(folder: Path, out: Path, machines: Machines, options: list[str]) -> None:
    """Grade every submission in FOLDER: a folder or an archive each, or what Gradescope, Canvas or Moodle export.

    Results go to a folder each below DIR, and results.csv is a line each. What has a final report there is not graded again,
    unless the submission, the rubric, the secret or a version has changed since: then the earlier result is kept beside the new.
    """
    from grader.course import batch
    from grader.course.submissions import FolderError, find, left_aside

    if out.resolve().is_relative_to(folder.resolve()):
        raise click.BadParameter(
            f"{out} lies in {folder}, where it would be taken for a submission: name a folder beside it",
            param_hint="--out",
        )
    try:
        handed = find(folder)
        if aside := left_aside(folder):
            click.echo(f"Not graded, neither a folder nor a zip or tar archive: {', '.join(aside)}")
        out.mkdir(parents=True, exist_ok=True)
        if "--seed-file" not in options:
            click.echo("No --seed-file: the inputs are drawn from the public seed, which students have too.", err=True)
        with _alone(out), contextlib.closing(batch.grade_all(handed, out, options, machines, _progress)) as graded:
            for result in graded:
                click.echo(_line(result))
    except FolderError as error:
        raise click.BadParameter(str(error), param_hint="FOLDER") from None
    except OSError as error:
        raise click.UsageError(
            f"{error.filename or out} cannot be written ({error.strerror}): name another folder"
        ) from None
    except KeyboardInterrupt:
        click.echo("Stopped. The same command goes on with what is not final yet.", err=True)
        raise
    found = batch.results(out)
    flagged = sum(bool(r.flags) for r in found)
    click.echo(f"{len(found)} results in {out / 'results.csv'}" + (f", {flagged} to be looked at" if flagged else ""))


@click.command("rerun")
@click.argument("results", type=click.Path(path_type=Path))
@click.option(
    "--only",
    multiple=True,
    default=("flagged",),
    show_default=True,
    metavar="NAME",
    help="A result's name; flagged: all that staff should look at; all: every one.",
)
@click.option(
    "--apply", "applied", is_flag=True, help="Put the new results in the place of the old, which are kept beside."
)
@_grading
def rerun_command(results: Path, only: tuple[str, ...], applied: bool, machines: Machines, options: list[str]) -> None:
    """Grade chosen RESULTS of a batch again and show what changed, check by check. Nothing is replaced without --apply."""
    from grader.course import batch, rerun

    try:
        chosen = rerun.chosen(results, only)
        if not chosen:
            click.echo("No result is flagged: --only NAME chooses others, and --only all every one.")
        try:
            with _alone(results), contextlib.closing(rerun.again(chosen, options, machines)) as graded:
                for result, new in graded:
                    click.echo(f"{result.name} ({', '.join(result.flags) or 'as asked'})")
                    for line in rerun.told(result, new, applied):
                        click.echo(f"  {line}")
        finally:  # one that was stopped has applied some
            batch.write_table(results)
    except rerun.RerunError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(batch.cause(error)) from None
    except KeyboardInterrupt:
        click.echo("Stopped. What was not told of yet is as it was.", err=True)
        raise


@click.command("rescore")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--rubric", "rubric_file", type=_PATH, help="The rubric as it is now; without it the lab's own.")
@click.option(
    "--apply", "applied", is_flag=True, help="Put the new reports in the place of the old, which are kept beside."
)
@click.option("--undo", is_flag=True, help="Put back what the latest rescoring has replaced.")
def rescore_command(results: Path, rubric_file: Path | None, applied: bool, undo: bool) -> None:
    """Make the reports of a batch's RESULTS anew under another rubric, from what was found: nothing is run.

    Says first who goes up or down and by which check, and what only a rerun can tell. Nothing is replaced without --apply.
    """
    from grader.course import batch
    from grader.course import rescore as rescoring
    from grader.rubric import RubricError, load_rubric

    if applied and undo:
        raise click.UsageError("--apply and --undo are both given: choose one.")
    found = _found(results)
    try:
        with _alone(results):
            if undo:
                back = [result.name for result in found if rescoring.undo(result)]
                batch.write_table(results)
                click.echo(
                    f"Put back: {', '.join(back)}" if back else "Nothing was rescored: there is nothing to put back."
                )
                return
            new = list(rescoring.rescore(found, load_rubric(rubric_file)))
            for line in rescoring.told(new):
                click.echo(line)
            ready = [each for each in new if each.applicable]
            if not applied:
                click.echo(f"Nothing has been replaced: --apply puts {len(ready)} of them in their places.")
                return
            for each in ready:
                rescoring.apply(each)
            batch.write_table(results)
            click.echo(f"Applied to {len(ready)}; --undo takes it back.")
        if waiting := [each.result.name for each in new if each.rerun]:
            named = " ".join(f"--only {name}" for name in waiting[:8]) if len(waiting) < 8 else "--only all"
            also = f" --rubric {rubric_file}" if rubric_file else ""
            click.echo(f"For the others: attnlab rerun {results}{also} {named} --apply")
    except RubricError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(batch.cause(error)) from None


def _found(results: Path) -> list[Any]:
    """The results in a batch's folder. Raises click.BadParameter where there are none."""
    from grader.course import batch

    found = batch.results(results)
    if not found:
        raise click.BadParameter(
            f"{results} holds no results: attnlab batch FOLDER --out {results} makes some", param_hint="RESULTS"
        )
    return found


@contextlib.contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Nobody else changes these results meanwhile. Raises click.UsageError where somebody does."""
    from grader.course.alone import InUseError, alone

    try:
        with alone(results):
            yield
    except InUseError as error:
        raise click.UsageError(str(error)) from None


@click.command("gradebook")
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("students", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--column", default="Attention lab", show_default=True, help="The assignment's column, as the platform names it."
)
@click.option(
    "--due",
    multiple=True,
    metavar="[NAME=]TIME",
    help="When it was due, as 2026-03-05T23:59-08:00, and who has an extension: for a rubric that takes points off for lateness.",
)
@click.option(
    "--include-flagged",
    is_flag=True,
    help="Also write scores of results that staff should look at, and scores below those in the list.",
)
def gradebook_command(
    results: Path, students: Path, out: Path, column: str, due: tuple[str, ...], include_flagged: bool
) -> None:
    """Fill the final scores of a batch's RESULTS into STUDENTS, a CSV that Canvas, Moodle or Gradescope exported, as OUT."""
    from grader.course.gradebook import GradebookError, dues, fill
    from grader.render.files import unwritable, write_atomically

    found = _found(results)
    if why := unwritable(out):
        raise click.BadParameter(why, param_hint="OUT")
    if out.resolve() == students.resolve():
        raise click.BadParameter(f"{out} is the list of students itself: name another file", param_hint="OUT")
    try:
        filled = fill(students, found, column, dues(due), include_flagged)
        write_atomically(out, filled.text)
    except GradebookError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written ({error.strerror}): name another file") from None
    click.echo(f"Written for {filled.kind}: {out}")
    for line in (*filled.late, *filled.overwritten):
        click.echo(line)
    if filled.withheld:
        click.echo(f"Left as it was, unless --include-flagged is given: {'; '.join(filled.withheld)}")
    if filled.no_due:
        click.echo(
            f"The rubric takes points off for lateness, and nothing was taken off for {', '.join(filled.no_due)}: "
            "say when it was due, as --due 2026-03-05T23:59-08:00"
        )
    if filled.no_time:
        click.echo(
            f"The rubric takes points off for lateness, and nothing was taken off for {', '.join(filled.no_time)}: when they "
            "handed in is not known, since only Gradescope's export says it. Take it off by hand where it is due."
        )
    if filled.without:
        click.echo(f"Left out, without a final score: {'; '.join(filled.without)}")
    if filled.unmatched:
        click.echo(f"Results of nobody in {students.name}: {', '.join(filled.unmatched)}")


def _progress(pace: Pace) -> None:
    """Says how far a batch has come: "3 of 12, one every 14 s, about 2 min left"."""
    told = f"  {pace.done} of {pace.of}"
    if not pace.graded:
        told += " need no grading now" if pace.done else ""
    elif pace.done < pace.of:
        each = pace.seconds / pace.graded
        left = each * (pace.of - pace.done)
        about = f"{left / 3600:.1f} h" if left >= 5400 else f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        told += f", one every {each:.0f} s, about {about} left"
    click.echo(told, err=True)


def _line(result: Any) -> str:
    report = result.report or {}
    score = f"{report['subtotal']:g} of {report['max_score']:g}" if report else "no report"
    told = [f"graded again: {result.anew}"] if result.anew else []
    told += [*(flag for flag in result.flags if flag != score), *([result.said] if result.said else [])]
    return f"{result.name}: {score}" + (f" ({', '.join(told)})" if told else "")
