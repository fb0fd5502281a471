"""What a platform's score is, beside the report: earlier submissions, lateness, and how often one may hand in.

The facts come from the platform's submission_metadata.json. It may be absent, or odd in any way: what cannot be read is
told to staff and decides nothing against a student.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from grader.rubric import Submissions

MAX_BYTES = 64 * 2**20  # earlier results stand in it whole


@dataclass(frozen=True)
class Previous:
    """An earlier submission. `judged` is False where it was refused, or the autograder broke: it counts for nothing."""

    time: datetime | None
    score: float | None
    judged: bool
    results: Mapping[str, Any]


@dataclass(frozen=True)
class Metadata:
    """What the platform tells of a submission. `odd` says what could not be read, for staff."""

    students: tuple[str, ...] = ()
    created: datetime | None = None
    due: datetime | None = None
    previous: tuple[Previous, ...] = ()
    odd: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """The score that the platform is to keep, and why it is not the report's, in words for the student."""

    score: float
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """This submission is not graded: the score that stays, the words, and the results that are shown again."""

    score: float
    lines: tuple[str, ...]
    results: Mapping[str, Any]


def read_metadata(path: Path) -> Metadata:
    """Reads submission_metadata.json as far as it can be read; raises nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return Metadata(odd=(f"{path.name} is larger than {MAX_BYTES >> 20} MiB, and was left unread",))
        return metadata_of(json.loads(data))
    except OSError as error:
        return Metadata(odd=(f"{path.name} cannot be read ({error.strerror})",))
    except (ValueError, RecursionError) as error:
        return Metadata(odd=(f"{path.name} is no JSON ({error})"[:200],))


def metadata_of(value: Any) -> Metadata:
    """The same from what the file holds."""
    odd: list[str] = []
    top = _mapping(value, "the page", odd)
    users = [_mapping(user, "a user", odd) for user in _list(top.get("users"), "users", odd)]
    own = [_mapping(user.get("assignment"), "a user's assignment", odd) for user in users]
    # a group's work is due when the last of its extensions ends
    dues = [
        _time(a.get("due_date"), "due_date", odd) for a in [_mapping(top.get("assignment"), "assignment", odd), *own]
    ]
    return Metadata(
        students=tuple(str(user[k]) for user in users for k in ("email", "id", "name", "sid") if user.get(k)),
        created=_time(top.get("created_at"), "created_at", odd),
        due=max((due for due in dues if due), default=None),
        previous=tuple(_previous(p, odd) for p in _list(top.get("previous_submissions"), "previous_submissions", odd)),
        odd=tuple(dict.fromkeys(odd)),
    )


def refusal(policy: Submissions, about: Metadata) -> Refusal | None:
    """Why this submission is not graded, where it is one too many; None where it is."""
    attempts, now = policy.attempts, about.created
    if attempts is None or now is None:
        return None
    since = now - timedelta(hours=attempts.hours)
    recent = sorted(p.time for p in about.previous if p.judged and p.time is not None and since < p.time <= now)
    if len(recent) < attempts.most:
        return None
    again = recent[-attempts.most] + timedelta(hours=attempts.hours)
    judged = [p for p in about.previous if p.judged and p.score is not None]
    last = max(judged, key=lambda p: p.time or datetime.min.replace(tzinfo=UTC), default=None)
    scores = [p.score for p in judged if p.score is not None]
    kept = (max(scores) if policy.counts == "best" else last.score) if last and scores else None
    lines = (
        f"This submission was not graded: {attempts.most} {'is' if attempts.most == 1 else 'are'} graded in {attempts.hours:g} "
        f"hours, and {'it has' if attempts.most == 1 else 'these have'} been used.",
        f"The next one is graded from {again.astimezone(now.tzinfo):%Y-%m-%d %H:%M %Z} on. It has cost nothing: your score stays.",
    )
    return Refusal(kept or 0.0, lines, last.results if last else {})


def standing(policy: Submissions, about: Metadata, score: float, told: bool = True) -> Standing:
    """The score to keep of one that was graded: what lateness takes off, then the best where the best counts. Without `told`
    the lines name no score, since students are not to know it yet."""
    lines: list[str] = []
    late = policy.late
    if late and about.created and about.due:
        over = about.created - about.due - timedelta(minutes=late.grace_minutes)
        days = math.ceil(over / timedelta(days=1))
        percent = min(late.percent_a_day * days, late.most_percent) if days > 0 else 0.0
        if percent:
            reduced = round(score * (1 - percent / 100), 2)
            lines.append(
                f"Handed in after {about.due:%Y-%m-%d %H:%M %Z}, {days} day{'s' * (days > 1)} late: "
                f"{percent:g} percent less" + (f", which makes {score:g} points {reduced:g}." if told else ".")
            )
            score = reduced
    earlier = [p for p in about.previous if p.judged and p.score is not None]
    best = max(earlier, key=lambda p: p.score or 0.0, default=None)
    if policy.counts == "best" and best and best.score is not None and best.score > score:
        when = f" of {best.time:%Y-%m-%d %H:%M %Z}" if best.time else ""
        points = f" with {best.score:g} points. This one has {score:g}." if told else "."
        lines.append(f"The best submission counts: the one{when}{points}")
        score = best.score
    return Standing(score, tuple(lines))


# -- reading what may be anything --------------------------------------------------------------------------------------


def _previous(value: Any, odd: list[str]) -> Previous:
    item = _mapping(value, "a previous submission", odd)
    results = _mapping(item.get("results"), "previous results", odd)
    extra = results.get("extra_data")
    refused = isinstance(extra, dict) and extra.get("refused") is True
    return Previous(
        time=_time(item.get("submission_time"), "submission_time", odd),
        score=_number(item.get("score"), "a previous score", odd),
        judged=not refused and not item.get("autograder_error"),
        results=results,
    )


def _mapping(value: Any, name: str, odd: list[str]) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    if value is not None:
        odd.append(f"{name} is no mapping")
    return {}


def _list(value: Any, name: str, odd: list[str]) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    if value is not None:
        odd.append(f"{name} is no list")
    return []


def _number(value: Any, name: str, odd: list[str]) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    if value is not None:
        odd.append(f"{name} is no number")
    return None


def _time(value: Any, name: str, odd: list[str]) -> datetime | None:
    if value is None:
        return None
    found = moment(value)
    if found is None:
        odd.append(f"{name} is no time")
    return found


def moment(value: Any) -> datetime | None:
    """A moment as ISO 8601 has it; one without a zone is taken as UTC. None for anything else."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return None
