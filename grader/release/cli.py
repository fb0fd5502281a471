"""`attnlab release …`: a subcommand for each thing that a course hands out.

Exit 0: it was written; 2: unusable arguments; 3: the tool's own fault.
"""

from __future__ import annotations

from pathlib import Path

import click


@click.group("release")
def release() -> None:
    """Write what a course hands out: the students' lab, or an autograder for another home."""


@release.command("student")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--rubric", "rubric_file", type=click.Path(path_type=Path), help="Whose points and limits students see.")
@click.option(
    "--chapter-link",
    default="",
    metavar="URL",
    help="The chapter's address, with {section} where a number such as 7.2 goes.",
)
def student_command(out: Path, rubric_file: Path | None, chapter_link: str) -> None:
    """Write the lab as students get it to OUT, a .zip file: template, public tests and tools, and no solution."""
    from grader.release.student import ReleaseError, write_student
    from grader.rubric import RubricError, load_rubric

    if chapter_link and "{section}" not in chapter_link:
        raise click.BadParameter(
            "it has no {section}: write that where the number of a section goes", param_hint="--chapter-link"
        )
    _writable(out)
    try:
        names = write_student(out, load_rubric(rubric_file), chapter_link)
    except (ReleaseError, RubricError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        cause = error.strerror or str(error)
        raise click.BadParameter(f"{out} cannot be written ({cause}): name another file", param_hint="OUT") from None
    click.echo(f"Written: {out} ({len(names)} files)")


def _writable(out: Path) -> None:
    from grader.render.files import unwritable

    if why := unwritable(out):
        raise click.BadParameter(why, param_hint="OUT")


@release.command("gradescope")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--rubric", type=click.Path(path_type=Path), help="The course's rubric; without it the lab's own.")
@click.option("--seed-file", type=click.Path(path_type=Path), help="A file that holds the course's secret.")
@click.option(
    "--rotate", is_flag=True, help="Put a new secret into the seed file first; the old one is kept beside it."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=60, max=2400),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="The limit that the assignment's settings on Gradescope say.",
)
def gradescope_command(out: Path, rubric: Path | None, seed_file: Path | None, rotate: bool, time_limit: float) -> None:
    """Write the autograder that Gradescope takes to OUT, a .zip file to be uploaded there: keep it from students."""
    from grader.cli import read_secret
    from grader.release.gradescope import ReleaseError, rotate_secret, write_autograder
    from grader.rubric import RubricError, known_checks, load_rubric
    from grader.rubric_view import notices

    if rotate and seed_file is None:
        raise click.UsageError("--rotate needs --seed-file: it names the file that the new secret goes into")
    _writable(out)
    try:
        of = load_rubric(rubric)  # before there is a new secret that no autograder has
        if rotate and seed_file is not None:
            kept = rotate_secret(seed_file)
            click.echo(f"A new secret is in {seed_file}" + (f", and the old one in {kept}" if kept else ""))
        secret = read_secret(None, seed_file) if seed_file is not None else None
        names = write_autograder(out, rubric, secret, time_limit)
    except (ReleaseError, RubricError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        where = error.filename or out
        raise click.UsageError(f"{where} cannot be written ({error.strerror or error}): name another file") from None
    click.echo(f"Written: {out} ({len(names)} files)")
    for notice in notices(of, known_checks()):
        click.echo(f"Note: {notice}")
    if secret is None:
        click.echo(
            "It has no secret: it draws the cases that students can draw too. --seed-file FILE --rotate makes one."
        )
