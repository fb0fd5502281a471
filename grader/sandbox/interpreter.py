"""Which Python a worker runs on.

A worker that gives up its user must still reach Python, its library and the packages: an interpreter below a private home
cannot be. Then another of the same version is looked for; where there is none, the worker keeps its user and Landlock alone
divides it from the rest.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from functools import cache
from pathlib import Path

import numpy

import harness


def open_to_all(path: Path) -> bool:
    """Whether any user may reach and read a file or folder."""
    path = path.resolve()
    try:
        return reachable(path.parent) and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def reachable(folder: Path) -> bool:
    """Whether any user may go through a folder."""
    folder = folder.resolve()
    try:
        return all(p.stat().st_mode & stat.S_IXOTH for p in (folder, *folder.parents))
    except OSError:
        return False


@cache
def choose() -> tuple[str, bool]:
    """The interpreter for workers, and whether a worker on it may change its user."""
    packages = open_to_all(Path(numpy.__file__)) and open_to_all(Path(harness.__file__))
    if os.geteuid() != 0 or not packages:
        return sys.executable, False
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}", f"/opt/{name}/bin/{name}"):
        path = Path(candidate)
        if path.exists() and open_to_all(path) and _same_build(path):
            return candidate, True
    return sys.executable, False


def _same_build(path: Path) -> bool:
    """Whether packages built for this interpreter load in that one: the same version and the same kind of build."""
    import subprocess

    ask = "import sysconfig, os; print(sysconfig.get_config_var('SOABI'), os.path.dirname(os.__file__))"
    run = subprocess.run([str(path), "-I", "-S", "-c", ask], capture_output=True, text=True, check=False)
    soabi, _, library = run.stdout.strip().partition(" ")
    return soabi == sysconfig.get_config_var("SOABI") and open_to_all(Path(library))
