"""`attnlab rubric`: what a rubric comes to."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from grader import rubric_view as view
from grader.rubric import Rubric, RubricError, known_checks, load_rubric
from harness.check import STEPS

CHECKOUT = Path(__file__).resolve().parent.parent
Row = tuple[str, str, dict[int, float]]


@click.group()
def rubric() -> None:
    """What a rubric comes to, before it counts."""


_FILE = click.argument("file", type=click.Path(path_type=Path), required=False)


@rubric.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check_command(file: Path) -> None:
    """Say whether FILE can be used, and what in it may not be meant."""
    of, found = _read(file)
    tests = f", {len(of.own.worth)} of your own" if of.own.worth else ""
    total = sum(of.points.values()) + sum(worth or 0.0 for worth in of.own.worth.values())
    checks = sum(bool(row.step) for row in found)
    click.echo(
        f"{file} can be used: {total:g} points, {_count(len(of.points), 'step')}, {_count(checks, 'check')}{tests}"
    )
    for notice in view.notices(of, known_checks()):
        click.echo(f"Note: {notice}")


@rubric.command("show")
@_FILE
def show_command(file: Path | None) -> None:
    """Print what each check is worth, who sees it, and whether students have it; without FILE of the lab's own rubric."""
    _, found = _read(file)
    console = _console()
    for step in dict.fromkeys(row.step for row in found):
        rows = [row for row in found if row.step == step]
        points = sum(row.points or 0.0 for row in rows)
        about = STEPS.get(step)
        name = f"Step {step}" + (f": {about.title}" if about else "") if step else "The course's own tests"
        console.print(checks_table(f"{name}, {points:g} points", rows))


@rubric.command("preview")
@_FILE
def preview_command(file: Path | None) -> None:
    """Print what a student sees at each date; without FILE under the lab's own rubric."""
    of, found = _read(file)
    click.echo(of.title)
    _console().print(dates_table(found))
    for sentence in (*view.sentences(of, found), *view.notices(of, known_checks())):
        click.echo(sentence)


def _read(file: Path | None) -> tuple[Rubric, list[view.Row]]:
    """A rubric and its checks. Raises click.UsageError."""
    try:
        of = load_rubric(file)
    except RubricError as error:
        raise click.UsageError(str(error)) from None
    return of, view.rows(of, known_checks())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _console() -> Console:
    """The terminal; a file or a pipe is as wide as the tables are."""
    return Console() if sys.stdout.isatty() else Console(width=180)


def checks_table(title: str, rows: list[view.Row]) -> Table:
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in ("points", "weight"):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("test", no_wrap=True)
    shown.add_column("seen", no_wrap=True)
    shown.add_column("check and its title", overflow="fold")
    for row in rows:
        points = "as run" if row.points is None else f"{row.points:.2f}"
        seen = "waived" if row.waived else row.visibility
        kind = "public" if row.public else "hidden" if row.step else "own"
        shown.add_row(points, f"{row.weight:g}", kind, seen, f"{row.id}  {row.title}")
    return shown


def dates_table(found: list[view.Row]) -> Table:
    """By step the points that a student is shown at each date, and whether Gradescope shows the total."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("points shown")
    for head in view.WHEN:
        shown.add_column(head, justify="right")
    dates = range(len(view.WHEN))
    for step in dict.fromkeys(row.step for row in found):
        rows = [row for row in found if row.step == step]
        whole = sum(row.points or 0.0 for row in rows)
        parts = [sum(row.points or 0.0 for row in rows if row.is_shown(when)) for when in dates]
        name = f"step {step}" if step else "own tests"
        shown.add_row(name, *(f"{part:g}" if part == whole else f"{part:.2f} of {whole:g}" for part in parts))
    shown.add_row("total", *("shown" if view.total_from(found) <= when else "hidden" for when in dates))
    return shown


@rubric.command("prices")
@click.option("--rubric", "file", type=click.Path(path_type=Path), help="The rubric; without it the lab's own.")
@click.option("--match", default="", metavar="WORD", help="Only faults with this word in their names.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option("--markdown", is_flag=True, help="Print a page of Markdown, as docs/prices.md is made.")
def prices_command(file: Path | None, match: str, jobs: int, markdown: bool) -> None:
    """Prints what each of the project's known faulty submissions loses, by step and in all.

    Those submissions belong to the project's tests: this works in a checkout of it alone.
    """
    of, _ = _read(file)
    prices = _fixtures()
    chosen = prices.fixtures(match)
    if not chosen:
        raise click.BadParameter(f"no fault has {match!r} in its name", param_hint="--match")
    rows: list[Row] = []
    with click.progressbar(prices.priced(file, match, jobs), len(chosen), "Judging", file=sys.stderr) as judged:
        rows += [(Path(fixture.file).stem, fixture.name, lost) for fixture, lost in judged]
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
