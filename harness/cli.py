"""The command `attnlab`: `check` is here, further commands come from installed packages by entry points.

Exit 0: it ran, whatever it found; 2: unusable arguments; 3: the tool's own fault.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.console import Console

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
@click.option("--steps", metavar="1,2,7", help="Only these steps.")
def check_command(path: Path, steps: str | None) -> None:
    """Run the public checks on the lab in PATH (default: this folder)."""
    from harness import loader
    from harness.local import Held, public_checks
    from harness.plugin import Lab
    from harness.table import render

    wanted = parse_steps(steps, {c.step for c in public_checks()}) if steps is not None else None
    lab = Lab(Held(loader.find_root(path.resolve())))
    for check in public_checks(wanted):
        lab.run(check)
    Console(highlight=False).print(render(lab.results.values(), lab.hint_of_step))


def parse_steps(text: str, known: set[int]) -> set[int]:
    """ "1,2,7" as numbers. Raises click.BadParameter for what is no number, or no step of the lab."""
    numbers: set[int] = set()
    for part in text.split(","):
        if not (part.strip().isascii() and part.strip().isdigit()) or int(part) not in known:
            steps = ", ".join(str(n) for n in sorted(known))
            raise click.BadParameter(
                f"{part.strip()!r} is no step of the lab: write some of {steps}, with commas between",
                param_hint="--steps",
            )
        numbers.add(int(part))
    return numbers
