"""Virtual time: a clock and work that are the asker's own, so that what a measurement gives hangs on no machine.

What is lent is called by the submission, over the wire or in this process, and raises nothing but ValueError or
MemoryError, whatever it is called with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.subject import Call, Outcome, Subject
from harness.values import Blank, Callback, Handle

MOST_CALLS = 5_000  # a measurement that calls more often is stopped
MOST_BYTES = 64 * 2**20  # of arrays that are noted of all calls together


def kept_bytes(*values: Any) -> int:
    """Bytes of those that are arrays or lists. Raises ValueError for what no measurement passes to attention."""
    for value in values:
        if not isinstance(value, np.ndarray | list | tuple | int | float | type(None)):
            raise ValueError(f"attention was called with a {type(value).__name__}")
    return sum(np.asarray(value).nbytes for value in values if isinstance(value, np.ndarray | list | tuple))


def lent(function: Callable[..., Any], by_handle: bool = False) -> Callback:
    """A function of the judge, for a submission to call."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (MemoryError, ValueError):
            raise
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

    return Callback(guarded, by_handle)


class Device:
    """A machine whose time passes only by work. On an asynchronous one most of it passes when somebody waits for it."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.now = 0.0
        self.queued = 0.0
        self.readings = 0

    def clock(self) -> float:
        self.readings += 1
        return self.now

    def synchronize(self) -> None:
        self.now += self.queued
        self.queued = 0.0

    def work(self, seconds: float) -> None:
        launch = seconds / 64 if self.asynchronous else seconds
        self.now += launch
        self.queued += seconds - launch


@dataclass
class Watched:
    """A device, and what a submission did with it: (event, detail) in order."""

    device: Device
    events: list[tuple[str, Any]] = field(default_factory=list)

    def see(self, event: str, detail: Any = None) -> None:
        if len(self.events) >= MOST_CALLS:
            raise ValueError("called too often")
        self.events.append((event, detail))

    def clock(self) -> float:
        self.see("clock")
        return self.device.clock()

    def synchronize(self) -> None:
        self.see("synchronize")
        self.device.synchronize()

    def options(self) -> dict[str, Callback]:
        """`clock`, and `synchronize` where there is something to wait for."""
        wait = {"synchronize": lent(self.synchronize)} if self.device.asynchronous else {}
        return {"clock": lent(self.clock), **wait}


@dataclass(frozen=True)
class Timing:
    """What happens during one time_attention: `costs[n][i]` seconds for the i-th call with length n."""

    ns: tuple[int, ...]
    warmup: int
    repeats: int
    asynchronous: bool
    costs: Mapping[int, tuple[float, ...]]
    d: int = 8

    def cost(self, n: int, call: int) -> float:
        """A length that was not asked about takes 1 s."""
        costs = self.costs.get(n)
        if costs is None:
            return 1.0
        return costs[call] if call < len(costs) else costs[self.warmup + (call - self.warmup) % self.repeats]


def timing(seed: int, ns: tuple[int, ...], warmup: int, repeats: int, asynchronous: bool, d: int = 8) -> Timing:
    """Draw the costs: the first `warmup` calls of each n are cold, one of the rest is an outlier, no two are equal.

    Costs are multiples of 1/1024 s, so that differences of clock readings are exact.
    """
    rng = np.random.default_rng(seed)
    costs = {}
    for n in ns:
        cold = rng.choice(np.arange(4_000, 9_000), warmup, replace=False)
        warm = np.sort(rng.choice(np.arange(64, 1_024), repeats, replace=False))
        warm[-1] += 30_000  # an outlier: the mean is not the median
        if repeats > 1:
            warm = np.concatenate([warm[:1], warm[-1:], warm[1:-1]])  # neither first, last nor middle one is the median
        costs[n] = tuple(float(ticks) / 1024 for ticks in (*cold, *warm))
    return Timing(ns, warmup, repeats, asynchronous, costs, d)


@dataclass(frozen=True)
class Timed:
    """What came of one time_attention: its outcome, the events, and the shapes that each call of `attend` was given."""

    outcome: Outcome
    events: list[tuple[str, Any]]
    calls: Counter[int]
    shapes: list[tuple[Any, ...]]

    @property
    def readings(self) -> int:
        return sum(event == "clock" for event, _ in self.events)


def shape_of(value: Any) -> tuple[int, ...]:
    """Shape of an array, wherever it is; () for anything else."""
    if isinstance(value, Handle):
        return value.shape or ()
    return value.shape if isinstance(value, np.ndarray) else ()


def time_attention(subject: Subject, scenario: Timing) -> Timed:
    """Ask a submission's time_attention to time an `attend` that takes the scenario's seconds."""
    watched = Watched(Device(scenario.asynchronous))
    calls: Counter[int] = Counter()
    shapes: list[tuple[Any, ...]] = []

    def attend(Q: Any, K: Any, V: Any) -> Any:
        shape = shape_of(Q)
        n = shape[-2] if len(shape) > 1 else 0
        watched.see("attend", n)
        shapes.append((shape, shape_of(K), shape_of(V)))
        watched.device.work(scenario.cost(n, calls[n]))
        calls[n] += 1
        return Blank(shape), Blank((*shape[:-1], n))

    options = {"d": scenario.d, "warmup": scenario.warmup, "repeats": scenario.repeats, **watched.options()}
    call = Call("experiments.time_attention", (lent(attend, by_handle=True), list(scenario.ns)), options)
    return Timed(subject.ask(call)[0], watched.events, calls, shapes)
