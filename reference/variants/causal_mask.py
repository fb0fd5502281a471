"""causal_mask(n_queries, n_keys): where the diagonal lies, and which side of it is True."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants.space import Answer, Option, Probe, Space, Variant, attempt, decision

SPACE: Space = (
    decision(
        "True",
        Option("where hidden", "causal-mask-inverted"),
        Option("on and above the diagonal", "causal-mask-inverted"),
        Option("everywhere", "causal-mask-lookahead"),
    ),
    decision("aligned to", Option("the first positions", "causal-mask-upper-left")),
    decision(
        "diagonal",
        Option("one to the left", "causal-mask-strict"),
        Option("two to the left", "causal-mask-strict", common=False),
        Option("one to the right", "causal-mask-lookahead"),
        Option("two to the right", "causal-mask-lookahead", common=False),
    ),
    decision(
        "shape",
        Option("n_keys ignored", "wrong-shape"),
        Option("keys by queries", "wrong-shape"),
        Option("an axis more", "wrong-shape", common=False),
    ),
    decision(
        "entries",
        Option("numbers", "wrong-dtype"),
        Option("0 and -inf", "wrong-dtype"),
        Option("0 and -1e9", "wrong-dtype"),
    ),
)
SHIFTS = {"one to the left": -1, "two to the left": -2, "one to the right": 1, "two to the right": 2}


def predict(v: Variant, probe: Probe) -> Answer:
    """What `causal_mask` of the variant answers."""
    return attempt(_causal_mask, v, *probe.args, **probe.kwargs)


def _causal_mask(v: Variant, n_queries: int, n_keys: int | None = None) -> NDArray[Any]:
    n_keys = n_queries if n_keys is None else n_keys
    shape = v.pick("shape")
    if shape == "n_keys ignored":
        n_keys = n_queries
    mask = _table(v, n_queries, n_keys)
    if shape == "keys by queries" and n_keys != n_queries:
        mask = _table(v, n_keys, n_queries)
    elif shape == "an axis more":
        mask = mask[None]
    entries = v.pick("entries")
    if entries == "numbers":
        return mask.astype(float)
    if entries != "right":
        return np.where(mask, 0.0, -np.inf if entries == "0 and -inf" else -1e9)
    return mask


def _table(v: Variant, n_queries: int, n_keys: int) -> NDArray[np.bool_]:
    # with a diagonal at k, query i sees the keys j <= i + k
    k = n_keys - n_queries
    if k and v.pick("aligned to") == "the first positions":
        k = 0
    k += SHIFTS.get(v.pick("diagonal"), 0)
    side = v.pick("True")
    if side == "everywhere":
        return np.ones((n_queries, n_keys), bool)
    if side == "on and above the diagonal":
        return np.triu(np.ones((n_queries, n_keys), bool), k)
    lower = np.tri(n_queries, n_keys, k, dtype=bool)
    return ~lower if side == "where hidden" else lower


def probes(seed: int) -> tuple[Probe, ...]:
    """Square tables, and more keys than queries. All the same for every seed: sizes alone cannot be drawn better."""
    del seed

    def probe(name: str, *args: Any, **kwargs: Any) -> Probe:
        return Probe(name, "attention.causal_mask", args, kwargs)

    return (
        probe("four queries", 4),
        probe("three queries, six keys", 3, n_keys=6),
        probe("five queries, five keys", 5, n_keys=5),
        probe("one query", 1),
        probe("one query, five keys", 1, n_keys=5),
        probe("four queries, five keys", 4, n_keys=5),
    )


PROBES = probes(0)
