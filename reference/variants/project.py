"""project(X, W_Q, W_K, W_V): which matrix makes what, and whether it is transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants import attention
from reference.variants.attention import PROJECTION
from reference.variants.space import Answer, Option, Probe, Space, Variant, attempt, decision

Array = NDArray[Any]

SPACE: Space = (
    *PROJECTION,
    decision(
        "matrices",
        Option("W_Q and W_K exchanged", "scores-transposed"),
        Option("W_K and W_V exchanged", "values-swapped"),
        Option("W_Q and W_V exchanged", "values-swapped"),
        Option("W_K for the values too", "values-swapped"),
        Option("W_Q for the values too", "values-swapped", common=False),
        Option("none for the values", "values-unprojected"),
    ),
    decision(
        "batch", Option("fails", "batch-unsupported"), Option("first item alone", "batch-unsupported", common=False)
    ),
)


def predict(v: Variant, probe: Probe) -> Answer:
    """What `project` of the variant answers."""
    return attempt(_project, v, *probe.args)


def _project(v: Variant, X: Array, W_Q: Array, W_K: Array, W_V: Array) -> tuple[Array, Array, Array]:
    if X.ndim > 2:
        batch = v.pick("batch")
        if batch == "fails":
            raise ValueError("two axes alone")
        X = X if batch == "right" else X[0]
    matrices = v.pick("matrices")
    if matrices == "W_Q and W_K exchanged":
        W_Q, W_K = W_K, W_Q
    elif matrices == "W_K and W_V exchanged":
        W_K, W_V = W_V, W_K
    elif matrices == "W_Q and W_V exchanged":
        W_Q, W_V = W_V, W_Q
    elif matrices == "W_K for the values too":
        W_V = W_K
    elif matrices == "W_Q for the values too":
        W_V = W_Q
    Q, K, V = attention.project(v, X, W_Q, W_K, W_V)
    return Q, K, X if matrices == "none for the values" else V


def probes(seed: int) -> tuple[Probe, ...]:
    """Square matrices, where a transposed one does not fail, and unequal ones, with up to two batch axes."""
    rng = np.random.default_rng(seed)

    def probe(name: str, X: tuple[int, ...], d_k: int, d_v: int) -> Probe:
        d = X[-1]
        shapes = (X, (d, d_k), (d, d_k), (d, d_v))
        return Probe(name, "attention.project", tuple(rng.standard_normal(shape) for shape in shapes))

    return (
        probe("square", (3, 3), 3, 3),
        probe("unequal sizes", (4, 5), 3, 2),
        probe("batch", (2, 4, 5), 3, 2),
        probe("square, batch", (3, 3, 3), 3, 3),
        probe("two batch axes", (2, 3, 4, 5), 6, 2),
    )


PROBES = probes(0)
