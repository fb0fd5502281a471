"""From a folder to a submission: which files are there, what a look at their text says, and how a module is imported.

The look is static: nothing of the submission runs until `import_module`.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from harness import adapters, contract, mends
from harness.limit import TimeLimit

_JUNK_FOLDERS = {
    "__MACOSX",
    "__pycache__",
    ".git",
    ".venv",
    "venv",
    ".idea",
    ".vscode",
    ".ipynb_checkpoints",
    ".pytest_cache",
}
_JUNK_PREFIXES = ("._", ".DS_Store", "~$", ".#")
_JUNK_SUFFIXES = ("~", ".swp", ".swo", ".orig", ".rej")


NAME_MAPPED, ADAPTERS_UNUSABLE, NOTHING_GRADABLE = "name-mapped", "adapters-unusable", "nothing-gradable"


@dataclass(frozen=True)
class Finding:
    """Something about the files themselves. `code` is of the catalogue's last table; `module` says whose checks it concerns."""

    code: str
    module: str
    text: str
    line: int | None = None
    nearest: str | None = None


@dataclass(frozen=True)
class Submission:
    """A folder with the contract's files at its top, and what was found about them."""

    root: Path
    files: tuple[str, ...]
    findings: tuple[Finding, ...]

    def has(self, module: str) -> bool:
        return f"{module}.py" in self.files

    def findings_of(self, module: str) -> list[Finding]:
        return [f for f in self.findings if f.module == module]


def _few(names: tuple[str, ...]) -> str:
    """Some names of files, and a verb: "a.py is", "a.py, b.py and 3 more are"."""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def is_junk(name: str) -> bool:
    return name.startswith(_JUNK_PREFIXES) or name.endswith(_JUNK_SUFFIXES) or name in _JUNK_FOLDERS


def walk(root: Path) -> Iterator[str]:
    """Relative names of the regular files under `root`, junk left out, links not followed, sorted."""
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not is_junk(name))
        for name in sorted(names):
            path = Path(folder, name)
            if not is_junk(name) and path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix()


def is_own(root: Path, file: str) -> bool:
    """Whether a file is the submission's: under its root, and neither of a virtual environment nor of harness lying there."""
    if not file.startswith(f"{root}{os.sep}"):
        return False
    return not any(file.startswith(f"{place}{os.sep}") for place in (sys.prefix, Path(__file__).parent))


def find_root(folder: Path) -> Path:
    """Where the contract's files lie: the folder itself, or the one below it that holds most of them."""
    wanted = {f"{name}.py" for name in (*contract.MODULES, *contract.OPTIONAL_MODULES)}
    best, count = folder, sum((folder / name).is_file() for name in wanted)
    for name in walk(folder):
        parent = (folder / name).parent
        here = sum((parent / wanted_name).is_file() for wanted_name in wanted)
        if here > count:
            best, count = parent, here
    return best


def inspect(folder: Path) -> Submission:
    """Looks at a folder: its root, its files, and the findings about each module's text."""
    root = find_root(folder)
    files = tuple(walk(root))
    adapted = adapters.read(root)
    findings = [Finding(ADAPTERS_UNUSABLE, adapters.FILE, text) for text in adapted.problems]
    for module in (*contract.MODULES, *(m for m in contract.OPTIONAL_MODULES if f"{m}.py" in files)):
        findings += _look(root, module, files, adapted.names)
    if not any(f"{module}.py" in files for module in contract.MODULES):
        own = tuple(name for name in files if name != contract.GIVEN)
        there = f"{_few(own)} there" if own else "it is empty"
        findings.insert(0, Finding(NOTHING_GRADABLE, "", f"Nothing here can be graded: {there}."))
    return Submission(root, files, tuple(findings))


def _look(root: Path, module: str, files: tuple[str, ...], adapted: Mapping[str, str]) -> Iterator[Finding]:
    file = f"{module}.py"
    if file not in files:
        # by the stem alone: every file ends alike
        stems = {Path(f).stem: f.rsplit("/", 1)[-1] for f in files if f.endswith((".py", ".ipynb"))}
        near = [stems[stem] for stem in difflib.get_close_matches(module, stems, 1, 0.7)]
        hint = f"; {near[0]} is there, and looks like it" if near else ""
        yield Finding("file-missing", module, f"{file} is missing{hint}.", nearest=near[0] if near else None)
        return
    source = b""
    try:
        source = (root / file).read_bytes()
        tree = ast.parse(source, filename=file)
    except SyntaxError as error:
        text = f"{file}, line {error.lineno or 1}: {type(error).__name__}: {error.msg}"
        yield Finding("import-failed", module, _with(text, mends.of_text(source, error.lineno)), error.lineno)
        return
    except (UnicodeDecodeError, ValueError, RecursionError, MemoryError, OSError) as error:
        yield Finding(
            "import-failed",
            module,
            _with(
                f"{file} cannot be read as Python: {type(error).__name__}: {str(error)[:200]}", mends.of_text(source)
            ),
        )
        return
    offered = set(mends.bound(tree))
    open_ended = any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in tree.body)
    for function in contract.functions_of(module):
        other = adapted.get(function.full_name)
        if other is not None and (other in offered or open_ended or "__getattr__" in offered):
            text = f"{file}: {other} stands for {function.name}, as {adapters.FILE} says."
            yield Finding(NAME_MAPPED, adapters.FILE, text, nearest=other)
        elif other is not None:
            text = f"{file} has no {other}, which {adapters.FILE} names for {function.signature}."
            yield Finding("name-missing", function.full_name, text)
        elif function.name not in offered and not open_ended and "__getattr__" not in offered:
            near = difflib.get_close_matches(function.name, sorted(offered), 1, 0.6)
            hint = f"; {near[0]} is there, and looks like it" if near else ""
            text = f"{file} has no {function.signature}{hint}."
            yield Finding("name-missing", function.full_name, text, nearest=near[0] if near else None)
    if module == "attention":
        yield from _forbidden(tree, file)


def _forbidden(tree: ast.Module, file: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.split(".")[0] in contract.FORBIDDEN_LIBRARIES:
                text = f"{file}, line {node.lineno}: imports {name}; attention.py is NumPy only."
                yield Finding("forbidden-library", "attention", text, node.lineno)
                return


class ImportProblem(Exception):
    """A module that did not import; `line` is the student's own."""

    def __init__(self, text: str, code: str = "import-failed") -> None:
        super().__init__(text)
        self.code = code


def import_module(root: Path, name: str) -> ModuleType:
    """Imports a submission's module by its plain name; the caller has put `root` on the path.

    Raises ImportProblem with file, line and exception.
    """
    try:
        return importlib.import_module(name)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise ImportProblem(*_import_text(root, name, error)) from None


def _import_text(root: Path, name: str, error: BaseException) -> tuple[str, str]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_own(root, f.filename)]
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else f"{name}.py"
    if isinstance(error, SyntaxError) and error.filename and is_own(root, error.filename):
        where = f"{Path(error.filename).name}, line {error.lineno}"
    if isinstance(error, TimeLimit):
        return f"{where}: {str(error).removesuffix(' in one call')} while it is imported", "import-failed"
    message = str(error).replace(f"{root}{os.sep}", "")[:300] if not isinstance(error, SyntaxError) else error.msg
    culprit = (getattr(error, "name", None) or "").split(".")[0] if isinstance(error, ImportError) else ""
    code = "forbidden-library" if culprit in contract.FORBIDDEN_LIBRARIES else "import-failed"
    last = root / where.partition(",")[0]
    mend = ""
    with contextlib.suppress(OSError):
        mend = mends.of_error(root, last, error) if code == "import-failed" else ""
    return _with(f"{where}: {type(error).__name__}: {message}", mend), code


def _with(text: str, mend: str) -> str:
    return f"{text}; {mend}." if mend else text
