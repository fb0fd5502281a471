"""What a worker may import: a folder of links to the entries of site-packages, without the judge's own packages.

The worker starts without `site`, so no .pth file, sitecustomize or editable install is ever looked at; this folder and
Python's own library are its whole path.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import msgspec
import numpy

import harness
from harness import contract

_JUDGE = frozenset(("reference", "grader", "rubrics", "attnlab_grader", "tests"))
# torch's own companions, beside what the contract forbids in attention.py
_TORCH = contract.FORBIDDEN_LIBRARIES | frozenset(
    ("torchgen", "torchaudio", "nvidia", "sympy", "networkx", "scikit_learn")
)


def link_library(folder: Path, torch: bool) -> Path:
    """Makes `folder` and links into it; without `torch`, nothing that could do the lab's work for a student is there."""
    folder.mkdir(parents=True)
    refused = _JUDGE if torch else _JUDGE | _TORCH
    found = [
        Path(module.__file__ or "").parents[1] for module in (numpy, msgspec)
    ]  # where this Python finds them, on whatever path
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
