"""Hints: what a submission's own outputs give away, without knowing the right ones.

Rows that do not sum to 1 while columns do; a weight wherever the mask hides; two keys whose weights stand to each other
as no scaling by 1/sqrt(d_k) would have it. A hint is given only where the observation proves it; a correct submission
gets none. The looking is done in harness.signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from harness.check import Check, CheckResult
from harness.messages import MESSAGES
from harness.signs import Hint
from harness.signs import attention as signs_attention
from harness.signs import decoder as signs_decoder
from harness.signs import experiments as signs_experiments
from harness.subject import Asking

GENERAL = {"raised", "missing", "wrong-shape", "wrong-dtype", "not-finite", "not-an-array", "unrecognised"}
FAMILIES: dict[str, Callable[[Asking], Iterator[Hint]]] = {
    **signs_attention.FAMILIES,
    **signs_decoder.FAMILIES,
    **signs_experiments.FAMILIES,
}

OF_FUNCTION = {"scaled_dot_product_attention": "sdpa", "sinusoidal_positions": "positions"}
"""Families that are not called as their function is."""

BUILT_ON = {"self_attention": ("project", "sdpa"), "sdpa": ("softmax",)}


class Hints:
    """The hints on one submission; each family is looked at once, when first asked for."""

    def __init__(self, subject: Asking) -> None:
        self._subject = subject
        self._found: dict[str, list[Hint]] = {}

    def of(self, family: str) -> list[Hint]:
        if family not in self._found:
            look = FAMILIES.get(family)
            with np.errstate(all="ignore"):
                self._found[family] = list(look(self._subject)) if look else []
        return self._found[family]

    def on(self, result: CheckResult) -> Hint | None:
        """The hint that belongs to a failed check: a fault that has a name before one that has none.

        Among those, what the check is about, then anything of its families, then of what it calls and that is built on.
        """
        code = result.failure.code if result.failure else None
        if code is not None and code not in GENERAL and code in MESSAGES:
            return Hint(code, MESSAGES[code].says)
        if result.failure is not None and "NotImplementedError" in result.failure.seen:
            return None
        about = (
            hint for family in result.check.families for hint in self.of(family) if hint.code in result.check.about
        )
        named = (hint for family in _families(result.check) for hint in self.of(family) if hint.code is not None)
        other = (hint for family in _families(result.check) for hint in self.of(family))
        return next((hint for found in (about, named, other) for hint in found), None)


def _families(check: Check) -> list[str]:
    """Where to look, in this order: the check's own families, those of the functions that it calls, what these stand on."""
    names = [name.rpartition(".")[2] for name in check.functions]
    found = [*check.families, *(OF_FUNCTION.get(name, name) for name in names)]
    for family in found:
        found += BUILT_ON.get(family, ())
    return list(dict.fromkeys(found))
