"""Step 8 without an oracle: generate gives ids, and the ids that the submission's own forward is for."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check
from harness.checks.step8_cache import FORWARD, GENERATE
from harness.checks.step8_decoder import VOCABULARY, Sizes, forward, keep_model, random_decoder, sizes
from harness.expect import ask
from harness.subject import Subject
from harness.values import Handle


@check(
    "step8.generate.gives-ids",
    cases=st.tuples(sizes(layers=(1, 2)), st.integers(0, 6), st.booleans()),
    examples=15,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-off-by-one",),
    stands_on="step8.generate.greedy",
)
def generate_gives_ids(subject: Subject, case: tuple[Sizes, int, bool]) -> None:
    """generate gives a list of exactly max_new_tokens ids, each an int of the vocabulary."""
    what, n, use_cache = case
    fields, tokens = random_decoder(what)
    generated(subject, keep_model(subject, fields), tokens, n, use_cache, VOCABULARY)


def generated(subject: Subject, model: Handle, prompt: Any, n: int, use_cache: bool, vocabulary: int) -> list[int]:
    """The ids that generate gives: as many as asked for, ints, of the vocabulary."""
    shown = f"generate(model, {len(prompt)} tokens, {n}, use_cache={use_cache})"
    asked = ask(subject, GENERATE, model, prompt, n, use_cache=use_cache, shown=shown)
    value = asked.value
    if isinstance(value, np.ndarray) and value.ndim == 1 and (value.dtype.kind in "iu" or not value.size):
        value = [int(i) for i in value]
    if not isinstance(value, list | tuple):
        raise asked.fail("no list came back", f"a list of {n} ids", "not-an-array")
    if len(value) != n:
        raise asked.fail(f"{len(value)} ids came back", f"{n} ids")
    if not all(type(i) is int and 0 <= i < vocabulary for i in value):
        raise asked.fail("not all are ints of the vocabulary", f"ints from 0 to {vocabulary - 1}", "wrong-dtype")
    return list(value)


@check(
    "step8.generate.same-both-ways",
    cases=sizes(layers=(1, 2)),
    examples=10,
    needs="kv",
    public=True,
    functions=(GENERATE, FORWARD),
    families=("cache",),
    stands_on="step8.generate.greedy",
)
def same_both_ways(subject: Subject, case: Sizes) -> None:
    """generate gives the same ids with the cache and without, wherever forward's two best logits differ clearly."""
    fields, tokens = random_decoder(case)
    model = keep_model(subject, fields)
    with_cache, without = (generated(subject, model, tokens, 6, use, VOCABULARY) for use in (True, False))
    own = forward(subject, model, tokens + without, VOCABULARY, case.dtype)[len(tokens) - 1 : -1]
    for step_number, row in enumerate(own):
        best, second = np.sort(row)[[-1, -2]]
        if best - second < 1e-6 * (1 + abs(best)):
            return
        if with_cache[step_number] != without[step_number]:
            seen = (
                f"token {step_number + 1} is {with_cache[step_number]} with the cache, {without[step_number]} without"
            )
            raise Fail(seen, "the same ids", call=f"generate(model, {tokens}, 6)")
