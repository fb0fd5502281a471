"""Times torch's work in the process that does it: by CUDA events on a GPU, by the clock elsewhere.

The worker keeps torch's functions (`kept`) before any submission is loaded, so that they are torch's own. Even so the numbers
come out of a process that a submission may have changed: a judge holds them against its own clock, and looks at the results.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MIB = 2**20
L2_TIMES = 4  # of the L2 cache are overwritten before a timed call, so that its inputs are not in it
THIN = 64


@dataclass(frozen=True)
class Timed:
    """One call: seconds by events (or the clock), by the clock with all work waited for, and bytes on the GPU at its peak
    above what was held before (None on a CPU)."""

    seconds: float
    wall: float
    allocated: int | None
    reserved: int | None


class Kept:
    """Functions of time and torch as they are when this is made."""

    def __init__(self) -> None:
        import torch

        self.torch, self.clock = torch, time.perf_counter
        self.event, self.record = torch.cuda.Event, torch.cuda.Event.record
        self.elapsed, self.synchronize = torch.cuda.Event.elapsed_time, torch.cuda.synchronize
        self.held = torch.cuda.memory_allocated, torch.cuda.memory_reserved
        self.peaks = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
        self.forget_peaks, self.free_unused = torch.cuda.reset_peak_memory_stats, torch.cuda.empty_cache
        self.empty, self.matmul = torch.empty, torch.matmul
        self.flusher: Any = None

    def on_gpu(self) -> bool:
        return bool(self.torch.get_default_device().type == "cuda")

    def flush(self) -> None:
        """Overwrites the GPU's L2 cache."""
        if self.flusher is None:
            properties = self.torch.cuda.get_device_properties(self.torch.cuda.current_device())
            size = max(getattr(properties, "L2_cache_size", 64 * MIB), 16 * MIB)
            self.flusher = self.empty(L2_TIMES * size, dtype=self.torch.uint8)
        self.flusher.fill_(1)


kept = functools.cache(Kept)


def timed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Timed, Any]:
    """Times one call whose inputs are in no cache. Gives what it took, and its result."""
    k = kept()
    if not k.on_gpu():
        began = k.clock()
        result = function(*args)
        seconds = k.clock() - began
        return Timed(seconds, seconds, None, None), result
    k.flush()
    k.synchronize()
    k.free_unused()
    k.forget_peaks()
    before = [held() for held in k.held]
    start, end = k.event(enable_timing=True), k.event(enable_timing=True)
    began = k.clock()
    k.record(start)
    result = function(*args)
    k.record(end)
    k.synchronize()
    wall = k.clock() - began
    allocated, reserved = (peak() - held for peak, held in zip(k.peaks, before, strict=True))
    return Timed(k.elapsed(start, end) / 1e3, wall, allocated, reserved), result


def normal(shapes: list[Any], dtype: str, seed: int) -> list[Any]:
    """Standard-normal tensors, of values that NumPy's generator gives for the seed."""
    rng = np.random.default_rng(seed)
    torch = kept().torch
    arrays = (rng.standard_normal(tuple(shape)).astype(np.float32) for shape in shapes)
    return [torch.from_numpy(a).to(torch.get_default_device()).to(getattr(torch, dtype)) for a in arrays]


def copy_rate(mib: int, repeats: int = 7) -> float:
    """Bytes read and written a second when `mib` MiB are copied: the best of some runs."""
    k = kept()
    source = k.empty(mib * MIB, dtype=k.torch.uint8).fill_(1)
    target = k.empty(mib * MIB, dtype=k.torch.uint8)
    best = min(timed(target.copy_, (source,))[0].seconds for _ in range(repeats))
    return 2 * mib * MIB / best


def matrix_rate(dtype: str, n: int, repeats: int = 7) -> float:
    """Operations a second of a matrix product, the best of some runs: n × n by n × n, and the thin ones of attention."""
    k = kept()
    best = 0.0
    for rows, inner, columns in ((n, n, n), (n, THIN, n), (n, n, THIN)):
        a = k.empty(rows, inner, dtype=getattr(k.torch, dtype)).fill_(1)
        b = k.empty(inner, columns, dtype=getattr(k.torch, dtype)).fill_(1)
        seconds = min(timed(k.matmul, (a, b))[0].seconds for _ in range(repeats))
        best = max(best, 2.0 * rows * inner * columns / seconds)
    return best
