"""Hints: what a submission's own outputs give away, without knowing the right ones.

Rows that do not sum to 1 while columns do; a weight wherever the mask hides; two keys whose weights stand to each other
as no scaling by 1/sqrt(d_k) would have it. A hint is given only where the observation proves it; a correct submission
gets none. The looking is done in harness.signs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from harness.breaks import BREAKS
from harness.check import Check, CheckResult
from harness.messages import MESSAGES
from harness.signs import Hint
from harness.signs import attention as signs_attention
from harness.signs import decoder as signs_decoder
from harness.signs import experiments as signs_experiments
from harness.subject import LIMITS, Asking

GENERAL = {"raised", "missing", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "unrecognised"}
FAMILIES: dict[str, Callable[[Asking], Iterator[Hint]]] = {
    **signs_attention.FAMILIES,
    **signs_decoder.FAMILIES,
    **signs_experiments.FAMILIES,
}

OF_FUNCTION = {"scaled_dot_product_attention": "sdpa", "sinusoidal_positions": "positions"}
"""Families that are not called as their function is."""

OF_DTYPE = {"wrong-dtype", "narrow-arithmetic"}
"""What can make a result's dtype another than asked."""

NEVER_RAISING = (
    *("softmax-whole", "softmax-ignores", "softmax-global", "softmax-max-", "softmax-clamped", "softmax-argmax"),
    *("softmax-epsilon", "softmax-unnormalised", "softmax-wrong-base", "softmax-not-", "softmax-sum-", "softmax-plus-"),
    *("scale-missing", "scale-by-dk", "scale-inverted", "scale-after", "scale-ignored", "scale-compounded"),
    *("mask-ignored", "mask-inverted", "mask-after", "mask-multiplied", "mask-added", "mask-finite", "causal-mask-"),
    *("positions-", "not-finite", "narrow-", "not-deterministic"),
)
"""Faults (by how their codes begin) that change numbers, and end no call with an exception."""

BUILT_ON = {"self_attention": ("project", "sdpa"), "sdpa": ("softmax",)}


class Hints:
    """The hints on one submission; each family is looked at once, when first asked for."""

    def __init__(self, subject: Asking) -> None:
        self._subject = subject
        self._found: dict[str, list[Hint]] = {}

    def of(self, family: str) -> list[Hint]:
        if family not in self._found:
            look = FAMILIES.get(family)
            self._found[family] = found = []
            # what an odd answer breaks is a sign, and no run: what was seen until then stands
            with np.errstate(all="ignore"), contextlib.suppress(ArithmeticError, LookupError, TypeError, ValueError):
                for hint in look(self._subject) if look else ():
                    found.append(replace(hint, family=family))
        return self._found[family]

    def on(self, result: CheckResult) -> Hint | None:
        """The hint that explains a failed check: a fault that has a name before one that has none.

        Among those, what the check is about, then what fails it on most draws, then by family: the check's own first, then what
        it calls and what that is built on.
        """
        failure = result.failure
        code = failure.code if failure else None
        if failure is not None and code in LIMITS:
            return Hint(code, f"{failure.seen[:1].upper()}{failure.seen[1:]}")
        if code is not None and code not in GENERAL and code in MESSAGES:
            return Hint(code, MESSAGES[code].says)
        if failure is not None and "NotImplementedError" in failure.seen:
            return None
        found = [hint for family in _families(result.check) for hint in self.of(family) if _can_be(hint, result)]
        raised = failure is not None and failure.code == "raised" and failure.frames
        if found and raised:
            nearest = min(_away(hint, result) for hint in found)
            found = [hint for hint in found if _away(hint, result) == nearest < ELSEWHERE]
        sure = sorted(found, key=lambda hint: _doubt(result.check, hint))  # of equals the first stays first
        about = (hint for hint in sure if hint.code in result.check.about and hint.family in result.check.families)
        named = (hint for hint in sure if hint.code is not None)
        return next((hint for hints in (about, named, found) for hint in hints), None)

    def all_on(self, result: CheckResult) -> list[Hint]:
        """That hint first, then whatever else has a name in the check's own families."""
        first = self.on(result)
        found = [hint for family in result.check.families for hint in self.of(family) if _can_be(hint, result)]
        return [] if first is None else [first, *(hint for hint in found if hint.code is not None and hint != first)]


def explains(check: Check, code: str) -> bool:
    """Whether this fault can fail this check, as far as that is known."""
    return _share(check, code) is None or code in BREAKS[check.id]


def _share(check: Check, code: str | None) -> float | None:
    """On what share of the check's draws this fault fails it; None where that is not known."""
    known = check.id in BREAKS and any(code in codes for codes in BREAKS.values())
    return BREAKS[check.id].get(code or "", 0.0) if known else None


def _doubt(check: Check, hint: Hint) -> float:
    """What speaks against a hint beside others: the share of the check's draws that its fault lets pass."""
    share = _share(check, hint.like or hint.code)
    return 0.0 if share is None else 1 - share


ELSEWHERE = 2


def _away(hint: Hint, result: CheckResult) -> int:
    """How far what was seen is from an exception that failed a check: 0 for the same line, ELSEWHERE for another."""
    frames = result.failure.frames if result.failure else ()
    return 1 if hint.at is None else 0 if hint.at == (frames[-1].file, frames[-1].line) else ELSEWHERE


def _can_be(hint: Hint, result: CheckResult) -> bool:
    """Whether what was seen can have failed the check in this way."""
    code, failure = hint.like or hint.code, result.failure
    if failure is not None and failure.code == "wrong-dtype":
        return hint.code in OF_DTYPE
    if code == "wrong-dtype" and not (failure is not None and failure.code == "raised"):
        return False
    if failure is not None and failure.code == "raised" and code is not None and code.startswith(NEVER_RAISING):
        return False
    return code is None or explains(result.check, code)


def _families(check: Check) -> list[str]:
    """Where to look, in this order: the check's own families, those of the functions that it calls, what these stand on."""
    names = [name.rpartition(".")[2] for name in check.functions]
    found = [*check.families, *(OF_FUNCTION.get(name, name) for name in names)]
    for family in found:
        found += BUILT_ON.get(family, ())
    return list(dict.fromkeys(found))
