"""sinusoidal_positions(n, d): the order of the columns, the first position, and the exponent of the frequency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants.space import Answer, Option, Probe, Space, Variant, attempt, decision

Array = NDArray[Any]

# pos / 10000^exponent, with i the number of the pair, c that of the column
EXPONENTS = (
    "i/d",
    "4i/d",
    "c/d",
    "2c/d",
    "2(i+1)/d",
    "(2i+1)/d",
    "2i/(d-1)",
    "2i/(d-2)",
    "-2i/d",
    "0",
)

SPACE: Space = (
    decision("columns", Option("sines first, then cosines", "positions-halves")),
    decision("even columns", Option("cosine", "positions-sin-cos-swapped")),
    decision("first position", Option("1", "positions-from-one")),
    decision("exponent", *(Option(name, "positions-wrong-frequency") for name in EXPONENTS)),
    decision("base", Option("another", "positions-wrong-frequency", examples=(1000.0, 500000.0))),
)


def predict(v: Variant, probe: Probe) -> Answer:
    """What `sinusoidal_positions` of the variant answers."""
    return attempt(_positions, v, *probe.args, **probe.kwargs)


def _positions(v: Variant, n: int, d: int) -> Array:
    base = 10000.0 if v.pick("base") == "right" else v.value("base")
    pos = np.arange(n)[:, None] + (0 if v.pick("first position") == "right" else 1)
    sines, cosines = (np.arange(d // 2), np.arange(d // 2, d)) if v.pick("columns") != "right" else _interleaved(d)
    if v.pick("even columns") == "cosine":
        sines, cosines = cosines, sines
    table = np.empty((n, d))
    for wave, columns in ((np.sin, sines), (np.cos, cosines)):
        table[:, columns] = wave(pos / base ** _exponent(v.pick("exponent"), np.arange(d // 2), columns, d))
    return table


def _interleaved(d: int) -> tuple[Array, Array]:
    return np.arange(0, d, 2), np.arange(1, d, 2)


def _exponent(name: str, i: Array, c: Array, d: int) -> Array:
    exponents: dict[str, Array] = {
        "right": 2 * i / d,
        "i/d": i / d,
        "4i/d": 4 * i / d,
        "c/d": c / d,
        "2c/d": 2 * c / d,
        "2(i+1)/d": 2 * (i + 1) / d,
        "(2i+1)/d": (2 * i + 1) / d,
        "2i/(d-1)": 2 * i / (d - 1),
        "2i/(d-2)": 2 * i / max(d - 2, 1),
        "-2i/d": -2 * i / d,
        "0": 0.0 * i,
    }
    return exponents[name]


def read(v: Variant, decision: str, observations: Mapping[str, Answer]) -> tuple[float, ...]:
    """The base, from the second pair of four columns at position 1: sin(1 / base^(1/2)), if the rest is right."""
    del decision
    seen = observations.get("two positions, four columns")
    if not (isinstance(seen, tuple) and isinstance(seen[0], np.ndarray) and seen[0].shape == (2, 4)):
        return ()
    row = seen[0][0 if v.pick("first position") != "right" else 1]
    pair = (row[1], row[3]) if v.pick("columns") != "right" else (row[2], row[3])
    sine, cosine = pair[::-1] if v.pick("even columns") == "cosine" else pair
    angle = float(np.arctan2(sine, cosine))
    exponents = _exponent(v.pick("exponent"), np.arange(2), np.array([0, 2]), 4)
    if angle <= 0 or exponents[1] == 0:
        return ()
    raw = angle ** (-1 / float(exponents[1]))
    return tuple(
        dict.fromkeys(base for base in (float(f"{raw:.6g}"), raw) if np.isfinite(base) and abs(base - 10000) > 1e-3)
    )


def probes(seed: int) -> tuple[Probe, ...]:
    """Several widths, so that one power of the base is not taken for another. The same for every seed."""
    del seed

    def probe(name: str, n: int, d: int) -> Probe:
        return Probe(name, "attention.sinusoidal_positions", (n, d), size=30.0)

    return (
        probe("two positions, four columns", 2, 4),
        probe("nine positions, six columns", 9, 6),
        probe("five positions, two columns", 5, 2),
        probe("one position, eight columns", 1, 8),
        probe("seven positions, sixteen columns", 7, 16),
    )


PROBES = probes(0)
