"""What a worker may import, a folder of links to the entries of site-packages, without the judge's own packages; and what a
group of checks may read.

The worker starts without `site`, so no .pth file, sitecustomize or editable install is ever looked at; this folder and
Python's own library are its whole path.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import sysconfig
from pathlib import Path

import msgspec
import numpy

import harness
from harness import contract

_JUDGE = frozenset(("reference", "grader", "rubrics", "attnlab_grader", "tests", "examples"))
# torch's own companions, beside what the contract forbids in attention.py
_TORCH = contract.FORBIDDEN_LIBRARIES | frozenset(
    ("torchgen", "torchaudio", "nvidia", "sympy", "networkx", "scikit_learn")
)
_SYSTEM = ("/lib64", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom",
           "/dev/random", "/dev/zero", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
           "/sys/devices/system/cpu", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
           "/usr/share/fonts", "/usr/local/share/fonts")  # fmt: skip

# What CUDA opens: its devices to read and write, and what it reads of the driver and the machine.
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/nvidia-uvm*", "/dev/nvidia-caps/*", "/dev/dxg")
_DRIVER = ("/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/module/nvidia*", "/sys/bus/pci",
           "/sys/class/pci_bus", "/sys/devices/pci*", "/sys/devices/system/node", "/proc/sys/vm/mmap_min_addr", "/usr/lib/wsl",
           "/usr/local/nvidia", "/usr/local/cuda*")  # fmt: skip


def link_library(folder: Path, torch: bool) -> Path:
    """Makes `folder` and links into it; without `torch`, nothing that could do the lab's work for a student is there."""
    folder.mkdir(parents=True)
    refused = _JUDGE if torch else _JUDGE | _TORCH
    found = [
        Path(module.__file__ or "").parents[1] for module in (numpy, msgspec)
    ]  # where this Python finds them, on whatever path
    spec = importlib.util.find_spec("torch") if torch else None
    if spec is not None and spec.origin:  # an image with CUDA may bring its own, outside of our environment
        found.append(Path(spec.origin).parents[1])
    for place in dict.fromkeys((Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib")), *found)):
        for entry in sorted(place.iterdir()) if place.is_dir() else ():
            name = entry.name.split("-")[0].split(".")[0]
            if (
                name in refused
                or entry.suffix in (".pth", ".egg-link")
                or entry.name.startswith(("__editable__", "_virtualenv"))
            ):
                continue
            link = folder / entry.name
            if not link.exists():
                link.symlink_to(entry)
    package = folder / "harness"
    package.unlink(missing_ok=True)
    package.symlink_to(Path(harness.__file__).resolve().parent)
    return folder


def devices() -> list[str]:
    """The GPU's devices, which a group that works on it must be able to write to."""
    return [path for pattern in _DEVICES for path in glob.glob(pattern)]


def driver() -> list[str]:
    """What a group that works on the GPU must be able to read beside the rest."""
    return [path for pattern in _DRIVER for path in glob.glob(pattern)]


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
