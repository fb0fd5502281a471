"""The judge's own right submissions: asked what a submission was asked where a check broke, they say whose fault that is.

A check passes, or raises `Fail`. Where it breaks in another way, it is run over a right submission with the same draws. If it
passes there, it broke on what the submission said; if it breaks there too, it is the grader's own fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import grader
from grader.sandbox import OutOfTime, Sandbox, SandboxError, WorkerSubject
from harness import check as checking
from harness.check import Check

_EXAMPLES = Path(grader.__file__).parents[1] / "examples"

Opened = Callable[[Sandbox], contextlib.AbstractContextManager[WorkerSubject]]


class Right:
    """A right submission in NumPy, and one with tensors, each in a sandbox like the submission's: started when first asked."""

    def __init__(self, like: Sandbox) -> None:
        self._like = like
        self._sandboxes: dict[str, Sandbox] = {}
        self._known: dict[tuple[str, int, bool], bool] = {}

    def passes(self, check: Check, seed: int, opened: Opened | None, tensors: bool) -> bool:
        """Whether a right submission passes the check; `opened` opens it in a sandbox, and is None for a check of files."""
        key = (check.id, seed, tensors)
        if key not in self._known:
            root = _EXAMPLES / ("torch" if tensors else "base")
            try:
                if opened is None:
                    self._known[key] = checking.run(check, root, seed).status == "passed"  # type: ignore[arg-type]
                else:
                    with opened(self._sandbox(root)) as subject:
                        self._known[key] = checking.run(check, subject, seed).status == "passed"
            except (OutOfTime, SandboxError):
                self._known[key] = False
        return self._known[key]

    def _sandbox(self, root: Path) -> Sandbox:
        if root.name not in self._sandboxes:
            like = self._like
            sandbox = Sandbox(root, like.limits, like.trust, like.image)
            sandbox.deadline = like.deadline
            self._sandboxes[root.name] = sandbox.__enter__()
        return self._sandboxes[root.name]

    def close(self) -> None:
        for sandbox in self._sandboxes.values():
            sandbox.close()
        self._sandboxes.clear()
