"""A decoder in virtual time: a kv_cache.py whose passes and steps take known seconds, for decode_latencies to measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.subject import Call, Outcome, Subject
from harness.values import Array, Callback, Proxy
from harness.virtual_time import Device, Watched, lent

VOCABULARY = 11


@dataclass(frozen=True)
class Decoding:
    """One decode_latencies: seconds of the i-th whole pass (a prefill or a forward), and of the i-th decode step."""

    prompt: int
    new: int
    use_cache: bool
    asynchronous: bool
    passes: tuple[float, ...]
    steps: tuple[float, ...]


def decoding(seed: int, prompt: int, new: int, use_cache: bool, asynchronous: bool) -> Decoding:
    """Draw the seconds, multiples of 1/1024, no two equal."""
    rng = np.random.default_rng(seed)
    ticks = rng.choice(np.arange(64, 4_000), 2 * new + 4, replace=False)
    ticks[0] += 8_000  # a prefill is long
    seconds = tuple(float(t) / 1024 for t in ticks)
    return Decoding(prompt, new, use_cache, asynchronous, seconds[: new + 2], seconds[new + 2 :])


class Cache:
    """A cache of this decoder: it counts tokens, and knows how many bytes they would take."""

    def __init__(self, sizes: tuple[int, int, int, int], length: int = 0) -> None:
        self.sizes = sizes  # layers, key/value heads, width of a head, bytes of a value
        self.length = length

    @property
    def nbytes(self) -> int:
        return bytes_of(*self.sizes, self.length)

    def lent(self) -> Proxy:
        def ask(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            if name == "nbytes":
                return self.nbytes
            if name == "__len__":
                return self.length
            raise ValueError(f"this KVCache has no {name} to lend")

        return Proxy(ask)


def bytes_of(*sizes: int) -> int:
    """Bytes of the keys and as many of the values: the product of the sizes, twice."""
    return 2 * math.prod(sizes)


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
            "kv_cache_bytes": lent(bytes_of),
            "KVCache": lent(self.make_cache),
        }


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
        return path_of(self.work, self.new)


def path_of(work: Sequence[tuple[str, float]], new: int) -> str:
    """What the last calls after a prefill were: "steps" with a cache, "passes" without, "both" or "none"."""
    kinds = {kind for kind, _ in work[1:][-new:]}
    return "none" if not kinds else {"pass": "passes", "step": "steps"}[kinds.pop()] if len(kinds) == 1 else "both"


def decode_latencies(subject: Subject, scenarios: Sequence[Decoding]) -> list[Decoded]:
    """Ask a submission's decode_latencies to time a decoder that takes each scenario's seconds."""
    decoder = Decoder(scenarios[0], Watched(Device(False)))
    found = []
    with subject.lend({"kv_cache": decoder.lent(subject.backend)}) as borrower:
        borrower.load("experiments")
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
