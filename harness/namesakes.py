"""A submission's helper modules that are called as a module of Python's own library is: token.py, random.py.

The submission's own files find theirs, as at home; Python's own library goes on finding its own. So one is not put into
`sys.modules`: `import` is asked who is asking. What a namesake does not define is taken from the library's module, since a
left-over file of that name may stand in nobody's way.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.contract import FORBIDDEN_LIBRARIES


class Namesakes:
    """Those in a folder."""

    def __init__(self, root: Path, numpy_only: bool = False) -> None:
        """With `numpy_only`, attention.py and what it loads find no library that does the lab's work, as where it is graded."""
        self._numpy_only = numpy_only
        names = {path.stem for path in root.glob("*.py")} & sys.stdlib_module_names - {*sys.builtin_module_names}
        self._files = {name: root / f"{name}.py" for name in names}
        self._folder = f"{root}/"
        self._modules: dict[str, ModuleType] = {}

    @contextlib.contextmanager
    def found(self) -> Iterator[None]:
        """While this lasts, files of the folder that import such a name get the folder's own module."""
        if not self._files and not self._numpy_only:
            yield
            return
        usual = builtins.__import__

        def ask(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            importer = str((globals or {}).get("__file__", ""))
            top = name.partition(".")[0]
            if self._numpy_only and level == 0 and top in FORBIDDEN_LIBRARIES and self._of_attention(importer):
                raise ModuleNotFoundError(
                    f"attention.py is NumPy only, and finds no {name} where it is graded", name=name
                )
            if level == 0 and name in self._files and importer.startswith(self._folder):
                return self._module(name)
            return usual(name, globals, locals, fromlist, level)

        builtins.__import__ = ask
        try:
            yield
        finally:
            builtins.__import__ = usual

    def _of_attention(self, importer: str) -> bool:
        """Whether it is attention.py that imports, or a file of the folder's own that it is loading."""
        loading = getattr(getattr(sys.modules.get("attention"), "__spec__", None), "_initializing", False)
        return importer == f"{self._folder}attention.py" or (loading and importer.startswith(self._folder))

    def _module(self, name: str) -> ModuleType:
        if name not in self._modules:
            library = importlib.import_module(name)
            module = load(self._files[name], into=self._modules)
            module.__dict__.setdefault("__getattr__", lambda attribute: getattr(library, attribute))
        return self._modules[name]


def load(path: Path, into: dict[str, ModuleType] | None = None) -> ModuleType:
    """The module in a file, outside of `sys.modules`; entered into a table before it runs, as an import does."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no module")
    module = importlib.util.module_from_spec(spec)
    if into is not None:
        into[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if into is not None:
            del into[path.stem]
        raise
    return module
