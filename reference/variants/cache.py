"""Wrong KV caches: faults in time, which show in a script of operations.

A script is a list of operations on caches (append, read, measure) or on a decoder (forward, prefill, decode, generate).
`predict` runs it as a variant would. Scripts are independent, and each operation answers for itself, so that one that
raises hides no second fault. The decisions are in `cache_space`; what a variant makes of them is in `cache_store` (the
cache) and `cache_student` (the decoder).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reference.attention import Array
from reference.decoder import Decoder, Layer, random_model
from reference.variants.cache_space import GENERATE, LAYERS, STORAGE, taken
from reference.variants.cache_store import Store, named_rows, names_of
from reference.variants.cache_student import Student
from reference.variants.space import Answer, Probe, Variant

SPACE = STORAGE + LAYERS + GENERATE
GROUPS = ("storage", "nbytes", "decoder", "generate", "every id")

# -- decoders and texts ------------------------------------------------------------------------------------------------


def _model(seed: int, n_layers: int, n_heads: int, n_kv_heads: int, positions: Any = "sinusoidal") -> Decoder:
    return random_model(
        np.random.default_rng(seed),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=4,
        vocab=16,
        positions=positions,
    )


def _repeating() -> Decoder:
    """After each id that id again, but for a tie: id 5 has the embedding of id 3. Logits are whole numbers."""
    embedding = 3 * np.eye(8)[[0, 1, 2, 3, 4, 3, 5, 6, 7]]
    return Decoder(embedding, (Layer(np.eye(8), np.eye(8), np.eye(8), np.zeros((8, 8))),), 2, 2)


def _negative() -> Decoder:
    """After each id that id again, though all logits are below 0: attention takes 20 from each. Whole numbers too."""
    takes = np.zeros((9, 9))
    takes[-1, -1] = 1
    embedding = np.concatenate([3 * np.eye(8), np.ones((8, 1))], axis=1)
    return Decoder(embedding, (Layer(0 * takes, 0 * takes, takes, -20 * takes),), 1, 1)


MODELS: dict[str, Decoder] = {
    "plain": _model(1, 1, 2, 2, "none"),
    "placed": _model(2, 1, 4, 2),
    "deep": _model(3, 2, 6, 3),
    "deep, unplaced": _model(4, 3, 4, 2, "none"),
    "repeating": _repeating(),
    "negative": _negative(),
}
TEXT = [3, 14, 1, 5, 9, 2, 6, 11, 8, *(int(t) for t in np.random.default_rng(5).integers(0, 16, 71))]

# -- scripts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """Operations in order, and which of them a probe asks about, all at once; a script may have several probes.

    watched   decisions of storage that show in this script: "dtype", "copy"
    overfull  index of the operation that is to be refused; -1: there is none
    """

    name: str
    ops: tuple[tuple[Any, ...], ...]
    asks: tuple[tuple[int, ...], ...]
    group: str
    model: str = ""
    watched: str = ""
    overfull: int = -1

    def refuses(self, op: tuple[Any, ...]) -> bool:
        return self.overfull >= 0 and op is self.ops[self.overfull]


PASSES = ("forward", "prefill", "decode", "generate")


def _script(name: str, text: str, group: str = "storage", **options: Any) -> Script:
    """Operations; those with a "?" are asked about: all together, or pass by pass (all of generate's of one kind).

    new C LAYERS HEADS WIDTH CAPACITY DTYPE   append C LAYER N DTYPE   overfill (the same, where it must refuse)
    change I (other values into the arrays of append I)   keys, values C LAYER   len, nbytes, dtypes C
    room C CAPACITY (a cache for the model)   forward FROM:TO (of TEXT)   prefill C FROM:TO   decode C ID
    held C LAYER   same, given C (is the cache that came back the one given; what the given one holds)
    generate FROM:TO N PLAIN-OR-CACHED
    """
    ops: list[tuple[Any, ...]] = []
    asks: list[list[int]] = [[]]
    for i, words in enumerate(op.split() for op in text.split(";")):
        kind = words[0].lstrip("?")
        before = ops[-1] if ops else ("",)
        if kind in PASSES and not (kind == before[0] == "generate" and words[-1] == before[-1]):
            asks.append([])
        if words[0].startswith("?"):
            asks[-1].append(i)
        ops.append((kind, *(_value(word) for word in words[1:])))
    return Script(name, tuple(ops), tuple(tuple(a) for a in asks if a), group, **options)


def _value(word: str) -> Any:
    if ":" in word:
        start, stop = word.split(":")
        return TEXT[int(start) : int(stop)]
    return int(word) if word.isdigit() else word


SCRIPTS: tuple[Script, ...] = (
    _script(
        "two caches",
        "new a 2 2 3 9 float64; new b 2 2 3 9 float64; append a 0 2 float64; append a 1 2 float64; ?keys b 0; ?values b 1; "
        "append b 0 1 float64; ?keys a 0; ?values a 0",
    ),
    _script(
        "a long layer",
        "new a 1 1 2 400 float64; append a 0 70 float64; append a 0 1 float64; append a 0 69 float64; "
        "append a 0 1 float64; ?keys a 0",
    ),
    _script(
        "chunks into a layer",
        "new a 1 2 3 12 float64; ?append a 0 3 float64; ?keys a 0; ?values a 0; ?append a 0 3 float64; ?keys a 0; "
        "?values a 0; ?append a 0 1 float64; ?append a 0 2 float64; ?keys a 0; ?values a 0; ?len a",
    ),
    _script(
        "layers in turns",
        "new a 3 2 3 30 float64; append a 0 2 float64; append a 1 2 float64; append a 2 2 float64; ?len a; ?keys a 0; "
        "?keys a 2; ?append a 0 3 float64; ?append a 1 1 float64; ?append a 2 2 float64; ?len a; ?keys a 0; ?keys a 1; "
        "?values a 2; ?append a 1 3 float64; ?append a 0 1 float64; ?len a; ?keys a 1",
    ),
    _script(
        "to the brim",
        "new a 1 1 2 5 float64; append a 0 3 float64; ?append a 0 2 float64; ?keys a 0; ?overfill a 0 1 float64; ?keys a 0; "
        "?values a 0; ?len a",
    ),
    _script(
        "over the brim",
        "new a 1 1 2 5 float64; append a 0 3 float64; ?overfill a 0 3 float64; ?keys a 0; ?values a 0; ?len a",
    ),
    _script(
        "layers to the brim",
        "new a 3 1 2 3 float64; append a 0 3 float64; append a 1 3 float64; append a 2 3 float64; "
        "?overfill a 1 1 float64; ?overfill a 2 2 float64; ?overfill a 0 1 float64; ?keys a 0; ?keys a 1; ?keys a 2",
    ),
    _script(
        "owner changes",
        "new a 1 2 3 9 float64; append a 0 2 float64; change 0; ?keys a 0; ?values a 0; append a 0 2 float64; change 1; "
        "?keys a 0; ?values a 0",
        watched="copy",
    ),
    _script(
        "a narrow cache",
        "new a 1 2 3 9 float16; append a 0 2 float64; ?dtypes a; append a 0 2 float32; ?dtypes a",
        watched="dtype",
    ),
    _script("a wide cache", "new a 1 2 3 9 float64; append a 0 2 float32; ?dtypes a", watched="dtype"),
    _script("a middle cache", "new a 1 2 3 9 float32; append a 0 2 float64; ?dtypes a", watched="dtype"),
    _script(
        "bytes",
        "new a 3 2 5 11 float16; append a 0 4 float16; append a 1 4 float16; append a 2 4 float16; ?nbytes a; "
        "append a 0 1 float16; append a 1 3 float16; ?nbytes a",
        group="nbytes",
        watched="dtype",
    ),
    _script("wide bytes", "new a 1 3 2 7 float32; append a 0 4 float32; ?nbytes a", group="nbytes", watched="dtype"),
    _script("plain forward", "?forward 0:5", "decoder", model="plain"),
    _script("placed forward", "?forward 0:6", "decoder", model="placed"),
    _script("deep forward", "?forward 0:6", "decoder", model="deep"),
    _script("unplaced forward", "?forward 0:4", "decoder", model="deep, unplaced"),
    _script("plain prefill", "room a 9; ?prefill a 0:5; ?held a 0; ?same a; ?given a", "decoder", model="plain"),
    _script("a long text", "room a 200; prefill a 0:75; ?decode a 3; ?held a 0", "decoder", model="plain"),
    _script(
        "plain steps",
        "room a 12; prefill a 0:4; ?prefill a 4:6; ?held a 0; ?same a; ?given a; ?decode a 9; ?decode a 2; ?held a 0",
        "decoder",
        model="plain",
    ),
    _script(
        "placed chunks",
        "room a 12; prefill a 0:3; ?held a 0; prefill a 3:5; ?held a 0; ?prefill a 5:7; ?held a 0; ?decode a 4",
        "decoder",
        model="placed",
    ),
    _script(
        "placed steps",
        "room a 12; prefill a 0:4; ?decode a 9; ?held a 0; ?decode a 2; ?held a 0; ?decode a 6; ?len a",
        "decoder",
        model="placed",
    ),
    _script(
        "deep chunks",
        "room a 12; ?prefill a 0:6; ?held a 1; ?prefill a 6:9; ?held a 1",
        "decoder",
        model="deep",
    ),
    _script(
        "deep steps",
        "room a 12; prefill a 0:5; ?decode a 2; ?held a 0; ?held a 1; ?decode a 6; ?held a 1; ?len a",
        "decoder",
        model="deep",
    ),
    _script(
        "unplaced steps",
        "room a 12; ?prefill a 0:4; ?decode a 9; ?decode a 2; ?held a 2",
        "decoder",
        model="deep, unplaced",
    ),
    _script(
        "a chunk too long",
        "room a 6; prefill a 0:3; ?prefill a 3:8; ?held a 0; ?held a 1; ?len a",
        "decoder",
        model="deep",
        overfull=2,
    ),
    _script(
        "a token too many",
        "room a 4; prefill a 0:3; ?decode a 5; ?decode a 9; ?held a 0; ?held a 1",
        "decoder",
        model="deep",
        overfull=3,
    ),
    _script("caches made", "?prefill a 0:4; ?held a 0; ?prefill b 2:5; ?held b 0", "decoder", model="placed"),
    _script(
        "ids",
        "?generate 0:5 6 plain; ?generate 2:5 4 plain; ?generate 0:5 6 cached; ?generate 2:5 4 cached; ?generate 0:5 6 cached",
        "generate",
        model="plain",
    ),
    _script("no ids", "?generate 0:5 0 plain; ?generate 0:5 0 cached", "generate", model="plain"),
    _script("ids of two layers", "?generate 0:5 5 plain; ?generate 0:5 5 cached", "generate", model="deep"),
    _script(
        "ids below zero",
        "?generate 2:3 3 plain; ?generate 2:3 3 cached",
        "generate",
        model="negative",
    ),
    _script(
        "every id",
        "; ".join(
            f"?generate {TEXT.index(t)}:{TEXT.index(t) + 1} 3 {how}" for how in ("plain", "cached") for t in range(9)
        ),
        "generate",
        model="repeating",
    ),
)
_BY_NAME = {script.name: script for script in SCRIPTS}


def _probe(script: Script, asks: tuple[int, ...]) -> Probe:
    of = "" if len(script.asks) == 1 else f", operation {asks[0] + 1}: {script.ops[asks[0]][0]}"
    return Probe(script.name + of, script.group, (script.name, asks), size=100.0)


PROBES: tuple[Probe, ...] = tuple(_probe(script, asks) for script in SCRIPTS for asks in script.asks)

# -- what a variant answers --------------------------------------------------------------------------------------------


def predict(variant: Variant, probe: Probe) -> Answer:
    """What the operations that the probe asks about answer, after those before them; ("raised",) where one does."""
    script, asks = _BY_NAME[probe.args[0]], probe.args[1]
    run = _Run(variant, script)
    answers = []
    with np.errstate(all="ignore"):
        for i, op in enumerate(script.ops[: asks[-1] + 1]):
            try:
                answer = run.do(op, asked=i in asks)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                answer = ("raised",)
            if i in asks:
                answers.append(answer)
    return tuple(answers)


class _Run:
    """One run of a script: its caches by name, and what was appended."""

    def __init__(self, variant: Variant, script: Script) -> None:
        self.variant, self.script = variant, script
        self.student = Student(variant, MODELS[script.model], script.overfull >= 0) if script.model else None
        self.caches: dict[str, Store] = {}
        self.given: dict[str, Store] = {}
        self.appended: list[tuple[Array, Array]] = []
        self.broken = False  # something that must work has raised
        self.op: tuple[Any, ...] = ()

    def do(self, op: tuple[Any, ...], asked: bool) -> tuple[Any, ...]:
        """One operation; logits are computed only where they are asked about."""
        kind, *args = self.op = op
        if kind == "new":
            return self._new(*args)
        if kind in ("append", "overfill"):
            return self._append(kind, *args)
        if kind == "change":
            for slot, array in enumerate(self.appended[args[0]]):
                array[...] = named_rows(args[0], array.shape, slot, array.dtype, changed=True)
            return ("changed",)
        if kind in PASSES or kind == "room":
            return self._pass(kind, args, asked)
        cache = self.caches[args[0]]
        if kind in ("keys", "values"):
            return names_of(cache.read(args[1], int(kind == "values")))
        if kind == "held":
            return cache.read(args[1], 0), cache.read(args[1], 1)
        if kind == "dtypes":
            return str(cache.read(0, 0).dtype), str(cache.read(0, 1).dtype)
        if kind == "same":
            return (int(cache is self.given[args[0]]),)
        measure = {"len": lambda: len(cache), "nbytes": lambda: cache.nbytes, "given": lambda: len(self.given[args[0]])}
        return (measure[kind](),)

    def _new(self, name: str, n_layers: int, heads: int, width: int, capacity: int, dtype: str) -> tuple[Any, ...]:
        other = next(iter(self.caches.values()), None)
        if other is not None and taken(self.variant, "caches").name != "right":
            self.caches[name] = other
            return ("made",)

        def say(decision: str) -> Any:
            return taken(self.variant, decision)

        self.caches[name] = Store(say, n_layers, (heads, width), capacity, dtype, self.script.watched)
        return ("made",)

    def _append(self, kind: str, name: str, layer: int, n: int, dtype: str) -> tuple[Any, ...]:
        cache, number = self.caches[name], len(self.appended)
        k, v = (named_rows(number, (n, *cache.row), slot, np.dtype(dtype)) for slot in (0, 1))
        self.appended.append((k, v))
        try:
            cache.append(layer, k, v)
        except (IndexError, ValueError) as error:
            return self._why(error, kind == "overfill")
        return ("stored",)

    def _why(self, error: Exception, over: bool) -> tuple[str]:
        """Why something raises is told only of what goes over a capacity, after all before it was taken."""
        if over and not self.broken:
            return ("another exception" if isinstance(error, IndexError) else "refused",)
        self.broken = True
        return ("raised",)

    def _pass(self, kind: str, args: list[Any], asked: bool) -> tuple[Any, ...]:
        assert self.student is not None
        if kind == "room":
            self.caches[args[0]] = self.student.new_cache(args[1])
            return ("made",)
        if kind == "forward":
            return (self.student.forward(args[0]),)
        if kind == "generate":
            return (np.array(self.student.generate(args[0], args[1], args[2] == "cached"), int),)
        name, tokens = args
        given = self.caches.get(name)
        try:
            if kind == "prefill":
                logits, cache = self.student.prefill(tokens, given)
                rows = logits() if asked else None  # a prefill that raises gives no cache back
                self.caches[name] = cache
                if given is not None:
                    self.given[name] = given
            else:
                logits = self.student.decode(tokens, self.caches[name])
                rows = logits() if asked else None
        except (IndexError, ValueError) as error:
            return self._why(error, self.script.refuses(self.op))
        return () if rows is None else (rows,)


def read(variant: Variant, decision: str, answers: Mapping[str, Answer]) -> tuple[float, ...]:
    """The numbers that an option may carry: they are few, and the answers tell them apart, so all are tried."""
    del answers
    name = variant.pick(decision)
    return next(o.examples for d in SPACE if d.name == decision for o in d.options if o.name == name)
