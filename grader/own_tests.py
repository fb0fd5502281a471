"""A course's own unittest files, as many courses have them: decorated with gradescope-utils, run by its runner.

They run on the judge's side. In place of an imported submission they find `subject`: subject.attention.softmax(x) asks the
worker, and gives the value or raises what the submission raised. The library's result class loses a test whose setUpClass
raises, whose subTest fails, or that is skipped; the one here keeps them.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import sys
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gradescope_utils.autograder_utils.json_test_runner import JSONTestResult, JSONTestRunner

from grader.sandbox import OutOfTime, SandboxError, WorkerSubject
from harness import contract
from harness.subject import Outcome
from harness.values import Handle

Open = Callable[[str], Any]  # a module of the contract -> a context that gives the WorkerSubject it is asked through


class SubmissionFailed(AssertionError):
    """A call that gave no value and has no exception of Python's own: a limit, a missing function."""


@dataclass(frozen=True)
class OwnTest:
    """What came of one test. `status` is "passed", "failed" or "not-run"; `reason` is then for staff."""

    id: str
    title: str
    status: str
    score: float
    max_score: float
    visibility: str = ""
    output: str = ""
    reason: str = ""
    number: str = ""


@dataclass(frozen=True)
class OwnTests:
    """All of them, in the order of their numbers, and their leaderboard's rows."""

    tests: tuple[OwnTest, ...] = ()
    leaderboard: tuple[tuple[str, float | str, str], ...] = ()


class Subject:
    """The submission as a test sees it: modules of the contract, with functions that can be called."""

    def __init__(self, open_module: Open, stack: ExitStack) -> None:
        self._open, self._stack = open_module, stack
        self._modules: dict[str, WorkerSubject] = {}
        self.asked = 0

    def __getattr__(self, name: str) -> _Module:
        if name not in contract.MODULES:
            raise AttributeError(f"the lab has no module {name}: known are {', '.join(contract.MODULES)}")
        return _Module(self, name)

    def ask(self, module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if module not in self._modules:
            self._modules[module] = self._stack.enter_context(self._open(module))
        self.asked += 1
        asked = self._modules[module]
        return self._value(asked, asked.keep(name, *map(_sent, args), **{k: _sent(v) for k, v in kwargs.items()}))

    def _value(self, asked: WorkerSubject, outcome: Outcome) -> Any:
        if outcome.ok:
            return _Kept(self, asked, outcome.value) if isinstance(outcome.value, Handle) else outcome.value
        where = outcome.frames[-1] if outcome.frames else None
        at = f" at {where.file}, line {where.line}: {where.text}" if where else ""
        kind = getattr(builtins, outcome.type, None) if outcome.kind == "raised" else None
        if (
            isinstance(kind, type)
            and issubclass(kind, Exception)
            and kind not in (UnicodeDecodeError, UnicodeEncodeError)
        ):
            error: Exception = kind(f"{outcome.text}{at}")
        else:
            what = outcome.type if outcome.kind == "raised" else outcome.code or outcome.kind
            error = SubmissionFailed(f"{what}: {outcome.text}{at}")
        error.of_submission = True  # type: ignore[attr-defined]
        raise error

    def method(self, asked: WorkerSubject, handle: Handle, name: str, args: tuple[Any, ...]) -> Any:
        return self._value(asked, asked.keep("@method", handle, name, *map(_sent, args)))


class _Module:
    def __init__(self, subject: Subject, name: str) -> None:
        self._subject, self._name = subject, name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._subject.ask(self._name, f"{self._name}.{function}", args, kwargs)


class _Kept:
    """A value that stays with the submission, a cache say: its methods can be called, and it can be handed back."""

    def __init__(self, subject: Subject, asked: WorkerSubject, handle: Handle) -> None:
        self._subject, self._asked, self._handle = subject, asked, handle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._subject.method(self._asked, self._handle, name, args)


def _sent(value: Any) -> Any:
    return value._handle if isinstance(value, _Kept) else value


# -- running -----------------------------------------------------------------------------------------------------------


def run(
    files: Sequence[Path], open_module: Open, visibility: str = "visible", waived: Mapping[str, str] | None = None
) -> OwnTests:
    """Runs the tests of all files but those `waived`, which pass with their reason; nothing that they raise gets out."""
    waived = waived or {}
    found: list[OwnTest] = []
    leaderboard: list[tuple[str, float | str, str]] = []
    with ExitStack() as stack:
        subject = Subject(open_module, stack)
        for file in files:
            try:
                module = _load(file, subject)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # its own fault, SystemExit included
                reason = f"{file.name} cannot be loaded: {type(error).__name__}: {error}"
                found.append(
                    OwnTest(f"own.{file.stem}", f"The tests of {file.name}.", "not-run", 0.0, 0.0, reason=reason)
                )
                continue
            suite = unittest.defaultTestLoader.loadTestsFromModule(module)
            tests = list(_flat(suite))  # a suite forgets its tests as it runs them
            if any(_id(file, test) in waived for test in tests):
                suite = unittest.TestSuite(test for test in tests if _id(file, test) not in waived)
            result = _run(module, suite, subject)
            found += [_test(file, test, result, visibility, waived.get(_id(file, test))) for test in tests]
            rows = (row for row in result.leaderboard if row["value"] is not None)
            leaderboard += [(str(r["name"]), _number(r["value"]), str(r["order"])) for r in rows]
    found.sort(key=lambda test: _order(test.number))
    return OwnTests(tuple(found), tuple(leaderboard))


def _order(number: str) -> tuple[list[int], str]:
    """As numbers are read, 1.10 after 1.9; tests without one come last, in the order they were found."""
    parts = number.split(".")
    return ([int(part) for part in parts] if number and all(p.isdigit() for p in parts) else [10**6], number)


@dataclass
class _Seen:
    """What the runner told of a test: rows of the library, and what it leaves out."""

    row: dict[str, Any] | None = None
    error: BaseException | None = None
    errored: bool = False
    skipped: str | None = None
    asked: bool = False
    in_parts: list[str] = field(default_factory=list)


def _run(module: ModuleType, suite: unittest.TestSuite, subject: Subject) -> _Result:
    stream = io.StringIO()
    runner = JSONTestRunner(stream=stream, buffer=True, failure_prefix="")
    results: list[_Result] = []

    def make() -> _Result:
        results.append(_Result(stream, runner.json_data["tests"], runner.json_data["leaderboard"], subject))
        return results[-1]

    runner._makeResult = make
    sys.modules[module.__name__] = module  # where unittest looks for setUpModule
    try:
        runner.run(suite)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what unittest itself lets through
        results[-1].broken = f"{type(error).__name__}: {error}"
    finally:
        sys.modules.pop(module.__name__, None)
    return results[-1]


class _Result(JSONTestResult):  # type: ignore[misc]
    """The library's result, which also keeps subTests, skips, expected failures and what happens around a class."""

    def __init__(self, stream: io.StringIO, results: list[Any], leaderboard: list[Any], subject: Subject) -> None:
        super().__init__(stream, True, 1, results, leaderboard, "")
        self.subject = subject
        self.seen: dict[str, _Seen] = {}
        self.around: dict[str, BaseException] = {}  # by class or module: what its setUpClass or setUpModule raised
        self.around_skipped: dict[str, str] = {}
        self.broken = ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.seen[test.id()] = _Seen()

    def processResult(self, test: unittest.TestCase, err: Any = None) -> None:
        super().processResult(test, err)
        seen = self.seen[test.id()]
        seen.row = dict(self.results[-1]) if self.results and not self.getLeaderboardData(test)[0] else {}
        seen.error = err[1] if err else None
        seen.asked = self.subject.asked > 0

    def addError(self, test: Any, err: Any) -> None:
        if hasattr(test, "_testMethodName"):
            super().addError(test, err)
            self.seen[test.id()].errored = True
        else:  # "setUpClass (module.Class)", where the library would break
            unittest.TestResult.addError(self, test, err)
            if str(test.description).startswith("setUp"):  # what breaks afterwards takes no verdict back
                self.around[_named(test)] = err[1]

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err:
            seen = self.seen[test.id()]
            seen.in_parts.append(f"{subtest._subDescription()}: {type(err[1]).__name__}: {err[1]}")
            seen.error, seen.errored = err[1], not issubclass(err[0], test.failureException)
            seen.asked = self.subject.asked > 0

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        if hasattr(test, "_testMethodName"):
            self.seen[test.id()].skipped = reason
        else:
            self.around_skipped[_named(test)] = reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.processResult(test)

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        error = AssertionError("it was expected to fail, and passed")
        self.processResult(test, (AssertionError, error, None))


def _named(holder: Any) -> str:
    """ "module.Class" of "setUpClass (module.Class)"."""
    return str(holder.description).partition("(")[2].rstrip(")")


def _id(file: Path, test: unittest.TestCase) -> str:
    return f"own.{file.stem}.{type(test).__name__}.{test._testMethodName}"


def _test(file: Path, test: unittest.TestCase, result: _Result, visibility: str, waived: str | None) -> OwnTest:
    seen = result.seen.get(test.id(), _Seen())
    weight = float(result.getWeight(test) or 0.0)
    number = str(result.getNumber(test) or "")
    title = result.getDescription(test).partition(" (")[0]
    about: dict[str, Any] = {
        "id": _id(file, test),
        "title": f"{number} {title}".strip(),
        "max_score": weight,
        "visibility": result.getVisibility(test) or visibility,
        "number": number,
    }
    if waived is not None:
        return OwnTest(status="passed", score=weight, output=f"Waived for all: {waived}", **about)
    names = (f"{type(test).__module__}.{type(test).__qualname__}", type(test).__module__)
    around = next((result.around[n] for n in names if n in result.around), None)
    skipped = (
        seen.skipped
        if seen.skipped is not None
        else next((result.around_skipped[n] for n in names if n in result.around_skipped), None)
    )
    error = around or seen.error
    if skipped is not None:
        return OwnTest(status="passed", score=weight, output=f"Skipped: {skipped}. That costs nothing.", **about)
    if error is None and seen.row is None:
        return OwnTest(status="not-run", score=0.0, reason=result.broken or "unittest did not run it", **about)
    if error is not None and _own_fault(error, around is not None, seen):
        return OwnTest(status="not-run", score=0.0, reason=_told(error), **about)
    hidden = result.getHideErrors(test)
    if error is None:
        row = seen.row or {}
        score = float(row.get("score", weight))
        status = "passed" if row.get("status", "passed") == "passed" else "failed"
        return OwnTest(status=status, score=score, output=str(row.get("output", "")), **about)
    set_score = result.getScore(test)
    told = hidden or "\n".join(seen.in_parts) or _told(error)
    return OwnTest(status="failed", score=min(float(set_score or 0.0), weight), output=str(told), **about)


def _own_fault(error: BaseException, around: bool, seen: _Seen) -> bool:
    """Whether an error says nothing of the submission: the grader's, or one in the test that nothing handed in can cause."""
    if getattr(error, "of_submission", False):
        return False
    if isinstance(error, OutOfTime | SandboxError) or around:
        return True
    return seen.errored and (isinstance(error, NameError | ImportError | SyntaxError) or not seen.asked)


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _number(value: Any) -> float | str:
    return float(value) if isinstance(value, int | float) else str(value)


def _flat(suite: Iterable[Any]) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flat(item)
        else:
            yield item


def _load(file: Path, subject: Subject) -> ModuleType:
    """Runs a file as a module in which `subject` is known."""
    name = f"own_tests_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["subject"] = subject
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(name, None)
    return module
