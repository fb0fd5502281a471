"""A course's rubric: what each check is worth, who may see it, and in which words.

A rubric is a YAML file that is held against rubrics/rubric.schema.json. Whatever is wrong with it is told before any
grading starts, with the file, the line, the cause and how to mend it.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import yaml

import grader.checks
import harness.checks
from grader.own_names import Declared, declared
from grader.sandbox import Limits
from grader.score import split
from harness import check as checking
from harness import contract
from harness.check import Check
from harness.messages import MESSAGES, Message

MAX_BYTES = 2**20

Place = tuple[str | int, ...]


class RubricError(Exception):
    """A rubric that cannot be used: the file, the line, what is wrong, and how to mend it."""

    def __init__(self, file: str, line: int | None, cause: str, mend: str = "") -> None:
        where = f"{file}, line {line}" if line else file
        super().__init__(f"{where}: {cause}." + (f" Mend: {mend}." if mend else ""))
        self.file = file
        self.line = line
        self.cause = cause
        self.mend = mend


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
    """A rubric as read. `points` is by step number, `fingerprint` tells one version of the file from another."""

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
    if checks is None:
        checking.discover(harness.checks)
        checking.discover(grader.checks)
        checks = checking.CHECKS
    data, file = _read(path)
    page = _Page(file, data)
    page.validate()
    tests, own = _tests(page, path.parent if path else Path())
    _meaning(page, checks, own)
    fingerprint = hashlib.sha256(b"".join([data, *(test.read_bytes() for test in tests)])).hexdigest()[:12]
    return replace(_rubric(page.value, fingerprint, checks), tests=tests)


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


class _Page:
    """A YAML page: its value, and the line of every place in it."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file = file
        self.lines: dict[Place, int] = {}
        try:
            loader = yaml.SafeLoader(data.decode("utf-8"))
            node = loader.get_single_node()
            self._walk(node, (), set())
            self.value: Any = loader.construct_document(node) if node else None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise RubricError(file, line, "the file is not UTF-8", "save it as UTF-8 text") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            cause = f"this is no YAML: {error.problem or error.context}"
            raise RubricError(
                file, mark.line + 1 if mark else None, cause, "see the quotes, colons and indents up to here"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise RubricError(
                file, None, f"this is no YAML: {error}"[:300], "write it anew from rubrics/lab.yaml"
            ) from None

    def error(self, place: Place, cause: str, mend: str = "") -> RubricError:
        while place and place not in self.lines:
            place = place[:-1]
        return RubricError(self.file, self.lines.get(place), cause, mend)

    def _walk(self, node: Any, place: Place, above: set[int]) -> None:
        if node is None:
            return
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if id(node) in above:
            raise RubricError(self.file, line, "an anchor holds itself", "write the values out")
        if len(self.lines) > 20_000:
            raise RubricError(self.file, line, "there are too many entries up to here", "write fewer")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not (isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:str"):
                    name = key.value if isinstance(key, yaml.ScalarNode) else "this key"
                    raise RubricError(self.file, line, f"the key {name} is not text", f'write it as text: "{name}"')
                here = (*place, key.value)
                if here in self.lines:
                    cause = f"{key.value} stands here a second time, after line {self.lines[here]}"
                    raise RubricError(self.file, line, cause, "keep one of the two")
                self.lines[here] = line
                self._walk(value, here, above | {id(node)})
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self._walk(value, (*place, i), above | {id(node)})

    def validate(self) -> None:
        """Holds the page against the schema; the first fault in the order of the file is told."""
        found = list(jsonschema.Draft202012Validator(schema()).iter_errors(self.value))
        if found:
            raise min((self._worded(error) for error in found), key=lambda error: error.line or 0)

    def _worded(self, error: jsonschema.ValidationError) -> RubricError:
        place: Place = tuple(error.absolute_path)
        part: Any = error.schema
        value: Any = error.instance
        name = ".".join(str(key) for key in place) or "the page"
        if error.validator == "additionalProperties":
            known = list(part["properties"])
            key = next(k for k in value if k not in known)
            mend = _nearest(key, known) or f"known are {', '.join(known)}"
            return self.error((*place, key), f"{key} is unknown here", mend)
        if error.validator == "required":
            missing = next(k for k in part["required"] if k not in value)
            return self.error(place, f"{name} has no {missing}", f"add {missing}: …")
        if "propertyNames" in error.absolute_schema_path:
            return self.error((*place, value), f"{value} is not the name of a step", "write step1, step2, …")
        about = part.get("description")
        return self.error(place, f"{name} is {_spelled(value)}", f"write {about}" if about else "")


def schema() -> Any:
    """The rubric's JSON Schema."""
    return json.loads(resources.files("rubrics").joinpath("rubric.schema.json").read_text("utf-8"))


def _meaning(page: _Page, checks: Mapping[str, Check], own: Declared) -> None:
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
        _known(page, ("checks", name), name, "check", checks)
        for i, below in enumerate(rule.get("stands_on", [])):
            _known(page, ("checks", name, "stands_on", i), below, "check", checks)
        for code in rule.get("messages", {}):
            _known(page, ("checks", name, "messages", code), code, "code", MESSAGES)
    for code in value.get("messages", {}):
        _known(page, ("messages", code), code, "code", MESSAGES)
    for name in value.get("waived", {}):
        _judged(page, ("waived", name), name, checks, own)
    for module, table in value.get("adapters", {}).items():
        for name in table:
            of = contract.functions_of(module if module in contract.MODULES else "attention")
            _known(page, ("adapters", module, name), name, "function", [f.name for f in of])
    _earnable(page, checks)
    _no_circle(page, checks)
    _settable(page, checks, own)


def _earnable(page: _Page, checks: Mapping[str, Check]) -> None:
    rules = page.value.get("checks", {})
    for name, points in page.value["points"].items():
        weights = [rules.get(c.id, {}).get("weight", c.weight) for c in checks.values() if f"step{c.step}" == name]
        if points and weights and not sum(weights):
            raise page.error(
                ("points", name),
                f"{name} has {points} points, and every check of it has weight 0",
                "give a check of it weight",
            )


def _tests(page: _Page, folder: Path) -> tuple[tuple[Path, ...], Declared]:
    """The course's own test files, each below the rubric's folder and Python that parses, and the tests in them."""
    found: dict[str, Path] = {}
    worth: dict[str, float | None] = {}
    opened: list[str] = []
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
        worth, opened = worth | dict(own.worth), [*opened, *own.open]
    return tuple(found.values()), Declared(worth, tuple(opened))


def _judged(page: _Page, place: Place, name: str, checks: Mapping[str, Check], own: Declared) -> None:
    """A check, or a test of the course's own: own.FILE.CLASS.METHOD."""
    if not name.startswith("own."):
        _known(page, place, name, "check", checks)
    elif name not in own:
        mend = "write own.FILE.CLASS.METHOD, of a file that is named under tests"
        raise page.error(place, f"{name} is no test of this course", _nearest(name, own) or mend)


def _settable(page: _Page, checks: Mapping[str, Check], own: Declared) -> None:
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


def _no_circle(page: _Page, checks: Mapping[str, Check]) -> None:
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


def _known(page: _Page, place: Place, name: str, kind: str, names: Iterable[str]) -> None:
    if name not in names:
        raise page.error(place, f"{name} is no {kind} of this lab", _nearest(name, names) or f"see the list of {kind}s")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f"write {near[0]}, if that is meant" if near else ""


def _spelled(value: Any) -> str:
    if value in (None, "", [], {}):
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


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
