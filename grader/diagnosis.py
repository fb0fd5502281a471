"""To diagnose is to find the variant that answers as the submission did, fewest wrong options first.

A family (a module of `reference.variants`) says which decisions a function takes and what each option answers to its
probes. The search decides only what a prediction asks about: a choice that contradicts the first probe is never tried on
the second.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

import reference.variants
from reference.variants.space import (
    RIGHT,
    Answer,
    Decision,
    Failed,
    Option,
    Probe,
    Space,
    Variant,
    codes,
)

UNRECOGNISED = "unrecognised"
MOST_WRONG = 3  # options in one explanation: beyond it, explanations are more likely to be chance than truth
ROUNDING = 1000  # in units of the dtype's eps: legal ways of writing one formula differ by some tens

_EPS = float(np.finfo(np.float64).eps)
_NUMBERS = (np.ndarray, np.generic, float, int)


class Family(Protocol):
    """What a module of `reference.variants` gives; `read(variant, decision, observations)` too where options carry numbers."""

    SPACE: Space
    PROBES: tuple[Probe, ...]

    def predict(self, variant: Variant, probe: Probe) -> Answer: ...


@dataclass(frozen=True)
class Explanation:
    """What a submission's answers say about it.

    codes    faults that every explanation contains; ("unrecognised",) where there is none; () where all answers are right
    options  the wrong options of the first explanation, in words: "scale: missing"
    proof    probes whose answers cannot be explained without those options
    matched  whether some variant gives all of these answers
    variant  the first explanation itself, where there is one: its wrong options by decision
    """

    codes: tuple[str, ...]
    options: tuple[str, ...]
    proof: tuple[str, ...]
    matched: bool
    variant: Variant | None = None


class _Undecided(Exception):
    """A prediction asks about a decision (or a number) that the search has not settled."""

    def __init__(self, decision: str, options: tuple[Option, ...] | None = None) -> None:
        self.decision, self.options = decision, options


class _Partial(Variant):
    """A variant in the making: right options are recorded too; asking about one not recorded raises `_Undecided`."""

    def __init__(
        self,
        chosen: Mapping[str, Option],
        family: Any,
        observations: Mapping[str, Answer],
        reads: dict[str, Option] | None = None,
    ) -> None:
        self._chosen = chosen if isinstance(chosen, dict) else dict(chosen)
        self._family, self._observations, self._reads = family, observations, reads

    def __contains__(self, decision: object) -> bool:
        return decision in self._chosen

    def pick(self, decision: str) -> str:
        option = self._chosen.get(decision)
        if option is None and self._reads is None:
            raise _Undecided(decision)
        option = option or RIGHT
        if self._reads is not None:
            self._reads.setdefault(decision, option)
        return option.name

    def value(self, decision: str) -> float:
        option = self._chosen[decision]
        if self._reads is not None:
            return option.examples[0]  # any will do: what is noted are the questions, not the answer
        if option.value is None:
            values = self._family.read(self, decision, self._observations)
            raise _Undecided(decision, tuple(option.at(value) for value in values))
        return option.value

    def but(self, decision: str, option: Option) -> _Partial:
        return _Partial({**self._chosen, decision: option}, self._family, self._observations, self._reads)

    def presumed_in(self, reads: dict[str, Option]) -> _Partial:
        """The same variant with all else right, which notes in `reads` what it is asked about, in that order."""
        return _Partial(self._chosen, self._family, self._observations, reads)

    def wrong(self) -> Variant:
        """The variant as it is finally recorded."""
        return Variant({decision: option for decision, option in self._chosen.items() if option.name != "right"})


def explain(
    family: Any,
    observations: Mapping[str, Answer],
    probes: tuple[Probe, ...] | None = None,
    most: int = MOST_WRONG,
) -> Explanation:
    """Explain the answers to a family's probes (by their names; probes without an answer are passed over)."""
    asked = tuple(p for p in (family.PROBES if probes is None else probes) if p.name in observations)
    if all(isinstance(observations[probe.name], Failed) for probe in asked):
        return Explanation((UNRECOGNISED,), (), (), matched=False)  # failing everywhere tells no fault from another
    for n_wrong in range(most + 1):
        matches = list(
            _search(
                family,
                asked,
                observations,
                _Partial({}, family, observations),
                n_wrong,
                n_wrong < MOST_WRONG,
            )
        )
        if matches:
            shared = frozenset.intersection(*(codes(match) for match in matches))
            first = matches[0].wrong()
            named = tuple(sorted(shared)) if shared or not n_wrong else (UNRECOGNISED,)
            words = tuple(f"{d}: {o.name}" for d, o in first.items() if o.code is not None)
            return Explanation(named, words, _proof(family, asked, observations, first), True, first)
    return Explanation((UNRECOGNISED,), (), (), matched=False)


def families() -> dict[str, Any]:
    """Every family there is, by name: the modules of `reference.variants` that give a space."""
    modules = [import_module(f"reference.variants.{m.name}") for m in pkgutil.iter_modules(reference.variants.__path__)]
    return {m.__name__.rpartition(".")[2]: m for m in modules if hasattr(m, "SPACE") and hasattr(m, "predict")}


def _search(
    family: Any,
    probes: tuple[Probe, ...],
    observations: Mapping[str, Answer],
    variant: _Partial,
    budget: int,
    rare: bool,
) -> Iterator[_Partial]:
    """The variants with at most `budget` more faults that answer all of `probes` as observed."""
    if not probes:
        yield variant
        return
    observed = observations[probes[0].name]
    root = _known.setdefault(probes[0], _Node())
    for decided, left in _agreeing(family, probes[0], observed, variant, root, budget, rare):
        yield from _search(family, probes[1:], observations, decided, left, rare)


@dataclass
class _Node:
    """What a prediction is known to do after some answers to what it asked: ask about a decision, or answer the probe.

    An answer that depends on a number read out of a submission is not kept: `numbered` stands in its place.
    """

    asks: str | None = None
    answer: Answer | None = None
    numbered: bool = False
    then: dict[str, _Node] = field(default_factory=dict)  # by name of the option taken


# What is known of each probe: it is the same for every submission.
_known: WeakKeyDictionary[Probe, _Node] = WeakKeyDictionary()


def _agreeing(
    family: Any, probe: Probe, observed: Answer, variant: _Partial, node: _Node, budget: int, rare: bool
) -> Iterator[tuple[_Partial, int]]:
    """Decide one by one what the prediction for `probe` asks about; keep what answers as observed, with the budget left."""
    node, outcome = _outcome(family, probe, variant, node)
    if not isinstance(outcome, _Undecided):
        if same(outcome, observed, probe):
            yield variant, budget
    elif outcome.options is not None:  # the number of an option taken already
        for option in outcome.options:
            yield from _agreeing(family, probe, observed, variant.but(outcome.decision, option), node, budget, rare)
    else:
        for option in _decision(family, outcome.decision).options:
            left = budget - (option.code is not None)
            if left >= 0 and (rare or option.common):
                decided = variant.but(outcome.decision, option)
                yield from _agreeing(family, probe, observed, decided, node, left, rare)


def _outcome(family: Any, probe: Probe, variant: _Partial, node: _Node) -> tuple[_Node, Answer | _Undecided]:
    """The answer of `variant`, or what else has to be decided first; `node` is a place that its options lead to."""
    while True:
        if node.answer is not None:
            return node, node.answer
        if node.numbered:
            try:
                return node, family.predict(variant, probe)
            except _Undecided as undecided:
                return node, undecided
        if node.asks is None:
            _learn(family, probe, variant)
        elif node.asks not in variant:
            return node, _Undecided(node.asks)
        else:
            node = node.then.setdefault(variant[node.asks].name, _Node())


def _learn(family: Any, probe: Probe, variant: _Partial) -> None:
    """Predict with what is undecided taken to be right, and note every question on the way to the answer."""
    reads: dict[str, Option] = {}
    answer: Answer = family.predict(variant.presumed_in(reads), probe)
    node = _known[probe]
    for decision, option in reads.items():
        node.asks = decision
        node = node.then.setdefault(option.name, _Node())
    if any(option.examples for option in reads.values()):
        node.numbered = True
    else:
        node.answer = answer


def _decision(family: Any, name: str) -> Decision:
    for decision in family.SPACE:
        if decision.name == name:
            return decision  # type: ignore[no-any-return]
    raise LookupError(f"{name!r} is no decision of this family; it has {[d.name for d in family.SPACE]}")


def _proof(
    family: Any,
    probes: tuple[Probe, ...],
    observations: Mapping[str, Answer],
    variant: Variant,
) -> tuple[str, ...]:
    """Names of the probes that contradict the variant as soon as one of its faults is taken back."""
    faults = [d for d, option in variant.items() if option.code is not None]
    rivals = [Variant({d: o for d, o in variant.items() if d != dropped}) for dropped in faults]
    return tuple(
        probe.name
        for probe in probes
        if any(not same(family.predict(rival, probe), observations[probe.name], probe) for rival in rivals)
    )


def same(predicted: Answer, observed: Answer, probe: Probe) -> bool:
    """Whether two answers are equal but for rounding: error for error, or every part of them."""
    if isinstance(predicted, Failed) or isinstance(observed, Failed):
        return isinstance(predicted, Failed) and isinstance(observed, Failed)
    return _same_part(predicted, observed, probe)


def _same_part(predicted: Any, observed: Any, probe: Probe) -> bool:
    if isinstance(predicted, tuple | list):
        return (
            isinstance(observed, tuple | list)
            and len(predicted) == len(observed)
            and all(_same_part(p, o, probe) for p, o in zip(predicted, observed, strict=True))
        )
    if isinstance(predicted, dict):
        return (
            isinstance(observed, dict)
            and predicted.keys() == observed.keys()
            and all(_same_part(predicted[key], observed[key], probe) for key in predicted)
        )
    if isinstance(predicted, _NUMBERS):
        return isinstance(observed, _NUMBERS) and _same_numbers(np.asarray(predicted), np.asarray(observed), probe)
    return type(predicted) is type(observed) and bool(predicted == observed)


def _same_numbers(predicted: NDArray[Any], observed: NDArray[Any], probe: Probe) -> bool:
    if predicted.shape != observed.shape or observed.dtype.kind not in "biuf" or predicted.dtype.kind not in "biuf":
        return False
    if not predicted.size:
        return True
    tolerance = (
        ROUNDING * _EPS if observed.dtype.kind != "f" else ROUNDING * max(float(np.finfo(observed.dtype).eps), _EPS)
    )
    first, other = float(predicted.item(0)), float(observed.item(0))
    if abs(first - other) > tolerance * (probe.size + abs(first)) and isfinite(first):
        return False  # most candidates end here
    predicted, observed = predicted.astype(np.float64, copy=False), observed.astype(np.float64, copy=False)
    # NaN and inf are one: which of them comes out depends on how a formula was written down
    finite = np.isfinite(predicted)
    if not finite.all():
        if not np.array_equal(finite, np.isfinite(observed)):
            return False
        predicted, observed = predicted[finite], observed[finite]
    if probe.zeros and observed[predicted == 0].any():
        return False
    return bool((np.abs(predicted - observed) <= tolerance * (probe.size + np.abs(predicted))).all())
