"""Runs the public checks on a folder in this process: what a student's pytest and `attnlab check` stand on.

A call is ended where it takes more CPU seconds than it may where it is graded (harness.limit); nothing else is limited here.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness.checks
from harness import broken, draws, loader
from harness import check as checking
from harness.check import Check, CheckResult
from harness.subject import Call, LocalSubject, Outcome, StandIns, remember

PUBLIC_SECRET = b"public"
"""The draws of public checks hang on this; the evidence that a student is shown is found with it too."""

NOT_WRITTEN = "NotImplementedError"


class Held(LocalSubject):
    """The in-process form for many calls: the submission's modules stay the imported ones from `held` to its end."""

    _modules: contextlib.ExitStack | None = None

    def ask(self, *calls: Call) -> list[Outcome]:
        if self._modules is None:
            return super().ask(*calls)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            outcomes = [self._run(call) for call in calls]
        self.printed = (self.printed + said.getvalue())[:65_536]
        remember(calls, outcomes)
        return outcomes

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._modules = contextlib.ExitStack()
        self._modules.enter_context(self._executor.active())
        try:
            yield
        finally:
            self._modules.close()
            self._modules = None

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[LocalSubject]:
        """As ever. The modules are let go of meanwhile: what borrows may ask this one from within its own calls."""
        held, self._modules = self._modules, None
        if held is not None:
            held.close()
        try:
            with super().lend(stand_ins) as borrower:
                yield borrower
        finally:
            if held is not None:
                held.enter_context(self._executor.active())
                self._modules = held

    @property
    def backend(self) -> str:
        return self._executor.backend() if self._modules is not None else super().backend


def public_checks(steps: set[int] | None = None) -> list[Check]:
    """All checks that students have, in the order in which they run."""
    checking.discover(harness.checks, steps)
    return checking.ordered(c for c in checking.CHECKS.values() if c.public and (steps is None or c.step in steps))


def run_check(check: Check, subject: Held, done: dict[str, CheckResult]) -> CheckResult:
    """One check, entered into `done`. It is blocked where a check in `done` that it stands on did not pass."""
    below = [done[id] for id in check.stands_on if id in done and done[id].status != "passed"]
    if below and below[0].status == "not-run":
        result = CheckResult(check, "not-run", reason=below[0].reason)
    elif below:
        result = CheckResult(check, "blocked", reason=below[0].check.title)
    else:
        seed = draws.seed_of(PUBLIC_SECRET, check.id)
        asked: Any = subject.root if check.needs == "files" else subject
        with subject.held():
            result = checking.run(check, asked, seed)
        if result.broke and not _lacks_torch(result):
            result = broken.failed(result)  # this very check with these draws passes over right submissions
        if _lacks_torch(result):
            result = CheckResult(check, "not-run", reason="torch is not installed: pip install torch")
    done[check.id] = result
    return result


def _lacks_torch(result: CheckResult) -> bool:
    """Whether torch was wanted where it may be, and is not there: a matter of the machine, not of the code."""
    seen = result.failure.seen if result.failure else result.reason
    return result.check.needs != "numpy" and "No module named 'torch" in seen


def check_folder(
    path: Path, steps: set[int] | None = None, on_result: Callable[[CheckResult], None] = lambda result: None
) -> list[CheckResult]:
    """Runs the public checks (of these steps) on the submission in a folder; `on_result` hears of each when done."""
    subject = Held(loader.find_root(Path(path).resolve()))
    done: dict[str, CheckResult] = {}
    for check in public_checks(steps):
        on_result(run_check(check, subject, done))
    return list(done.values())


def not_written(result: CheckResult) -> str | None:
    """What the stub says that the check ran into, or None where the function is written."""
    failure = result.failure
    if failure is None or failure.code != "raised" or not failure.seen.startswith(NOT_WRITTEN):
        return None
    said = re.sub(r"\s+at \S+\.py, line \d+:.*$", "", failure.seen.removeprefix(NOT_WRITTEN), flags=re.DOTALL)
    return said.removeprefix(":").strip() or "This function is not written yet."
