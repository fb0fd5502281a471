"""The report on a terminal: the distinct mistakes, then a line a step, and the total.

Colours where the terminal has them (NO_COLOR is respected); piped, it is plain text of the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.mistakes import Mistake
from grader.render.words import cost, seen_in
from grader.report import Report, StepReport

BAR = 10
_STYLE = {"passed": "green", "failed": "red", "not-run": "yellow"}
_MARK = {"passed": "✓", "failed": "✗", "not-run": "?"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Prints the report."""
    (console or Console(highlight=False)).print(render(report))


def render(report: Report) -> RenderableType:
    parts: list[RenderableType] = [Text(report.title, style="bold"), Text("")]
    for number, mistake in enumerate(report.mistakes, 1):
        parts += _told(number, mistake)
    for step in report.steps:
        parts.append(_line(step))
        parts += _beneath(step, report.mistakes)
    parts += [Text(""), *_total(report)]
    if report.compared:
        parts += [
            Text(""),
            Text("For staff, and for no points:"),
            *(Text(text, style="dim") for text in report.compared),
        ]
    return Group(*parts)


def _told(number: int, mistake: Mistake) -> list[RenderableType]:
    """A mistake: its name and cost, what is wrong, where to look, where it was seen first."""
    lines = [Text(mistake.message)]
    if mistake.look:
        lines.append(Text(f"Look: {mistake.look}" + (f" ({mistake.chapter})" if mistake.chapter else ""), style="dim"))
    if mistake.line:
        lines.append(Text(f"{mistake.line.file}:{mistake.line.line}: {mistake.line.text}", style="dim"))
    lines.append(Text(f"{seen_in(mistake)}", style="dim"))
    name = Text.assemble((f"{number}. {mistake.title.rstrip('.')}", "bold red"), f"   {cost(mistake)}")
    return [name, *(Padding(line, (0, 0, 0, 3)) for line in lines), Text("")]


def _line(step: StepReport) -> Table:
    style = _STYLE[step.status]
    row = Table.grid(padding=(0, 1), expand=False)
    for width in (1, 2, 40, BAR, 14):
        row.add_column(width=width, no_wrap=True, overflow="ellipsis")
    row.add_row(
        Text(_MARK[step.status], style=style),
        Text(f"{step.number:>2}", style="bold"),
        Text(step.title),
        _bar(step, style),
        Text(f"{step.score:>5g} of {step.max_score:g}", style=style),
    )
    return row


def _bar(step: StepReport, style: str) -> Text:
    share = step.score / step.max_score if step.max_score else float(step.status == "passed")
    full = BAR if share >= 1 else min(BAR - 1, int(share * BAR + 0.5))  # full only where nothing is lost
    return Text("━" * full, style=style) + Text("─" * (BAR - full), style="dim")


def _beneath(step: StepReport, mistakes: Sequence[Mistake]) -> list[RenderableType]:
    """How a step stands, with the numbers of the mistakes that were seen in it."""
    if step.status == "passed":
        return []
    numbers = [str(i) for i, mistake in enumerate(mistakes, 1) if step.number in mistake.steps]
    which = f" (mistake{'s' * (len(numbers) > 1)} {', '.join(numbers)})" if numbers else ""
    return [Padding(Text(f"{step.summary}{which}", style="dim"), (0, 0, 0, 4))]


def _total(report: Report) -> list[RenderableType]:
    if report.score is not None:
        return [Text(f"{report.score:g} of {report.max_score:g} points", style="bold")]
    lines: list[RenderableType] = [Text("No final score.", style="bold yellow")]
    lines += [Text(f"{reason[0].upper()}{reason[1:]}.") for reason in report.provisional]
    lines.append(Text(f"{report.subtotal:g} points in what was judged."))
    return lines
