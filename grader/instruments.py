"""What the judge lends a submission to measure with: a clock of its own, an attention and a decoder of known cost.

Everything here runs on the judge's side and is called by the submission, over the wire or in process. Nothing that is lent
raises anything but ValueError or MemoryError, whatever it is called with.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import reference.attention
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Blank, Callback, Handle, Proxy
from reference.decoder import kv_cache_bytes
from reference.variants.experiments import ATTENTIONS, Compared, Decoding, Device, Search, Timing

MOST_CALLS = 5_000  # a measurement that calls more often is stopped
MANY_CALLS = 400  # of `fits`: no search that asks a number of times like log n, or its square, comes near
VOCABULARY = 11


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


# -- time ------------------------------------------------------------------------------------------------------------


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


# -- memory that runs out --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searched:
    """What came of one largest_n: its outcome, and the lengths it asked about, in order."""

    outcome: Outcome
    asked: list[int]


def largest_n(subject: Subject, scenario: Search) -> Searched:
    """Ask a submission's largest_n about a `fits` that is true up to the scenario's threshold."""
    asked: list[int] = []

    def fits(n: Any) -> bool:
        asked.append(int(n))
        if len(asked) > MANY_CALLS:
            raise ValueError(f"fits was called {MANY_CALLS} times already")
        if n > scenario.threshold and scenario.raises:
            raise MemoryError("there is no room")
        return bool(n <= scenario.threshold)

    options = {"start": scenario.start, "limit": scenario.limit}
    return Searched(subject.ask(Call("experiments.largest_n", (lent(fits),), options))[0], asked)


# -- attention and decoder of the judge ------------------------------------------------------------------------------


def _narrow(value: Array, like: Any) -> Array:
    """In the floating dtype of `like`, as a submission's own attention would give it."""
    dtype = getattr(like, "dtype", value.dtype)
    return value.astype(dtype) if dtype.kind == "f" else value


@dataclass
class Attention:
    """A module attention.py that computes one of ATTENTIONS, and notes its calls. Its fields may be set between two questions.

    `spoil` changes every output, for a submission to find out.
    """

    name: str = "right"
    spoil: Callable[[Array], Array] | None = None
    calls: list[Compared] = field(default_factory=list)

    def attend(self, Q: Array, K: Array, V: Array, mask: Any = None, scale: Any = None) -> tuple[Array, Array]:
        if len(self.calls) > MOST_CALLS:
            raise ValueError("called too often")
        Q, K, V = (np.asarray(a) for a in (Q, K, V))
        mask = None if mask is None else np.asarray(mask)
        with np.errstate(all="ignore"):
            wide = (a.astype(np.float64) for a in (Q, K, V))
            output, weights = ATTENTIONS[self.name](*wide, mask=mask, scale=scale)
        output = _narrow(output if self.spoil is None else self.spoil(output), V)
        self.calls.append(Compared(Q, K, V, mask, None if scale is None else float(scale), output))
        return output, _narrow(weights, Q)

    def attend_itself(self, X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Any = None) -> tuple[Array, Array]:
        return self.attend(X @ W_Q, X @ W_K, X @ W_V, mask=mask)

    def lent(self) -> dict[str, Callback]:
        return {
            "softmax": lent(reference.attention.softmax),
            "project": lent(reference.attention.project),
            "scaled_dot_product_attention": lent(self.attend),
            "self_attention": lent(self.attend_itself),
            "causal_mask": lent(reference.attention.causal_mask),
            "sinusoidal_positions": lent(reference.attention.sinusoidal_positions),
        }


class Cache:
    """A cache of the judge's decoder: it counts tokens, and knows how many bytes they would take."""

    def __init__(self, sizes: tuple[int, int, int, int], length: int = 0) -> None:
        self.sizes = sizes  # layers, key/value heads, width of a head, bytes of a value
        self.length = length

    @property
    def nbytes(self) -> int:
        layers, heads, width, itemsize = self.sizes
        return kv_cache_bytes(layers, heads, width, self.length, itemsize)

    def lent(self) -> Proxy:
        def ask(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            if name == "nbytes":
                return self.nbytes
            if name == "__len__":
                return self.length
            raise ValueError(f"a KVCache of the judge has no {name} to lend")

        return Proxy(ask)


SIZES = (2, 2, 3, 8)  # of the decoder that decode_latencies is given
MODEL_FIELDS: dict[str, Any] = {
    "embedding": np.random.default_rng(5).standard_normal((VOCABULARY, 12)),
    "layers": [
        {name: np.random.default_rng(6 + i).standard_normal(shape) / 4 for name, shape in
         (("W_Q", (12, 12)), ("W_K", (12, 6)), ("W_V", (12, 6)), ("W_O", (12, 12)))}
        for i in range(SIZES[0])
    ],
    "n_heads": 4,
    "n_kv_heads": SIZES[1],
    "positions": "none",
}  # fmt: skip


@dataclass
class Decoder:
    """A module kv_cache.py whose passes and steps take the scenario's seconds and count what they are asked."""

    scenario: Decoding
    watched: Watched
    caches: list[Cache] = field(default_factory=list)
    work: list[tuple[str, float]] = field(default_factory=list)
    n_passes: int = 0
    n_steps: int = 0

    def begin(self, scenario: Decoding, watched: Watched) -> None:
        self.scenario, self.watched = scenario, watched
        self.caches, self.work, self.n_passes, self.n_steps = [], [], 0, 0

    def _logits(self, rows: int) -> Array:
        """The next token is known and never the same twice running."""
        logits = np.zeros((rows, VOCABULARY))
        logits[np.arange(rows), (np.arange(rows) + self.n_passes + 3 * self.n_steps) % VOCABULARY] = 1.0
        return logits

    def _take(self, kind: str, n: int, costs: tuple[float, ...], number: int) -> None:
        self.watched.see(kind, n)
        seconds = costs[number % len(costs)]
        self.watched.device.work(seconds)
        self.work.append((kind, seconds))

    def _pass(self, tokens: Any) -> Array:
        n = len(tokens)
        self._take("pass", n, self.scenario.passes, self.n_passes)
        self.n_passes += 1
        return self._logits(n)

    def prefill(self, model: Any, tokens: Any, cache: Any = None) -> tuple[Array, Any]:
        logits = self._pass(tokens)
        if cache is None:
            self.caches.append(Cache(SIZES))
        self._cache().length += len(tokens)
        return logits, self._cache().lent() if cache is None else cache

    def forward(self, model: Any, tokens: Any) -> Array:
        return self._pass(tokens)

    def decode_step(self, model: Any, token: Any, cache: Any) -> Array:
        self._take("step", 1, self.scenario.steps, self.n_steps)
        self.n_steps += 1
        self._cache().length += 1
        logits: Array = self._logits(1)[0]
        return logits

    def make_cache(self, n_layers: int, n_kv_heads: int, d_head: int, capacity: int, dtype: Any) -> Proxy:
        self.caches.append(Cache((n_layers, n_kv_heads, d_head, SIZES[3])))
        return self.caches[-1].lent()

    def _cache(self) -> Cache:
        """The one in use: there is no telling which handle belongs to which, and one is enough."""
        if not self.caches:
            self.caches.append(Cache(SIZES))
        return self.caches[-1]

    def generate(self, model: Any, prompt: Any, max_new_tokens: int, use_cache: bool = True) -> list[int]:
        self._pass(prompt)
        for _ in range(max_new_tokens - 1):
            self.decode_step(model, 0, None) if use_cache else self._pass(prompt)
        return [0] * max_new_tokens

    def lent(self, backend: str) -> dict[str, Callback | str]:
        """The module, with arrays or tensors as the submission's own has them."""
        return {
            "BACKEND": backend,
            "prefill": lent(self.prefill),
            "forward": lent(self.forward),
            "decode_step": lent(self.decode_step),
            "generate": lent(self.generate),
            "kv_cache_bytes": lent(kv_cache_bytes),
            "KVCache": lent(self.make_cache),
        }


@contextlib.contextmanager
def over_attention(subject: Subject) -> Iterator[tuple[Subject, Attention]]:
    """The submission over an attention.py of the judge.

    Its kv_cache.py is lent too, so that a faulty one cannot stand in the way.
    """
    attention = Attention()
    decoder = Decoder(Decoding(1, 1, True, False, (1.0,), (1.0,)), Watched(Device(False)))
    with subject.lend({"attention": attention.lent(), "kv_cache": decoder.lent(subject.backend)}) as borrower:
        yield borrower, attention


@dataclass(frozen=True)
class Decoded:
    """What came of one decode_latencies of `new` steps: its outcome, and what it did."""

    new: int
    outcome: Outcome
    events: list[tuple[str, Any]]
    work: list[tuple[str, float]]  # every pass and step, with the seconds it took

    @property
    def readings(self) -> int:
        return sum(event == "clock" for event, _ in self.events)

    @property
    def path(self) -> str:
        """What the last calls after a prefill were: "steps" with a cache, "passes" without, "both" or "none"."""
        kinds = {kind for kind, _ in self.work[1:][-self.new :]}
        return "none" if not kinds else {"pass": "passes", "step": "steps"}[kinds.pop()] if len(kinds) == 1 else "both"


def decode_latencies(subject: Subject, scenarios: Sequence[Decoding]) -> list[Decoded]:
    """Ask a submission's decode_latencies to time a decoder that takes each scenario's seconds."""
    decoder = Decoder(scenarios[0], Watched(Device(False)))
    found = []
    with subject.lend({"attention": Attention().lent(), "kv_cache": decoder.lent(subject.backend)}) as borrower:
        for scenario in scenarios:
            decoder.begin(scenario, Watched(Device(scenario.asynchronous)))
            model = borrower.ask(Call("@model", (MODEL_FIELDS,), keep=True))[0]
            args = (model.value, list(prompt(scenario.prompt)), scenario.new, scenario.use_cache)
            call = Call("experiments.decode_latencies", args, decoder.watched.options())
            outcome = borrower.ask(call)[0] if model.ok else model
            found.append(Decoded(scenario.new, outcome, decoder.watched.events, decoder.work))
    return found


def prompt(n: int) -> tuple[int, ...]:
    return tuple(i % VOCABULARY for i in range(1, n + 1))


# -- memory ----------------------------------------------------------------------------------------------------------

MIB = 2**20
Plan = list[tuple[str, int]]


def _plan(before: list[int], at_peak: list[int], after: int) -> Plan:
    """Take and drop the blocks of `before`, hold those of `at_peak` for a while, drop them, take `after`. Sizes in MiB."""
    plan: Plan = []
    for size in before:
        plan.append(("take", size * MIB))
    plan += [("drop", i) for i in range(len(before))]
    plan += [("take", size * MIB) for size in at_peak]
    first = len(before) + len(at_peak)
    for i in range(100):  # time for somebody who looks now and then
        plan += [("take", MIB), ("drop", first + i)]
    plan += [("drop", i) for i in range(len(before), first)]
    return [*plan, ("take", after * MIB)]


def plans(rng: np.random.Generator) -> tuple[tuple[Plan, int], ...]:
    """What two `fn` do, and the bytes that each holds at its peak, drawn anew: no number is known before.

    The first block, the largest, all together and the end each differ from the peak by more than a measurement may.
    """
    first, second, before, third, fourth = (int(rng.integers(n, n + n // 8)) for n in (36, 28, 42, 46, 50))
    return (
        (_plan([], [first, second], 8), (first + second + 1) * MIB),
        (_plan([before], [third, fourth], 1), (third + fourth + 1) * MIB),
    )


def measure_peak(subject: Subject, plan: Plan) -> Outcome:
    """Ask a submission's measure_peak_memory about an `fn` that takes and drops memory by plan, in a fresh process."""
    with over_attention(subject) as (borrower, _):
        fn = borrower.ask(Call("@plan", (lent(lambda: plan),), keep=True))[0]
        return borrower.ask(Call("experiments.measure_peak_memory", (fn.value,)))[0]
