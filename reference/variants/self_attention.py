"""self_attention(X, W_Q, W_K, W_V, mask): what projects, beside every decision of the attention that follows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants import attention
from reference.variants.attention import (
    DEFAULT_SCALE,
    PROJECTION,
    VALUES,
    attend,
    constant_scale,
    ladder_fill,
    plausible_fills,
    project,
    scale_of,
    table_fill,
    table_of,
    weights_of,
)
from reference.variants.sdpa import random_mask
from reference.variants.softmax import number
from reference.variants.space import Answer, Decision, Option, Probe, Space, Variant, attempt, narrowed

Array = NDArray[Any]

WIDTHS = Decision(DEFAULT_SCALE.name, (*DEFAULT_SCALE.options, Option("1/sqrt(d_model)", "scale-by-wrong-width")))
AVERAGED = Decision(VALUES.name, (*VALUES.options, Option("X", "values-unprojected")))
SPACE: Space = (
    *PROJECTION,
    *(
        {WIDTHS.name: WIDTHS, AVERAGED.name: AVERAGED}.get(d.name, d)
        for d in attention.SPACE
        if d.name not in ("scale given", "sizes")
    ),
)
GIVEN_UP = attention.GIVEN_UP
group = attention.group


def seen(observations: Mapping[str, Answer]) -> dict[str, frozenset[str]]:
    """What shows in the answers without a search."""
    plain = [p for p in PROBES if group(p) in ("tables", "batches")]
    return attention.seen((observations.get(p.name), p.args[0] @ p.args[3]) for p in plain)


def predict(v: Variant, probe: Probe) -> Answer:
    """What `self_attention` of the variant answers."""
    return narrowed(v, attempt(_self_attention, v, *probe.args, **probe.kwargs, part=probe.part))


def _weights(v: Variant, probe: Probe) -> Any:
    return weights_of(v, predict(v, probe))


def _self_attention(
    v: Variant, X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Array | None = None, part: int | None = None
) -> Any:
    Q, K, V = project(v, X, W_Q, W_K, W_V)
    return attend(v, Q, K, V, mask, X=X, part=part)


def read(v: Variant, decision: str, observations: Mapping[str, Answer]) -> tuple[float, ...]:
    """The fill of a mask, the epsilon of the row sums, their base, or the scale."""
    named = {probe.name: probe for probe in PROBES}
    if decision != "mask":
        for name in ("unequal sizes", "equal widths", "cube"):
            seen = weights_of(v, observations.get(name))
            by = partial(_weights, probe=named[name])
            found = constant_scale(v, seen, by) if decision == "default scale" else number(v, decision, seen, by)
            if found:
                return found
        return ()
    fills: list[float | None] = []
    X, W_Q, W_K, W_V = named["steps of scores"].args
    weights = table_of(observations.get("steps of scores"), (len(X), len(X)))
    if weights is not None:
        Q, K, V = X @ W_Q, X @ W_K, X @ W_V
        hidden = 1 if v.pick("polarity") == "right" else 0
        scale = scale_of(v, Q, K, V, None, X)
        fills.append(ladder_fill(v, (Q @ K.T)[:, :2], scale, weights[:, :2], hidden))
    masked = named["equal widths, masked"]
    weights = table_of(observations.get(masked.name), masked.kwargs["mask"].shape)
    if weights is not None:
        option = v["mask"]
        at = [table_of(predict(v.but("mask", option.at(fill)), masked), weights.shape) for fill in (-30.0, -40.0)]
        if at[0] is not None and at[1] is not None:
            fills.append(table_fill(weights, at[0], at[1]))
    return plausible_fills(v.pick("mask"), fills)


# Scores near the fills that are usually typed, and far enough from each other.
USUAL = (0.0, -500.0, -1e3, -2e3, -3e3, -5e3, -1e4, -2e4, -32768.0, -5e4, -65504.0, -1e5, -2e5, -5e5, -1e6)


def probes(seed: int) -> tuple[Probe, ...]:
    """As for `sdpa`, with n keys for n queries. Large scores stand in a table T: X and W_K are the identity, Q K^T is T."""
    rng = np.random.default_rng(seed)

    def probe(name: str, *args: Array, size: float = 1.0, **kwargs: Any) -> Probe:
        return Probe(name, "attention.self_attention", args, kwargs, size, zeros="mask" in kwargs, parts=(1, 0))

    def normal(*batch: int, n: int, d: int, d_k: int, d_v: int) -> tuple[Array, ...]:
        # unit-variance queries and keys whatever d
        weights = (rng.standard_normal((d, width)) / d**0.5 for width in (d_k, d_k, d_v))
        return rng.standard_normal((*batch, n, d)), *weights

    def table(scores: Array) -> tuple[Array, ...]:
        n = len(scores)
        return np.eye(n), scores * n**0.5, np.eye(n), rng.standard_normal((n, 2))

    def mask(*shape: int) -> Array:
        return random_mask(rng, *shape)

    equal = {"n": 3, "d": 3, "d_k": 3, "d_v": 3}
    unequal = {"n": 5, "d": 6, "d_k": 7, "d_v": 3}
    widths = {"n": 5, "d": 6, "d_k": 6, "d_v": 6}
    small = rng.standard_normal((4, 4))
    far = small + np.array([[1500.0], [-1500.0], [0.0], [0.0]])
    above = small + np.array([[0.0, 2500.0, 0.0, 0.0]])
    hiding = mask(4, 4)
    rows = np.array(USUAL)[:, None]
    n = len(rows)
    first_alone = np.zeros((n, n), bool)
    first_alone[:, 0] = True

    return (
        probe("equal widths", *normal(**widths)),
        probe("as many tokens as key width", *normal(n=5, d=6, d_k=5, d_v=3)),
        probe("unequal sizes", *normal(**unequal)),
        probe("as many tokens as key width, masked", *normal(n=5, d=6, d_k=5, d_v=3), mask=mask(5, 5)),
        probe("square", *normal(**equal)),
        probe("unequal sizes, masked", *normal(**unequal), mask=mask(5, 5)),
        probe("equal widths, masked", *normal(**widths), mask=mask(5, 5)),
        probe("cube", *normal(3, **equal)),
        probe("batch", *normal(4, **unequal)),
        probe("batch of one item", *normal(1, **unequal)),
        probe("cube, a mask an item", *normal(3, **equal), mask=mask(3, 3, 3)),
        probe("cube, one mask", *normal(3, **equal), mask=mask(3, 3)),
        probe("batch, a mask an item", *normal(4, **unequal), mask=mask(4, 5, 5)),
        probe("batch, one mask", *normal(4, **unequal), mask=mask(5, 5)),
        probe("one row of a mask", *normal(**unequal), mask=mask(1, 5)),
        probe("a mask of one axis", *normal(**unequal), mask=mask(1, 5)[0]),
        probe("batch, one row of a mask", *normal(4, **unequal), mask=mask(4, 1, 5)),
        probe("two batch axes", *normal(2, 4, **unequal)),
        probe("two batch axes, masks to broadcast", *normal(2, 4, **unequal), mask=mask(2, 1, 5, 5)),
        probe("two batch axes, a mask each", *normal(2, 4, **unequal), mask=mask(2, 4, 5, 5)),
        probe("hypercube", *normal(3, 3, **equal)),
        probe("one token", *normal(n=1, d=4, d_k=5, d_v=2)),
        probe("one token, masked", *normal(n=1, d=4, d_k=5, d_v=2), mask=np.array([[True]])),
        probe("all scores high", *table(small + 5000.0), size=5e3),
        probe("all scores low", *table(small - 3000.0), size=5e3),
        probe("rows far apart", *table(far), size=5e3),
        probe("one score far above", *table(above), size=5e3),
        probe("hidden scores above", *table(small + 45.0 * ~hiding), size=50.0, mask=hiding),
        probe("steps of scores", np.eye(n), rows, np.ones((n, 1)), np.eye(n), size=1e6, mask=first_alone),
        probe(
            "steps of halved scores",
            np.eye(n),
            rows * np.full(4, 0.25),
            np.ones((n, 4)),
            np.eye(n),
            size=1e6,
            mask=first_alone,
        ),
    )


PROBES = probes(0)
