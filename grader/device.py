"""Whether this machine has a GPU to judge on, asked of a process of its own: the judge itself never begins CUDA."""

from __future__ import annotations

import subprocess
import sys

_ASK = """
try:
    import torch
except ImportError:
    print("none")
else:
    print(torch.__version__, torch.version.cuda or "none", torch.cuda.is_available())
"""
MEND = "or leave --device out to judge on the CPU"


def why_no_cuda() -> str:
    """What keeps torch from a CUDA device here, and how to mend it; nothing where there is one."""
    run = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    return explained(run.stdout.split(), run.stderr)


def explained(answer: list[str], error: str = "") -> str:
    """The answer of `_ASK` as a sentence."""
    if not answer:
        last = (error.strip().splitlines() or ["no answer"])[-1]
        return f"PyTorch does not load here ({last[:200]}): mend that, {MEND}"
    if answer == ["none"]:
        return f"PyTorch is not installed here: install its CUDA build, {MEND}"
    version, cuda, there = answer[:3]
    if cuda == "none":
        return f"PyTorch {version} is built without CUDA: install its CUDA build, {MEND}"
    if there != "True":
        return f"PyTorch finds no CUDA device here: see what nvidia-smi says, grade on a machine with one, {MEND}"
    return ""
