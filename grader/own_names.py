"""Which tests a course's own unittest file declares, and what each is worth, read without running it: a rubric that names one
is held against this before anything is graded."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_Method = ast.FunctionDef | ast.AsyncFunctionDef
_CASES = frozenset({"TestCase", "IsolatedAsyncioTestCase", "object"})
_WORTH = frozenset({"weight", "partial_credit"})
# Decorators that leave a test's name as it is; any other may make several of one.
_PLAIN = _WORTH | {"number", "visibility", "hide_errors", "tags", "leaderboard", "patch", "object", "dict"}
_PLAIN |= {"skip", "skipIf", "skipUnless", "expectedFailure", "staticmethod", "classmethod"}


@dataclass(frozen=True)
class Declared:
    """`worth` is id -> points, None where only running would tell; what begins as one of `open` may be made as it runs.
    `visibility` is id -> what its decorator says, where it has one."""

    worth: Mapping[str, float | None] = field(default_factory=dict)
    open: tuple[str, ...] = ()
    visibility: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.worth or (isinstance(name, str) and name.startswith(self.open))

    def __iter__(self) -> Iterator[str]:
        return iter(self.worth)


def merged(files: Iterable[Declared]) -> Declared:
    """The tests of several files."""
    files = list(files)
    return Declared(
        {id: points for file in files for id, points in file.worth.items()},
        tuple(name for file in files for name in file.open),
        {id: seen for file in files for id, seen in file.visibility.items()},
    )


def declared(tree: ast.Module, stem: str) -> Declared:
    """The tests of one file, whose name is `stem` with .py behind it."""
    classes: dict[str, ast.ClassDef] = {}
    opened: list[str] = []
    for node in _top(tree):
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            brought = [alias.asname or alias.name for alias in node.names]
            opened += [f"own.{stem}." if name == "*" else f"own.{stem}.{name}." for name in brought]
        elif isinstance(node, ast.FunctionDef) and node.name == "load_tests":
            opened.append(f"own.{stem}.")
    tests: dict[str, _Method] = {}
    for name, node in classes.items():
        found, known = _of_class(node, classes, frozenset())
        tests |= {f"own.{stem}.{name}.{method}": test for method, test in found.items()}
        opened += [] if known else [f"own.{stem}.{name}."]
    seen = {id: given for id, test in tests.items() if isinstance(given := _given(test, {"visibility"}), str)}
    return Declared({id: _worth(test) for id, test in tests.items()}, tuple(opened), seen)


def _of_class(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], above: frozenset[str]
) -> tuple[dict[str, _Method], bool]:
    """Methods by name, those of its bases included, and whether these are all."""
    found: dict[str, _Method] = {}
    known = not node.decorator_list
    for base in reversed(node.bases):
        name = _last(base)
        if name in classes and name not in above | {node.name}:
            inherited, all_known = _of_class(classes[name], classes, above | {node.name})
            found, known = found | inherited, known and all_known
        elif name not in _CASES:
            known = False
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name.startswith("test"):
            found[item.name] = item
            known = known and all(_last(d) in _PLAIN for d in item.decorator_list)
        elif not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Expr):
            targets = [t for t in ast.walk(item) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)]
            known = known and not any(t.id.startswith("test") for t in targets)
    return found, known


def _worth(test: _Method) -> float | None:
    value = _given(test, _WORTH)
    return float(value) if isinstance(value, int | float) else None


def _given(test: _Method, names: Collection[str]) -> object:
    """What the outermost decorator of one of these names is given: 0.0 where there is none, None where only running would tell."""
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and _last(decorator) in names:
            given = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
            return given[0].value if given and isinstance(given[0], ast.Constant) else None
    return 0.0


def _last(node: ast.expr) -> str:
    """ "skip" of unittest.skip("x")."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Statements of the module itself, those in an if or a try too."""
    for inner in ast.iter_child_nodes(node):
        yield inner
        if not isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _top(inner)
