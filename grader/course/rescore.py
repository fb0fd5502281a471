"""Makes the reports of a batch anew under another rubric, from the evidence that was kept; nothing is run.

What is applied takes the place of the earlier result, which is kept beside it; `undo` puts that back, byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import evidence
from grader.course import graded
from grader.course.batch import EVIDENCE, KEPT, REPORT, Result, next_earlier
from grader.evidence import Evidence, EvidenceError
from grader.render.files import write_atomically
from grader.render.html import write_html
from grader.render.json_file import write_json
from grader.report import Report
from grader.rubric import Rubric

MARK = "rescored.json"


@dataclass(frozen=True)
class Rescored:
    """What a rubric makes of a result. `rerun` is what only a rerun can tell: a reason by check, "" for the whole."""

    result: Result
    report: Report | None = None
    evidence: Evidence | None = None
    rerun: Mapping[str, str] = field(default_factory=dict)

    @property
    def before(self) -> float:
        return float((self.result.report or {}).get("subtotal", 0.0))

    @property
    def change(self) -> float:
        return round(self.report.subtotal - self.before, 2) if self.report else 0.0

    @property
    def applicable(self) -> bool:
        return self.report is not None and self.report.final and not self.rerun


def rescore(found: Sequence[Result], rubric: Rubric) -> Iterator[Rescored]:
    """Each result under this rubric, in their order. Nothing is written."""
    for result in found:
        if result.refused or result.report is None:
            continue  # there was nothing to be graded
        try:
            if not result.final:
                raise EvidenceError("it has no final score")
            kept = evidence.from_file(result.folder / EVIDENCE)
        except EvidenceError as error:
            yield Rescored(result, rerun={"": str(error)})
            continue
        under = evidence.under(kept, rubric)
        yield Rescored(result, evidence.report_of(under.evidence, rubric), under.evidence, under.rerun)


def differences(rescored: Rescored, most: int = 3) -> str:
    """By which checks a score moves, the greatest first."""
    if rescored.report is None:
        return ""
    before = _scores(rescored.result.report or {})
    after = {c.id: c.score for step in rescored.report.steps for c in step.checks}
    moved = {id: round(after.get(id, 0.0) - before.get(id, 0.0), 2) for id in {**before, **after}}
    ranked = sorted((id for id in moved if moved[id]), key=lambda id: -abs(moved[id]))
    told = [f"{id} {moved[id]:+g}" for id in ranked[:most]]
    return ", ".join(told) + (f" and {len(ranked) - most} more" if len(ranked) > most else "")


def _scores(report: Mapping[str, Any]) -> dict[str, float]:
    return {c["id"]: float(c["score"]) for step in report.get("steps", []) for c in step["checks"]}


def apply(rescored: Rescored) -> None:
    """Puts the new report in the place of the old, which is kept whole before anything is replaced. Raises OSError."""
    assert rescored.report is not None and rescored.evidence is not None
    folder = rescored.result.folder
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rescored-") as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old")
        new.mkdir()
        old.mkdir()
        write_json(rescored.report, new / REPORT)
        write_html(rescored.report, new / "report.html")
        write_atomically(new / graded.FILE, json.dumps(_graded(folder, rescored.report), indent=1) + "\n")
        write_atomically(new / EVIDENCE, evidence.to_bytes(rescored.evidence))
        for name in KEPT:
            if (folder / name).exists():
                shutil.copy2(folder / name, old / name)
        kept = next_earlier(folder)
        old.replace(kept)
        _mark(folder, [*_marks(folder), (kept.name, _digest(new / REPORT))])
        for file in sorted(
            new.iterdir(), key=lambda file: file.name == REPORT
        ):  # the report last, which the mark is of
            file.replace(folder / file.name)


def _graded(folder: Path, report: Report) -> dict[str, Any]:
    """What the result was graded from: as before, but for the rubric, so that a batch under the new one leaves it as it is."""
    try:
        then = json.loads((folder / graded.FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        then = {}
    return {**(then if isinstance(then, dict) else {}), "rubric": report.rubric}


def _mark(folder: Path, marks: Sequence[tuple[str, str]]) -> None:
    """Notes the earlier results that rescorings have put aside, each with the digest of the report that took its place."""
    if marks:
        write_atomically(folder / MARK, json.dumps({"earlier": marks}) + "\n")
    else:
        (folder / MARK).unlink(missing_ok=True)


def _marks(folder: Path) -> list[tuple[str, str]]:
    """Those of them that led to the report that is there now, the latest last: none where it was graded again since."""
    try:
        noted = json.loads((folder / MARK).read_bytes())["earlier"]
        marks = [(str(name), str(digest)) for name, digest in noted if (folder / Path(str(name)).name).is_dir()]
        return marks if marks and marks[-1][1] == _digest(folder / REPORT) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def undo(result: Result) -> bool:
    """Puts back what the latest rescoring replaced; says whether there was one. Raises OSError."""
    folder, marks = result.folder, _marks(result.folder)
    if not marks:
        return False
    kept = folder / marks[-1][0]
    for name in sorted(KEPT, key=lambda name: name == REPORT):  # the report last: until then this can be done again
        if (kept / name).exists():
            write_atomically(folder / name, (kept / name).read_bytes())
        else:
            (folder / name).unlink(missing_ok=True)
    _mark(folder, marks[:-1])
    shutil.rmtree(kept)
    return True


def told(found: Sequence[Rescored]) -> Iterator[str]:
    """Who goes up or down and by which check, a line each, and then what needs a rerun."""
    for each in sorted(found, key=lambda r: r.change):
        if each.report is not None and each.change:
            name, after = each.result.name, each.report.subtotal
            yield f"{name}: {each.before:g} → {after:g} ({each.change:+g}: {differences(each)})"
    up, down = sum(r.change > 0 for r in found), sum(r.change < 0 for r in found)
    yield f"{len(found)} results: {up} go up, {down} go down, {len(found) - up - down} stay"
    again = [r for r in found if r.rerun]
    for reason, names in _reasons(again).items():
        yield f"Needs a rerun: {reason}: {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"


def _reasons(found: Sequence[Rescored]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for each in found:
        said = {f"{check}: {why}" if check else why for check, why in each.rerun.items()}
        for reason in sorted(said)[:3]:
            reasons.setdefault(reason, []).append(each.result.name)
    return reasons
