"""How a submission is asked: one interface, two forms.

A check holds a `Subject` and calls the submission's functions through it. It never knows whether they run in this process
(a student's own pytest) or behind a wire (the grader).
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness import limit
from harness.contract import FUNCTIONS
from harness.values import Callback, Handle, Proxy

if TYPE_CHECKING:
    from harness.course import Limits

# Modules that the judge lends, by name: functions and objects of its own, and texts ("BACKEND": "torch" makes its arrays tensors).
StandIns = Mapping[str, Mapping[str, Callback | Proxy | str]]
LIMITS = ("timeout", "out-of-memory", "crashed", "output-flood")


@dataclass(frozen=True)
class Call:
    """One question. `name` is "module.function" of the contract, or a built-in of harness.executor ("@method", "@attr", …).

    With `keep` what is no plain data stays on the student's side and a Handle comes back; with "whole" the whole result
    stays, arrays too, as for a call that is timed. With `echo` the arguments come back too, as they are after the call.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    keep: bool | Literal["whole"] = False
    echo: bool = False


@dataclass(frozen=True)
class Frame:
    """A line of the student's own code on the way to an exception."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """What came of a call.

    kind     "value", "raised", "missing" (see `code`), or the limit that ended it: one of LIMITS
    value    plain data, or a Handle
    code     for "missing": file-missing, name-missing, signature-mismatch, import-failed, forbidden-library
    type     for "raised": the exception's type name, `text` its message (capped), `frames` the student's own lines
    """

    kind: str
    value: Any = None
    echo: tuple[Any, ...] = ()
    code: str = ""
    type: str = ""
    text: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def ok(self) -> bool:
        return self.kind == "value"


heard: list[tuple[Call, Outcome]] = []
"""The last question that any subject was asked, with its answer: what a check that breaks has broken on."""


def remember(calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
    """Keeps the last of these in `heard`."""
    heard[:] = [*zip(calls, outcomes, strict=True)][-1:]


@dataclass(frozen=True)
class Clocks:
    """What the kernel says of the process that a submission runs in, so far.

    cpu      CPU seconds that it has used
    delayed  seconds that it could have run and was made to wait by others; None where that is not known
    memory   bytes that it has had in memory at most; None where that is not known
    process  its number on this machine; 0 where it is the asker's own, or lies elsewhere
    """

    cpu: float
    delayed: float | None = None
    memory: int | None = None
    process: int = 0


class Subject(Protocol):
    """A submission that can be asked."""

    def ask(self, *calls: Call) -> list[Outcome]:
        """Asks in order and gives an outcome a call; after one that ended by a limit the rest end likewise."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Outcome:
        """Asks one thing."""

    def lend(self, stand_ins: StandIns) -> contextlib.AbstractContextManager[Subject]:
        """The same submission, loaded afresh over modules whose functions are the judge's: {"attention": {name: Callback}}.

        What it was lent already stays lent.
        """

    def load(self, module: str) -> None:
        """Loads a module now. What is lent is called by what it does meanwhile: whoever counts calls begins afterwards."""

    def clocks(self) -> Clocks:
        """The kernel's clocks of the submission's process: read before and after a call, they say what it cost."""

    @property
    def backend(self) -> str:
        """ "numpy" or "torch": what kv_cache.py works with."""


class Asking:
    """What both forms share: `call` in terms of `ask`, and short words for the built-ins."""

    def ask(self, *calls: Call) -> list[Outcome]:
        raise NotImplementedError

    def lend(self, stand_ins: StandIns) -> contextlib.AbstractContextManager[Asking]:
        raise NotImplementedError

    def clocks(self) -> Clocks:
        raise NotImplementedError

    @property
    def backend(self) -> str:
        raise NotImplementedError

    def call(self, name: str, *args: Any, **kwargs: Any) -> Outcome:
        return self.ask(Call(name, args, kwargs))[0]

    def load(self, module: str) -> None:
        self.ask(Call("@import", (module,)))

    def keep(self, name: str, *args: Any, **kwargs: Any) -> Outcome:
        return self.ask(Call(name, args, kwargs, keep=True))[0]

    def method(self, handle: Handle, name: str, *args: Any) -> Outcome:
        return self.call("@method", handle, name, *args)


class LocalSubject(Asking):
    """The in-process form. What the submission prints is kept in `printed`, up to 64 KiB.

    `modules` are in the submission already, as though imported from its folder.
    """

    def __init__(
        self, root: Path, stand_ins: StandIns | None = None, modules: Mapping[str, ModuleType] | None = None
    ) -> None:
        from harness.executor import Executor

        self.root = root
        self.printed = ""
        self.limits: Limits | None = None  # of one call; without, an endless loop is ended with Ctrl-C
        self.over: dict[str, Outcome] = {}  # functions that have reached a limit, and are not called again
        self._loaded: set[str] = set()
        self._stand_ins = stand_ins or {}
        self._modules_given = modules
        self._executor = Executor(root, self._stand_ins, _invoke, modules, numpy_only=True)

    def ask(self, *calls: Call) -> list[Outcome]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), self._executor.active():
            outcomes = [self._run(call) for call in calls]
        self.printed = (self.printed + said.getvalue())[:65_536]
        remember(calls, outcomes)
        return outcomes

    def _run(self, call: Call) -> Outcome:
        """One call, within the limits where there are any."""
        if self.limits is None or limit.running():
            return self._executor.run(call)
        function = next((word for word in (call.name, *call.args) if isinstance(word, str) and word in FUNCTIONS), "")
        if function in self.over:
            return self.over[function]
        module = str(call.args[0]) if call.name == "@import" else call.name.partition(".")[0]
        if not module.startswith("@") and module not in self._loaded:
            self._loaded.add(module)
            self._limited(Call("@import", (module,)), self.limits.import_seconds)  # what comes of it, the call says
        outcome = self._limited(call, self.limits.cpu_seconds)
        if outcome.kind in LIMITS and function:
            self.over[function] = outcome
        return outcome

    def _limited(self, call: Call, seconds: float) -> Outcome:
        try:
            with limit.of(seconds):
                return self._executor.run(call)
        except limit.TimeLimit as error:
            return self._executor.ended(error)

    @contextlib.contextmanager
    def lend(self, stand_ins: StandIns) -> Iterator[LocalSubject]:
        borrower = LocalSubject(self.root, {**self._stand_ins, **stand_ins}, self._modules_given)
        borrower.limits, borrower.over = self.limits, self.over
        yield borrower

    def clocks(self) -> Clocks:
        time.thread_time()  # brings process_time up to date: under a timer (harness.limit) Linux adds to it at ticks of 4 ms alone
        return Clocks(time.process_time(), memory=_most_memory())

    @property
    def backend(self) -> str:
        with self._executor.active():
            return self._executor.backend()


def _most_memory() -> int | None:
    """Bytes that this process has had in memory at most; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _invoke(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)
