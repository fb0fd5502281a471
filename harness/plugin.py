"""The pytest plug-in of a student's folder: every public check is a test, and a run ends with the lab's step table.

    # tests/test_step1.py
    from harness.plugin import checks_of_step
    test_step1 = checks_of_step(1)

pytest.ini loads it (`-p harness.plugin`); the folder of pytest.ini is the submission.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Generator

import pytest
from rich.console import Console

from harness import loader, table
from harness.check import STEPS, Check, CheckResult
from harness.hints import Hints
from harness.local import Held, not_written, public_checks, run_check
from harness.signs import Hint


class Lab:
    """A submission in the course of one pytest run: what was found so far, and the hints already looked for."""

    def __init__(self, subject: Held) -> None:
        self.subject = subject
        self.results: dict[str, CheckResult] = {}
        self.hints = Hints(subject)
        self.hint_of_step: dict[int, Hint] = {}

    def run(self, check: Check) -> tuple[CheckResult, Hint | None]:
        self.subject.printed = ""
        result = run_check(check, self.subject, self.results)
        print(self.subject.printed, end="")  # so that pytest shows it beside a failure, and `-s` at once
        hint = None
        if result.status == "failed":
            with self.subject.held():
                hint = self.hints.on(result)
        if hint is not None:
            self.hint_of_step.setdefault(check.step, hint)
        return result, hint

    def already_said(self, result: CheckResult) -> bool:
        """Whether an earlier check ran into the same unwritten function: one failure a function is enough."""
        stub = not_written(result)
        earlier = (r for r in self.results.values() if r is not result)
        return stub is not None and any(not_written(r) == stub for r in earlier)


_LAB = pytest.StashKey[Lab]()


def checks_of_step(number: int) -> Callable[..., None]:
    """A test function that stands for every public check of a step; the check's id, without its step, is the test's."""
    checks = [check for check in public_checks() if check.step == number]

    @pytest.mark.parametrize("check", checks, ids=[check.id.split(".", 1)[1] for check in checks])
    def test(check: Check, lab: Lab) -> None:
        result, hint = lab.run(check)
        if result.status == "blocked":
            pytest.skip(f"stands on a check that did not pass: {result.reason}")
        if result.status == "not-run":
            pytest.skip(result.reason)
        if lab.already_said(result):
            pytest.skip("not written yet: said above")
        if result.status == "failed":
            pytest.fail(table.failure_text(result, hint), pytrace=False)

    test.__doc__ = STEPS[number].title if number in STEPS else None
    return test


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Lab:
    """The submission that lies beside pytest.ini."""
    pytestconfig.stash[_LAB] = Lab(Held(loader.find_root(pytestconfig.rootpath)))
    return pytestconfig.stash[_LAB]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Writes the step table, after all else that pytest has to say."""
    yield
    found = config.stash.get(_LAB, None)
    if found is None or not found.results:
        return
    heard = io.StringIO()
    writer = config.get_terminal_writer()
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    Console(file=heard, width=width, color_system="standard" if writer.hasmarkup else None).print(
        table.render(found.results.values(), found.hint_of_step)
    )
    terminalreporter.section("the lab, step by step")
    terminalreporter.write(heard.getvalue())
