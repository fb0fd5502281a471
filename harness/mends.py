"""What most often lies behind a file that does not import, and how to mend it, in a sentence.

The exception says what Python met; this says what the student left there: a notebook's commands, an encoding, a package that is
not on the grader. Where nothing is known nothing is said.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

LIBRARIES = ("numpy", "torch", "matplotlib")
"""Beside Python's own, what is there where a submission is graded."""

_NOTEBOOK = "this is a notebook's command, and Python knows none: take the line out"
_SAVED = "save it as UTF-8, which is a choice in the editor's dialogue for saving"
_JSON = "this is a notebook and no Python file: export it as a script (File, Save and Export Notebook As, Executable Script)"


def of_text(source: bytes, line: int | None = None) -> str:
    """The mend for a file that is no Python; `line` is where Python stopped. "" where none is known."""
    if source[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in source[:200]:
        return f"it is saved as UTF-16: {_SAVED}"
    try:
        lines = source.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return f"it is not saved as UTF-8: {_SAVED}"
    at = lines[line - 1].strip() if line and line <= len(lines) else ""
    if at.startswith(("%", "!")):
        return _NOTEBOOK
    if at.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return "this is left over from a merge: keep one of the two versions, and take the marks out"
    return ""


def of_error(root: Path, file: Path, error: BaseException) -> str:
    """The mend for what was raised while a file of the submission was imported. "" where none is known."""
    name = str(getattr(error, "name", None) or "")
    if isinstance(error, ModuleNotFoundError):
        return _no_module(root, name.partition(".")[0])
    if isinstance(error, ImportError):
        return _no_import(root, error)
    if isinstance(error, NameError) and name in ("get_ipython", "display"):
        return _NOTEBOOK
    if isinstance(error, NameError):
        if name in ("null", "true", "false") and file.read_bytes()[:200].lstrip().startswith(b"{"):
            return _JSON
        near = _near(name, [*_names(file), *dir(builtins)])
        return f"{near} is there, and looks like it" if near else ""
    if isinstance(error, EOFError):
        return "input() gets no answer where this is graded: take it out of what runs while the file is imported"
    if isinstance(error, SystemExit):
        return "it ends the program while the file is imported: put such lines below if __name__ == '__main__':"
    if isinstance(error, FileNotFoundError):
        return "only files that are handed in are there, and names are taken from the folder that holds attention.py"
    if isinstance(error, SyntaxError):
        return of_text(file.read_bytes(), error.lineno)
    return ""


def foreign(tree: ast.AST, own: Iterable[str]) -> list[str]:
    """Packages that a file imports and that are not there where it is graded. `own` are the submission's modules."""
    known = {*own, *LIBRARIES, *sys.stdlib_module_names, "mpl_toolkits"}
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found[node.module.partition(".")[0]] = None
    return [name for name in found if name not in known]


NO_BACKEND = (
    'kv_cache.py imports torch and is given NumPy arrays: write BACKEND = "torch" into it, and it is given tensors'
)


def wants_tensors(module: ModuleType | None, text: str) -> bool:
    """Whether what a module raised is torch's word for an array, or NumPy's for a tensor."""
    torch = sys.modules.get("torch")
    imported = torch is not None and module is not None and any(value is torch for value in vars(module).values())
    return imported and any(word in text for word in ("Tensor", "ndarray", "torch.dtype", "numpy.dtypes"))


def not_there(package: str) -> str:
    return f"{package} is not installed where this is graded; NumPy, torch and Matplotlib are"


def _no_module(root: Path, name: str) -> str:
    if name in (*LIBRARIES, *sys.stdlib_module_names):
        return ""
    near = _near(name, [path.stem for path in root.glob("*.py")])
    return f"{name}.py is not there; {near}.py is, and looks like it" if near else not_there(name)


def _no_import(root: Path, error: ImportError) -> str:
    text = str(error)
    if "relative import" in text:
        return "the files of a submission are no package: write the name without the dot, as in from attention import softmax"
    wanted = re.match(r"cannot import name '(\w+)' from (?:partially initialized module )?'(\w+)'", text)
    if wanted is None:
        return ""
    if "partially initialized" in text:
        return f"{wanted[2]}.py and the file that imports it import each other: move what both need into a third file"
    near = _near(wanted[1], _names(root / f"{wanted[2]}.py"))
    return f"{near} is there, and looks like it" if near else ""


def _near(name: str, among: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name, sorted({*among} - {name}), 1, 0.7)), "")


def _names(file: Path) -> Iterator[str]:
    """Names that a file binds at its top."""
    with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        yield from bound(ast.parse(file.read_bytes()))


def bound(tree: ast.Module) -> Iterator[str]:
    """Names bound anywhere at module level, loops and conditions included."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if not isinstance(node, ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))
