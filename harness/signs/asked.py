"""How signs ask a submission's attention: in the form in which it answers, on the problems that it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from harness.signs import array, numbers, pair, slope
from harness.signs.scale import Sizes
from harness.subject import Asking, Outcome
from harness.values import Array

SDPA = "attention.scaled_dot_product_attention"
SIZES = {"n": 3, "m": 5, "d_k": 6, "d_v": 2}
OTHER_SIZES = {"n": 4, "m": 7, "d_k": 10, "d_v": 8}

MASK = np.array(
    [[1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 1, 1], [1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1], [1, 0, 0, 1, 1, 0]], bool
)
"""Each row, and each row but its last entry, shows a key and hides one."""


@dataclass(frozen=True)
class Attention:
    """A submission's attention.

    takes   "any" sizes, "square" tables alone, or keys that are as many as they are wide ("unturned": Q @ K is computed)
    gives   "pair", "swapped" (the weights first), or "output" alone: the weights are read with V = identity
    batched whether a sequence is asked for as a batch of one
    """

    subject: Asking
    takes: str = "any"
    gives: str = "pair"
    batched: bool = False

    def fit(self, **changed: int) -> Sizes:
        """SIZES, changed, and made such that the submission takes them."""
        sizes = {**SIZES, **changed}
        if self.takes == "square":
            sizes["n"] = sizes["m"]
        if self.takes == "unturned":
            sizes["d_k"] = sizes["m"]
        return sizes

    def problem(self, *batch: int, seed: int = 7, **changed: int) -> tuple[Array, Array, Array]:
        n, m, d_k, d_v = (self.fit(**changed)[name] for name in ("n", "m", "d_k", "d_v"))
        Q, K, V = numbers((*batch, n, d_k), (*batch, m, d_k), (*batch, m, d_v), seed=seed)
        return Q, K, V

    def mask(self) -> Array:
        sizes = self.fit()
        return MASK[: sizes["n"], : sizes["m"]]

    def scores(self, Q: Array, K: Array) -> Array:
        return Q @ (K if self.takes == "unturned" else np.swapaxes(K, -1, -2))

    def ask(self, Q: Array, K: Array, V: Array, **named: Array | float) -> Outcome:
        if not self.batched or Q.ndim > 2:
            return self.subject.call(SDPA, Q, K, V, **named)
        if isinstance(named.get("mask"), np.ndarray):
            named["mask"] = np.asarray(named["mask"])[None]
        outcome = self.subject.call(SDPA, Q[None], K[None], V[None], **named)
        if outcome.ok and isinstance(outcome.value, tuple | list):
            first = tuple(v[0] if isinstance(v, np.ndarray) and len(v) == 1 else v for v in outcome.value)
            return replace(outcome, value=first)
        return outcome

    def pair(self, Q: Array, K: Array, V: Array, **named: Array | float) -> tuple[Array, Array] | None:
        """Output and weights."""
        output, weights = (*Q.shape[:-1], V.shape[-1]), (*Q.shape[:-1], K.shape[-2])
        outcome = self.ask(Q, K, V, **named)
        if self.gives == "pair":
            return pair(outcome, output, weights)
        if self.gives == "swapped":
            found = pair(outcome, weights, output)
            return None if found is None else (found[1], found[0])
        eye = np.broadcast_to(np.eye(K.shape[-2]), (*K.shape[:-1], K.shape[-2])).copy()
        mean, own = array(outcome, output), array(self.ask(Q, K, eye, **named), weights)
        return None if mean is None or own is None else (mean, own)

    def factor(self, sizes: Sizes, seed: int) -> float | None:
        """What it multiplies the scores by."""
        Q, K, V = self.problem(seed=seed, **sizes)
        found = self.pair(Q, K, V)
        return None if found is None else slope(found[1], self.scores(Q, K))

    def weigh(self, scores: Array) -> Outcome:
        """The weights of these scores (n, m), which are its queries, with the axes as keys."""
        n, m = scores.shape
        table = np.resize(scores, (m, m)) if self.takes == "square" and n < m else scores
        factor = self.factor({"n": len(table), "m": m, "d_k": m, "d_v": 2}, 7)
        if not factor or not math.isfinite(factor):
            return Outcome("missing")
        found = self.pair(table / factor, np.eye(m), np.ones((m, 1)))
        return Outcome("missing") if found is None else Outcome("value", value=found[1][:n])


def attention_of(subject: Asking) -> tuple[Attention, Outcome] | None:
    """The form in which attention answers two-dimensional arrays, and what came of the plainest call."""
    plain = Attention(subject)
    outcome = plain.ask(*plain.problem())
    if outcome.kind == "missing" or outcome.type.endswith("NotImplementedError"):
        return None
    for attention in (
        plain,
        replace(plain, gives="swapped"),
        replace(plain, gives="output"),
        replace(plain, takes="unturned"),
        replace(plain, takes="square"),
        replace(plain, batched=True),
    ):
        Q, K, V = attention.problem()
        found = attention.pair(Q, K, V)
        if found is None:
            continue
        follows = slope(found[1], attention.scores(Q, K)) is not None
        if attention.takes == "any" or follows:
            return attention, outcome
    return None
