"""The report on a terminal: a line a step, the first diagnosis under each that lost points, and the total.

Colours where the terminal has them (NO_COLOR is respected); piped, it is plain text of the same lines.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.report import CheckReport, Diagnosis, Report, StepReport

BAR = 10
_STYLE = {"passed": "green", "failed": "red", "not-run": "yellow"}
_MARK = {"passed": "✓", "failed": "✗", "not-run": "?"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Prints the report."""
    (console or Console(highlight=False)).print(render(report))


def render(report: Report) -> RenderableType:
    parts: list[RenderableType] = [Text(report.title, style="bold"), Text("")]
    told: dict[str, int] = {}
    for step in report.steps:
        parts.append(_line(step))
        parts += _beneath(step, told)
    parts += [Text(""), *_total(report)]
    if report.compared:
        parts += [
            Text(""),
            Text("For staff, and for no points:"),
            *(Text(text, style="dim") for text in report.compared),
        ]
    return Group(*parts)


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


def _beneath(step: StepReport, told: dict[str, int]) -> list[RenderableType]:
    """What there is to say of a step: what to write, or the first fault; one that was told (code -> step) only by its name."""
    if step.status == "passed":
        return []
    first = first_fault(step)
    if step.summary.startswith("Not written yet"):
        lines = [Text(f"{step.summary}.")] + ([Text(first[1].look, style="dim")] if first else [])
    else:
        code = first[1].code if first else ""
        if first and code in told and code != "unrecognised":
            lines = [Text.assemble((f"{first[1].title}", "bold"), f", as in step {told[code]}.")]
        else:
            lines = [*_told(*first)] if first else []
        told.setdefault(code, step.number)
        lines.append(Text(step.summary, style="dim"))
    return [Padding(line, (0, 0, 0, 4)) for line in lines]


def _told(check: CheckReport, fault: Diagnosis) -> list[Text]:
    if fault.code == "unrecognised":
        seen = f"Seen: {check.evidence.seen}." if check.evidence else "Seen on inputs that are not shown."
        return [Text.assemble((check.title, "bold"), f" {seen}")]
    told = [Text.assemble((f"{fault.title}.", "bold"), f" {fault.message}")]
    return told + ([Text(f"Look: {fault.look} ({fault.chapter})", style="dim")] if fault.look else [])


def first_fault(step: StepReport) -> tuple[CheckReport, Diagnosis] | None:
    """The first named fault of a failed check; one without a name only where there is no other."""
    found = [(c, d) for c in step.checks if c.status == "failed" for d in c.faults]
    named = [pair for pair in found if pair[1].code != "unrecognised"]
    blocked = [(c, d) for c in step.checks if c.status == "blocked" for d in c.faults]
    return next(iter(named or found or blocked), None)


def _total(report: Report) -> list[RenderableType]:
    if report.score is not None:
        return [Text(f"{report.score:g} of {report.max_score:g} points", style="bold")]
    lines: list[RenderableType] = [Text("No final score.", style="bold yellow")]
    lines += [Text(f"{reason[0].upper()}{reason[1:]}.") for reason in report.provisional]
    lines.append(Text(f"{report.subtotal:g} points in what was judged."))
    return lines
