"""Times torch's work in the process that does it: by CUDA events on a GPU, by the clock elsewhere.

The worker imports this before any submission, so that the functions kept here are torch's own. Even so its numbers come out
of a process that a submission may have changed: a judge holds them against its own clock, and looks at the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_clock = time.perf_counter
_record, _elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
_synchronize, _matmul, _empty = torch.cuda.synchronize, torch.matmul, torch.empty
_allocated, _reserved = torch.cuda.memory_allocated, torch.cuda.memory_reserved
_most_allocated, _most_reserved = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
_reset_peaks, _free_unused = torch.cuda.reset_peak_memory_stats, torch.cuda.empty_cache

MIB = 2**20
L2_TIMES = 4  # of the L2 cache are overwritten before a timed call, so that its inputs are not in it
THIN = 64
_flusher: Any = None


@dataclass(frozen=True)
class Timed:
    """One call: seconds by events (or the clock), by the clock with all work waited for, and bytes on the GPU at its peak
    above what was held before (None on a CPU)."""

    seconds: float
    wall: float
    allocated: int | None
    reserved: int | None


def on_gpu() -> bool:
    return bool(torch.get_default_device().type == "cuda")


def timed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Timed, Any]:
    """Times one call whose inputs are in no cache. Gives what it took, and its result."""
    if not on_gpu():
        began = _clock()
        result = function(*args)
        seconds = _clock() - began
        return Timed(seconds, seconds, None, None), result
    _flush()
    _synchronize()
    _free_unused()
    _reset_peaks()
    allocated, reserved = _allocated(), _reserved()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = _clock()
    _record(start)
    result = function(*args)
    _record(end)
    _synchronize()
    wall = _clock() - began
    peaks = _most_allocated() - allocated, _most_reserved() - reserved
    return Timed(_elapsed(start, end) / 1e3, wall, *peaks), result


def _flush() -> None:
    """Overwrites the GPU's L2 cache."""
    global _flusher
    if _flusher is None:
        size = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 64 * MIB)
        _flusher = _empty(L2_TIMES * max(size, 16 * MIB), dtype=torch.uint8)
    _flusher.fill_(1)


def normal(shapes: list[Any], dtype: str, seed: int) -> list[Any]:
    """Standard-normal tensors, of values that NumPy's generator gives for the seed."""
    rng = np.random.default_rng(seed)
    return [as_tensor(rng.standard_normal(tuple(shape)).astype(np.float32), dtype) for shape in shapes]


def as_tensor(array: Any, dtype: str) -> Any:
    return torch.from_numpy(np.array(array)).to(torch.get_default_device()).to(getattr(torch, dtype))


def copy_rate(mib: int, repeats: int = 7) -> float:
    """Bytes read and written a second when `mib` MiB are copied: the best of some runs."""
    source = _empty(mib * MIB, dtype=torch.uint8).fill_(1)
    target = _empty(mib * MIB, dtype=torch.uint8)
    best = min(timed(target.copy_, (source,))[0].seconds for _ in range(repeats))
    return 2 * mib * MIB / best


def matrix_rate(dtype: str, n: int, repeats: int = 7) -> float:
    """Operations a second of a matrix product, the best of some runs: n × n by n × n, and the thin ones of attention."""
    best = 0.0
    for rows, inner, columns in ((n, n, n), (n, THIN, n), (n, n, THIN)):
        a = _empty(rows, inner, dtype=getattr(torch, dtype)).fill_(1)
        b = _empty(inner, columns, dtype=getattr(torch, dtype)).fill_(1)
        seconds = min(timed(_matmul, (a, b))[0].seconds for _ in range(repeats))
        best = max(best, 2.0 * rows * inner * columns / seconds)
    return best
