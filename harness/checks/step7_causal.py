"""Step 7: the causal mask, and what it does: a token's output does not depend on later tokens (section 7.5)."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from harness.attend import CAUSAL, SDPA, SELF, apart, follows, largest, self_attend, self_output, size_of, weigh
from harness.check import check
from harness.expect import Asked, ask, told_apart
from harness.rounding import negligible
from harness.strategies import Heads, Tokens, tokens, unequal_heads
from harness.subject import Subject
from harness.values import Array

MASK_IS_RIGHT = "step7.mask.square"

of_mask = partial(check, functions=CAUSAL, families="causal_mask", public=True)
SEES_AHEAD = ("mask-ignored", "mask-inverted", "mask-multiplied", "mask-added", "mask-transposed")
of_attention = partial(
    check, functions=(SELF, CAUSAL), families=("causal_mask", "self_attention"), about=SEES_AHEAD, public=True
)


def causal(subject: Subject, n: int, m: int | None = None) -> tuple[Asked, Array]:
    """The submission's causal_mask: the call, and where it is not zero."""
    asked = ask(subject, CAUSAL, n) if m is None else ask(subject, CAUSAL, n, n_keys=m)
    return asked, asked.truths((n, n if m is None else m)) != 0


def _sees_up_to(asked: Asked, mask: Array, first: int) -> None:
    """Raises Fail unless row i sees exactly the keys 0 to first + i."""
    for i, row in enumerate(mask):
        own = first + i
        who = f"query {i} (position {own} of {mask.shape[1]})"
        if not row[own]:
            raise asked.fail(f"{who} does not see itself", "True there", got=mask)
        if row[own + 1 :].any():
            raise asked.fail(f"{who} sees position {own + 1 + int(row[own + 1 :].argmax())}", "False there", got=mask)
        if not row[:own].all():
            raise asked.fail(f"{who} does not see position {int(row[:own].argmin())}", "True there", got=mask)


@of_mask(
    "step7.mask.square",
    cases=st.integers(2, 9),
    examples=5,
    about=("causal-mask-strict", "causal-mask-lookahead", "causal-mask-inverted"),
)
def each_token_sees_itself_and_earlier_ones(subject: Subject, case: int) -> None:
    """causal_mask(n): each token sees itself and every earlier token, and no later one."""
    asked, mask = causal(subject, case)
    _sees_up_to(asked, mask, 0)


@of_mask(
    "step7.mask.more-keys-than-queries",
    cases=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    examples=6,
    about=("causal-mask-upper-left", "causal-mask-strict", "causal-mask-lookahead"),
)
def the_queries_are_the_last_positions(subject: Subject, case: tuple[int, int]) -> None:
    """causal_mask(n, n_keys=m) with more keys than queries: the queries are the last n of the m positions."""
    n, more = case
    asked, mask = causal(subject, n, n + more)
    _sees_up_to(asked, mask, more)


@of_mask("step7.mask.default-n-keys", cases=st.integers(1, 7), examples=3, stands_on=MASK_IS_RIGHT)
def n_keys_defaults_to_n_queries(subject: Subject, case: int) -> None:
    """causal_mask(n), causal_mask(n, n_keys=None) and causal_mask(n, n_keys=n) are the same."""
    _, mask = causal(subject, case)
    for named in ({"n_keys": None}, {"n_keys": case}):
        asked = ask(subject, CAUSAL, case, **named)
        if not np.array_equal(asked.truths((case, case)) != 0, mask):
            raise asked.fail("not the mask of causal_mask(n)", "the same mask", got=asked.value)


@of_mask(
    "step7.mask.boolean",
    cases=st.tuples(st.integers(1, 5), st.integers(0, 4)),
    examples=3,
    stands_on=MASK_IS_RIGHT,
    about=("wrong-dtype",),
)
def the_mask_is_boolean(subject: Subject, case: tuple[int, int]) -> None:
    """causal_mask is an array of booleans."""
    n, more = case
    ask(subject, CAUSAL, n, n_keys=n + more).array((n, n + more), like=bool)


@of_attention("step7.causal.append-a-token", cases=tokens(least=3), examples=6)
def appending_a_token_changes_nothing_before(subject: Subject, case: Tokens) -> None:
    """Under causal_mask, appending a token leaves the outputs of the tokens before it unchanged."""
    X, *W = case.x_and_weights()
    _, short = self_output(subject, X[:-1], *W, mask=causal(subject, case.n - 1)[1])
    asked, long = self_output(subject, X, *W, mask=causal(subject, case.n)[1])
    follows(asked, long)
    gap = apart(long[:-1], short)
    if gap > _tolerance(case):
        raise asked.fail(f"the outputs of the first {case.n - 1} tokens change by {gap:.3g}", "no change", got=long)


@of_attention("step7.causal.change-a-token", cases=tokens(least=4), examples=6)
def changing_a_token_changes_only_what_follows(subject: Subject, case: Tokens) -> None:
    """Under causal_mask, changing a token leaves the outputs before it unchanged, and moves its own and the last."""
    X, *W = case.x_and_weights()
    at = 1 + case.seed % (case.n - 2)
    edited = X.copy()
    edited[at] = -edited[at] + 1
    mask = causal(subject, case.n)[1]
    _, before = self_output(subject, X, *W, mask=mask)
    asked, after = self_output(subject, edited, *W, mask=mask)
    if apart(after[:at], before[:at]) > _tolerance(case):
        raise asked.fail(f"token {at} was changed, and an output before it moves", "no change before it", got=after)
    for i in (at, case.n - 1):
        if apart(after[i], before[i]) <= _tolerance(case):
            raise asked.fail(
                f"token {at} was changed, and the output of token {i} does not move", "a change", got=after
            )


@of_attention("step7.causal.first-token-alone", cases=tokens(), examples=5)
def the_first_token_attends_to_itself(subject: Subject, case: Tokens) -> None:
    """Under causal_mask the first token sees itself alone, the last sees all, and later keys get exactly 0."""
    asked, _, weights = self_attend(subject, *case.x_and_weights(), mask=causal(subject, case.n)[1])
    later = ~np.tri(case.n, dtype=bool)
    if (weights[..., later] != 0).any():
        raise asked.fail(f"a later token gets weight {weights[..., later].max():.4g}", "exactly 0", got=weights)
    if np.abs(weights[..., 0, 0] - 1).max() > negligible(case.dtype, 1, 1) * 10:
        own = told_apart(float(weights[..., 0, 0].min()), 1.0)[0]
        raise asked.fail(f"the first token gives itself weight {own}", "1: it sees no other token", got=weights)
    if weights[..., -1, :].min() <= 0:
        raise asked.fail("the last token gives an earlier one no weight", "some weight to each", got=weights)


@check(
    "step7.causal.last-queries-alone",
    cases=unequal_heads(),
    examples=6,
    functions=(SDPA, CAUSAL),
    families=("causal_mask", "sdpa"),
    about=("causal-mask-upper-left",),
    public=True,
)
def the_last_queries_alone(subject: Subject, case: Heads) -> None:
    """The last queries alone, under causal_mask(n, n_keys=m), get what they get among all: a cache rests on it."""
    problem = Heads(case.batch, case.m + 2, case.m + 2, case.d_k, case.d_v, case.dtype, case.seed)
    Q, K, V = problem.qkv()
    _, among, weights = weigh(subject, Q, K, V, mask=causal(subject, problem.n)[1])
    asked, alone, own = weigh(subject, Q[..., -2:, :], K, V, mask=causal(subject, 2, problem.m)[1])
    if np.ptp(own) == 0:
        raise asked.fail(f"every weight is {own.flat[0]:.4g}", "weights that depend on the scores", got=own)
    tolerance = negligible(case.dtype, size_of(Q, K), problem.m) * largest(V)
    if max(apart(own, weights[..., -2:, :]), apart(alone, among[..., -2:, :])) > tolerance:
        raise asked.fail("not what the same queries get among all", "the same weights and outputs", got=own)


def _tolerance(case: Tokens) -> float:
    """Rounding of an output: through the projections, the scores and the mean."""
    X, W_Q, W_K, W_V = (np.abs(a.astype(np.float64)) for a in case.x_and_weights())
    return negligible(case.dtype, size_of(X @ W_Q, X @ W_K), case.n + case.d) * largest(X @ W_V)
