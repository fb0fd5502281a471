"""scaled_dot_product_attention(Q, K, V, mask, scale): the whole space of `attention`, seen through one call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants import attention
from reference.variants.attention import (
    attend,
    constant_scale,
    ladder_fill,
    plausible_fills,
    scale_of,
    table_fill,
    table_of,
    weights_of,
)
from reference.variants.softmax import number
from reference.variants.space import Answer, Probe, Space, Variant, attempt, narrowed

Array = NDArray[Any]

SPACE: Space = attention.SPACE
GIVEN_UP = attention.GIVEN_UP
group = attention.group


def seen(observations: Mapping[str, Answer]) -> dict[str, frozenset[str]]:
    """What shows in the answers without a search."""
    plain = [p for p in PROBES if group(p) in ("tables", "batches")]
    return attention.seen((observations.get(p.name), p.args[2]) for p in plain)


def predict(v: Variant, probe: Probe) -> Answer:
    """What `scaled_dot_product_attention` of the variant answers."""
    return narrowed(v, attempt(attend, v, *probe.args, **probe.kwargs, part=probe.part))


def _weights(v: Variant, probe: Probe) -> Any:
    return weights_of(v, predict(v, probe))


def read(v: Variant, decision: str, observations: Mapping[str, Answer]) -> tuple[float, ...]:
    """The fill of a mask, the epsilon of the row sums, their base, or the scale."""
    named = {probe.name: probe for probe in PROBES}
    if decision != "mask":
        for name in ("unequal sizes", "as many keys as queries", "as many keys as key width"):
            seen = weights_of(v, observations.get(name))
            by = partial(_weights, probe=named[name])
            found = constant_scale(v, seen, by) if decision == "default scale" else number(v, decision, seen, by)
            if found:
                return found
        return ()
    fills: list[float | None] = []
    Q, K, V = named["ladder of scores"].args
    weights = table_of(
        observations.get("ladder of scores"), (len(Q), 2)
    )  # V is the identity: the output shows the weights too
    if weights is not None:
        hidden = 1 if v.pick("polarity") == "right" else 0
        fills.append(ladder_fill(v, Q @ K.T, scale_of(v, Q, K, V, None, None), weights, hidden))
    square = named["square, masked"]
    weights = table_of(observations.get(square.name), square.kwargs["mask"].shape)
    if weights is not None:
        option = v["mask"]
        at = [table_of(predict(v.but("mask", option.at(fill)), square), weights.shape) for fill in (-30.0, -40.0)]
        if at[0] is not None and at[1] is not None:
            fills.append(table_fill(weights, at[0], at[1]))
    return plausible_fills(v.pick("mask"), fills)


def random_mask(rng: np.random.Generator, *shape: int) -> Array:
    """A mask (..., n, m) that shows and hides something in every row and every column, and is not its own transpose."""
    while True:
        before = rng.bit_generator.state
        masks = rng.random((MASKS, *shape)) < 0.5
        lines = [masks.any(-1), ~masks.all(-1)]
        if shape[-2] > 1:
            lines += [masks.any(-2), ~masks.all(-2)]
        tells = np.logical_and.reduce([line.reshape(MASKS, -1).all(1) for line in lines])
        if shape[-1] == shape[-2]:
            tells &= (masks != np.swapaxes(masks, -1, -2)).reshape(MASKS, -1).any(1)
        if tells.any():
            first = int(tells.argmax())
            rng.bit_generator.state = before  # as though they had been drawn one by one up to the first that will do
            rng.random((first + 1, *shape))
            return np.array(masks[first])


MASKS = 512  # drawn at once


def probes(seed: int) -> tuple[Probe, ...]:
    """Calls that tell the options apart: what computes for every option first, what fails for most last.

    Sizes are equal where a wrong shape must not fail and unequal where it must. Large scores stand in a table T with K
    the identity, so that Q K^T is T. Masked scores stay inside what the contract guarantees: every right way of hiding
    one is right here.
    """
    rng = np.random.default_rng(seed)

    def probe(name: str, *args: Array, size: float = 1.0, **kwargs: Any) -> Probe:
        return Probe(
            name, "attention.scaled_dot_product_attention", args, kwargs, size, zeros="mask" in kwargs, parts=(1, 0)
        )

    def normal(*batch: int, n: int, m: int, d_k: int, d_v: int) -> tuple[Array, Array, Array]:
        sizes = ((n, d_k), (m, d_k), (m, d_v))
        Q, K, V = (rng.standard_normal((*batch, *size)) for size in sizes)
        return Q, K, V

    def table(scores: Array) -> tuple[Array, Array, Array]:
        m = scores.shape[-1]
        keys = np.broadcast_to(np.eye(m), (*scores.shape[:-2], m, m)).copy()
        return scores, keys, rng.standard_normal((*scores.shape[:-2], m, 2))

    def mask(*shape: int) -> Array:
        return random_mask(rng, *shape)

    equal = {"n": 3, "m": 3, "d_k": 3, "d_v": 3}
    unequal = {"n": 4, "m": 5, "d_k": 7, "d_v": 3}
    small = rng.standard_normal((3, 4))
    far = small + np.array([[1500.0], [-1500.0], [0.0]])
    above = small + np.array([[0.0, 2500.0, 0.0, 0.0]])
    items = np.stack([small, small[::-1]]) + np.array([1500.0, -1500.0])[:, None, None]
    hiding = mask(3, 4)
    # one score a row, from 0 down to -1e6: wherever a fill lies, some row is near enough to show it
    steps = -np.linspace(0.0, 1e6, 900)[:, None]
    one_hidden = np.array([[True, False]])

    return (
        probe("square", *normal(**equal), scale=0.8),
        probe("as many keys as queries", *normal(n=4, m=4, d_k=6, d_v=3)),
        probe("as many keys as key width", *normal(n=4, m=5, d_k=5, d_v=3)),
        probe("unequal sizes", *normal(**unequal)),
        probe("square, masked", *normal(n=5, m=5, d_k=7, d_v=5)[:2], np.eye(5), mask=mask(5, 5)),
        probe("equal widths, masked", *normal(n=5, m=5, d_k=7, d_v=7), mask=mask(5, 5)),
        probe("as many keys as key width, masked", *normal(n=4, m=5, d_k=5, d_v=3), mask=mask(4, 5)),
        probe("square of one size, masked", *normal(n=5, m=5, d_k=5, d_v=5), mask=mask(5, 5)),
        probe("unequal sizes, masked", *normal(**unequal), mask=mask(4, 5)),
        probe("cube", *normal(3, **equal), scale=0.8),
        probe("batch", *normal(6, **unequal)),
        probe("batch of one item", *normal(1, **unequal)),
        probe("unequal sizes, masked and scaled", *normal(**unequal), mask=mask(4, 5), scale=0.6),
        probe("cube, a mask an item", *normal(3, **equal), mask=mask(3, 3, 3), scale=0.8),
        probe("cube, one mask", *normal(3, **equal), mask=mask(3, 3), scale=0.8),
        probe("batch, a mask an item", *normal(6, **unequal), mask=mask(6, 4, 5)),
        probe("batch, one mask", *normal(6, **unequal), mask=mask(4, 5)),
        probe("one row of a mask", *normal(**unequal), mask=mask(1, 5)),
        probe("a mask of one axis", *normal(**unequal), mask=mask(1, 5)[0]),
        probe("batch, one row of a mask", *normal(6, **unequal), mask=mask(6, 1, 5)),
        probe("two batch axes", *normal(2, 6, **unequal)),
        probe("two batch axes, a mask each", *normal(2, 6, **unequal), mask=mask(2, 6, 4, 5)),
        probe("two batch axes, masks to broadcast", *normal(2, 6, **unequal), mask=mask(2, 1, 4, 5)),
        probe("hypercube", *normal(3, 3, **equal), scale=0.8),
        probe("one query", *normal(n=1, m=4, d_k=5, d_v=2)),
        probe("one key", *normal(n=3, m=1, d_k=5, d_v=2)),
        probe("one key, masked", *normal(n=3, m=1, d_k=5, d_v=2), mask=np.array([[True]])),
        probe("all scores high", *table(small + 5000.0), scale=1.0, size=5e3),
        probe("all scores low", *table(small - 3000.0), scale=1.0, size=5e3),
        probe("rows far apart", *table(far), scale=1.0, size=5e3),
        probe("items far apart", *table(items), scale=1.0, size=5e3),
        probe("one score far above", *table(above), scale=1.0, size=5e3),
        probe("hidden scores above", *table(small + 45.0 * ~hiding), scale=1.0, size=50.0, mask=hiding),
        probe("ladder of scores", steps, np.ones((2, 1)), np.eye(2), size=1e6, mask=one_hidden.repeat(900, 0)),
        probe(
            "ladder of halved scores",
            steps * np.full(4, 0.5),
            np.ones((2, 4)),
            np.eye(2),
            size=1e6,
            mask=one_hidden.repeat(900, 0),
        ),
    )


PROBES = probes(0)
