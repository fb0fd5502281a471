"""What a grading found, kept apart from what it is worth: another rubric makes another report of it, and nothing is run.

A file of evidence is for staff, as the secret is: it says which checks failed and how, hidden ones too. Of a failure under the
course's secret only its kind is kept; its inputs are those that the public seed shows again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from grader import pictures
from grader.own_tests import OwnTests
from grader.report import Judged, Line, Report, Table, build_report, tables
from grader.rubric import Rubric, known_checks
from harness import check as checking
from harness.check import Check, CheckResult, Fail
from harness.loader import Finding

SCHEMA = 1


class EvidenceError(Exception):
    """A file of evidence that cannot be used: the file, the cause and the mend."""


@dataclass(frozen=True)
class Failure:
    """A `Fail` as text. Its arrays are the tables that a report would show."""

    code: str | None
    seen: str
    expected: str = ""
    call: str = ""
    inputs: dict[str, tuple[Table, ...]] = field(default_factory=dict)
    got: tuple[Table, ...] = ()
    frames: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What came of one check, as grader.report.Judged has it."""

    id: str
    status: str
    reason: str
    seconds: float
    examples: int
    notes: tuple[tuple[str, str], ...]
    told: tuple[str, ...]
    curves: tuple[tuple[str, dict[int, float]], ...]
    codes: tuple[tuple[str, str], ...]
    followed: bool
    failure: Failure | None
    shown: Failure | None


@dataclass(frozen=True)
class Terms:
    """What the verdicts hang on and a rubric decides: where it is another, they have to be found anew."""

    limits: dict[str, float]
    adapters: dict[str, dict[str, str]]
    tests: str
    leaderboard: tuple[str, ...]
    tolerance: dict[str, float]
    stands_on: dict[str, tuple[str, ...]]
    waived: tuple[str, ...]
    unweighted: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """All that a report is made of but the rubric."""

    schema: int
    terms: Terms
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    integrity: tuple[str, ...]
    seed: str
    environment: dict[str, str]
    faults: tuple[str, ...]
    students: tuple[str, ...]
    own: OwnTests
    pictures: dict[int, tuple[tuple[str, dict[str, Any]], ...]]
    note: str
    compared: tuple[str, ...]


def gathered(
    judged: Sequence[Judged],
    rubric: Rubric,
    *,
    findings: Iterable[Finding],
    integrity: Iterable[str],
    seed: str,
    environment: Mapping[str, str],
    faults: Iterable[str],
    students: Iterable[str],
    own: OwnTests | None,
    pictures: Mapping[int, Sequence[Any]] | None,
    note: str,
    compared: Iterable[str],
) -> Evidence:
    """The evidence that build_report makes a report of, with these arguments."""
    return Evidence(
        schema=SCHEMA,
        terms=terms_of(rubric, [j.check.id for j in judged]),
        verdicts=tuple(_verdict(j) for j in judged),
        findings=tuple(findings),
        integrity=tuple(integrity),
        seed=seed,
        environment=dict(environment),
        faults=tuple(faults),
        students=tuple(students),
        own=own or OwnTests(),
        pictures={n: tuple((type(p).__name__, asdict(p)) for p in found) for n, found in (pictures or {}).items()},
        note=note,
        compared=tuple(compared),
    )


def terms_of(rubric: Rubric, ids: Iterable[str]) -> Terms:
    """What verdicts on these checks hang on in a rubric."""
    known = known_checks()
    return _terms(rubric, [known[id] for id in ids if id in known])


def _terms(rubric: Rubric, checks: Collection[Check]) -> Terms:
    return Terms(
        limits={name: float(value) for name, value in asdict(rubric.limits).items()},
        adapters={module: dict(names) for module, names in rubric.adapters.items()},
        tests=_digest(rubric),
        leaderboard=rubric.leaderboard,
        tolerance={c.id: rubric.tolerance_of(c.id) for c in checks},
        stands_on={c.id: rubric.with_prerequisites(c).stands_on for c in checks},
        waived=tuple(c.id for c in checks if c.id in rubric.waived),
        unweighted=tuple(c.id for c in checks if not rubric.weight_of(c)),
    )


def _digest(rubric: Rubric) -> str:
    """Of the course's own tests, and of what decides about them while they run."""
    waived = sorted(item for item in rubric.waived.items() if item[0].startswith("own."))
    found = hashlib.sha256(repr((waived, rubric.visibility) if rubric.tests else ()).encode())
    for file in rubric.tests:
        found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def report_of(evidence: Evidence, rubric: Rubric) -> Report:
    """The report that this rubric makes of it."""
    known = known_checks()
    judged = [_judged(v, known[v.id]) for v in evidence.verdicts]
    return build_report(
        judged,
        rubric,
        findings=evidence.findings,
        integrity=evidence.integrity,
        seed=evidence.seed,
        environment=evidence.environment,
        faults=evidence.faults,
        students=evidence.students,
        own=evidence.own,
        pictures={n: tuple(_picture(*each) for each in found) for n, found in evidence.pictures.items()},
        note=evidence.note,
        compared=evidence.compared,
    )


def _picture(kind: str, data: dict[str, Any]) -> Any:
    return msgspec.convert(data, getattr(pictures, kind), strict=False)


def to_bytes(evidence: Evidence) -> bytes:
    """Evidence as JSON, whatever a submission has put into its texts."""
    return msgspec.json.encode(_whole(msgspec.to_builtins(evidence, str_keys=True)))


def _whole(value: Any) -> Any:
    """The same without half characters, which no JSON can hold."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def from_file(file: Path) -> Evidence:
    """Reads a file of evidence. Raises EvidenceError."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Evidence)
    except OSError as error:
        raise EvidenceError(f"{file} cannot be read ({error.strerror or error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{file} is no evidence of a grading ({error})") from None
    if found.schema != SCHEMA:
        raise EvidenceError(f"{file} was written by another version (schema {found.schema}, and here {SCHEMA})")
    known = known_checks()
    if unknown := [v.id for v in found.verdicts if v.id not in known]:
        raise EvidenceError(f"{file} has a check that this version does not know: {unknown[0]}")
    return found


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _verdict(judged: Judged) -> Verdict:
    result = judged.result
    return Verdict(
        id=judged.check.id,
        status=result.status,
        reason=result.reason,
        seconds=result.seconds,
        examples=result.examples,
        notes=result.notes,
        told=result.told,
        curves=tuple(
            (name, {int(n): float(v) for n, v in points.items() if isfinite(v)}) for name, points in result.curves
        ),
        codes=judged.codes,
        followed=judged.followed,
        failure=_failure(result.failure, whole=False),
        shown=_failure(judged.shown, whole=True),
    )


def _failure(fail: Fail | None, whole: bool) -> Failure | None:
    """A failure to be kept: with `whole` as a student may see it, else what decides about words alone."""
    if fail is None:
        return None
    if not whole:
        return Failure(fail.code, fail.seen, call=fail.call.partition("(")[0])
    return Failure(
        fail.code,
        fail.seen,
        fail.expected,
        fail.call,
        {name: tuple(tables(name, value)) for name, value in fail.inputs.items()},
        tuple(tables("what came back", fail.got)) if fail.got is not None else (),
        tuple(Line(f.file, int(f.line), f.text) for f in fail.frames),
    )


def _judged(verdict: Verdict, check: Any) -> Judged:
    result = CheckResult(
        check,
        verdict.status,
        _fail(verdict.failure),
        verdict.reason,
        verdict.seconds,
        verdict.notes,
        verdict.examples,
        verdict.told,
        verdict.curves,
    )
    return Judged(check, result, verdict.codes, verdict.followed, _fail(verdict.shown))


def _fail(kept: Failure | None) -> Fail | None:
    if kept is None:
        return None
    return Fail(
        kept.seen,
        kept.expected,
        code=kept.code,
        call=kept.call,
        inputs=dict(kept.inputs),
        got=kept.got or None,
        frames=kept.frames,
    )


# -- another rubric ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rescored:
    """Evidence as another rubric takes it, and what only a rerun can tell: a reason by check, "" for all of them."""

    evidence: Evidence
    rerun: Mapping[str, str]


def under(evidence: Evidence, rubric: Rubric) -> Rescored:
    """What the evidence says under another rubric, whose points, weights, words, waivers and settings by hand are policy."""
    known, then = known_checks(), evidence.terms
    judged = {v.id: v for v in evidence.verdicts}
    steps = {known[id].step for id in judged}
    now = _terms(rubric, known.values())
    rerun: dict[str, str] = {}
    for name, what in (
        ("limits", "limits"),
        ("adapters", "adapters"),
        ("tests", "tests of the course's own"),
        ("leaderboard", "columns of the leaderboard"),
    ):
        if getattr(then, name) != getattr(now, name):
            rerun[""] = f"the rubric's {what} have changed"
    for package in ("attnlab-harness", "attnlab-grader"):
        if evidence.environment.get(package) != version(package):
            rerun[""] = (
                f"it was graded by {package} {evidence.environment.get(package)}, and here is {version(package)}"
            )
    if missing := [n for n, points in rubric.points.items() if points and n not in steps]:
        rerun[""] = f"step {missing[0]} was not graded"
    verdicts: dict[str, Verdict] = {}
    for check in known.values():
        wanted = rubric.weight_of(check) > 0
        if check.id not in judged:
            if wanted and check.step in steps and check.needs not in ("companion", "tensors"):
                rerun[check.id] = "it was not judged"
            continue
        if not wanted and check.id not in then.unweighted:
            continue  # it counts for nothing now, and is not run any more
        old = judged[check.id]
        if check.id in rubric.waived:
            told = f"Waived for all: {rubric.waived[check.id]}"
            verdicts[check.id] = replace(
                old, status="passed", failure=None, shown=None, codes=(), notes=(), told=(told,), followed=False
            )
            continue
        if check.id in then.waived:
            rerun[check.id] = "it was waived, and not judged"
        elif then.tolerance.get(check.id) != now.tolerance[check.id]:
            rerun[check.id] = "its tolerance has changed"
        verdicts[check.id] = old
    for check in checking.ordered(rubric.with_prerequisites(c) for c in known.values()):
        id = check.id
        if id not in verdicts or id in rubric.waived:
            continue
        below = [b for b in check.stands_on if b in verdicts and verdicts[b].status not in ("passed", "not-run")]
        if verdicts[id].status == "blocked" and not below:
            rerun[id] = f"it was not judged, since {judged[id].reason} had failed"
        elif below and (verdicts[id].status == "blocked" or then.stands_on.get(id) != check.stands_on):
            verdicts[id] = replace(verdicts[id], status="blocked", reason=below[0], failure=None, shown=None, codes=())
    order = [v for v in evidence.verdicts if v.id in verdicts]
    return Rescored(replace(evidence, verdicts=tuple(verdicts[v.id] for v in order)), rerun)
