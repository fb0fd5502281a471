"""Which Python a worker runs on, and which files it must be able to read.

A worker that gives up its user must still reach Python, its library and the packages: an interpreter below a private home
cannot be. Then another of the same version is looked for; where there is none, the worker keeps its user and Landlock alone
divides it from the rest.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
import sysconfig
from functools import cache
from pathlib import Path

import numpy

import harness

_SYSTEM = ("/lib64", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom",
           "/dev/random", "/dev/zero", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
           "/sys/devices/system/cpu", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group")  # fmt: skip

# What CUDA opens: its devices to read and write, and what it reads of the driver and the machine.
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/nvidia-uvm*", "/dev/nvidia-caps/*", "/dev/dxg")
_DRIVER = ("/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/module/nvidia*", "/sys/bus/pci",
           "/sys/class/pci_bus", "/sys/devices/pci*", "/sys/devices/system/node", "/proc/sys/vm/mmap_min_addr", "/usr/lib/wsl",
           "/usr/local/nvidia", "/usr/local/cuda*")  # fmt: skip


def devices() -> list[str]:
    """The GPU's devices, which a group that works on it must be able to write to."""
    return [path for pattern in _DEVICES for path in glob.glob(pattern)]


def driver() -> list[str]:
    """What a group that works on the GPU must be able to read beside the rest."""
    return [path for pattern in _DRIVER for path in glob.glob(pattern)]


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


def readable(library: Path, standard: list[str]) -> list[str]:
    """What a group may read beside its own folder: the entries of Python's own library and of the linked packages, and
    the system's libraries. Folders of installed packages are never allowed whole."""
    standard = [folder for folder in standard if os.path.isdir(folder)]
    entries = [path for folder in standard for path in _entries(folder)]
    entries += [str(library), *(str(link.resolve()) for link in library.iterdir())]
    for folder in ("/lib", "/usr/lib", "/usr/local/lib"):
        entries += glob.glob(f"{folder}/*-linux-gnu*") + glob.glob(f"{folder}/lib*.so*")
    return [*dict.fromkeys([*entries, *_SYSTEM])]


def _entries(folder: str) -> list[str]:
    """The folder, where no packages are installed in it; else what is in it but those."""
    installed = [name for name in ("site-packages", "dist-packages") if os.path.exists(f"{folder}/{name}")]
    return (
        [path for path in glob.glob(f"{folder}/*") if os.path.basename(path) not in installed]
        if installed
        else [folder]
    )
