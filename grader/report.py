"""The Report: what came of a grading, as plain data that every renderer reads and none changes.

`build_report` takes the evidence (`Judged`), adds points (grader.score) and words (of the rubric or the catalogue), and
keeps back what a student must not see: of a failure only what the public seed shows again (`Judged.shown`) is put in.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from grader import leaderboard
from grader.mistakes import NOT_WRITTEN, Mistake, mistakes
from grader.own_tests import OwnTests
from grader.rubric import Late, Manual, Override, Rubric
from grader.sandbox import Limits
from grader.score import hundredths, split
from harness import check as checking
from harness import contract
from harness.check import Check, CheckResult, Fail
from harness.expect import spell_value
from harness.loader import Finding
from harness.local import not_written
from harness.subject import LIMITS

if TYPE_CHECKING:
    from grader.pictures import Picture

SCHEMA = 1
NOT_YET = "not judged yet"
TIME_UP = "the grading came near its time limit"
UNRECOGNISED = "unrecognised"
SET_BY_STAFF = "set-by-staff"
OWN_TESTS = "The course's own tests"
MOST_ROWS = MOST_COLUMNS = 8
MOST_TEXT = 2000
MOST_NOTE = 40_000

# Seen by a look at the files: their text is the whole message.
_FOUND = frozenset({"file-missing", "name-missing", "signature-mismatch", "import-failed", "forbidden-library"})
# Seen in a result: the message says what came and what should have.
_SEEN = frozenset({"wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "raised"})


@dataclass
class Judged:
    """The evidence on one check.

    codes     (code, proof in words) that explain a failure
    followed  it was judged over a right attention.py in place of the submission's own
    shown     the failure as found again with the public seed; `result.failure` is of the secret one and stays inside
    """

    check: Check
    result: CheckResult
    codes: tuple[tuple[str, str], ...] = ()
    followed: bool = False
    shown: Fail | None = None


@dataclass(frozen=True)
class Table:
    """A value as rows of text. `part` says which part of it is shown where that is not the whole."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Line:
    """A line of the student's own code."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Evidence:
    """A failure as a student may see it."""

    seen: str
    expected: str
    call: str
    inputs: tuple[Table, ...]
    got: tuple[Table, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Diagnosis:
    """A named fault, or with `note` advice that costs nothing. `evidence` says how it was seen."""

    code: str
    title: str
    message: str
    look: str
    chapter: str
    evidence: str
    note: bool = False


@dataclass(frozen=True)
class CheckReport:
    id: str
    title: str
    status: str
    score: float
    max_score: float
    visibility: str
    public: bool
    followed: bool
    seconds: float
    diagnoses: tuple[Diagnosis, ...]
    output: str
    evidence: Evidence | None
    functions: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[Diagnosis, ...]:
        return tuple(d for d in self.diagnoses if not d.note)


@dataclass(frozen=True)
class StepReport:
    """`status` is "passed", "failed" or "not-run"; `summary` says in a line how it stands, or what is to be written."""

    number: int
    title: str
    chapter: str
    status: str
    score: float
    max_score: float
    summary: str
    checks: tuple[CheckReport, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Report:
    """`score` is None while `provisional` names a reason; `subtotal` counts what was judged all the same.

    `integrity`, `faults` (of the grader, by check id) and `compared` (the report's numbers beside what was measured here) are
    for staff; `mistakes` are the distinct ones of all checks, the costliest first; `note` is the text of note.md, for a
    person to read. `late` is the rubric's rule, which no score here has in it.
    """

    title: str
    score: float | None
    max_score: float
    subtotal: float
    provisional: tuple[str, ...]
    seed: str
    rubric: str
    environment: Mapping[str, str]
    integrity: tuple[Mapping[str, str], ...]
    faults: Mapping[str, str]
    findings: tuple[Mapping[str, str], ...]
    steps: tuple[StepReport, ...]
    manual: tuple[Manual, ...] = ()
    leaderboard: tuple[tuple[str, float | str, str], ...] = ()
    note: str = ""
    compared: tuple[str, ...] = ()
    late: Late | None = None
    mistakes: tuple[Mistake, ...] = ()
    schema: int = field(default=SCHEMA)

    @property
    def final(self) -> bool:
        return not self.provisional


def build_report(
    judged: Sequence[Judged],
    rubric: Rubric,
    *,
    findings: Iterable[Finding] = (),
    integrity: Iterable[str] = (),
    seed: str = "",
    environment: Mapping[str, str] | None = None,
    faults: Iterable[str] = (),
    students: Iterable[str] = (),
    own: OwnTests | None = None,
    pictures: Mapping[int, tuple[Picture, ...]] | None = None,
    note: str = "",
    compared: Iterable[str] = (),
) -> Report:
    """Makes the report of everything that was judged. `seed` is the secret's fingerprint, never the secret;
    `faults` are the grader's own that belong to no check; `students` are names of whose work it is: what staff have set for
    one of them stands in place of what was found; `pictures` are drawn by step; `own` are the
    course's own tests, a step of their own after the others; `note` and `compared` are as in the report."""
    known = {j.check.id: j for j in judged}
    numbers = sorted({j.check.step for j in judged})
    overrides = rubric.overrides_of(students)
    steps = tuple(_step(n, [j for j in judged if j.check.step == n], rubric, known, overrides) for n in numbers)
    steps = tuple(replace(s, pictures=(pictures or {}).get(s.number, ())) for s in steps)
    own = own or OwnTests()
    if own.tests:
        steps = (*steps, _own_step(own, max([*numbers, *checking.STEPS]) + 1, overrides))
    subtotal = sum(hundredths(c.score) for s in steps for c in s.checks) / 100
    provisional = _provisional([j for j in judged if j.check.id not in overrides], rubric, numbers)
    if any(test.status == "not-run" and test.id not in overrides for test in own.tests):
        provisional = (*provisional, "a test of the course's own could not be judged, which lowers no score")
    whole = overrides.get("")
    if whole is not None and whole.points is not None:
        subtotal, provisional = whole.points, ()
        findings = (*findings, Finding(SET_BY_STAFF, "", f"Course staff set the score by hand: {whole.reason}"))
    return Report(
        title=rubric.title,
        score=None if provisional else subtotal,
        max_score=sum(map(hundredths, (*rubric.points.values(), *(test.max_score for test in own.tests)))) / 100,
        subtotal=subtotal,
        provisional=provisional,
        seed=seed,
        rubric=rubric.fingerprint,
        environment=dict(environment or {}),
        integrity=tuple({"code": "tampering", "message": clean(text, 300)} for text in integrity),
        faults={j.check.id: clean(j.result.reason, 500) for j in judged if _own_fault(j, known)}
        | {f"grader-{i}": clean(text, 500) for i, text in enumerate(faults, 1)}
        | {test.id: clean(test.reason, 500) for test in own.tests if test.status == "not-run"}
        | _not_there(own, [*rubric.waived, *overrides]),
        findings=tuple({"code": f.code, "module": f.module, "message": clean(f.text)} for f in findings),
        steps=steps,
        manual=rubric.manual,
        leaderboard=(*own.leaderboard, *leaderboard.rows(rubric.leaderboard, judged)),
        note=clean(note, MOST_NOTE),
        compared=tuple(clean(text, 500) for text in compared),
        late=rubric.submissions.late,
        mistakes=mistakes(steps),
    )


def _not_there(own: OwnTests, named: Iterable[str]) -> dict[str, str]:
    """Tests of the course's own that the rubric waives or sets, and that did not turn up when all of them were run."""
    absent = {name for name in named if name.startswith("own.")} - {test.id for test in own.tests}
    reason = "the rubric names this test, and no file of the course's has made it"
    return dict.fromkeys(sorted(absent), reason) if own.tests else {}


def _own_fault(judged: Judged, known: Mapping[str, Judged]) -> bool:
    """A check that broke by itself, not one that waits for another."""
    reason = judged.result.reason
    return judged.result.status == "not-run" and reason not in (NOT_YET, TIME_UP) and reason not in known


def _provisional(judged: Sequence[Judged], rubric: Rubric, numbers: Sequence[int]) -> tuple[str, ...]:
    reasons = []
    missing = [n for n, points in sorted(rubric.points.items()) if points and n not in numbers]
    if missing:
        reasons.append(f"{'step' if len(missing) == 1 else 'steps'} {_listed(missing)} not graded")
    waiting = [j for j in judged if j.result.status == "not-run" and j.result.reason == NOT_YET]
    if waiting:
        reasons.append("the grading has not come to its end")
    # what is worth nothing withholds no score
    worth = [j for j in judged if rubric.points.get(j.check.step) and rubric.weight_of(j.check)]
    late = [j for j in worth if j.result.status == "not-run" and j.result.reason == TIME_UP]
    if late:
        what = "1 check was" if len(late) == 1 else f"{len(late)} checks were"
        reasons.append(f"{what} not judged, since {TIME_UP}")
    broken = [j for j in worth if j.result.status == "not-run" and j.result.reason not in (NOT_YET, TIME_UP)]
    if broken:
        what = "1 check" if len(broken) == 1 else f"{len(broken)} checks"
        reasons.append(f"{what} could not be judged, which is the grader's own fault and lowers no score")
    return tuple(reasons)


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(str(i) for i in items)


# -- steps -------------------------------------------------------------------------------------------------------------


def _step(
    number: int,
    judged: Sequence[Judged],
    rubric: Rubric,
    known: Mapping[str, Judged],
    overrides: Mapping[str, Override],
) -> StepReport:
    points = rubric.points.get(number, 0.0)
    shares = split(points, [rubric.weight_of(j.check) for j in judged])
    found = [_check(j, share, rubric, known) for j, share in zip(judged, shares, strict=True)]
    checks = tuple(_set_by_hand(c, overrides[c.id]) if c.id in overrides else c for c in found)
    statuses = {c.status for c in checks}
    status = "failed" if statuses & {"failed", "blocked"} else "not-run" if "not-run" in statuses else "passed"
    about = checking.STEPS.get(number)
    return StepReport(
        number=number,
        title=about.title if about else f"Step {number}",
        chapter=about.chapter if about else "",
        status=status,
        score=sum(hundredths(c.score) for c in checks) / 100,
        max_score=hundredths(points) / 100,
        summary=_summary(judged, checks, known),
        checks=checks,
    )


def _summary(judged: Sequence[Judged], checks: Sequence[CheckReport], known: Mapping[str, Judged]) -> str:
    unwritten = _unwritten(judged, known)
    if unwritten:
        return f"Not written yet: {', '.join(unwritten)}"
    count = {status: sum(c.status == status for c in checks) for status in ("passed", "failed", "blocked", "not-run")}
    if count["passed"] == len(checks):
        return "1 check passed" if len(checks) == 1 else f"all {len(checks)} checks passed"
    return ", ".join(f"{n} {status.replace('-', ' ')}" for status, n in count.items() if n)


def _unwritten(judged: Sequence[Judged], known: Mapping[str, Judged]) -> list[str]:
    """Names of the functions that these checks wait for: called and not written, or behind such a check."""
    works = {f for j in judged if j.result.status == "passed" for f in j.check.functions}
    names: dict[str, None] = {}
    for j in judged:
        if j.result.status == "failed" and _not_written(j):
            called = _called(j)
            names |= dict.fromkeys([called] if called else [])
        elif j.result.status == "blocked" and _not_written(_root(j, known)):
            names |= dict.fromkeys(f for f in j.check.functions if f not in works)
    return [contract.FUNCTIONS[name].name for name in names if name in contract.FUNCTIONS]


def _root(judged: Judged, known: Mapping[str, Judged]) -> Judged:
    """The failed check that a blocked one waits for, by way of others."""
    for _ in range(len(known)):
        below = known.get(judged.result.reason)
        if judged.result.status != "blocked" or below is None:
            break
        judged = below
    return judged


def _not_written(judged: Judged) -> bool:
    failure = judged.result.failure
    return failure is not None and failure.code == "raised" and failure.seen.startswith("NotImplementedError")


def _called(judged: Judged) -> str | None:
    """The contract's name of the function that the failing call was of."""
    failure = judged.result.failure
    name = failure.call.partition("(")[0] if failure else ""
    return next((f for f in contract.FUNCTIONS if f.endswith(f".{name}")), next(iter(judged.check.functions), None))


# -- checks ------------------------------------------------------------------------------------------------------------


def _check(judged: Judged, share: int, rubric: Rubric, known: Mapping[str, Judged]) -> CheckReport:
    check, result = judged.check, judged.result
    evidence = _evidence(judged, rubric) if result.status == "failed" else None
    return CheckReport(
        id=check.id,
        title=check.title,
        status=result.status,
        score=share / 100 if result.status == "passed" else 0.0,
        max_score=share / 100,
        visibility=rubric.visibility_of(check.id),
        public=check.public,
        followed=judged.followed,
        seconds=round(result.seconds, 3),
        diagnoses=tuple(_diagnoses(judged, evidence, rubric, known)),
        output=_output(judged, evidence),
        evidence=None if _not_written(judged) else evidence,
        functions=check.functions,
    )


def _own_step(own: OwnTests, number: int, overrides: Mapping[str, Override]) -> StepReport:
    """The course's own tests as a step with a check each."""
    found = [
        CheckReport(
            id=test.id,
            title=clean(test.title, 200),
            status=test.status,
            score=hundredths(test.score) / 100,
            max_score=hundredths(test.max_score) / 100,
            visibility=test.visibility,
            public=False,
            followed=False,
            seconds=0.0,
            diagnoses=(),
            output=clean(test.output),
            evidence=None,
        )
        for test in own.tests
    ]
    checks = tuple(_set_by_hand(c, overrides[c.id]) if c.id in overrides else c for c in found)
    statuses = [c.status for c in checks]
    counts = [f"{statuses.count(s)} {s.replace('-', ' ')}" for s in ("passed", "failed", "not-run") if s in statuses]
    return StepReport(
        number=number,
        title=OWN_TESTS,
        chapter="",
        status=next((s for s in ("failed", "not-run") if s in statuses), "passed"),
        score=sum(hundredths(c.score) for c in checks) / 100,
        max_score=sum(hundredths(c.max_score) for c in checks) / 100,
        summary=", ".join(counts),
        checks=checks,
    )


def _set_by_hand(check: CheckReport, override: Override) -> CheckReport:
    """The check with what staff have given for it; what was found stays beside it."""
    score = check.max_score if override.points is None else override.points
    told = f"Course staff gave {score:g} of {check.max_score:g} points by hand: {override.reason}"
    note = Diagnosis(SET_BY_STAFF, "Set by hand", told, "", "", "", note=True)
    status = "passed" if score >= check.max_score else "failed"
    return replace(check, score=score, status=status, diagnoses=(note, *check.diagnoses))


def _diagnoses(
    judged: Judged, evidence: Evidence | None, rubric: Rubric, known: Mapping[str, Judged]
) -> Iterable[Diagnosis]:
    check, result = judged.check, judged.result
    if result.status == "blocked":
        root = _root(judged, known)
        words = rubric.words("blocked-by", check.id)
        message = words.says if root is judged else f"Not judged: it stands on “{root.check.title.rstrip('.')}”."
        yield Diagnosis("blocked-by", words.short, message, words.look, words.chapter, root.check.id)
    elif result.status == "failed":
        code = result.failure.code if result.failure else None
        codes = judged.codes or ((code or UNRECOGNISED, ""),)
        for name, proof in (("raised", ""),) if _not_written(judged) else codes:
            yield _diagnosis(name, proof, judged, evidence, rubric)
    for code, text in result.notes:
        words = rubric.words(code, check.id)
        yield Diagnosis(code, words.short, clean(text), "", words.chapter, "", note=True)


def _diagnosis(code: str, proof: str, judged: Judged, evidence: Evidence | None, rubric: Rubric) -> Diagnosis:
    words = rubric.words(code, judged.check.id)
    short, says, look, how = words.short, words.says, words.look, clean(proof)
    if _not_written(judged):
        short, says, look = _still_to_write(judged, evidence)
    elif code in LIMITS:
        says = f"{says} {_limit(code, judged, rubric.limits)}"
    elif evidence and code in _FOUND:
        says = _sentence(evidence.seen)
    elif evidence and code in _SEEN:
        wanted = f"; expected: {evidence.expected}" if evidence.expected and code != "raised" else ""
        says = f"{says} {_sentence(evidence.seen + wanted)}"
    elif evidence and not how:
        how = evidence.seen
    return Diagnosis(code, short, says, look, words.chapter, how)


def _still_to_write(judged: Judged, evidence: Evidence | None) -> tuple[str, str, str]:
    """Title, message and where to look for a stub: what it says itself, where the public seed shows it."""
    name = _called(judged) or ""
    signature = contract.FUNCTIONS[name].signature if name in contract.FUNCTIONS else judged.check.title
    lines = evidence.lines if evidence else ()
    where = f"{lines[-1].file}, line {lines[-1].line}." if lines else f"{name.partition('.')[0]}.py."
    told = clean(not_written(replace(judged.result, failure=judged.shown)) or "", 300)
    state = "calls something that is not written yet" if len(lines) > 1 else "is not written yet"
    return NOT_WRITTEN, f"{signature} {state}.", f"{_sentence(told)} {where}" if told else where


def _limit(code: str, judged: Judged, limits: Limits) -> str:
    """Which limit it was, with its number, and how far the check had come."""
    loading = judged.result.failure is not None and " while importing " in judged.result.failure.seen
    what, seconds = ("A file's import", limits.import_seconds) if loading else ("A call", limits.cpu_seconds)
    limit = {
        "timeout": f"{what} may use {seconds:g} s of CPU time, and {limits.idle_seconds:g} s without progress.",
        "out-of-memory": f"A call may use {limits.memory_mib} MiB above what the libraries take.",
        "output-flood": f"A call may print {limits.output_mib} MiB.",
    }.get(code, "")
    before = judged.result.examples - 1
    passed = f" {before} {'input' if before == 1 else 'inputs'} before it passed." if before > 0 else ""
    return (limit + passed).strip()


def _evidence(judged: Judged, rubric: Rubric) -> Evidence | None:
    """The failure in a form that may leave; None where it was not found again with the public seed."""
    fail = judged.shown
    if fail is None:
        return None
    whole = judged.check.public or rubric.show_hidden_inputs
    return Evidence(
        seen=clean(fail.seen),
        expected=clean(fail.expected),
        call=clean(fail.call) if whole else "",
        inputs=tuple(t for name, value in fail.inputs.items() for t in tables(name, value)) if whole else (),
        got=tuple(tables("what came back", fail.got)) if whole and fail.got is not None else (),
        lines=tuple(Line(clean(f.file, 200), int(f.line), clean(f.text, 300)) for f in fail.frames),
    )


def _output(judged: Judged, evidence: Evidence | None) -> str:
    """What a check has to say, as plain text."""
    parts = []
    if judged.followed:
        parts.append("Judged over a right attention.py, so that an earlier step's fault costs nothing here.")
    if judged.result.status == "not-run" and judged.result.reason == TIME_UP:
        parts.append(f"Not judged, since {TIME_UP}. That costs nothing.")
    elif judged.result.status == "not-run" and judged.result.reason != NOT_YET:
        parts.append("This could not be judged. That is the grader's own fault, and costs nothing.")
    if judged.result.status == "failed" and _not_written(judged):
        parts.append(_still_to_write(judged, evidence)[1])
    elif evidence is not None:
        parts += [f"Seen: {evidence.seen}"] + ([f"Expected: {evidence.expected}"] if evidence.expected else [])
        parts += [f"Call: {evidence.call}"] if evidence.call else []
        parts += [_drawn(table) for table in (*evidence.inputs, *evidence.got)]
        parts += [f"{line.file}, line {line.line}: {line.text}" for line in evidence.lines]
    elif judged.result.status == "failed":
        parts.append("Seen on inputs that are not shown.")
    parts += [clean(text) for text in judged.result.told]
    return "\n".join(parts)


# -- values as text ----------------------------------------------------------------------------------------------------


def clean(text: str, most: int = MOST_TEXT) -> str:
    """A student's text made safe to print: no control or direction characters, no half characters, at most `most`."""
    safe = "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "�" for c in text[: most + 1]
    )
    return safe if len(safe) <= most else safe[: most - 1] + "…"


def tables(name: str, value: Any) -> list[Table]:
    """A value as tables: an array as one, a tuple of arrays as one each, anything else as one cell."""
    if isinstance(value, tuple) and value and all(isinstance(part, Table) for part in value):
        return list(value)  # made before, and kept as evidence
    name = clean(name, 80)
    if isinstance(value, np.ndarray):
        return [_table(name, value)]
    if isinstance(value, list | tuple) and value and all(type(v) in (int, float, bool) for v in value):
        return [_table(name, np.asarray(value, dtype=object), kind=type(value).__name__)]
    if isinstance(value, list | tuple) and any(isinstance(v, np.ndarray) for v in value):
        return [t for i, v in enumerate(value[:4]) for t in tables(f"{name}, part {i + 1}", v)]
    return [Table(name, "", (), "", ((clean(spell_value(value), 200),),))]


def _table(name: str, array: np.ndarray[Any, Any], kind: str = "") -> Table:
    shape = array.shape
    dtype = kind or str(array.dtype)
    if array.size == 0:
        return Table(name, dtype, shape, "", ())
    where = ", ".join("0" for _ in shape[:-2])
    matrix = np.atleast_2d(array[(0,) * max(0, len(shape) - 2)])
    shown = matrix[:MOST_ROWS, :MOST_COLUMNS]
    cut = [f"the first {MOST_ROWS} rows"] if len(matrix) > MOST_ROWS else []
    cut += [f"the first {MOST_COLUMNS} columns"] if matrix.shape[1] > MOST_COLUMNS else []
    part = "; ".join(([f"[{where}]"] if where else []) + cut)
    return Table(name, dtype, shape, part, tuple(tuple(_number(v) for v in row) for row in shown))


def _number(value: Any) -> str:
    """Four digits, as a table in the chapter has them."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(value) if abs(int(value)) < 10**12 else f"{int(value):.3e}" if abs(int(value)) < 10**300 else "large"
    return f"{float(value):.4g}"


def _drawn(table: Table) -> str:
    """A table as aligned text under its heading."""
    kind = " ".join(part for part in (table.dtype, str(table.shape) if table.dtype else "", table.part) if part)
    widths = [max(len(cell) for cell in column) for column in zip(*table.rows, strict=True)]
    rows = ["  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in table.rows]
    return "\n".join([f"{table.name}{f' ({kind})' if kind else ''}:", *rows])


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
