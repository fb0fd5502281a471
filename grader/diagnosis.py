"""To diagnose is to find the variant that answers as the submission did, fewest wrong options first.

A family (a module of `reference.variants`) says which decisions a function takes and what each option answers to its
probes. The search decides only what a prediction asks about: a choice that contradicts the first probe is never tried on
the second. So the effort grows with the faults that show first in one probe, and many faults can be named together where
each probe brings few of them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from importlib import import_module
from itertools import count
from math import isfinite
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

import reference.variants
from reference.variants.space import (
    NARROW,
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
MOST_TOGETHER = 6  # options in one explanation
MOST_WRONG = 3  # of them that show in the first probe: beyond it, explanations are more likely to be chance than truth
MOST_LATER = 2  # of them that show first in any later one
FEW = 40  # options of a family where all combinations can be looked at
EFFORT = 16_000  # predictions that are compared in one search
ROUNDING = 1000  # in units of the dtype's eps: legal ways of writing one formula differ by some tens

SINGLE = 1e10  # the same where something was rounded to float32 on the way: some 2e-6

_EPS = float(np.finfo(np.float64).eps)
_NUMBERS = (np.ndarray, np.generic, float, int)


class Family(Protocol):
    """What a module of `reference.variants` gives.

    `read(variant, decision, observations)` too where options carry numbers; and, where probes fall into groups that can be
    explained one after the other, `group(probe)`, the name of its group, with `GIVEN_UP`: what can be said of a group that
    nothing explains though those before it are explained, as a decision's name and an option of it. `seen(observations)`
    gives what shows in the answers without a search: by decision, the names of the options that are left. MOST_WRONG is how many
    wrong options may show in the first probe, where that is another than here.
    """

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

    def value(self, decision: str) -> Any:
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

    def faults(self) -> int:
        return sum(option.code is not None for option in self._chosen.values())

    def wrong(self) -> Variant:
        """The variant as it is finally recorded."""
        return Variant({decision: option for decision, option in self._chosen.items() if option.name != "right"})


def explain(
    family: Any,
    observations: Mapping[str, Answer],
    probes: tuple[Probe, ...] | None = None,
    most: int = MOST_TOGETHER,
) -> Explanation:
    """Explain the answers to a family's probes (by their names; probes without an answer are passed over).

    Where no variant of few faults gives all of the answers: one that gives them but for the rounding of a narrower dtype; or
    else what explains the family's groups of probes one after the other, as many of them as something explains.
    """
    asked = tuple(p for p in (family.PROBES if probes is None else probes) if p.name in observations)
    if all(isinstance(observations[probe.name], Failed) for probe in asked):
        return Explanation((UNRECOGNISED,), (), (), matched=False)  # failing everywhere tells no fault from another
    grouped = hasattr(family, "group")
    matches = _Search(family, observations, min(most, MOST_LATER) if grouped else most).least(asked)
    if not matches and NARROW in family.SPACE:
        rounded = _Search(family, observations, min(most, MOST_LATER), SINGLE).least(asked)
        matches = [
            match.but(NARROW.name, NARROW.options[1])
            for match in rounded
            if not _all_short(family, match.wrong(), asked, observations)
        ]
    if not matches and grouped:
        in_groups = _in_groups(family, asked, observations, most)
        if not in_groups.matched or len(in_groups.options) > MOST_LATER:
            # two faults that undo each other in what shows are fewer than three that come to the same
            matches = _Search(family, observations, min(most, MOST_LATER), seen={}).least(asked)
        if not matches and not in_groups.matched:
            matches = _Search(family, observations, min(most, MOST_WRONG)).least(asked)
        if not matches:
            return in_groups
    return _explanation(family, asked, observations, [match.wrong() for match in matches], matched=True)


def _all_short(family: Any, variant: Variant, asked: tuple[Probe, ...], observations: Mapping[str, Answer]) -> bool:
    """Whether the rows that should sum to 1, and do not, all sum to less: a constant in a divisor does that, and no rounding."""
    off: list[float] = []
    for probe in asked:
        predicted, observed = family.predict(variant, probe), observations[probe.name]
        if isinstance(predicted, Failed) or isinstance(observed, Failed):
            continue
        for right, got in zip(predicted, observed, strict=False):
            if not (isinstance(right, np.ndarray) and isinstance(got, np.ndarray) and right.shape == got.shape):
                continue
            if right.ndim and right.dtype.kind == got.dtype.kind == "f" and (right >= 0).all():
                sums = got.sum(axis=-1)[np.abs(right.sum(axis=-1) - 1) < 1e-9] - 1
                off += sums[np.abs(sums) > ROUNDING * _EPS].ravel().tolist()
    return bool(off) and max(off) < 0


def _in_groups(family: Any, asked: tuple[Probe, ...], observations: Mapping[str, Answer], most: int) -> Explanation:
    """Explain one group of probes after the other, and say what is known of those that nothing explains."""
    groups: dict[str, list[Probe]] = {}
    for probe in asked:
        groups.setdefault(family.group(probe), []).append(probe)
    search = _Search(family, observations, most)
    variants: list[_Partial] = []
    explained: list[Probe] = []
    given_up: list[str] = []
    for name, probes in groups.items():
        # what shows nowhere in this group may show in another
        matches = search.least(probes, variants, beside=1)
        if matches:
            variants, explained = matches, explained + probes
        elif all(isinstance(observations[probe.name], Failed) for probe in explained):
            return Explanation((UNRECOGNISED,), (), (), matched=False)  # nothing to build on
        elif search.compared < EFFORT and all(earlier in family.GIVEN_UP for earlier in given_up):
            given_up.append(
                name
            )  # where something before it is not understood, or the search gave up, it shows nothing
    least = min(variant.faults() for variant in variants)
    known = dict(family.GIVEN_UP[name] for name in given_up if name in family.GIVEN_UP)
    told = [Variant(known | dict(variant.wrong())) for variant in variants if variant.faults() == least]
    whole = len(explained) == len(asked)
    if not whole:
        told = [_unrefuted(family, variant, asked, observations) for variant in told]
    return _explanation(family, tuple(explained), observations, told, matched=whole)


def _unrefuted(family: Any, variant: Variant, asked: tuple[Probe, ...], observations: Mapping[str, Answer]) -> Variant:
    """The variant without the options that some answer speaks against: as observed without the option, and not with it."""
    refuted = set()
    for name, option in variant.items():
        rest = Variant({d: o for d, o in variant.items() if d != name})
        if option.code is not None and any(
            same(family.predict(rest, p), observations[p.name], p)
            and not same(family.predict(variant, p), observations[p.name], p)
            for p in asked
        ):
            refuted.add(name)
    return Variant({d: o for d, o in variant.items() if d not in refuted})


def _explanation(
    family: Any, probes: tuple[Probe, ...], observations: Mapping[str, Answer], variants: list[Variant], matched: bool
) -> Explanation:
    if not variants:
        return Explanation((UNRECOGNISED,), (), (), matched=False)
    shared = frozenset.intersection(*(codes(variant) for variant in variants))
    first = variants[0]
    named = tuple(sorted(shared)) if shared or (matched and not codes(first)) else (UNRECOGNISED,)
    words = tuple(f"{d}: {o.name}" for d, o in first.items() if o.code is not None)
    return Explanation(named, words, _proof(family, probes, observations, first), matched, first)


def families() -> dict[str, Any]:
    """Every family there is, by name: the modules of `reference.variants` that give a space."""
    modules = [import_module(f"reference.variants.{m.name}") for m in pkgutil.iter_modules(reference.variants.__path__)]
    return {m.__name__.rpartition(".")[2]: m for m in modules if hasattr(m, "SPACE") and hasattr(m, "predict")}


class _Search:
    """The variants with the fewest faults that answer as observed, to a relative precision of `rounding` times eps."""

    def __init__(
        self,
        family: Any,
        observations: Mapping[str, Answer],
        most: int,
        rounding: float = ROUNDING,
        seen: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.family, self.observations, self.most, self.rounding = family, observations, most, rounding
        if seen is None:
            seen = family.seen(observations) if hasattr(family, "seen") else {}
        self.seen = seen
        self.options: dict[str, tuple[Option, ...]] = {}
        self.few = sum(len(d.options) for d in family.SPACE) < FEW
        self.most_at_first = int(getattr(family, "MOST_WRONG", MOST_WRONG))
        self.compared = 0

    def least(self, probes: Iterable[Probe], start: Sequence[_Partial] = (), beside: int = 0) -> list[_Partial]:
        """Those that answer all of `probes`, out of what can be made of the variants `start` (of the right one).

        Those that have up to `beside` faults more than the least are found too.
        """
        observed = self.observations
        probes = list(probes)
        # that something fails tells little: what a probe computes is looked at first, but where the simplest one fails
        ordered = [*probes[:1], *sorted(probes[1:], key=lambda probe: isinstance(observed[probe.name], Failed))]
        steps = [step for probe in ordered for step in _views(probe, observed[probe.name])]
        found: list[_Partial] = []
        order = count()
        # (faults, order, variant, its next step, how many faults are to be found in that step), fewest faults first
        waiting: list[tuple[int, int, _Partial, int, int]] = []
        for variant in start or [_Partial({}, self.family, observed)]:
            heappush(waiting, (variant.faults(), next(order), variant, 0, 0))
        least = self.most
        while waiting and waiting[0][0] <= least and self.compared < EFFORT:
            faults, _, variant, at, new = heappop(waiting)
            if at == len(steps):
                found.append(variant)
                least = min(least, faults + beside)
                continue
            if found and new > MOST_LATER:
                continue  # what is found beside the least has few of them
            step = steps[at]
            for decided in self._agreeing(step, variant, _known.setdefault(step, _Node()), new, new):
                heappush(waiting, (decided.faults(), next(order), decided, at + 1, 0))
            if new < self._most_new(step, first=not at and not start) and faults < least:
                heappush(waiting, (faults + 1, next(order), variant, at, new + 1))
        return found

    def _options(self, name: str) -> tuple[Option, ...]:
        if name not in self.options:
            options, left = _decision(self.family, name).options, self.seen.get(name)
            self.options[name] = options if left is None else tuple(o for o in options if o.name in left)
        return self.options[name]

    def _most_new(self, step: Probe, first: bool) -> int:
        if isinstance(self.observations[step.name], Failed):
            return 1  # one fault is enough for a call to fail
        if self.few:
            return self.most
        return self.most_at_first if first else MOST_LATER

    def _agreeing(self, probe: Probe, variant: _Partial, node: _Node, new: int, left: int) -> Iterator[_Partial]:
        """Decide one by one what the prediction for `probe` asks about; keep what answers as observed.

        `new` faults are looked for in this probe, of which `left` are still to be found.
        """
        node, outcome = _outcome(self.family, probe, variant, node)
        if not isinstance(outcome, _Undecided):
            if not left and self.compared < EFFORT:
                self.compared += 1
                if same(outcome, self.observations[probe.name], probe, self.rounding):
                    yield variant
        elif outcome.options is not None:  # the number of an option taken already
            for option in outcome.options:
                yield from self._agreeing(probe, variant.but(outcome.decision, option), node, new, left)
        else:
            options = self._options(outcome.decision)
            for option in options:
                rest = left - (option.code is not None and len(options) > 1)
                if rest >= 0 and new <= (
                    1 if option.alone else self.most_at_first if option.common else MOST_WRONG - 1
                ):
                    yield from self._agreeing(probe, variant.but(outcome.decision, option), node, new, rest)


_looked_at: WeakKeyDictionary[Probe, tuple[Probe, ...]] = WeakKeyDictionary()


def _views(probe: Probe, observed: Answer) -> tuple[Probe, ...]:
    """A probe as the search looks at it: at some parts of the answer by themselves, where they came, and at the whole."""
    if probe not in _looked_at:
        _looked_at[probe] = tuple(replace(probe, part=part) for part in probe.parts)
    parts = _looked_at[probe] if isinstance(observed, tuple) and len(observed) > 1 else ()
    return (*parts, probe)


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


def same(predicted: Answer, observed: Answer, probe: Probe, rounding: float = ROUNDING) -> bool:
    """Whether two answers are equal but for rounding: error for error, or every part of them."""
    if isinstance(predicted, Failed) or isinstance(observed, Failed):
        return isinstance(predicted, Failed) and isinstance(observed, Failed)
    if probe.part is not None:
        return len(predicted) == len(observed) and _same_part(
            predicted[probe.part], observed[probe.part], probe, rounding
        )
    return _same_part(predicted, observed, probe, rounding)


def _same_part(predicted: Any, observed: Any, probe: Probe, rounding: float) -> bool:
    if isinstance(predicted, tuple | list):
        return (
            isinstance(observed, tuple | list)
            and len(predicted) == len(observed)
            and all(_same_part(p, o, probe, rounding) for p, o in zip(predicted, observed, strict=True))
        )
    if isinstance(predicted, dict):
        return (
            isinstance(observed, dict)
            and predicted.keys() == observed.keys()
            and all(_same_part(predicted[key], observed[key], probe, rounding) for key in predicted)
        )
    if isinstance(predicted, _NUMBERS):
        return isinstance(observed, _NUMBERS) and _same_numbers(
            np.asarray(predicted), np.asarray(observed), probe, rounding
        )
    return type(predicted) is type(observed) and bool(predicted == observed)


def _same_numbers(predicted: NDArray[Any], observed: NDArray[Any], probe: Probe, rounding: float) -> bool:
    if predicted.shape != observed.shape or observed.dtype.kind not in "biuf" or predicted.dtype.kind not in "biuf":
        return False
    if (predicted.dtype.kind == "b") != (observed.dtype.kind == "b") and predicted.ndim:
        return False  # a table of numbers is no mask
    if not predicted.size:
        return True
    eps = _EPS if observed.dtype.kind != "f" else max(float(np.finfo(observed.dtype).eps), _EPS)
    tolerance = max(ROUNDING * eps, rounding * _EPS)
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
