"""The command `attnlab`: `check` is here, further commands come from installed packages by entry points.

Exit 0: it ran, whatever it found; 2: unusable arguments; 3: the tool's own fault.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

if TYPE_CHECKING:
    from harness.plugin import Lab

COMMANDS = "attnlab.commands"


class _Group(click.Group):
    """A group whose further commands are loaded when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(e.name for e in entry_points(group=COMMANDS))})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        for entry in entry_points(group=COMMANDS, name=name):
            command = entry.load()
            if isinstance(command, click.Command):
                return command
        return None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="attnlab-harness", message="attnlab %(version)s")
def main() -> None:
    """The attention lab: check your work, and (for staff) grade it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ?, and does not end the command


@main.command("check")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--steps", "--step", metavar="1,2,7", help="Only these steps.")
@click.option("--case", metavar="ID", help="Only this check: prints the failing case, to be pasted.")
def check_command(path: Path, steps: str | None, case: str | None) -> None:
    """Run the public checks on the lab in PATH (default: this folder)."""
    from harness import heat, loader, mistakes
    from harness.local import Held, public_checks
    from harness.plugin import Lab, limit_told
    from harness.table import render, told

    if case is not None and steps is not None:
        raise click.UsageError("--case names one check, and --steps others: give one of the two")
    wanted = parse_steps(steps, {c.step for c in public_checks()}) if steps is not None else None
    lab = Lab(Held(loader.find_root(path.resolve())))
    sys.stdin = open(os.devnull, encoding="utf-8")  # input() gets no answer, as where it is graded
    console = Console(highlight=False)
    if case is not None:
        _show_case(lab, case, console)
        return
    console.print(f"Note: {limit_told()}.", style="dim", soft_wrap=True)
    found, stopped = [], False
    try:
        for check in public_checks(wanted):
            found.append(told(*lab.run(check)))
    except KeyboardInterrupt:
        stopped = True
    console.print(mistakes.render(found))
    console.print(render(found, console.width))
    if stopped:
        console.print("Stopped: what comes later was not run.")
        sys.exit(130)
    if wanted is None or wanted & heat.STEPS:
        for picture in heat.pictures(lab.subject):
            console.print(picture)


def _show_case(lab: Lab, id: str, console: Console) -> None:
    """Runs one check, and prints what came, and the failing call as Python in full precision."""
    import difflib

    from harness.local import public_checks
    from harness.table import case_text, failure_text

    known = {check.id: check for check in public_checks()}
    if id not in known:
        near = difflib.get_close_matches(id, known, 1, 0.5)
        raise click.BadParameter(
            f"there is no check {id}" + (f": did you mean {near[0]}?" if near else ""), param_hint="--case"
        )
    result, hint = lab.run(known[id])
    if result.status != "failed" or result.failure is None:
        console.print(f"{id}: {result.status.replace('-', ' ')}. {result.reason or result.check.title}", soft_wrap=True)
        return
    print(failure_text(result, hint, min(console.width, 104)))
    if result.failure.call:
        print("\n# The failing call, to be pasted where your files are:")
        print(case_text(result.failure))


@main.command("pack")
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE",
    default=Path("submission.zip"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the zip goes.",
)
def pack_command(path: Path, out: Path) -> None:
    """Make the zip that you hand in of the lab in PATH (default: this folder), and say what it lacks."""
    from harness.course import course
    from harness.pack import archive, choose, limits_told

    if not path.is_dir():
        raise click.BadParameter(f"{path} is not a folder: name the one that attention.py is in", param_hint="PATH")
    packed = choose(path.resolve())
    if not packed.files:
        raise click.BadParameter(
            f"there is no Python file in {path}: name the folder that attention.py is in", param_hint="PATH"
        )
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        files = {name: (packed.root / name).read_bytes() for name in packed.files}
    except OSError as error:
        cause = f"{error.filename} cannot be read ({error.strerror}): check its permissions"
        raise click.BadParameter(cause, param_hint="PATH") from None
    try:
        out.write_bytes(archive(files, "submission"))
    except OSError as error:
        cause = error.strerror or str(error)
        raise click.BadParameter(f"{out} cannot be written ({cause}): name another file", param_hint="--out") from None
    console.print(f"{out}: {len(packed.files)} files")
    for name in packed.files:
        console.print(f"    {name}")
    for title, lines in (
        ("Left out:", packed.left_out),
        ("Missing, and graded as such:", packed.missing),
        ("Where it is graded:", tuple(limits_told(course().limits))),
    ):
        if lines:
            console.print(title)
        for line in lines:
            console.print(f"    {line}")
    if not packed.missing:
        console.print("Nothing is missing.")


@main.command("profile")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    metavar="DIR",
    default=Path("profile"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the figures and the page go.",
)
def profile_command(path: Path, out: Path) -> None:
    """Time and draw the attention and the KV cache in PATH (default: this folder), which run in this process."""
    for library in (
        "OPENBLAS",
        "OMP",
        "MKL",
        "VECLIB",
    ):  # before NumPy loads: threads that wait for each other time the machine
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from rich.progress import Progress, TaskID

    from harness import loader
    from harness.profiling import figures, measure, page

    root = loader.find_root(path.resolve())
    if out.resolve().is_relative_to(root / "report"):
        raise click.BadParameter(
            "report/ is what you hand in, made by your own make_report.py: name another folder", param_hint="--out"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("drawing needs Matplotlib: python -m pip install matplotlib")
    console = Console(highlight=False)
    # A bar that redraws itself does so from a thread, which would take its turn in the midst of what is timed.
    with Progress(console=console, auto_refresh=False) as progress:
        tasks: dict[str, TaskID] = {}
        drawn_at = time.monotonic()

        def tick(what: str, done: float) -> None:
            nonlocal drawn_at
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=1)
            progress.update(tasks[what], completed=done)
            if done == 1 or time.monotonic() - drawn_at > 0.2:
                progress.refresh()
                drawn_at = time.monotonic()

        found = measure.profile(root, tick)
    out.mkdir(parents=True, exist_ok=True)
    drawn = figures.draw(found, out)
    page.write(found, drawn, out / "profile.html")
    for sentence in page.sentences(found):
        console.print(sentence, soft_wrap=True)
    for written in (*drawn, out / "profile.html"):
        console.print(str(written), soft_wrap=True)


def parse_steps(text: str, known: set[int]) -> set[int]:
    """ "1,2,7" as numbers. Raises click.BadParameter for what is no number, or no step of the lab."""
    numbers: set[int] = set()
    for part in text.split(","):
        if not (part.strip().isascii() and part.strip().isdigit()) or int(part) not in known:
            steps = ", ".join(str(n) for n in sorted(known))
            raise click.BadParameter(
                f"{part.strip()!r} is not a step of the lab: write some of {steps}, with commas between",
                param_hint="--steps",
            )
        numbers.add(int(part))
    return numbers
