"""The pytest plug-in of a student's folder: every public check is a test, and a run ends with the lab's step table.

    # tests/test_step1.py
    from harness.plugin import checks_of_step
    test_step1 = checks_of_step(1)

It is loaded wherever it is installed, or by pytest.ini (`-p harness.plugin`); the folder of pytest.ini is the submission. What a
test has to say to the table travels on its report, so that the table is whole under `pytest -n` too.
"""

from __future__ import annotations

import gc
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

if (
    TYPE_CHECKING
):  # where it is needed: a run that has nothing to do with the lab, or fails nothing, does not wait for it
    from harness.check import Check, CheckResult
    from harness.hints import Hints
    from harness.local import Held
    from harness.signs import Hint
    from harness.table import Told


SHOWN_LINES = 20
"""Of what a submission prints during a check; a check asks it many times."""


class Lab:
    """A submission in the course of one pytest run: what was found so far, and the hints already looked for."""

    def __init__(self, subject: Held) -> None:
        from harness.course import course

        # One thread: small products are faster so, and a busy machine does not stall them.
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # where torch is loaded later
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        self.subject = subject
        subject.limits = course().limits
        self.shown: set[str] = set()  # lines that the submission has printed
        self.results: dict[str, CheckResult] = {}

    @cached_property
    def hints(self) -> Hints:
        from harness.hints import Hints

        return Hints(self.subject)

    def run(self, check: Check) -> tuple[CheckResult, Hint | None]:
        from harness.local import run_check

        self.subject.printed = ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of overflow and the like: what came of it is said
            result = run_check(check, self.subject, self.results)
        self.show()  # so that pytest shows it beside a failure, and `-s` at once
        hint = None
        if result.status == "failed":
            with self.subject.held(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                hint = self.hints.on(result)
        return result, hint

    def show(self) -> None:
        """Prints what the submission has printed: each line once a run, whatever calls it and how often."""
        lines = [line for line in dict.fromkeys(self.subject.printed.splitlines()) if line not in self.shown]
        self.shown.update(lines)
        for line in lines[:SHOWN_LINES]:
            print(line)
        if len(lines) > SHOWN_LINES:
            print(f"… and {len(lines) - SHOWN_LINES} more lines that your code printed")

    def already_said(self, result: CheckResult) -> bool:
        """Whether an earlier check ran into the same unwritten function: one failure a function is enough."""
        from harness.local import not_written

        stub = not_written(result)
        earlier = (r for r in self.results.values() if r is not result)
        return stub is not None and any(not_written(r) == stub for r in earlier)


class _Listener:
    """Keeps what reports have for the table, in the process that writes it, whichever ran the test."""

    def __init__(self) -> None:
        self.found: list[Told] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        view = getattr(report, "lab", None)
        if view is not None:
            from harness.table import Told

            self.found.append(Told(**view))


_LABS = pytest.StashKey[dict[Path, Lab]]()
_LISTENER = pytest.StashKey[_Listener]()
_RESULT: pytest.StashKey[tuple[Told, str]] = pytest.StashKey()


def checks_of_step(number: int) -> Callable[..., None]:
    """A test function that stands for every public check of a step; the check's id, without its step, is the test's."""

    def test(check: Check, lab: Lab, request: pytest.FixtureRequest) -> None:
        from harness import table
        from harness.local import not_written

        result, hint = lab.run(check)
        width = min(shutil.get_terminal_size((80, 24)).columns, 104)
        request.node.stash[_RESULT] = table.told(result, hint), table.failure_text(result, hint, width)
        if result.status == "blocked":
            pytest.skip(f"depends on a check that did not pass: {result.reason}")
        if result.status == "not-run":
            pytest.skip(result.reason)
        if lab.already_said(result):
            pytest.skip("not written yet: said above")
        if result.status == "failed":
            stub = not_written(result)
            pytest.fail(f"Not written yet: {stub}" if stub else check.title, pytrace=False)

    test.step = number  # type: ignore[attr-defined]
    here = sys._getframe(1)  # a test pane shows a test where the student's folder names it, and not in this file
    place = test.__code__.replace(co_filename=here.f_code.co_filename, co_firstlineno=here.f_lineno)
    test.place_as = FunctionType(place, {})  # type: ignore[attr-defined]
    return test


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for every public check of the function's step; none, and nothing loaded, where other steps are asked for."""
    number = getattr(metafunc.function, "step", None)
    if number is None or metafunc.function.__module__ != __name__:
        return
    gc.disable()  # until all is loaded: it stays, and looking through it again and again costs more than any test
    from harness.local import public_checks
    from harness.steps import STEPS

    asked = steps_asked_for(metafunc.config)
    checks = public_checks({number}) if asked is None or number in asked else []
    metafunc.parametrize("check", checks, ids=[check.id.split(".", 1)[1] for check in checks])
    metafunc.function.__doc__ = STEPS[number].title if number in STEPS else None


def pytest_collection_finish() -> None:
    """What was loaded so far is there to stay: no collection of garbage looks at it any more."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    """The submission beside the nearest pytest.ini above the test, wherever a terminal or an editor starts from."""
    from harness import loader
    from harness.local import Held

    beside = next(
        (folder for folder in request.path.parents if (folder / "pytest.ini").is_file()), request.config.rootpath
    )
    labs = request.config.stash[_LABS]
    if beside not in labs:
        labs[beside] = Lab(Held(loader.find_root(beside)))
    return labs[beside]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("lab").addoption("--step", "--steps", metavar="1,2,7", help="only these steps of the lab")


def pytest_configure(config: pytest.Config) -> None:
    steps_asked_for(config)  # so that a step that is not there ends the run before it begins
    # pytest rewrites the assertions of every package with a plug-in: Hypothesis' and ours fail in no test, and load slower so
    getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set()).difference_update({"harness", "hypothesis"})
    config.stash[_LABS] = {}
    config.stash[_LISTENER] = _Listener()
    config.pluginmanager.register(config.stash[_LISTENER], "lab-listener")
    if config.getoption("dist", None) == "load":
        config.option.dist = "loadfile"  # a step's checks stand on each other: they stay in one worker


def pytest_report_header() -> str:
    return f"lab: {limit_told()}"


def limit_told() -> str:
    """Which limit holds in a student's own run."""
    from harness.course import course

    return f"a call that takes more than {course().limits.cpu_seconds:g} s of CPU time is ended, as where it is graded"


def steps_asked_for(config: pytest.Config) -> set[int] | None:
    """The numbers of `--step 1,2`, None without it. Raises pytest.UsageError for what is no number, or no step of the lab."""
    wanted = config.getoption("--step")
    if wanted is None:
        return None
    import harness.checks
    from harness.steps import steps_in

    known = steps_in(harness.checks)
    numbers = {int(part) if part.strip().isascii() and part.strip().isdigit() else -1 for part in wanted.split(",")}
    if not numbers <= known:
        steps = ", ".join(str(number) for number in sorted(known))
        raise pytest.UsageError(f"--step {wanted}: write some of {steps}, with commas between")
    return numbers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--step 1,2` keeps the checks of these steps, and no other test."""
    numbers = steps_asked_for(config)
    if numbers is None:
        return
    chosen = [item for item in items if _step_of(item) in numbers]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if _step_of(item) not in numbers])
        items[:] = chosen


def _step_of(item: pytest.Item) -> int | None:
    from harness.check import Check

    check = (
        item.callspec.params.get("check") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    )
    return check.step if isinstance(check, Check) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the failure's whole text in pytest's own form, and what the table needs onto the report."""
    report = yield
    if call.when != "call" or _RESULT not in item.stash:
        return report
    view, text = item.stash[_RESULT]
    report.lab = asdict(view)  # type: ignore[attr-defined]
    entries: Any = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", None)
    if report.failed and entries:
        entries[-1].lines, entries[-1].style = text.splitlines(), "long"  # which colours what begins with E
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Writes the mistakes and the step table, after all else that pytest has to say, and after Ctrl-C too."""
    yield
    found = config.stash[_LISTENER].found
    if not found:
        return
    from rich.console import Console

    from harness import mistakes, table
    from harness.local import public_checks

    heard = io.StringIO()
    writer = config.get_terminal_writer()
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    order = {check.id: i for i, check in enumerate(public_checks({view.step for view in found}))}
    found.sort(key=lambda view: order.get(view.id, 0))
    console = Console(file=heard, width=width, color_system="standard" if writer.hasmarkup else None, highlight=False)
    for title, part in (
        ("what is wrong, each mistake once", mistakes.render(found)),
        ("the lab, step by step", table.render(found, width)),
    ):
        console.print(part)
        if heard.getvalue().strip():
            terminalreporter.section(title)
            terminalreporter.write(heard.getvalue())
        heard.seek(0)
        heard.truncate()
