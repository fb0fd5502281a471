"""Faults of kv_cache.py: its scripts are run on a submission, and the answers are searched for among the wrong caches.

A fault of a cache shows late: it may be silent in a dozen scripts. So the search adds a wrong option only where an answer
contradicts what has been assumed so far, and goes back over the earlier answers with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from grader import diagnosis
from grader.diagnosis import MOST_WRONG, UNRECOGNISED, Explanation, same
from grader.families import Family, register
from grader.families.attention import answer
from harness.checks.step8_cache import refused
from harness.subject import LIMITS, Call, Outcome, Subject
from harness.values import Dtype, Handle
from reference import decoder
from reference.decoder import Decoder
from reference.variants import cache, kv_cache_bytes
from reference.variants.cache_store import append_of, named_rows, names_of
from reference.variants.space import Answer, Failed, Option, Probe, Variant, codes, wrong_options

# -- asking ------------------------------------------------------------------------------------------------------------

RAISED: tuple[str] = ("raised",)


class _Ended(Exception):
    """A limit was reached: the answers would say nothing about faults."""


def observe(subject: Subject) -> dict[str, Answer]:
    """Every script run on the submission: an answer a probe."""
    models: dict[str, Any] = {}
    answers: dict[str, Answer] = {}
    for script in cache.SCRIPTS:
        if script.model and script.model not in models:
            models[script.model] = _kept(subject, "@model", fields_of(cache.MODELS[script.model]))
        run = _Run(subject, script, models.get(script.model))
        given = [run.do(op) for op in script.ops]
        for probe in cache.PROBES:
            if probe.args[0] == script.name:
                answers[probe.name] = tuple(given[i] for i in probe.args[1])
    return answers


def fields_of(model: Decoder) -> dict[str, Any]:
    """The model as @model takes it."""
    layers = [{"W_Q": x.W_Q, "W_K": x.W_K, "W_V": x.W_V, "W_O": x.W_O} for x in model.layers]
    names = ("embedding", "n_heads", "n_kv_heads", "positions")
    return {**{name: getattr(model, name) for name in names}, "layers": layers}


def _ask(subject: Subject, name: str, *args: Any, keep: bool = False, **named: Any) -> Outcome:
    outcome = subject.ask(Call(name, args, named, keep=keep))[0]
    if outcome.kind in LIMITS:
        raise _Ended
    return outcome


def _kept(subject: Subject, name: str, *args: Any) -> Handle | None:
    value = _ask(subject, name, *args, keep=True).value
    return value if isinstance(value, Handle) else None


class _Run:
    """One script on a submission: its caches by name, and the arrays that were appended."""

    def __init__(self, subject: Subject, script: cache.Script, model: Handle | None) -> None:
        self.subject, self.script, self.model = subject, script, model
        self.caches: dict[str, Handle | None] = {}
        self.given: dict[str, Handle | None] = {}
        self.rows: dict[str, tuple[int, int]] = {}
        self.appended: list[list[tuple[Any, Any]]] = []
        self.broken = False  # something that must work has raised
        self.op: tuple[Any, ...] = ()

    def do(self, op: tuple[Any, ...]) -> tuple[Any, ...]:
        kind, *args = self.op = op
        if kind == "new":
            name, *sizes, dtype = args
            self.rows[name] = (sizes[1], sizes[2])
            self.caches[name] = _kept(self.subject, "kv_cache.KVCache", *sizes, Dtype(dtype))
            return ("made",)
        if kind == "room":
            model = cache.MODELS[self.script.model]
            width = model.layers[0].W_K.shape[1] // model.n_kv_heads
            sizes = [len(model.layers), model.n_kv_heads, width, args[1]]
            self.caches[args[0]] = _kept(self.subject, "kv_cache.KVCache", *sizes, Dtype("float64"))
            return ("made",)
        if kind in ("append", "overfill"):
            return self._append(kind, *args)
        if kind == "change":
            for slot, (handle, array) in enumerate(self.appended[args[0]]):
                _ask(self.subject, "@set", handle, named_rows(args[0], array.shape, slot, array.dtype, changed=True))
            return ("changed",)
        if kind == "forward":
            return _array(_ask(self.subject, "kv_cache.forward", self.model, args[0]))
        if kind == "generate":
            return self._generate(*args)
        if kind in ("prefill", "decode"):
            return self._pass(kind, *args)
        return self._look(kind, args)

    def _append(self, kind: str, name: str, layer: int, n: int, dtype: str) -> tuple[Any, ...]:
        number = len(self.appended)
        arrays: list[Any] = [named_rows(number, (n, *self.rows[name]), slot, np.dtype(dtype)) for slot in (0, 1)]
        sent = [_kept(self.subject, "@tensor", a) for a in arrays] if "copy" in self.script.watched else arrays
        self.appended.append(list(zip(sent, arrays, strict=True)))
        if self.caches[name] is None:
            return RAISED
        outcome = _ask(self.subject, "@method", self.caches[name], "append", layer, *sent)
        if outcome.ok:
            return ("stored",)
        return self._why(outcome, kind == "overfill")

    def _pass(self, kind: str, name: str, tokens: Any) -> tuple[Any, ...]:
        known = self.caches.get(name)
        over = self.script.refuses(self.op)
        if name in self.caches and known is None:
            return RAISED
        if kind == "decode":
            outcome = _ask(self.subject, "kv_cache.decode_step", self.model, tokens, known)
            return _array(outcome) if outcome.ok else self._why(outcome, over)
        named = {} if known is None else {"cache": known}
        outcome = _ask(self.subject, "kv_cache.prefill", self.model, tokens, keep=True, **named)
        if known is not None and outcome.ok:
            self.given[name] = known
        value = outcome.value
        if not outcome.ok:
            self.caches.setdefault(name, None)
            return self._why(outcome, over)
        if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[1], Handle):
            self.caches[name] = known
            return RAISED
        self.caches[name] = value[1]
        return (value[0],) if isinstance(value[0], np.ndarray) else RAISED

    def _why(self, outcome: Outcome, over: bool) -> tuple[str]:
        """Why something raises is told only of what goes over a capacity, after all before it was taken."""
        if over and not self.broken:
            return ("refused",) if refused(outcome) else ("another exception",)
        self.broken = True
        return RAISED

    def _generate(self, prompt: list[int], n: int, how: str) -> tuple[Any, ...]:
        outcome = _ask(self.subject, "kv_cache.generate", self.model, prompt, n, use_cache=how == "cached")
        value = outcome.value
        if isinstance(value, list | tuple | np.ndarray) and all(isinstance(i, int | np.integer) for i in value):
            return (np.array(value, int),)
        return RAISED

    def _look(self, kind: str, args: list[Any]) -> tuple[Any, ...]:
        handle = self.caches.get(args[0])
        if handle is None or (kind in ("same", "given") and self.given.get(args[0]) is None):
            return RAISED
        if kind in ("held", "dtypes"):
            layer = args[1] if kind == "held" else 0
            both = [_ask(self.subject, "@method", handle, name, layer).value for name in ("keys", "values")]
            if not all(isinstance(a, np.ndarray) for a in both):
                return RAISED
            return tuple(both) if kind == "held" else tuple(str(a.dtype) for a in both)
        if kind in ("keys", "values"):
            rows = _ask(self.subject, "@method", handle, kind, args[1]).value
            with np.errstate(all="ignore"):
                return names_of(rows) if isinstance(rows, np.ndarray) and rows.ndim else RAISED
        if kind == "same":
            return (int(_ask(self.subject, "@same", handle, self.given[args[0]]).value is True),)
        if kind == "nbytes":
            value = _ask(self.subject, "@attr", handle, "nbytes").value
        else:
            value = _ask(self.subject, "@len", handle if kind == "len" else self.given[args[0]]).value
        return (value,) if isinstance(value, int) else RAISED


def _array(outcome: Outcome) -> tuple[Any, ...]:
    return (outcome.value,) if isinstance(outcome.value, np.ndarray) else RAISED


# -- searching ---------------------------------------------------------------------------------------------------------


class _Noting(Variant):
    """A variant that notes which decisions it is asked about."""

    def __init__(self, chosen: Mapping[str, Option], asked: dict[str, None]) -> None:
        super().__init__(chosen)
        self._asked = asked

    def pick(self, decision: str) -> str:
        self._asked[decision] = None
        return super().pick(decision)


_DECISIONS = {decision.name: decision for decision in cache.SPACE}
_known: dict[tuple[str, frozenset[tuple[str, Option]]], Answer] = {}
_asked: dict[str, frozenset[str]] = {}


MOST_TRIED = 6_000  # answers held against those of a submission: what takes more is as good as unexplained


class _Exhausted(Exception):
    """The search has gone far enough."""


class Search:
    """The least wrong variants that answer as observed."""

    def __init__(self, observations: Mapping[str, Answer], probes: tuple[Probe, ...]) -> None:
        self.observations, self.probes = observations, probes
        self.two_at_once = True
        self._agrees: dict[tuple[str, frozenset[tuple[str, Option]]], bool] = {}

    def least(self, most: int, beside: Sequence[Variant] = (Variant(),)) -> list[Variant]:
        """Those with the fewest faults, at most so many, beside what is settled already."""
        for budget in range(most + 1):
            self.two_at_once = budget < MOST_WRONG  # of three, each must show at a place of its own
            try:
                found = {frozenset(v.items()): v for settled in beside for v in self._from(settled, 0, budget)}
            except _Exhausted:
                return []
            if found:
                return list(found.values())
        return []

    def _from(self, variant: Variant, start: int, budget: int) -> Iterator[Variant]:
        """Variants with at most `budget` more faults that agree with every probe; those before `start` agree already."""
        at = next((i for i in range(start, len(self.probes)) if not self.agrees(variant, self.probes[i])), None)
        if at is None:
            yield variant
            return
        one = [v for v in self._changed(variant, self.probes[at], budget) if self._agrees_before(v, at)]
        found = False
        for changed in one:
            if self.agrees(changed, self.probes[at]):
                for match in self._from(changed, at + 1, budget - _cost(changed, variant)):
                    found = True
                    yield match
        if found or not self.two_at_once:
            return
        # two at once: of those that show here and not before, as wrong options do not undo each other to the last digit
        here = self.answer(variant, self.probes[at])
        showing = [v for v in one if not same(self.answer(v, self.probes[at]), here, self.probes[at])]
        for first, second in combinations(showing, 2):
            both = _joined(first, second)
            if both is None or _cost(both, variant) > budget or not self.agrees(both, self.probes[at]):
                continue
            if self._agrees_before(both, at):
                yield from self._from(both, at + 1, budget - _cost(both, variant))

    def _changed(self, variant: Variant, probe: Probe, budget: int) -> Iterator[Variant]:
        """The variant with one more option that is not right, of the decisions that this probe asks about."""
        for name in self._decisions(variant, probe):
            if name not in variant:
                decision = _DECISIONS[name]
                styles = [o for o in decision.options[1:] if o.code is None]
                for option in [*styles, *(wrong_options(decision) if budget else ())]:
                    yield variant.but(name, option)

    def _decisions(self, variant: Variant, probe: Probe) -> dict[str, None]:
        asked: dict[str, None] = {}
        cache.predict(_Noting(variant, asked), probe)
        return asked

    def _agrees_before(self, variant: Variant, at: int) -> bool:
        return all(self.agrees(variant, probe) for probe in self.probes[:at])

    def agrees(self, variant: Variant, probe: Probe) -> bool:
        key = (probe.name, self._relevant(variant, probe))
        if key not in self._agrees:
            if len(self._agrees) >= MOST_TRIED:
                raise _Exhausted
            answer = self.answer(variant, probe)
            key = (probe.name, self._relevant(variant, probe))
            self._agrees[key] = same(answer, _blind(answer, self.observations[probe.name]), probe)
        return self._agrees[key]

    def answer(self, variant: Variant, probe: Probe) -> Answer:
        """What the variant answers; it is the same for every submission, so it is kept."""
        answer = _known.get((probe.name, self._relevant(variant, probe)))
        if answer is None:
            asked: dict[str, None] = {}
            answer = cache.predict(_Noting(variant, asked), probe)
            _asked[probe.name] = _asked.get(probe.name, frozenset()) | frozenset(asked)
            _known[probe.name, self._relevant(variant, probe)] = answer
        return answer

    @staticmethod
    def _relevant(variant: Variant, probe: Probe) -> frozenset[tuple[str, Option]]:
        """What of the variant the probe may ask about, as far as is known."""
        asked = _asked.get(probe.name)
        return frozenset((d, o) for d, o in variant.items() if asked is None or d in asked)


def _blind(predicted: Answer, observed: Answer) -> Answer:
    """What came back, without the names of rows that nothing was predicted of: a slot never filled may hold anything."""
    if isinstance(predicted, Failed) or isinstance(observed, Failed):
        return observed
    return tuple(_blind_rows(p, o) for p, o in zip(predicted, observed, strict=True))


def _blind_rows(predicted: Any, observed: Any) -> Any:
    if len(predicted) == len(observed) == 2 and all(isinstance(a, np.ndarray) for a in (*predicted, *observed)):
        (shape, names), (_, found) = predicted, observed
        if shape.shape == (3,) and names.shape == found.shape == (shape[0],) and (names == 0).any():
            return observed[0], np.where(names == 0, 0, found)
    return observed


def _cost(changed: Variant, variant: Variant) -> int:
    return sum(o.code is not None for o in changed.values()) - sum(o.code is not None for o in variant.values())


def _joined(first: Variant, second: Variant) -> Variant | None:
    """Both changes at once; None where they are two options of one decision."""
    if len(first.keys() | second.keys()) == len(first):
        return None
    return Variant({**first, **second})


# -- explaining --------------------------------------------------------------------------------------------------------


def explain_answers(observations: Mapping[str, Answer], most: int = MOST_WRONG) -> Explanation:
    """What the answers say: as much as can be explained from the first group of probes on.

    What one group says is settled before the next is looked at, which may have as many faults of its own: a decoder changes
    nothing in what a cache does alone. Where what is built on it cannot be explained, what was settled stands.
    """
    if _share(observations):
        shared = Variant({"caches": next(wrong_options(_DECISIONS["caches"]))})
        return Explanation(("cache-shared-state",), ("caches: share",), (TWO_CACHES,), matched=True, variant=shared)
    settled, explained = [Variant()], 0
    for n in range(1, len(cache.GROUPS) + 1):
        found = Search(observations, _up_to(n, observations)).least(most, settled[:MOST_SETTLED])
        if not found:
            break
        settled, explained = found, n
    if not explained:
        return Explanation((UNRECOGNISED,), (), (), matched=False)
    whole = explained == len(cache.GROUPS)
    return _explanation(settled, _up_to(explained, observations), observations, whole)


MOST_SETTLED = 6  # explanations of one group that are gone on from


def _up_to(n: int, observations: Mapping[str, Answer]) -> tuple[Probe, ...]:
    return tuple(p for p in cache.PROBES if p.function in cache.GROUPS[:n] and p.name in observations)


TWO_CACHES = "two caches"


def _share(observations: Mapping[str, Answer]) -> bool:
    """Whether a cache gave back rows that were appended to another. No later answer is then worth a look."""
    parts = observations.get(TWO_CACHES)
    if not isinstance(parts, tuple) or any(len(part) != 2 for part in parts):
        return False
    of_b, of_a = ({append_of(name) for part in some for name in part[1] if name > 0} for some in (parts[:2], parts[2:]))
    return bool(of_b & {0, 1}) or 2 in of_a  # the first two appends of that script are to a, the third is to b


def _explanation(
    matches: list[Variant], probes: tuple[Probe, ...], observations: Mapping[str, Answer], whole: bool
) -> Explanation:
    shared = frozenset.intersection(*(_shown(match, probes, observations) for match in matches))
    usual = [match for match in matches if all(option.common for option in match.values())]
    if not shared and usual:
        shared = frozenset.intersection(*(_shown(match, probes, observations) for match in usual))
        matches = usual
    right = not any(codes(match) for match in matches)
    named = tuple(sorted(shared)) if shared or (right and whole) else (UNRECOGNISED,)
    words = tuple(f"{d}: {o.name}" for d, o in matches[0].items() if o.code is not None)
    proof = tuple(p.name for p in probes if not same(cache.predict(Variant(), p), observations[p.name], p))
    return Explanation(named, words, proof, whole, matches[0])


def explain(subject: Subject) -> Explanation:
    try:
        observations = observe(subject)
    except _Ended:
        return Explanation((UNRECOGNISED,), (), (), matched=False)
    found = explain_answers(observations)
    if found.codes == (UNRECOGNISED,) and _decodes_rightly(observations) and _samples(subject):
        return Explanation(
            ("generate-not-greedy",), ("pick: drawn by chance",), ("one prompt, four times",), matched=False
        )
    return found


def _decodes_rightly(observations: Mapping[str, Answer]) -> bool:
    right = Variant()
    probes = (p for p in cache.PROBES if p.function in cache.GROUPS[:3])
    return all(same(cache.predict(right, p), observations[p.name], p) for p in probes)


def _samples(subject: Subject) -> bool:
    """Whether generate draws by chance: its first answer is not the greedy one, and no two are alike."""
    # small embeddings make all ids about as good, and the best still the best
    model = replace(cache.MODELS["plain"], embedding=cache.MODELS["plain"].embedding / 20)
    prompt = cache.TEXT[:4]
    with subject.lend({}) as fresh:
        kept = fresh.ask(Call("@model", (fields_of(model),), keep=True))[0]
        outcomes = [fresh.call("kv_cache.generate", kept.value, prompt, 12) for _ in range(4)]
    answers = [o.value for o in outcomes]
    if not all(isinstance(a, list) and len(a) == 12 and all(type(i) is int for i in a) for a in answers):
        return False
    distinct = {tuple(a) for a in answers}
    return len(distinct) == len(answers) and answers[0] != decoder.generate(model, prompt, 12)


def _shown(match: Variant, probes: tuple[Probe, ...], observations: Mapping[str, Answer]) -> frozenset[str]:
    """The codes of the faults without which some answer would be another; that something raised is no such answer.

    Of two faults at once, one may stand in only for calls that raised, which many a fault does.
    """
    faults = {d: o for d, o in match.items() if o.code is not None}
    if len(faults) < 2:
        return codes(match)
    shown = set()
    for name, option in faults.items():
        rival = Variant({d: o for d, o in match.items() if d != name})
        if any(_told_apart(cache.predict(rival, p), observations[p.name], p) for p in probes):
            shown.add(str(option.code))
    return frozenset(shown)


def _told_apart(predicted: Answer, observed: Answer, probe: Probe) -> bool:
    assert isinstance(predicted, tuple)
    assert isinstance(observed, tuple)
    return any(
        len(o) != 1 or not same(o, RAISED, probe)
        for p, o in zip(predicted, observed, strict=True)
        if not same(p, o, probe)
    )


def explain_bytes(subject: Subject) -> Explanation:
    outcomes = [subject.call("kv_cache.kv_cache_bytes", *probe.args) for probe in kv_cache_bytes.PROBES]
    if any(outcome.kind in LIMITS for outcome in outcomes):
        return Explanation((UNRECOGNISED,), (), (), matched=False)
    answers = {p.name: answer(o) for p, o in zip(kv_cache_bytes.PROBES, outcomes, strict=True)}
    return diagnosis.explain(kv_cache_bytes, answers)


FUNCTIONS = ("KVCache", "forward", "prefill", "decode_step", "generate")
register(Family("cache", tuple(f"kv_cache.{name}" for name in FUNCTIONS), "kv", explain))
register(Family("kv_cache_bytes", ("kv_cache.kv_cache_bytes",), "kv", explain_bytes))
