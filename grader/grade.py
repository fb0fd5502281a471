"""One submission, from its folder to a Report: ask, judge, explain, score.

The checks of attention.py come first, in a worker that has no torch. What builds on it (kv_cache.py, experiments.py) is judged
with the submission's own attention.py, and, where that failed, once more over the judge's: a check passes if either run passes.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import grader.checks
import grader.families
import harness.checks
from grader import blame, compare, evidence, intake, leaderboard, own_tests, pictures, reading, served
from grader.companion import asks_attention_alone
from grader.diagnosis import UNRECOGNISED
from grader.evidence import Evidence
from grader.families import FAMILIES, Family
from grader.intake import Staged
from grader.measure import turn
from grader.pictures import Picture
from grader.report import NOT_YET, TIME_UP, Judged, Report, build_report
from grader.right import Right
from grader.rubric import Rubric
from grader.sandbox import Image, OutOfTime, Sandbox, WorkerSubject
from harness import broken, draws
from harness import check as checking
from harness.attend import CAUSAL, SDPA, SELF, SOFTMAX
from harness.check import CHECKS, Check, CheckResult, Fail
from harness.checks.step8_cache import DECODE, PREFILL
from harness.hints import Hints
from harness.local import PUBLIC_SECRET
from harness.rounding import loosened
from harness.signs import Hint
from harness.subject import LIMITS

# Ways a call ends that say little by themselves: a fault that explains them is named in their place.
GENERIC = frozenset({"raised", "wrong-shape", "not-finite", "not-an-array", "wrong-dtype"})
LEFT_BEHIND = ("stale-result", "cache-shared-state")
"""Faults that show in a call for what calls before it left: that call alone is right."""

INTAKE = 0.4  # of a time limit, that taking in what was handed in may take
SHARE = 0.8  # of a time limit after which nothing more is asked: what was judged is to be written in the rest

# what a check needs, in the order of judging after attention.py
LATER = ("kv", "torch", "companion", "tensors", "files")

# the file that such checks are about
_MODULES = {
    "numpy": "attention",
    "kv": "kv_cache",
    "torch": "experiments",
    "companion": "attention_torch",
    "tensors": "kv_cache",
}

checking.discover(harness.checks)
checking.discover(grader.checks)
checking.discover(grader.families)


def grade(
    path: Path,
    *,
    rubric: Rubric,
    secret: bytes = PUBLIC_SECRET,
    steps: set[int] | None = None,
    trust: bool = False,
    measure: bool = False,
    device: str = "cpu",
    students: Sequence[str] = (),
    time_limit: float | None = None,
    began: float | None = None,
    image: Image | None = None,
    on_step: Callable[[Report], None] = lambda report: None,
    on_evidence: Callable[[Evidence], None] = lambda evidence: None,
) -> Report:
    """Grades a folder or an archive; `on_step` gets the report so far at the start, and whenever a step has been judged, and
    `on_evidence` in the end what was found, apart from what the rubric makes of it.

    `measure` also runs the checks that only measure: worth nothing, and with numbers that differ from run to run.
    `device` is where tensors lie that attention_torch.py and a kv_cache.py of torch work on: "cpu" or "cuda".
    `trust` grades even where the machine gives no fence. `students` are names of whose work it is, for what staff have set
    by hand. `image` is that of a container for the submission, which runs on this machine otherwise. `time_limit` is the
    wall time, in seconds, after which somebody ends this process, from `began` (by time.monotonic) or from here: at most of
    it what is not judged stays so, and the report says it. Raises intake.IntakeError where `path` is nothing that can be
    graded, SandboxError where the machine gives too little for work that is not trusted.
    """
    began = time.monotonic() if began is None else began
    deadline = None if time_limit is None else began + SHARE * time_limit
    until = None if time_limit is None else began + INTAKE * time_limit
    with (
        intake.staged(path, rubric.adapters, until) as submission,
        Sandbox(submission.root, rubric.limits, trust, image) as sandbox,
        contextlib.ExitStack() as resources,
    ):
        sandbox.deadline = deadline
        judge = _Judge(submission, sandbox, rubric, secret, measure, device)
        resources.enter_context(judge.open)
        resources.callback(judge.right.close)
        on_step(_report(judge, secret, steps, students))  # whatever ends this, a report is there
        for _ in judge.judge_all(steps):
            on_step(_report(judge, secret, steps, students))
        own = own_tests.run(rubric.tests, judge.opened, rubric.visibility, rubric.waived) if rubric.tests else None
        judged, more = _found(judge, secret, steps, students, done=True, drawn=judge.pictures(), own=own)
        report = build_report(judged, rubric, **more)
        on_evidence(evidence.gathered(judged, rubric, **more))
        return report


def _report(judge: _Judge, secret: bytes, steps: set[int] | None, students: Sequence[str]) -> Report:
    """The report so far."""
    judged, more = _found(judge, secret, steps, students, done=False)
    return build_report(judged, judge.rubric, **more)


def _found(
    judge: _Judge,
    secret: bytes,
    steps: set[int] | None,
    students: Sequence[str],
    done: bool,
    drawn: Mapping[int, tuple[Picture, ...]] | None = None,
    own: own_tests.OwnTests | None = None,
) -> tuple[list[Judged], dict[str, Any]]:
    """What a report is made of beside the rubric: the arguments of build_report."""
    judged = list(judge.judged.values())
    if not done:
        judged += [
            Judged(c, CheckResult(c, "not-run", reason=NOT_YET))
            for c in judge.chosen(steps)
            if c.id not in judge.judged
        ]
    more = {
        "findings": judge.submission.findings,
        "integrity": tuple(judge.sandbox.integrity),
        "seed": hashlib.sha256(secret).hexdigest()[:12],
        "environment": environment() | _fence(judge.sandbox),
        "faults": judge.faults,
        "students": students,
        "own": own,
        "pictures": drawn,
        "note": compare.words(judge.submission.root),
        "compared": compare.compared(judge.submission.root, judged) if done else (),
    }
    return sorted(judged, key=lambda j: j.check.step), more


def environment() -> dict[str, str]:
    """What the grade may depend on, for the report."""
    from importlib.metadata import PackageNotFoundError, version

    found = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
    }
    for name in ("attnlab-harness", "attnlab-grader", "torch", "hypothesis"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _fence(sandbox: Sandbox) -> dict[str, str]:
    """The layers that stood around the last group, and what they stand on."""
    about = sandbox.about
    found = {"fence": ", ".join(sandbox.layers) or "none"}
    if sandbox.image:
        found["container"] = sandbox.image.name
    found |= {"gpu": sandbox.device} if sandbox.device else {}
    return found | ({"worker": f"python {about['python']}", "landlock": f"ABI {about['landlock']}"} if about else {})


@dataclass
class _Judge:
    """The state of one grading."""

    submission: Staged
    sandbox: Sandbox
    rubric: Rubric
    secret: bytes
    measure: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        self.judged: dict[str, Judged] = {}
        self.explained: dict[tuple[str, bool], Any] = {}
        self.hints: dict[tuple[str, bool], tuple[Hints, WorkerSubject]] = {}
        self.open = contextlib.ExitStack()
        self.faults: list[str] = []
        self.kv_kind = "torch" if self.submission.torch else "numpy"
        self.own_attention_fails = False
        self.right = Right(self.sandbox)

    def chosen(self, steps: set[int] | None) -> list[Check]:
        """The checks to be run, in order, with the rubric's own prerequisites."""
        asked = leaderboard.needed(self.rubric.leaderboard)
        wanted = [
            c
            for c in CHECKS.values()
            if (steps is None or c.step in steps)
            and (self.rubric.weight_of(c) or self.measure or c.id in asked)
            and self._concerns(c)
        ]
        return checking.ordered(self.rubric.with_prerequisites(c) for c in wanted)

    def _concerns(self, check: Check) -> bool:
        """Whether the submission has what the check is about: a file that nobody has to write costs nothing where it is not."""
        if check.needs == "companion":
            return self.submission.has("attention_torch") or bool(self.rubric.points.get(check.step))
        return check.needs != "tensors" or self.kv_kind == "torch"

    def judge_all(self, steps: set[int] | None) -> Iterator[None]:
        """Judges everything, the part without torch first; yields after every group."""
        chosen = self.chosen(steps)
        alone = [c for c in chosen if c.needs == "numpy"]
        if any(self._kind(c.needs) == "torch" for c in chosen):
            self.sandbox.prepare("torch")  # it loads while attention.py is judged
        for number in sorted({c.step for c in alone}):
            self._judge_group([c for c in alone if c.step == number], "numpy", follow=False)
            yield
        self.own_attention_fails = any(
            j.result.status == "failed" and any(f.startswith("attention.") for f in j.check.functions)
            for j in self.judged.values()
        ) or bool(self.submission.findings_of("attention"))
        if not alone:
            self.own_attention_fails = True  # not judged in this run: follow-through costs little and loses nothing
        groups = sorted({(c.step, LATER.index(c.needs)) for c in chosen if c.needs != "numpy"})
        if not alone:
            groups.sort(key=lambda group: group[1] > 0)  # torch is loading still: what does without it comes first
        for number, kind in groups:
            needs = LATER[kind]
            group = [c for c in chosen if c.step == number and c.needs == needs]
            self._judge_group(group, needs, follow=needs != "files" and self.own_attention_fails)
            yield

    # -- running -------------------------------------------------------------------------------------------------------

    def _kind(self, needs: str) -> str:
        return {"kv": self.kv_kind, "companion": "torch", "tensors": "torch"}.get(needs, needs)

    @contextlib.contextmanager
    def _subject(self, needs: str, follow: bool, sandbox: Sandbox | None = None) -> Iterator[WorkerSubject]:
        """The submission, or what another sandbox holds, in the worker that such checks need."""
        stand_ins = served.stand_ins() if follow else None
        backend = "torch" if self.kv_kind == "torch" else "numpy"
        kind = self._kind(needs)
        device = self.device if kind == "torch" and needs != "torch" else "cpu"
        with (sandbox or self.sandbox).group(kind, stand_ins, backend, device) as subject:
            yield subject

    def opened(self, module: str) -> contextlib.AbstractContextManager[WorkerSubject]:
        """A group for the course's own tests of a module, in the worker that the lab's checks of it have."""
        return self._subject({"attention": "numpy", "kv_cache": "kv"}.get(module, "torch"), follow=False)

    def _judge_group(self, group: list[Check], needs: str, follow: bool) -> None:
        results = self._run(group, needs, follow=False)
        followed: dict[str, CheckResult] = {}
        # what asks attention.py itself is never judged over the judge's own
        again = [c for c in group if results[c.id].status in ("failed", "blocked") and not asks_attention_alone(c)]
        if follow and again:
            self.sandbox.forget_strikes()
            followed = self._run(again, needs, follow=True, known=results)
        for c in group:
            result, over = results[c.id], c.id in followed
            self.judged[c.id] = Judged(c, followed[c.id] if over else result, followed=over)
        for c in group:
            if self.judged[c.id].result.status == "failed":
                self._explain(self.judged[c.id], needs, c.id in followed)

    def _run(
        self, group: list[Check], needs: str, follow: bool, known: dict[str, CheckResult] | None = None
    ) -> dict[str, CheckResult]:
        """Runs checks in one group; one whose ground failed is blocked."""
        known = known or {}
        results: dict[str, CheckResult] = {}
        with contextlib.ExitStack() as stack:
            subject: Any = None
            for c in group:
                if c.id in self.rubric.waived:
                    results[c.id] = CheckResult(c, "passed", told=(f"Waived for all: {self.rubric.waived[c.id]}",))
                    continue
                if self.sandbox.time_is_up():
                    results[c.id] = CheckResult(c, "not-run", reason=TIME_UP)
                    continue
                status = {i: (results.get(i) or known.get(i) or self._result_of(i)) for i in c.stands_on}
                below = [i for i, r in status.items() if r is not None and r.status in ("failed", "blocked", "not-run")]
                if below:
                    first = status[below[0]]
                    assert first is not None
                    kind = "not-run" if first.status == "not-run" else "blocked"
                    results[c.id] = CheckResult(c, kind, reason=first.check.id)
                    continue
                absent = self._absent(c, follow)
                if absent is not None:
                    results[c.id] = CheckResult(c, "failed", absent)
                    continue
                if subject is None:
                    subject = (
                        self.submission.root if needs == "files" else stack.enter_context(self._subject(needs, follow))
                    )
                    if needs != "files" and not follow and self.submission.has(_MODULES[needs]):
                        # before anything else is asked: a slow file then loads once for all groups
                        subject.load(_MODULES[needs])
                measured = contextlib.nullcontext() if self.rubric.weight_of(c) else self._measuring()
                with loosened(by=self.rubric.tolerance_of(c.id)), measured:
                    results[c.id] = self._verdict(c, subject, needs, follow)
                    if needs != "files":
                        subject.forget()
                    if results[c.id].status == "not-run" and self.sandbox.time_is_up():
                        results[c.id] = CheckResult(c, "not-run", reason=TIME_UP)
        return results

    def _verdict(self, check: Check, subject: Any, needs: str, follow: bool) -> CheckResult:
        """The check's result. One that breaks is tried once more, and then asked of a right submission: where that passes,
        it broke on what this one said, and failed."""
        seed = draws.seed_of(self.secret, check.id)
        if needs == "files":
            result = reading.run(check, subject, seed, self.sandbox.deadline)
        else:
            result = checking.run(check, subject, seed)
        if result.broke and needs != "files" and not self.sandbox.time_is_up():
            subject.close()  # the fault may be the machine's, and pass: in a fresh process
            result = checking.run(check, subject, seed)
        if not result.broke or self.sandbox.time_is_up():
            return result
        opened = None if needs == "files" else lambda sandbox: self._subject(needs, follow, sandbox)
        if not self.right.passes(check, seed, opened, tensors=self._kind(needs) == "torch" and needs != "torch"):
            return result
        self.faults.append(
            f"{check.id} broke on what the submission said, and failed: {result.reason} ({result.broke})"
        )
        return broken.failed(result)

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        """Around a check that only measures: it counts against nothing, and no other on this machine measures meanwhile."""
        with self.sandbox.uncounted(), turn.taken(self.sandbox.time_is_up):
            yield

    def _absent(self, check: Check, follow: bool) -> Fail | None:
        """The failure of a check whose file is not there or is no Python: nothing is started to find that out."""
        modules = {name.partition(".")[0] for name in check.functions} - ({"attention"} if follow else set())
        found = [
            f
            for m in sorted(modules)
            for f in self.submission.findings_of(m)
            if f.code in ("file-missing", "import-failed")
        ]
        return Fail(found[0].text, code=found[0].code) if found else None

    def _result_of(self, check_id: str) -> CheckResult | None:
        judged = self.judged.get(check_id)
        return judged.result if judged else None

    # -- explaining ----------------------------------------------------------------------------------------------------

    def _explain(self, judged: Judged, needs: str, follow: bool) -> None:
        """Names the fault behind a failed check, and finds the failure again with the public seed for the student to see."""
        failure = judged.result.failure
        assert failure is not None
        judged.codes = self._codes(judged.result, failure, needs, follow)
        if self.sandbox.time_is_up():
            return  # the verdict stands; what would show it to the student is not looked for any more
        if failure.code in LIMITS or self.secret == PUBLIC_SECRET:
            # what happens while a file loads knows no hidden input
            judged.shown = failure if self.secret == PUBLIC_SECRET or " while importing " in failure.seen else None
        elif needs == "files":
            judged.shown = failure
        else:
            with self._subject(needs, follow) as subject, loosened(by=self.rubric.tolerance_of(judged.check.id)):
                again = checking.run(judged.check, subject, draws.seed_of(PUBLIC_SECRET, judged.check.id))
            judged.shown = (broken.failed(again) if again.broke else again).failure

    def _codes(self, result: CheckResult, failure: Fail, needs: str, follow: bool) -> tuple[tuple[str, str], ...]:
        """What explains a failure, and how that was seen: what the check itself saw, what the search matches, what signs say."""
        if failure.code is not None and failure.code not in GENERIC:
            return ((failure.code, ""),)
        check = result.check
        found = {
            name: explanation
            for name in check.families
            if name in FAMILIES and (explanation := self._explanation(FAMILIES[name], follow)) is not None
        }
        seed = draws.seed_of(self.secret, check.id)
        if all(name in blame.FAMILIES for name in found):
            named = blame.explaining(check, result.case, seed, found)
        else:
            known = {code: e for e in found.values() for code in e.codes if code != UNRECOGNISED}
            named = {code: e for code, e in known.items() if code in check.about} or known
        if named:
            return tuple((code, _proof(explanation)) for code, explanation in named.items())
        left = self._carried_over(result, needs, follow, [code for e in found.values() for code in e.codes])
        if left:
            return ((left, ""),)
        hints = [hint for hint in self._hints(result, needs, follow) if hint.code is not None]
        if set(check.families) <= set(blame.FAMILIES):
            hints = [h for h in hints if h.code and blame.breaks(check, result.case, seed, h.code, check.families)]
        else:
            hints = hints[:1]
        seen = {str(hint.code): hint.seen for hint in reversed(hints)}
        return tuple(reversed(seen.items())) or ((failure.code or UNRECOGNISED, ""),)

    def _carried_over(self, result: CheckResult, needs: str, follow: bool, named: Iterable[str]) -> str:
        """The code of what an earlier call leaves behind, where that is why this check of the same file fails.

        No search can match such answers. A remembered result or a store that caches share is the reason only where the failing
        case passes when it is the first thing that is asked; noise, once it was seen, is in everything that the file computes.
        """
        module = {name.partition(".")[0] for name in result.check.functions}
        seen = {
            j.result.failure.code
            for j in self.judged.values()
            if j.result.failure is not None and module & {name.partition(".")[0] for name in j.check.functions}
        }
        if "not-deterministic" in seen:
            return "not-deterministic"
        left = [code for code in LEFT_BEHIND if code in seen or code in named]
        if not left or self.sandbox.time_is_up():
            return ""
        try:
            with self._subject(needs, follow) as subject, self.sandbox.uncounted():
                checking.run_case(result.check, subject, draws.seed_of(self.secret, result.check.id), result.case)
        except (Fail, OutOfTime):
            return ""
        except Exception as error:  # as with a search that breaks
            self.faults.append(f"{result.check.id} asked alone: {type(error).__name__}: {error}"[:300])
            return ""
        return left[0]

    def _hints(self, result: CheckResult, needs: str, follow: bool) -> list[Hint]:
        """What the submission's own outputs give away, where the search has no name for it; as a student's own run looks."""
        check = result.check
        if needs == "files" or self.sandbox.time_is_up() or any(self.sandbox.strikes[f] for f in check.functions):
            return []
        key = (needs, follow)
        if key not in self.hints:
            subject = self.open.enter_context(self._subject(needs, follow))
            self.hints[key] = Hints(subject), subject
        hints, subject = self.hints[key]
        try:
            with self.sandbox.uncounted():
                return hints.all_on(result)
        except OutOfTime:
            return []
        except Exception as error:  # a sign that breaks costs a name, not a point; staff are told
            self.faults.append(f"signs of {check.id}: {type(error).__name__}: {error}"[:300])
            return []
        finally:
            subject.close()  # until the next look: a process less beside what is judged

    def _explanation(self, family: Family, follow: bool) -> Any:
        """A family's explanation, asked once; None where its functions reach limits or the search itself breaks."""
        follow = follow and family.needs != "numpy"
        key = (family.name, follow)
        if key not in self.explained:
            self.explained[key] = None
            if not any(self.sandbox.strikes[f] for f in family.functions) and not self.sandbox.time_is_up():
                try:
                    with self._subject(family.needs, follow) as subject:
                        self.explained[key] = family.explain(subject)
                except OutOfTime:
                    pass
                except Exception as error:  # a search that breaks costs a name, not a point; staff are told
                    self.faults.append(f"diagnosis of {family.name}: {type(error).__name__}: {error}"[:300])
        return self.explained[key]

    # -- drawing -------------------------------------------------------------------------------------------------------

    def pictures(self) -> dict[int, tuple[Picture, ...]]:
        """By step: what is shown of a failed step on public inputs, and the curves. Called when all is judged."""
        found = pictures.curves(self.submission.root, self.judged.values())
        for number in (1, 2, 7, 8):
            failed = [j for j in self.judged.values() if j.check.step == number and j.result.status == "failed"]
            shown = [j for j in failed if j.check.public or self.rubric.show_hidden_inputs]
            if shown:
                drawn = self._drawn(number, follow=number == 8 and any(j.followed for j in shown))
                found[number] = (*([drawn] if drawn else []), *found.get(number, ()))
        return found

    def _drawn(self, number: int, follow: bool) -> Picture | None:
        """A picture of a failed step; none where its functions reach limits, or where drawing itself breaks."""
        names = (PREFILL, DECODE) if number == 8 else (SDPA, SELF, SOFTMAX, CAUSAL)
        if any(self.sandbox.strikes[name] for name in names) or self.sandbox.time_is_up():
            return None
        try:
            with self._subject("kv" if number == 8 else "numpy", follow) as subject, self.sandbox.uncounted():
                return pictures.strip(subject) if number == 8 else pictures.rows(subject, number)
        except (OutOfTime, Fail):
            return None
        except Exception as error:  # a picture that cannot be drawn costs a picture; staff are told
            self.faults.append(f"picture of step {number}: {type(error).__name__}: {error}"[:300])
            return None


def _proof(explanation: Any) -> str:
    """How a fault was seen, in words: on which probes the answers are those of the fault, and of no other."""
    probes = explanation.proof
    if not probes:
        return ""
    told = ", ".join(probe.replace("-", " ") for probe in probes[:3]) + (", …" if len(probes) > 3 else "")
    return f"On {len(probes)} input{'s' * (len(probes) > 1)} made to tell faults apart ({told}) your results equal this fault's."
