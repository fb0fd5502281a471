"""A course's rubric: what each check is worth, who may see it, and in which words.

A rubric is a YAML file that is held against rubrics/rubric.schema.json. Whatever is wrong with it is told before any
grading starts, with the file, the line, the cause and how to mend it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import grader.checks
import harness.checks
from grader.own_names import Declared, declared, merged
from grader.page import Page, PageError, Place, nearest
from grader.sandbox import Limits
from grader.score import split
from harness import check as checking
from harness import contract
from harness.check import Check
from harness.messages import MESSAGES, Message

MAX_BYTES = 2**20


# What a rubric that cannot be used is refused with.
RubricError = PageError


@dataclass(frozen=True)
class Rule:
    """What a rubric says of one check; None where its defaults hold. `messages` is code -> {"says", "look"}."""

    weight: float = 1.0
    visibility: str | None = None
    stands_on: tuple[str, ...] | None = None
    tolerance: float | None = None
    messages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Manual:
    """An item that a person grades, beside the score."""

    step: int
    title: str
    points: float


@dataclass(frozen=True)
class Override:
    """A result that staff have set by hand: of one check, or of the whole score where `check` is empty."""

    student: str
    reason: str
    check: str = ""
    points: float | None = None


@dataclass(frozen=True)
class Late:
    """What lateness takes off: percent of the score for each begun day after the grace."""

    percent_a_day: float
    most_percent: float = 100.0
    grace_minutes: float = 0.0


@dataclass(frozen=True)
class Attempts:
    """How many submissions are graded in how many hours."""

    most: int
    hours: float


@dataclass(frozen=True)
class Submissions:
    """What counts of several submissions of a student."""

    attempts: Attempts | None = None
    counts: str = "latest"
    late: Late | None = None


@dataclass(frozen=True)
class Rubric:
    """A rubric as read. `points` is by step number, `fingerprint` tells one version of the file from another; `own` are the
    tests that the files in `tests` declare."""

    title: str
    points: Mapping[int, float]
    rules: Mapping[str, Rule]
    messages: Mapping[str, Mapping[str, str]]
    limits: Limits
    visibility: str
    tolerance: float
    show_hidden_inputs: bool
    manual: tuple[Manual, ...]
    fingerprint: str
    submissions: Submissions = Submissions()
    waived: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    tests: tuple[Path, ...] = ()
    own: Declared = field(default_factory=Declared)
    leaderboard: tuple[str, ...] = ()
    adapters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def rule(self, check_id: str) -> Rule:
        return self.rules.get(check_id, Rule())

    def weight_of(self, check: Check) -> float:
        """What it counts beside the others of its step."""
        return self.rules[check.id].weight if check.id in self.rules else check.weight

    def visibility_of(self, check_id: str) -> str:
        return self.rule(check_id).visibility or self.visibility

    def tolerance_of(self, check_id: str) -> float:
        """The factor on the derived tolerance of this check."""
        return self.rule(check_id).tolerance or self.tolerance

    def with_prerequisites(self, check: Check) -> Check:
        """The check, standing on what the rubric says."""
        stands_on = self.rule(check.id).stands_on
        return check if stands_on is None else replace(check, stands_on=stands_on)

    def overrides_of(self, students: Iterable[str]) -> dict[str, Override]:
        """What staff have set for these names of one student or group, by check id; "" is the whole score."""
        names = {name.strip().casefold() for name in students}
        return {o.check: o for o in self.overrides if o.student.strip().casefold() in names}

    def words(self, code: str, check_id: str = "") -> Message:
        """The words for a code: the check's own, else the rubric's, else the catalogue's."""
        message = MESSAGES.get(code, MESSAGES["unrecognised"])
        for other in (self.messages.get(code, {}), self.rule(check_id).messages.get(code, {})):
            message = replace(message, **other)
        return message


def load_rubric(path: Path | None = None, checks: Mapping[str, Check] | None = None) -> Rubric:
    """Reads a rubric, the lab's own where none is named; `checks` are the known ones, by default all that there are.

    Raises RubricError.
    """
    checks = known_checks() if checks is None else checks
    data, file = _read(path)
    page = Page.of_yaml(file, data)
    page.validate(schema())
    tests, own = _tests(page, path.parent if path else Path())
    _meaning(page, checks, own)
    by_tests = own.open or any(worth is None or worth for worth in own.worth.values())
    if not any(page.value["points"].values()) and not by_tests:
        raise page.error(("points",), "no step has points", "give a step points: step1: 18")
    fingerprint = hashlib.sha256(b"".join([data, *(test.read_bytes() for test in tests)])).hexdigest()[:12]
    return replace(_rubric(page.value, fingerprint, checks), tests=tests, own=own)


def known_checks() -> Mapping[str, Check]:
    """All checks of the lab, by id."""
    checking.discover(harness.checks)
    checking.discover(grader.checks)
    return checking.CHECKS


def _read(path: Path | None) -> tuple[bytes, str]:
    if path is None:
        return resources.files("rubrics").joinpath("lab.yaml").read_bytes(), "rubrics/lab.yaml"
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise RubricError(
            str(path), None, f"cannot be read ({error.strerror})", "name a rubric file, or leave --rubric out"
        ) from None
    if len(data) > MAX_BYTES:
        raise RubricError(str(path), None, f"is larger than {MAX_BYTES >> 20} MiB", "name a rubric file")
    return data, str(path)


def schema() -> Any:
    """The rubric's JSON Schema."""
    return json.loads(resources.files("rubrics").joinpath("rubric.schema.json").read_text("utf-8"))


def _meaning(page: Page, checks: Mapping[str, Check], own: Declared) -> None:
    """What no schema can say: ids, codes and steps are known, points are whole cents and can be earned."""
    value = page.value
    for place, number in _numbers(value, ()):
        if not math.isfinite(number):
            raise page.error(place, f"{'.'.join(map(str, place))} is {number}", "write a finite number")
    steps = {c.step for c in checks.values()} | set(checking.STEPS)
    for name, points in value["points"].items():
        if steps and int(name[4:]) not in steps:
            raise page.error(
                ("points", name), f"the lab has no {name}", f"known are {', '.join(f'step{n}' for n in sorted(steps))}"
            )
        if abs(points * 100 - round(points * 100)) > 1e-6:
            raise page.error(("points", name), f"{name} has {points} points", "write at most two decimals")
    for name, rule in value.get("checks", {}).items():
        page.known(("checks", name), name, "check", checks)
        for i, below in enumerate(rule.get("stands_on", [])):
            page.known(("checks", name, "stands_on", i), below, "check", checks)
        for code in rule.get("messages", {}):
            page.known(("checks", name, "messages", code), code, "code", MESSAGES)
    for code in value.get("messages", {}):
        page.known(("messages", code), code, "code", MESSAGES)
    for name in value.get("waived", {}):
        _judged(page, ("waived", name), name, checks, own)
    for module, table in value.get("adapters", {}).items():
        for name in table:
            of = contract.functions_of(module if module in contract.MODULES else "attention")
            page.known(("adapters", module, name), name, "function", [f.name for f in of])
    _earnable(page, checks)
    _no_circle(page, checks)
    _settable(page, checks, own)


def _earnable(page: Page, checks: Mapping[str, Check]) -> None:
    rules = page.value.get("checks", {})
    for name, points in page.value["points"].items():
        weights = [rules.get(c.id, {}).get("weight", c.weight) for c in checks.values() if f"step{c.step}" == name]
        if points and weights and not sum(weights):
            raise page.error(
                ("points", name),
                f"{name} has {points} points, and every check of it has weight 0",
                "give a check of it weight",
            )


def _tests(page: Page, folder: Path) -> tuple[tuple[Path, ...], Declared]:
    """The course's own test files, each below the rubric's folder and Python that parses, and the tests in them."""
    found: dict[str, Path] = {}
    tests: list[Declared] = []
    for i, name in enumerate(page.value.get("tests", [])):
        place, file = ("tests", i), folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise page.error(place, f"{name} leads out of the rubric's folder", "put the file beside the rubric")
        if file.stem in found:
            raise page.error(
                place, f"two files of tests are called {file.name}", "rename one, so that ids are of one test"
            )
        try:
            tree = ast.parse(file.read_bytes(), name)
        except OSError as error:
            raise page.error(
                place, f"{name} cannot be read ({error.strerror})", "name a file beside the rubric"
            ) from None
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise page.error(place, f"{name}{line} is no Python ({error})", "mend the file") from None
        found[file.stem] = file
        own = declared(tree, file.stem)
        tests.append(own)
    return tuple(found.values()), merged(tests)


def _judged(page: Page, place: Place, name: str, checks: Mapping[str, Check], own: Declared) -> None:
    """A check, or a test of the course's own: own.FILE.CLASS.METHOD."""
    if not name.startswith("own."):
        page.known(place, name, "check", checks)
    elif name not in own:
        mend = "write own.FILE.CLASS.METHOD, of a file that is named under tests"
        raise page.error(place, f"{name} is no test of this course", nearest(name, own) or mend)


def _settable(page: Page, checks: Mapping[str, Check], own: Declared) -> None:
    """Overrides are of known checks, give no more than a check is worth, and none says anew what another has said."""
    rules = page.value.get("checks", {})
    seen: set[tuple[str, str]] = set()
    for i, item in enumerate(page.value.get("overrides", [])):
        name, place = item.get("check", ""), ("overrides", i)
        if (item["student"].strip().casefold(), name) in seen:
            what = f"{name or 'the whole score'} of {item['student']}"
            raise page.error(place, f"{what} is set twice", "keep one of the two")
        seen.add((item["student"].strip().casefold(), name))
        if not name:
            continue
        _judged(page, (*place, "check"), name, checks, own)
        worth: float | None
        if name in checks:
            step = checks[name].step
            group = [c for c in checks.values() if c.step == step]
            weights = [rules.get(c.id, {}).get("weight", c.weight) for c in group]
            shares = split(page.value["points"].get(f"step{step}", 0), weights)
            worth = shares[[c.id for c in group].index(name)] / 100
        else:
            worth = own.worth.get(name)
        if worth is not None and item.get("points", 0) > worth:
            cause = f"{item['points']:g} points are set for {name}, which is worth {worth:g}"
            raise page.error((*place, "points"), cause, f"write at most {worth:g}, or raise its weight")


def _no_circle(page: Page, checks: Mapping[str, Check]) -> None:
    rules = page.value.get("checks", {})
    below = {c.id: tuple(rules.get(c.id, {}).get("stands_on", c.stands_on)) for c in checks.values()}
    for start in rules:
        todo, seen = list(below[start]), set()
        while todo:
            name = todo.pop()
            if name == start:
                raise page.error(
                    ("checks", start, "stands_on"),
                    f"{start} stands on itself, by way of others",
                    "take one of them out",
                )
            if name not in seen:
                seen.add(name)
                todo += below.get(name, ())


def _numbers(value: Any, place: Place) -> Iterator[tuple[Place, float]]:
    if isinstance(value, float):
        yield place, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _numbers(inner, (*place, key))


def _rubric(value: dict[str, Any], fingerprint: str, checks: Mapping[str, Check]) -> Rubric:
    rules = {
        name: Rule(
            weight=rule.get("weight", checks[name].weight),
            visibility=rule.get("visibility"),
            stands_on=tuple(rule["stands_on"]) if "stands_on" in rule else None,
            tolerance=rule.get("tolerance"),
            messages=rule.get("messages", {}),
        )
        for name, rule in value.get("checks", {}).items()
    }
    return Rubric(
        title=value["title"],
        points={int(name[4:]): float(points) for name, points in value["points"].items()},
        rules=rules,
        messages=value.get("messages", {}),
        limits=Limits(
            **{name: type(getattr(Limits, name))(number) for name, number in value.get("limits", {}).items()}
        ),
        visibility=value.get("visibility", "visible"),
        tolerance=value.get("tolerance", 1.0),
        show_hidden_inputs=value.get("show_hidden_inputs", True),
        manual=tuple(Manual(**item) for item in value.get("manual", [])),
        fingerprint=fingerprint,
        submissions=_submissions(value.get("submissions", {})),
        adapters=value.get("adapters", {}),
        waived=value.get("waived", {}),
        leaderboard=tuple(value.get("leaderboard", [])),
        overrides=tuple(Override(**item) for item in value.get("overrides", [])),
    )


def _submissions(value: dict[str, Any]) -> Submissions:
    return Submissions(
        attempts=Attempts(**value["attempts"]) if "attempts" in value else None,
        counts=value.get("counts", "latest"),
        late=Late(**value["late"]) if "late" in value else None,
    )
