"""The space of variants: decisions, their options, and what a choice of options answers to a probe.

A function of the lab takes a handful of decisions (over which axis? divided by what? masked when?). Each has one right
option and several known wrong ones. A variant is one choice for each decision; the right answer is the variant that
records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Option:
    """One way of taking a decision.

    code      what it is called when it is wrong; None: it is right, or a style that is no fault
    common    False: too rare to be looked for beside two others that show first in the same probe
    alone     True: not even beside one
    examples  values of what it carries (a fill, an epsilon, a base, a row of frequencies); empty: it carries nothing
    value     the one that it carries, once known
    """

    name: str
    code: str | None = None
    common: bool = True
    alone: bool = False
    examples: tuple[Any, ...] = ()
    value: Any = None

    def at(self, value: Any) -> Option:
        """This option with what it carries known."""
        return replace(self, value=value)


RIGHT = Option("right")


@dataclass(frozen=True)
class Decision:
    """A decision and its options; the first is the right one."""

    name: str
    options: tuple[Option, ...]


def decision(name: str, *others: Option) -> Decision:
    """A decision whose right option is called "right"."""
    return Decision(name, (RIGHT, *others))


Space = tuple[Decision, ...]

# Never asked about: the results are those of a variant but for the rounding of a narrower dtype.
NARROW = decision("arithmetic", Option("narrower", "narrow-arithmetic", common=False))


class Variant(Mapping[str, Option]):
    """Which option each decision takes; only those that are not right are recorded."""

    def __init__(self, chosen: Mapping[str, Option] = MappingProxyType({})) -> None:
        self._chosen = dict(chosen)

    def __getitem__(self, decision: str) -> Option:
        return self._chosen[decision]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    def __hash__(self) -> int:
        return hash(frozenset(self._chosen.items()))

    def __repr__(self) -> str:
        return f"Variant({', '.join(f'{d}={o.name!r}' for d, o in self._chosen.items()) or 'right'})"

    def pick(self, decision: str) -> str:
        """Name of the option taken, "right" for the right one."""
        option = self._chosen.get(decision)
        return "right" if option is None else option.name

    def value(self, decision: str) -> Any:
        """What the option taken carries: a number, mostly."""
        value = self._chosen[decision].value
        if value is None:
            raise LookupError(f"the option taken for {decision!r} has no value yet")
        return value

    def but(self, decision: str, option: Option) -> Variant:
        """The same variant with another option for one decision."""
        return Variant({**self._chosen, decision: option})


def codes(variant: Mapping[str, Option]) -> frozenset[str]:
    """The codes of the faults in a variant."""
    return frozenset(option.code for option in variant.values() if option.code is not None)


def wrong_options(decision: Decision) -> Iterator[Option]:
    """The options that are faults; one that carries a number once for each of its examples."""
    for option in decision.options:
        if option.code is not None:
            yield from ((option.at(value) for value in option.examples) if option.examples else (option,))


def variants(space: Space, n_wrong: int) -> Iterator[Variant]:
    """Every variant with at most `n_wrong` faults, fewest first."""
    for size in range(n_wrong + 1):
        for decisions in combinations(space, size):
            for options in product(*(tuple(wrong_options(d)) for d in decisions)):
                yield Variant({d.name: option for d, option in zip(decisions, options, strict=True)})


@dataclass(frozen=True, eq=False)
class Probe:
    """One call whose answer tells variants apart. `args` and `kwargs` are arrays and plain values: pass copies of them.

    size   size of the numbers inside, which rounding grows with
    zeros  whether an answer predicted to be exactly 0 must be exactly 0
    parts  parts of the answer (weights, of output and weights) that fewer decisions lie behind than behind the whole
    part   the one part that is to be predicted; what stands in place of the others is not looked at
    """

    name: str
    function: str  # "attention.softmax"
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    size: float = 1.0
    zeros: bool = False
    parts: tuple[int, ...] = ()
    part: int | None = None


@dataclass(frozen=True)
class Failed:
    """The call raised; which exception it was is told, and compared with nothing."""

    kind: str


# What a call gave: its results (one result stands alone in the tuple), or that it raised.
Answer = tuple[Any, ...] | Failed


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
    """What calling `function` answers: errors that a wrong shape or a wrong value leads to become `Failed`."""
    try:
        with np.errstate(all="ignore"):
            result = function(*args, **kwargs)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        return Failed(type(error).__name__)
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def narrowed(variant: Variant, answer: Answer) -> Answer:
    """The answer with its numbers rounded to float32 and back, where the variant's arithmetic is narrower."""
    if NARROW.name not in variant or isinstance(answer, Failed):
        return answer
    return tuple(
        part.astype(np.float32).astype(part.dtype) if isinstance(part, np.ndarray) and part.dtype.kind == "f" else part
        for part in answer
    )
