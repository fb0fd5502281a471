"""Grades chosen results again, and says what changed, check by check. Nothing is replaced until that is asked for.

A rerun lies in the result's folder under `rerun`. Applied, it takes the place of the result, which is kept beside it as
`earlier-1`, `earlier-2`, …
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from grader.course.batch import Machines, Result, cause, load, results, run, set_aside


class RerunError(Exception):
    """A rerun that cannot be: the cause and the mend."""


def chosen(out: Path, only: Sequence[str]) -> list[Result]:
    """Results by name; "flagged" stands for all that staff should look at, "all" for all. Raises RerunError."""
    found = results(out)
    if not found:
        raise RerunError(f"{out} holds no results: attnlab batch FOLDER --out {out} makes some")
    known = {r.name for r in found} | {"flagged", "all"}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise RerunError(f"there is no result {unknown[0]} in {out}: name a folder in it, or flagged, or all")
    return [r for r in found if "all" in only or r.name in only or ("flagged" in only and r.flags)]


def again(
    found: Sequence[Result], options: Sequence[str], machines: Machines
) -> Generator[tuple[Result, Result | RerunError]]:
    """Grades the submissions of results once more, beside what there is; gives each result with its rerun, or with what kept
    it from one, in the order of `found`."""
    with contextlib.closing(machines.each(lambda r: _again(r, options, machines), found)) as graded:
        for result, done in graded:
            error = done.exception()
            if error is None:
                yield result, done.result()
            else:
                yield result, error if isinstance(error, RerunError) else RerunError(cause(error))


def _again(result: Result, options: Sequence[str], machines: Machines) -> Result:
    if result.source is None:
        raise RerunError(
            f"{result.folder / 'submission.json'} does not say where the submission is: attnlab batch FOLDER --out "
            f"{result.folder.parent} writes it anew, and grades nothing again that is final"
        )
    if result.refused:
        raise RerunError(
            f"{result.name} is refused, since {result.refused}: put what was handed in itself in its place"
        )
    if not result.source.exists():
        raise RerunError(f"the submission of {result.name} is not at {result.source} any more: put it back")
    folder = result.folder / "rerun"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    return run(result.source, folder, result.students, options, machines)


def differences(before: dict[str, Any] | None, after: dict[str, Any] | None) -> Iterator[str]:
    """What changed from one report to another, a line each; nothing where nothing did."""
    if after is None:
        yield "the rerun wrote no report: see printed.txt beside it"
        return
    for key, what in (("rubric", "rubric"), ("seed", "secret")):
        if before and before.get(key) != after.get(key):
            yield f"another {what} than before, by its fingerprint: {before.get(key)} → {after.get(key)}"
    old, new = _checks(before or {}), _checks(after)
    if before is None or _score(before) != _score(after):
        yield f"score: {_score(before)} → {_score(after)}"
    for name in (*old, *(n for n in new if n not in old)):
        if old.get(name) != new.get(name):
            yield f"{name}: {_told(old.get(name))} → {_told(new.get(name))}"


def told(result: Result, new: Result | RerunError, applied: bool) -> Iterator[str]:
    """What came of a rerun, a line each; where it is to be `applied`, it is, and that is said too."""
    try:
        if isinstance(new, RerunError):
            raise new
        yield from list(differences(result.report, new.report)) or ["nothing changed"]
        if new.said:
            yield new.said
        if applied:
            apply(result)
            yield "applied"
    except RerunError as error:
        yield str(error)
    except OSError as error:
        yield cause(error)


def apply(result: Result) -> Result:
    """Puts the rerun in the result's place; what was there is kept. Raises RerunError, OSError."""
    rerun = result.folder / "rerun"
    if not load(rerun).final:
        raise RerunError(f"the rerun of {result.name} has no final score, and does not take the place of what there is")
    set_aside(result.folder, rerun)
    shutil.rmtree(rerun)
    return load(result.folder)


def _checks(report: dict[str, Any]) -> dict[str, tuple[str, float, tuple[str, ...]]]:
    return {
        c["id"]: (c["status"], c["score"], tuple(d["code"] for d in c["diagnoses"] if not d.get("note")))
        for step in report.get("steps", [])
        for c in step["checks"]
    }


def _score(report: dict[str, Any] | None) -> str:
    if report is None:
        return "no report"
    score = report.get("score")
    return f"{report.get('subtotal', 0):g} (not final)" if score is None else f"{score:g}"


def _told(check: tuple[str, float, tuple[str, ...]] | None) -> str:
    if check is None:
        return "not there"
    status, score, codes = check
    return f"{status} {score:g}" + (f" ({', '.join(codes)})" if codes else "")
