"""A check: one thing that must hold of a submission, the sentence that says so, and how it is run.

    @check("step1.softmax.rows-sum-to-one", cases=tables(), families=("softmax",))
    def rows_sum_to_one(subject, case):
        '''Every row of softmax's result sums to 1.'''

The docstring's first line is the title that a student sees. A check names the parameters it needs: `subject`, and any of `case`
(a draw) and `rng` (a NumPy generator of the check's own seed). A check that knows what is right lies in `grader/checks` and takes
it from `reference`. It raises `Fail` where something does not hold. With any other exception the check broke: on what the
submission said, where it passes over a right one, or else by its own fault (harness.broken, grader.right).

Modules of checks are found by `discover`: a file dropped into `harness/checks` or `grader/checks` is a part of the lab. Its name
begins with its step's: step3_sdpa.py.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy

from harness import contract, draws
from harness.steps import STEPS as STEPS
from harness.steps import modules_of
from harness.steps import step as step
from harness.subject import LIMITS, Call, Outcome, Subject, heard


@dataclass(frozen=True)
class Check:
    """A registered check.

    functions   the contract's names it calls: where one is absent the check fails with that finding, and is not run
    families    where a diagnosis of its failure is to be looked for ("softmax", "sdpa", "cache", …)
    about       the decisions or codes that its failure is most likely about: these are named first
    stands_on   ids of checks without which this one shows nothing: it is blocked where one of them failed
    needs       the worker it runs in: "numpy", "torch", "kv" (whichever kv_cache.py works with), "companion" (attention_torch.py,
                where there is one) or "tensors" (a kv_cache.py that works with torch); "files" is the folder itself
    public      students have it too
    weight      what it counts beside the others of its step where a rubric says nothing; 0 for one that only measures
    """

    id: str
    step: int
    title: str
    run: Callable[..., None]
    cases: SearchStrategy[Any] | None = None
    examples: int = 25
    functions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    stands_on: tuple[str, ...] = ()
    needs: str = "numpy"
    public: bool = False
    weight: float = 1.0


class Fail(Exception):
    """Something does not hold.

    code      of the catalogue where the fault itself was seen (a limit, a changed argument, …), else None
    seen      what came back, in words; `expected` what should have
    call      the call as the student could write it; `inputs` and `got` the arrays to show (never the expected values)
    """

    def __init__(
        self,
        seen: str,
        expected: str = "",
        *,
        code: str | None = None,
        call: str = "",
        inputs: dict[str, Any] | None = None,
        got: Any = None,
        frames: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(seen)
        self.code = code
        self.seen = seen
        self.expected = expected
        self.call = call
        self.inputs = inputs or {}
        self.got = got
        self.frames = frames

    @property
    def final(self) -> bool:
        """A limit was reached: not to be shrunk, not to be tried again."""
        return self.code in LIMITS


@dataclass
class CheckResult:
    """What came of one check: evidence, without a verdict on points.

    status   "passed", "failed", "blocked" or "not-run" (told in `reason`)
    notes    codes of things seen that cost nothing (a wider dtype out than in)
    told     what was measured, in plain sentences
    curves   the same as numbers: a name ("seconds", "peak") and its value by n
    case     the smallest draw found on which it failed, or the one on which it broke; None where it draws nothing
    broke    the last lines of an exception that was no verdict, for staff; `heard` is what was asked last, and its answer
    """

    check: Check
    status: str
    failure: Fail | None = None
    reason: str = ""
    seconds: float = 0.0
    notes: tuple[tuple[str, str], ...] = ()
    examples: int = 0
    told: tuple[str, ...] = ()
    curves: tuple[tuple[str, Mapping[int, float]], ...] = ()
    case: Any = None
    broke: str = ""
    heard: tuple[Call, Outcome] | None = None


CHECKS: dict[str, Check] = {}
_notes: list[tuple[str, str]] = []
_told: list[str] = []
_curves: list[tuple[str, Mapping[int, float]]] = []


def check(id: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers the decorated function as a check; `id` begins with "stepN."."""
    number = int(id.split(".")[0].removeprefix("step"))

    def register(function: Callable[..., None]) -> Callable[..., None]:
        title = (inspect.getdoc(function) or "").split("\n")[0].strip()
        if not title:
            raise ValueError(f"the check {id} has no docstring: its first line is what a student reads")
        known = CHECKS.get(id)
        if known is not None and known.run.__module__ != function.__module__:
            raise ValueError(f"two checks are called {id}: in {known.run.__module__} and in {function.__module__}")
        for name in ("functions", "families", "about", "stands_on"):
            if isinstance(options.get(name), str):
                options[name] = (options[name],)
        CHECKS[id] = Check(id, number, title, function, **options)
        return function

    return register


def discover(package: ModuleType, steps: set[int] | None = None) -> None:
    """Imports every module of a package of checks (of these steps), which registers what is in it."""
    for module, number in modules_of(package).items():
        if steps is None or number is None or number in steps:
            importlib.import_module(f"{package.__name__}.{module}")


def note(code: str, text: str) -> None:
    """Called by a check: something to say that costs nothing."""
    if (code, text) not in _notes:
        _notes.append((code, text))


def tell(text: str, **curves: Mapping[int, float]) -> None:
    """Called by a check: what it measured, for the report to say beside it, and to draw: `seconds={n: value}`."""
    _told.append(text)
    _curves.extend(curves.items())


def run(check: Check, subject: Subject, seed: int) -> CheckResult:
    """Runs one check against a subject. Its draws depend on `seed` alone."""
    _notes.clear()
    _told.clear()
    _curves.clear()
    heard.clear()
    began = time.perf_counter()
    count = 0
    failing: Any = None

    def prop(case: Any) -> None:
        nonlocal count, failing
        count += 1
        try:
            run_case(check, subject, seed, case)
        except Fail:
            raise
        except Exception:
            failing = case  # it breaks, which ends the search
            raise

    failure: Fail | None = None
    reason = broke = ""
    status = "passed"
    try:
        if check.cases is None:
            try:
                prop(None)
            except Fail as error:
                failure = error
        else:
            found = draws.falsify(
                prop, check.cases, seed, check.examples, Fail, lambda error: getattr(error, "final", False)
            )
            if found is not None and isinstance(found.error, Fail):
                failure, failing = found.error, found.case
        status = "failed" if failure else "passed"
    except Exception as error:
        status, reason = "not-run", f"{type(error).__name__}: {error}"[:500]
        broke = "; ".join(
            f"{f.name}, line {f.lineno}: {f.line}" for f in traceback.extract_tb(error.__traceback__)[-3:]
        )
    seconds = time.perf_counter() - began
    said = (tuple(_notes), count, tuple(_told), tuple(_curves))
    return CheckResult(check, status, failure, reason, seconds, *said, failing, broke, heard[0] if heard else None)


def run_case(check: Check, subject: Subject, seed: int, case: Any) -> None:
    """Runs a check on one draw. Raises Fail where something does not hold."""
    wanted = inspect.signature(check.run).parameters
    rng = {"rng": np.random.default_rng(seed)} if "rng" in wanted else {}
    check.run(subject, **({"case": case} if "case" in wanted else {}), **rng)


def ordered(checks: Iterable[Check]) -> list[Check]:
    """By step, then so that a check comes after those it stands on, otherwise as registered."""
    todo = sorted(checks, key=lambda c: c.step)
    done: list[Check] = []
    waiting = {c.id for c in todo}
    while todo:
        for candidate in todo:
            if waiting.isdisjoint(candidate.stands_on):
                done.append(candidate)
                waiting.remove(candidate.id)
                todo.remove(candidate)
                break
        else:
            raise ValueError(f"checks stand on each other in a circle: {', '.join(c.id for c in todo)}")
    return done


def fail_of(outcome: Outcome, call: str, inputs: dict[str, Any], module: str = "") -> Fail:
    """The failure that an outcome other than a value is."""
    where = outcome.frames[-1] if outcome.frames else None
    at = f" at {where.file}, line {where.line}: {where.text}" if where else ""
    common: dict[str, Any] = {"call": call, "inputs": inputs, "frames": outcome.frames}
    if outcome.kind == "missing":
        return Fail(outcome.text, "", code=outcome.code, **common)
    if outcome.kind == "raised":
        name = outcome.type.rsplit(".", 1)[-1]
        if module == "attention" and name in ("ModuleNotFoundError", "ImportError", "PermissionError"):
            library = next(
                (word for word in re.findall(r"\w+", outcome.text) if word in contract.FORBIDDEN_LIBRARIES), None
            )
            if library:
                return Fail(f"it reaches for {library}{at}", "NumPy alone", code="forbidden-library", **common)
        right = "a result"
        if where and where.file == "kv_cache.py" and "Tensor" in outcome.text and "numpy" in outcome.text:
            right = 'a result: what comes is a NumPy array, and a tensor only where kv_cache.py sets BACKEND = "torch"'
        return Fail(f"{name}: {outcome.text}{at}", right, code="raised", **common)
    return Fail(f"{outcome.text}{at}", "a result within the limits", code=outcome.kind, **common)
