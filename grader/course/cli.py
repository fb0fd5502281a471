"""`attnlab rehearse`, and what else is done with many submissions.

Exit 0: it was done, and a rehearsal was as expected; 1: a rehearsal was not; 2: unusable arguments; 3: the tool's own fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click


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
        client = connect()
        if Path(autograder).is_file():
            click.echo(f"Building an image of {autograder}: this takes minutes", err=True)
            image = rehearsal.build(client, Path(autograder), base_image or rehearsal.PLATFORM_IMAGE, pairs, network)
        else:
            image = autograder
            has_image(client, image)
        width = max(len(case.name) for case in found)
        differ = 0
        for done in rehearsal.rehearse(client, image, found, rehearsal.Machine(memory, cpus, time_limit)):
            score = f"{done.verdict.score:g} of {done.verdict.max_score:g}" if done.verdict else "nothing kept"
            mark = "✓" if done.as_expected else "✗"
            click.echo(f"{mark} {done.case.name:<{width}}  {score:>16}  {done.seconds:4.0f} s  {'; '.join(done.told)}")
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
