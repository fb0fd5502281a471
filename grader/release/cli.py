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
def student_command(out: Path) -> None:
    """Write the lab as students get it to OUT, a .zip file: template, public tests and tools, and no solution."""
    from grader.release.student import ReleaseError, write_student

    try:
        names = write_student(out)
    except ReleaseError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.BadParameter(f"{out} cannot be written ({error.strerror or error}): name another file") from None
    click.echo(f"Written: {out} ({len(names)} files)")
