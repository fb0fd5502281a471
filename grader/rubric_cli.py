"""`attnlab rubric`: what a rubric comes to."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from grader.rubric import RubricError, load_rubric

CHECKOUT = Path(__file__).resolve().parent.parent
Row = tuple[str, str, dict[int, float]]


@click.group()
def rubric() -> None:
    """What a rubric comes to, before it counts."""


@rubric.command("prices")
@click.option("--rubric", "file", type=click.Path(path_type=Path), help="The rubric; without it the lab's own.")
@click.option("--match", default="", metavar="WORD", help="Only faults with this word in their names.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option("--markdown", is_flag=True, help="Print a page of Markdown, as docs/prices.md is made.")
def prices_command(file: Path | None, match: str, jobs: int, markdown: bool) -> None:
    """Prints what each of the project's known faulty submissions loses, by step and in all.

    Those submissions belong to the project's tests: this works in a checkout of it alone.
    """
    try:
        of = load_rubric(file)
    except RubricError as error:
        raise click.UsageError(str(error)) from None
    prices = _fixtures()
    chosen = prices.fixtures(match)
    if not chosen:
        raise click.BadParameter(f"no fault has {match!r} in its name", param_hint="--match")
    rows: list[Row] = []
    with click.progressbar(prices.priced(file, match, jobs), len(chosen), "Judging", file=sys.stderr) as judged:
        rows += [(fixture.group, fixture.name, lost) for fixture, lost in judged]
    if markdown:
        click.echo(page(rows, of.title, of.points.keys()), nl=False)
    else:
        Console().print(table(rows, of.points.keys()))


def _fixtures() -> Any:
    """The module that judges the faulty submissions. Raises click.UsageError outside of a checkout."""
    if not (CHECKOUT / "tests" / "labs").is_dir():
        raise click.UsageError("the known faulty submissions lie in a checkout of the project: run it there")
    sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module("tests.labs.attention.prices")


def table(rows: list[Row], steps: Any) -> Table:
    """The prices for a terminal, the dearest first."""
    steps = [step for step in sorted(steps) if any(step in lost for _, _, lost in rows)]
    shown = Table(title="Points lost, by step")
    shown.add_column("fault", overflow="fold")
    for head in (*map(str, steps), "in all"):
        shown.add_column(head, justify="right", no_wrap=True)
    for _, name, lost in _dearest_first(rows):
        shown.add_row(name, *_cells(lost, steps), f"{sum(lost.values()):.2f}")
    return shown


def page(rows: list[Row], title: str, steps: Any) -> str:
    """The prices as a page of Markdown, a table for each group of faults."""
    lines = [
        "# What each known fault costs",
        "",
        f"Points lost under the rubric “{title}”, by step and in all, by the faulty submissions that the project's tests",
        "hold. Made by `attnlab rubric prices --markdown`, which does the same for a rubric of your own.",
    ]
    for group in dict.fromkeys(group for group, _, _ in rows):
        own = [row for row in rows if row[0] == group]
        used = sorted({step for _, _, lost in own for step in lost} or set(steps))
        lines += ["", f"## {group}", "", f"| fault |{''.join(f' {step} |' for step in used)} in all |"]
        lines += ["|---|" + "--:|" * (len(used) + 1)]
        for _, name, lost in _dearest_first(own):
            lines.append(f"| {name} |{''.join(f' {c} |' for c in _cells(lost, used))} {sum(lost.values()):.2f} |")
    return "\n".join(lines) + "\n"


def _dearest_first(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-round(sum(row[2].values()), 2), row[1]))


def _cells(lost: dict[int, float], steps: Any) -> list[str]:
    return [f"{lost[step]:.2f}" if lost.get(step) else "" for step in sorted(steps)]
