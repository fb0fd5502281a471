"""sinusoidal_positions(n, d): the order of the columns, the first position, and the frequency of each column.

Some rules for the frequencies are known by name; any other is read off the row of position 1, and confirmed on the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.variants.space import NARROW, Answer, Option, Probe, Space, Variant, attempt, decision, narrowed

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
    decision(
        "frequency",
        *(Option(name, "positions-wrong-frequency") for name in EXPONENTS),
        Option("another base", "positions-wrong-frequency", examples=(1000.0, 500000.0)),
        Option("another rule", "positions-wrong-frequency", common=False, examples=(((4, (1.0, 1.0, 0.3, 0.2)),),)),
    ),
    # no code says this
    decision("row of position 0", Option("zeros", "unrecognised", common=False)),
    NARROW,
)


def predict(v: Variant, probe: Probe) -> Answer:
    """What `sinusoidal_positions` of the variant answers."""
    return narrowed(v, attempt(_positions, v, *probe.args, **probe.kwargs))


def _positions(v: Variant, n: int, d: int) -> Array:
    pos = np.arange(n)[:, None] + (0 if v.pick("first position") == "right" else 1)
    sines, cosines = _columns(v, d)
    table = np.empty((n, d))
    for wave, columns in ((np.sin, sines), (np.cos, cosines)):
        table[:, columns] = wave(pos * _frequencies(v, columns, d))
    if v.pick("row of position 0") != "right":
        table[pos[:, 0] == 0] = 0.0
    return table


def _columns(v: Variant, d: int) -> tuple[Array, Array]:
    """The columns of the sines and those of the cosines, by number of their pair."""
    halves = (np.arange(d // 2), np.arange(d // 2, d))
    sines, cosines = halves if v.pick("columns") != "right" else (np.arange(0, d, 2), np.arange(1, d, 2))
    return (cosines, sines) if v.pick("even columns") == "cosine" else (sines, cosines)


def _frequencies(v: Variant, columns: Array, d: int) -> Array:
    """The frequencies of the sines, or of the cosines."""
    rule = v.pick("frequency")
    if rule == "another rule":
        read_off = dict(v.value("frequency"))
        if d in read_off:
            return np.array(read_off[d])[columns]
        rule = "right"  # nothing was read off that width
    i, c = np.arange(len(columns)), columns
    if rule == "another base":
        return v.value("frequency") ** (-2.0 * i / d)  # type: ignore[no-any-return]
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
    frequencies: Array = 10000.0 ** -exponents[rule]
    return frequencies


def read(v: Variant, decision: str, observations: Mapping[str, Answer]) -> tuple[Any, ...]:
    """The base, or every frequency, as they show in the row of position 1."""
    del decision
    rows: dict[int, tuple[float, ...]] = {}
    for probe in PROBES:
        seen, (n, d) = observations.get(probe.name), probe.args
        if n > 2 or d == 4:
            if not (isinstance(seen, tuple) and isinstance(seen[0], np.ndarray) and seen[0].shape == (n, d)):
                return ()
            table = seen[0].astype(float)
            table = table if v.pick("first position") == "right" else np.vstack([table[:1], table])
            if not (np.abs(table) <= 1).all():
                return ()
            rows[d] = _read_off(table, *_columns(v, d))
    if v.pick("frequency") == "another rule":
        return (tuple(rows.items()),)
    raw = rows[4][2] ** -2 if rows[4][2] > 0 else 0.0
    return tuple(base for base in (float(f"{raw:.6g}"), raw) if raw and abs(base - 10000) > 1e-3)


def _read_off(table: Array, sines: Array, cosines: Array) -> tuple[float, ...]:
    """The frequency of each column, of those that give row 1 the one that gives row 2 too."""
    found = np.zeros(table.shape[1])
    found[cosines] = np.arccos(table[1, cosines])
    low = np.arcsin(table[1, sines])
    if len(table) > 2:
        high = np.pi - low
        nearer = np.abs(np.sin(2 * high) - table[2, sines]) < np.abs(np.sin(2 * low) - table[2, sines])
        low = np.where(nearer, high, low)
    found[sines] = low
    return tuple(float(f) for f in found)


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
