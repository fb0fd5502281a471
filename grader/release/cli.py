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
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
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
    if not out.parent.is_dir():
        raise click.BadParameter(f"there is no folder {out.parent}: make it, or name another", param_hint="OUT")
    try:
        names = write_student(out, load_rubric(rubric_file), chapter_link)
    except (ReleaseError, RubricError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        cause = error.strerror or str(error)
        raise click.BadParameter(f"{out} cannot be written ({cause}): name another file", param_hint="OUT") from None
    click.echo(f"Written: {out} ({len(names)} files)")
