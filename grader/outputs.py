"""Which files a grading writes: an option of the command line each, all from the same Report.

Every file is written again after each step and always whole, so that a grading that is stopped leaves what it had judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from grader.policy import Metadata
    from grader.report import Report
    from grader.rubric import Submissions

Keep = Callable[["Report"], None]

# option -> module of grader.render, its writer, and the option's help
_FILES = {
    "--json": ("json_file", "write_json", "Write report.json here."),
    "--html": ("html", "write_html", "Write the report as a page here."),
    "--gradescope": ("gradescope", "write_gradescope", "Write Gradescope's results.json here."),
    "--prairielearn": ("prairielearn", "write_prairielearn", "Write PrairieLearn's results.json here."),
    "--junit": ("junit", "write_junit", "Write JUnit XML here, as test tabs of CI read it."),
}


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets the paths that were named as `outputs`, by option."""
    import functools

    names = {option: option.removeprefix("--") + "_file" for option in _FILES}

    @functools.wraps(command)
    def with_outputs(**given: Any) -> Any:
        named = {option: given.pop(name) for option, name in names.items()}
        return command(outputs={option: path for option, path in named.items() if path is not None}, **given)

    decorated: Callable[..., Any] = with_outputs
    for option, (_, _, about) in reversed(_FILES.items()):
        kind = click.Path(path_type=Path)
        decorated = click.option(option, names[option], type=kind, metavar="FILE", help=about)(decorated)
    return decorated


def writer(outputs: Mapping[str, Path], policy: Submissions | None = None, about: Metadata | None = None) -> Keep:
    """Writes every named file. What Gradescope is told beside the report: the time from now on, and what `policy` makes of
    the score by what is known `about` this and earlier submissions."""
    began = time.monotonic()

    def keep(report: Report) -> None:
        for option, path in outputs.items():
            module, function, _ = _FILES[option]
            more: dict[str, Any] = {}
            if option == "--gradescope":
                more = {"seconds": time.monotonic() - began, "policy": policy, "about": about}
            getattr(import_module(f"grader.render.{module}"), function)(report, path, **more)

    return keep


def github_summary() -> Path:
    """The file that a job's summary is added to. Raises click.UsageError outside of GitHub Actions."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        raise click.UsageError(
            "--github is for a job of GitHub Actions, which names its summary in GITHUB_STEP_SUMMARY: leave it out here"
        )
    return Path(name)
