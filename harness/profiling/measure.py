"""Times and memory of a submission's own functions, in this process: for a student to look at, never for a verdict."""

from __future__ import annotations

import math
import os
import platform
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from harness.check import Fail
from harness.expect import ask
from harness.growth import Growth, growth
from harness.profiling.limited import Largest, largest
from harness.subject import LocalSubject
from harness.values import Handle

NS = (128, 256, 512, 1024, 2048, 4096)
WIDTH = 64
PROMPT, TOKENS = 16, 512
PREFILLS = (32, 64, 128, 256, 512)
REPEATS, BUDGET = 31, 0.5  # of one call at most, and the seconds that its repeats may take
LONGEST_CALL = 10.0  # seconds that a call may be expected to take
UNDER, MOST = 128 * 2**20, 16_384  # bytes that the largest n is looked for in, and the longest text that is tried
SDPA, PREFILL, DECODE, FORWARD = (
    "attention.scaled_dot_product_attention",
    "kv_cache.prefill",
    "kv_cache.decode_step",
    "kv_cache.forward",
)

Tick = Callable[[str, float], None]  # what is done, and how much of it, from 0 to 1


@dataclass(frozen=True)
class Attention:
    """Median seconds and peak bytes of one call for each n, float32, without a mask. `growth` is None for fewer than three."""

    ns: tuple[int, ...]
    seconds: tuple[float, ...]
    peaks: tuple[int, ...]
    growth: Growth | None
    left_out: str = ""


@dataclass(frozen=True)
class Decoding:
    """Seconds by the number of tokens: of a prefill of a whole prompt, of one decode_step, and of one forward instead."""

    prefill: dict[int, float]
    cached: dict[int, float]
    recomputed: dict[int, float]


@dataclass(frozen=True)
class Profile:
    """What could be measured, and for what could not, why."""

    hardware: str
    memory: int | None
    attention: Attention | None
    decoding: Decoding | None
    problems: tuple[str, ...]
    largest: Largest | None = None


def profile(root: Path, tick: Tick, ns: tuple[int, ...] = NS, tokens: int = TOKENS) -> Profile:
    """Measures the submission in `root`. A function that fails is told in `problems`, and nothing is raised."""
    subject = LocalSubject(root)
    problems: list[str] = []
    attention = decoding = found = None
    try:
        attention = attention_of(subject, ns, tick)
        found = largest(root, UNDER, MOST, lambda done: tick("the largest n", done))
    except Fail as failure:
        problems.append(f"attention.py: {failure.seen}")
    try:
        decoding = decoding_of(subject, tokens, tick)
    except Fail as failure:
        problems.append(f"kv_cache.py: {failure.seen}")
    return Profile(hardware(), memory(), attention, decoding, tuple(problems), found)


def attention_of(subject: LocalSubject, ns: tuple[int, ...], tick: Tick) -> Attention:
    """Times first, then memory, as tracing memory slows a call. Raises Fail."""
    seconds: list[float] = []
    spreads: list[float] = []
    peaks: list[int] = []
    left_out = ""
    for i, n in enumerate(ns):
        tick("attention", i / len(ns))
        if seconds and 5 * seconds[-1] > LONGEST_CALL:
            left_out = f"n = {n} and more would take too long."
            break
        if peaks and 5 * peaks[-1] > (memory() or math.inf):
            left_out = f"n = {n} and more do not fit into memory."
            break
        inputs = ask(subject, "@random", [[n, WIDTH]] * 3, "float32", n).value
        found_here = times_of(subject, SDPA, *inputs)
        seconds.append(median(found_here))
        spreads.append(spread(found_here))
        peaks.append(peak_of(subject, SDPA, *inputs))
        drop(subject, *inputs)
    tick("attention", 1)
    found = growth(ns[: len(seconds)], seconds, spreads) if len(seconds) > 2 and min(seconds) > 0 else None
    return Attention(ns[: len(seconds)], tuple(seconds), tuple(peaks), found, left_out)


def decoding_of(subject: LocalSubject, tokens: int, tick: Tick) -> Decoding:
    """One text, fed whole, token by token with the cache, and recomputed for every token. Raises Fail."""
    rng = np.random.default_rng(0)
    model = ask(subject, "@model", decoder(rng), keep=True).value
    text = [int(token) for token in rng.integers(0, 50, tokens)]
    lengths = sorted({n for n in PREFILLS if n < tokens} | {tokens})
    prefill = {}
    for i, n in enumerate(lengths):
        tick("prefill", i / len(lengths))
        prefill[n] = seconds_of(subject, PREFILL, model, text[:n])
    tick("prefill", 1)
    filled = ask(subject, PREFILL, model, text[:PROMPT], keep=True).value
    cache = filled[1] if isinstance(filled, tuple | list) and len(filled) == 2 else None
    if not isinstance(cache, Handle):
        raise Fail("prefill gives no (logits, cache)")
    cached, recomputed = {}, {}
    for n in range(PROMPT + 1, tokens + 1):
        tick("decode with the cache", (n - PROMPT) / (tokens - PROMPT))
        cached[n] = once(subject, DECODE, model, text[n - 1], cache)
    for n in range(PROMPT + 1, tokens + 1):
        tick("decode without it", (n - PROMPT) / (tokens - PROMPT))
        recomputed[n] = once(subject, FORWARD, model, text[:n])
        if recomputed[n] > LONGEST_CALL / 10:
            break
    tick("decode without it", 1)
    return Decoding(prefill, cached, recomputed)


def decoder(rng: np.random.Generator) -> dict[str, Any]:
    """Fields of a Decoder: two layers, d = 64, four heads over two key/value heads, float32."""
    shapes = {"W_Q": (64, 64), "W_K": (64, 32), "W_V": (64, 32), "W_O": (64, 64)}
    layers = [{name: rng.standard_normal(s).astype("float32") / 8 for name, s in shapes.items()} for _ in range(2)]
    embedding = rng.standard_normal((50, 64)).astype("float32")
    return {"embedding": embedding, "layers": layers, "n_heads": 4, "n_kv_heads": 2, "positions": "sinusoidal"}


def once(subject: LocalSubject, name: str, *args: Any) -> float:
    """Seconds of one call, its result dropped. Raises Fail."""
    seconds, result = ask(subject, "@timed", name, *args, shown=f"{name.partition('.')[2]}(…)").value
    drop(subject, result)
    return float(seconds)


def spread(times: Sequence[float]) -> float:
    """By what factor the median of so many times may be off, with 95% confidence: from their ranks, or 1.5 where they are few."""
    if len(times) < 6:
        return max(1.5, max(times) / min(times))
    half = 0.98 * math.sqrt(len(times))
    low = max(math.floor(len(times) / 2 - half), 0)
    ranked, middle = sorted(times), median(times)
    return max(ranked[-1 - low] / middle, middle / ranked[low])


def seconds_of(subject: LocalSubject, name: str, *args: Any) -> float:
    """Median seconds of some calls. Raises Fail."""
    return median(times_of(subject, name, *args))


def times_of(subject: LocalSubject, name: str, *args: Any) -> list[float]:
    """Seconds of some calls after a first one that is not counted, fewer where a call is slow. Raises Fail."""
    found = [once(subject, name, *args)]
    if found[0] < BUDGET:
        found.clear()
    while len(found) < REPEATS and sum(found) < BUDGET:
        found.append(once(subject, name, *args))
    return found


def peak_of(subject: LocalSubject, name: str, *args: Any) -> int:
    """Bytes that a call takes at most beyond what was held before, as far as NumPy and Python ask for them. Raises Fail."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        once(subject, name, *args)
        return max(tracemalloc.get_traced_memory()[1] - before, 0)
    finally:
        tracemalloc.stop()


def drop(subject: LocalSubject, *kept: Handle) -> None:
    subject.call("@drop", [handle.id for handle in kept])


def memory() -> int | None:
    """Bytes of memory that this machine has; None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def hardware() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, NumPy {np.__version__}"
