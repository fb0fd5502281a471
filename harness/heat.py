"""What a submission's attention looks at, as heat maps on a terminal: a row a query, a column a key.

On the chapter's sentence, and under the causal mask. Nothing is compared: the numbers are the submission's own, and beside
a row that does not sum to 1 stands what it sums to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.attend import CAUSAL, SELF
from harness.checks.step2_chapter import TOKENS, W_K, W_Q, W_V, E
from harness.local import Held
from harness.values import Array

STEPS = {1, 2, 7}
_COLD, _HOT = (238, 240, 245), (21, 79, 160)


def pictures(subject: Held) -> Iterator[RenderableType]:
    """The maps that there are: none for a function that is not written or gives no table of weights."""
    plain = _weights(subject, None)
    if plain is not None:
        yield _titled("What your attention looks at, on the chapter's sentence", plain)
    with subject.held():
        mask = subject.call(CAUSAL, len(TOKENS))
    if mask.ok and isinstance(mask.value, np.ndarray) and mask.value.shape == (len(TOKENS),) * 2:
        masked = _weights(subject, mask.value)
        if masked is not None:
            yield _titled("The same, under causal_mask", masked)


def _weights(subject: Held, mask: Array | None) -> Array | None:
    """The submission's weights (n, n) of the chapter's sentence, where it gives such a table."""
    named = {} if mask is None else {"mask": mask}
    with subject.held(), np.errstate(all="ignore"):
        outcome = subject.call(SELF, E, W_Q, W_K, W_V, **named)
    value = outcome.value
    if not outcome.ok or not isinstance(value, tuple | list) or len(value) != 2:
        return None
    weights = value[1]
    good = isinstance(weights, np.ndarray) and weights.shape == (len(TOKENS),) * 2 and weights.dtype.kind == "f"
    return weights.astype(np.float64) if good else None


def _titled(title: str, weights: Array) -> RenderableType:
    return Group(Text(""), Text(title, "bold"), heat_map(weights, TOKENS))


def heat_map(weights: Array, tokens: tuple[str, ...]) -> Table:
    """Weights (n, n) as a grid of shaded cells; plain numbers where the terminal has no colours."""
    table = Table.grid(padding=0)
    for _ in range(len(tokens) + 2):
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(Text(f" {token:^6} ", "dim") for token in tokens), "")
    for token, row in zip(tokens, weights, strict=True):
        cells = [Text(f" {number:6.3f} ", _shade(float(number))) for number in row]
        total = float(row.sum())
        beside = "" if abs(total - 1) < 1e-6 else f"  sums to {total:.3f}"
        table.add_row(Text(f"  {token} ", "dim"), *cells, Text(beside, "red"))
    return table


def _shade(weight: float) -> str:
    """A cell's style: from pale for 0 to deep for 1."""
    if not np.isfinite(weight):
        return "bold red"
    part = min(max(weight, 0.0), 1.0)
    mixed = tuple(round(c + (h - c) * part) for c, h in zip(_COLD, _HOT, strict=True))
    ink = "white" if part > 0.45 else "black"
    return f"{ink} on rgb({mixed[0]},{mixed[1]},{mixed[2]})"
