"""Step 2: the worked head of chapter section 7.2, and the sinusoids of 7.4, to the four decimals that they print."""

from __future__ import annotations

from functools import partial

import numpy as np

from harness.attend import POSITIONS, PROJECT, SDPA, SELF, SOFTMAX, self_attend, self_output, weigh
from harness.check import check
from harness.expect import Asked, ask
from harness.rounding import negligible
from harness.subject import Subject
from harness.values import Array

# kedi, sütü, içti; columns: animate, liquid, action, always-on
E = np.array([[0.9, 0.1, 0.0, 0.5], [0.1, 0.9, 0.0, 0.5], [0.0, 0.1, 0.9, 0.5]])
W_Q = np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [0.0, 0.0]])
W_K = np.array([[1.5, 0.0], [0.0, 1.5], [0.0, 0.0], [0.0, 0.0]])
W_V = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.2, 0.2]])

Q = np.array([[1.80, 0.20], [0.20, 1.80], [1.80, 2.00]])
K = np.array([[1.35, 0.15], [0.15, 1.35], [0.00, 0.15]])
V = np.array([[1.00, 0.20], [0.20, 1.00], [0.10, 0.20]])
SCORES = np.array([[2.46, 0.54, 0.03], [0.54, 2.46, 0.27], [2.73, 2.97, 0.30]])
WEIGHTS = np.array([[0.6961, 0.1791, 0.1249], [0.1750, 0.6804, 0.1446], [0.4230, 0.5012, 0.0759]])
OUTPUTS = np.array([[0.7444, 0.3433], [0.3256, 0.7443], [0.5308, 0.6009]])

POSITIONS_AT_4 = np.array([[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 1.0], [0.9093, -0.4161, 0.0200, 0.9998]])

TOKENS = ("kedi", "sütü", "içti")
TRANSPOSE_OR_AXIS = ("scores-transposed", "softmax-wrong-axis", "weights-transposed", "scale-missing")

by_self_attention = partial(check, functions=SELF, families="self_attention", about=TRANSPOSE_OR_AXIS, public=True)


def as_printed(asked: Asked, what: str, got: Array, printed: Array, decimals: int = 4) -> None:
    """Raises Fail where a number does not round to the printed one."""
    for token, row, wanted in zip(TOKENS, got, printed, strict=True):
        if np.abs(row - wanted).max() > 0.5 * 10.0**-decimals + negligible("float64", 1, 3):
            raise asked.fail(f"{token}'s {what} come out {_row(row, decimals)}", _row(wanted, decimals), got=got)


def _row(numbers: Array, decimals: int) -> str:
    return "[" + ", ".join(f"{x:.{decimals}f}" for x in numbers) + "]"


@check(
    "step2.projections",
    functions=PROJECT,
    families="project",
    public=True,
    about=("projection-transposed", "values-swapped"),
)
def the_projections_are_the_chapters(subject: Subject) -> None:
    """The queries, keys and values of kedi, sütü and içti come out as in the chapter."""
    asked = ask(subject, PROJECT, E, W_Q, W_K, W_V)
    for name, got, printed in zip("QKV", asked.arrays(("Q", "K", "V"), ((3, 2),) * 3), (Q, K, V), strict=True):
        as_printed(asked, f"{name} entries", got, printed, 2)


@check("step2.softmax", functions=SOFTMAX, families="softmax", public=True, about=("softmax-wrong-axis",))
def softmax_gives_the_chapters_rows(subject: Subject) -> None:
    """softmax of the chapter's scaled scores gives its table of weights."""
    asked = ask(subject, SOFTMAX, SCORES / np.sqrt(2))
    as_printed(asked, "weights", asked.array((3, 3)), WEIGHTS)


@check("step2.attention", functions=SDPA, families="sdpa", public=True, about=TRANSPOSE_OR_AXIS)
def attention_gives_the_chapters_tables(subject: Subject) -> None:
    """Attention of the chapter's Q, K and V gives its weights and outputs."""
    asked, output, weights = weigh(subject, Q, K, V)
    as_printed(asked, "weights", weights, WEIGHTS)
    as_printed(asked, "outputs", output, OUTPUTS)


@by_self_attention("step2.weights")
def the_weights_are_the_chapters(subject: Subject) -> None:
    """From E and the three matrices, içti's row of weights is [0.4230, 0.5012, 0.0759], and the others as printed."""
    asked, _, weights = self_attend(subject, E, W_Q, W_K, W_V)
    as_printed(asked, "weights", weights, WEIGHTS)


@by_self_attention("step2.outputs")
def the_outputs_are_the_chapters(subject: Subject) -> None:
    """From E and the three matrices, the outputs of kedi, sütü and içti come out as in the chapter."""
    asked, output = self_output(subject, E, W_Q, W_K, W_V)
    as_printed(asked, "outputs", output, OUTPUTS)


@by_self_attention("step2.another-order")
def another_order_of_the_tokens(subject: Subject) -> None:
    """With the tokens in another order, every token keeps the output that the chapter prints for it."""
    order = [1, 2, 0]
    back = np.argsort(order)
    asked, output = self_output(subject, E[order], W_Q, W_K, W_V)
    as_printed(asked, "outputs", output[back], OUTPUTS)


@check(
    "step2.positions",
    functions=POSITIONS,
    families="positions",
    public=True,
    about=("positions-sin-cos-swapped", "positions-from-one", "positions-halves"),
)
def the_sinusoids_are_the_chapters(subject: Subject) -> None:
    """At d = 4 the first three positions are those of section 7.4."""
    asked = ask(subject, POSITIONS, 3, 4)
    table = asked.array((3, 4)).astype(np.float64)
    if np.abs(table - POSITIONS_AT_4).max() > 0.5e-4 + negligible("float32", 3, 1):
        row = int(np.abs(table - POSITIONS_AT_4).max(axis=1).argmax())
        seen = f"position {row} is {np.round(table[row], 4).tolist()}"
        raise asked.fail(seen, f"{POSITIONS_AT_4[row].tolist()}, as in the chapter", got=table)
