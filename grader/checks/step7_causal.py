"""Step 7 against the reference: attention under a causal mask, with fewer queries than keys too."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from grader.checks.step1_attention import agree, agrees, factor, negligible, wide
from harness.attend import CAUSAL, SDPA, SELF, largest, self_output
from harness.check import check
from harness.checks.step7_causal import causal
from harness.strategies import DTYPES, SEEDS, Heads, Tokens, tokens
from harness.subject import Subject
from reference import attention, bounds

FEWER_QUERIES = st.builds(
    lambda batch, n, more, d_k, dtype, seed: Heads(batch, n, n + more, d_k, 3, dtype, seed),
    st.sampled_from(((), (2,), (2, 3))),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from((5, 8, 16)),
    DTYPES,
    SEEDS,
)


@check(
    "step7.causal.fewer-queries-than-keys",
    cases=FEWER_QUERIES,
    examples=8,
    functions=SDPA,
    families="sdpa",
    about=("mask-transposed", "mask-not-broadcast", "mask-ignored", "mask-inverted"),
)
def attention_with_fewer_queries_than_keys(subject: Subject, case: Heads) -> None:
    """Attention is right under a causal mask with fewer queries than keys, batch axes or not."""
    agrees(subject, case, attention.causal_mask(case.n, case.m))


@check(
    "step7.causal.self-attention-agrees",
    cases=tokens(least=2),
    examples=8,
    functions=(SELF, CAUSAL),
    families=("causal_mask", "self_attention"),
)
def causal_self_attention_agrees(subject: Subject, case: Tokens) -> None:
    """self_attention under the submission's own causal_mask gives causal attention."""
    X, W_Q, W_K, W_V = case.x_and_weights()
    mask = attention.causal_mask(case.n)
    asked, output = self_output(subject, X, W_Q, W_K, W_V, mask=causal(subject, case.n)[1])
    right = attention.self_attention(wide(X), wide(W_Q), wide(W_K), wide(W_V), mask)[0]
    bound = negligible(bounds.self_attention(X, W_Q, W_K, W_V, mask, factor()).output, largest(X @ W_V))
    agree(asked, "the outputs", output, right, bound, "softmax of the scores up to each token, times V")


@check("step7.mask.at-size", functions=CAUSAL, families="causal_mask")
def causal_mask_at_size(subject: Subject) -> None:
    """For some hundreds of queries, and more keys than these, causal_mask is right to the last row."""
    for n, m in ((301, None), (203, 301)):
        asked, mask = causal(subject, n, m)
        wrong = np.argwhere(mask != attention.causal_mask(n, m))
        if len(wrong):
            i, j = (int(k) for k in wrong[0])
            raise asked.fail(f"query {i} {'sees' if mask[i, j] else 'does not see'} key {j}", "the contrary", got=mask)
