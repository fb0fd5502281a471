"""Settings that staff write, a rubric or a case: read with the line of every entry, and held against a JSON Schema.

Whatever is wrong is told with the file, the line, the cause and how to mend it. A schema's descriptions are the words: each says
what may stand there.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import yaml

Place = tuple[str | int, ...]
MOST_ENTRIES = 20_000
_KEY = re.compile(r"[ \t]*([A-Za-z0-9_-]+)[ \t]*=")


class PageError(Exception):
    """A page that cannot be used: the file, the line, what is wrong, and how to mend it."""

    def __init__(self, file: str, line: int | None, cause: str, mend: str = "") -> None:
        where = f"{file}, line {line}" if line else file
        super().__init__(f"{where}: {cause}." + (f" Mend: {mend}." if mend else ""))
        self.file = file
        self.line = line
        self.cause = cause
        self.mend = mend


class Page:
    """A page's value, and the line of its places as far as they are known."""

    def __init__(self, file: str, value: Any = None, lines: Mapping[Place, int] | None = None) -> None:
        self.file = file
        self.value = value
        self.lines: dict[Place, int] = dict(lines or {})

    @classmethod
    def of_yaml(cls, file: str, data: bytes) -> Page:
        """Raises PageError."""
        page = cls(file)
        try:
            loader = yaml.SafeLoader(data.decode("utf-8"))
            node = loader.get_single_node()
            page._walk(node, (), set())
            page.value = loader.construct_document(node) if node else None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise PageError(file, line, "the file is not UTF-8", "save it as UTF-8 text") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            cause = f"this is no YAML: {error.problem or error.context}"
            raise PageError(
                file, mark.line + 1 if mark else None, cause, "see the quotes, colons and indents up to here"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise PageError(
                file, None, f"this is no YAML: {error}"[:300], "write it anew from rubrics/lab.yaml"
            ) from None
        return page

    @classmethod
    def of_toml(cls, file: str, data: bytes) -> Page:
        """A page without tables: tomllib keeps no lines, and each key stands on a line of its own. Raises PageError."""
        try:
            text = data.decode("utf-8")
            value = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise PageError(file, None, f"this is no TOML: {error}"[:300], "mend the file, or take it away") from None
        keys = ((_KEY.match(line), number) for number, line in enumerate(text.splitlines(), 1))
        return cls(file, value, {(key[1],): number for key, number in keys if key})

    def error(self, place: Place, cause: str, mend: str = "") -> PageError:
        while place and place not in self.lines:
            place = place[:-1]
        return PageError(self.file, self.lines.get(place), cause, mend)

    def validate(self, schema: Any) -> None:
        """Holds the page against a schema; the first fault in the order of the file is told. Raises PageError."""
        found = list(jsonschema.Draft202012Validator(schema).iter_errors(self.value))
        if found:
            raise min((self._worded(error) for error in found), key=lambda error: error.line or 0)

    def known(self, place: Place, name: str, kind: str, names: Iterable[str]) -> None:
        """Raises PageError, with the nearest, where a name is none of the lab's."""
        if name not in names:
            raise self.error(
                place, f"{name} is no {kind} of this lab", nearest(name, names) or f"see the list of {kind}s"
            )

    def _walk(self, node: Any, place: Place, above: set[int]) -> None:
        if node is None:
            return
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if id(node) in above:
            raise PageError(self.file, line, "an anchor holds itself", "write the values out")
        if len(self.lines) > MOST_ENTRIES:
            raise PageError(self.file, line, "there are too many entries up to here", "write fewer")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not (isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:str"):
                    name = key.value if isinstance(key, yaml.ScalarNode) else "this key"
                    raise PageError(self.file, line, f"the key {name} is not text", f'write it as text: "{name}"')
                here = (*place, key.value)
                if here in self.lines:
                    cause = f"{key.value} stands here a second time, after line {self.lines[here]}"
                    raise PageError(self.file, line, cause, "keep one of the two")
                self.lines[here] = line
                self._walk(value, here, above | {id(node)})
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self._walk(value, (*place, i), above | {id(node)})

    def _worded(self, error: jsonschema.ValidationError) -> PageError:
        place: Place = tuple(error.absolute_path)
        part: Any = error.schema
        value: Any = error.instance
        name = ".".join(str(key) for key in place) or "the page"
        if error.validator == "additionalProperties":
            known = list(part["properties"])
            key = next(k for k in value if k not in known)
            mend = nearest(key, known) or f"known are {', '.join(known)}"
            return self.error((*place, key), f"{key} is unknown here", mend)
        if error.validator == "required":
            missing = next(k for k in part["required"] if k not in value)
            # a key that is missing may be there under a wrong name
            for key in [k for k in value if k not in part["properties"]]:
                if meant := nearest(key, [missing]):
                    return self.error((*place, key), f"{key} is unknown here", meant)
            return self.error(place, f"{name} has no {missing}", f"add {missing}: …")
        if "propertyNames" in error.absolute_schema_path:
            return self.error((*place, value), f"{value} is not the name of a step", "write step1, step2, …")
        about = part.get("description")
        return self.error(place, f"{name} is {_spelled(value)}", f"write {about}" if about else "")


def nearest(name: str, names: Iterable[str]) -> str:
    """How to mend a name, where one of `names` is like it; "" where none is."""
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f"write {near[0]}, if that is meant" if near else ""


def _spelled(value: Any) -> str:
    if value in (None, "", [], {}):
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)[:60]
