"""Step 8 without an oracle: generate gives the ids that the submission's own forward is for, and with the cache at its price."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check
from harness.checks.step8_cache import FORWARD, GENERATE
from harness.checks.step8_decoder import DECODING, VOCABULARY, Sizes, forward, keep_model, random_decoder, sizes
from harness.expect import Asked, ask
from harness.subject import Subject
from harness.values import Array, Handle

GREEDY = ("generate-not-greedy", "generate-off-by-one", "cache-shared-state", "decode-stale-logits")


@check(
    "step8.generate.gives-ids",
    cases=st.tuples(sizes(layers=(1, 2)), st.integers(0, 6), st.booleans()),
    examples=15,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-off-by-one", "generate-not-greedy"),
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
    return ids_of(ask(subject, GENERATE, model, prompt, n, use_cache=use_cache, shown=shown), n, vocabulary)


def ids_of(asked: Asked, n: int, vocabulary: int) -> list[int]:
    """The result as that many ids, ints of the vocabulary. Raises Fail."""
    value = asked.value
    if not isinstance(value, list | tuple | np.ndarray) or (isinstance(value, np.ndarray) and value.ndim != 1):
        raise asked.fail("no list came back", f"a list of {n} ids", "not-an-array")
    if len(value) != n:
        raise asked.fail(f"{len(value)} ids came back", f"{n} ids")
    if isinstance(value, np.ndarray) and (value.dtype.kind in "iu" or not n):
        value = value.tolist()
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
    about=(*DECODING, *GREEDY),
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


@check(
    "step8.generate.follows-own-forward",
    cases=st.tuples(sizes(layers=(1, 2), tokens=(3, 5)), st.booleans()),
    examples=6,
    needs="kv",
    public=True,
    functions=(GENERATE, FORWARD),
    families=("cache",),
    about=GREEDY,
    stands_on="step8.generate.greedy",
)
def follows_own_forward(subject: Subject, case: tuple[Sizes, bool]) -> None:
    """Each id is the one of forward's largest logit, whatever another call of generate was asked before."""
    what, use_cache = case
    fields, tokens = random_decoder(what)
    model = keep_model(subject, fields)
    for prompt in (tokens, [(token + 3) % VOCABULARY for token in tokens]):
        ids = generated(subject, model, prompt, 4, use_cache, VOCABULARY)
        rows = forward(subject, model, prompt + ids[:-1], VOCABULARY, what.dtype)[len(prompt) - 1 :]
        for i, row in enumerate(rows):
            second, best = np.sort(row)[-2:]
            if best - second > 1e-6 * (1 + abs(best)) and ids[i] != row.argmax():
                after = "" if prompt is tokens else ", asked after another prompt"
                seen = f"{ids} came back{after}: id {i + 1} is not the one of forward's largest logit"
                call = f"generate(model, {prompt}, 4, use_cache={use_cache})"
                raise Fail(seen, f"{int(row.argmax())} there", call=call)


def silent_decoder(embedding: Array) -> dict[str, Any]:
    """A decoder with W_O = 0: a token's logits are its embedding's products with all embeddings, whatever came before."""
    width = embedding.shape[1]
    layer = {name: np.eye(width) for name in ("W_Q", "W_K", "W_V")} | {"W_O": np.zeros((width, width))}
    return {"embedding": embedding, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}


def _must_give(subject: Subject, model: Handle, prompt: list[int], right: list[int], use_cache: bool, n: int) -> None:
    got = generated(subject, model, prompt, len(right), use_cache, n)
    if got != right:
        call = f"generate(model, {prompt}, {len(right)}, use_cache={use_cache})"
        raise Fail(f"{got} came back", f"{right}: the lowest id of the largest logit, each time", call=call)


@check(
    "step8.generate.lowest-id-on-ties",
    cases=st.tuples(st.integers(0, 2**32 - 1), st.booleans()),
    examples=6,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-not-greedy",),
    stands_on="step8.generate.greedy",
)
def lowest_id_on_ties(subject: Subject, case: tuple[int, bool]) -> None:
    """Of equally good ids the lowest is taken."""
    seed, use_cache = case
    rng = np.random.default_rng(seed)
    half = np.eye(5, 8) * 4 + rng.integers(-1, 2, (5, 8))
    embedding = np.concatenate(
        [half, half]
    )  # ids i and i + 5 are one: small whole numbers, exact in any order of summation
    model = keep_model(subject, silent_decoder(embedding))
    best = (embedding @ embedding.T).argmax(axis=1)
    for token in map(int, rng.permutation(10)[:4]):
        _must_give(subject, model, [token] * 2, [int(best[token]), int(best[best[token]])], use_cache, 10)


@check(
    "step8.generate.no-id-ends-it",
    cases=st.tuples(st.sampled_from([7, 12, 20]), st.booleans()),
    examples=4,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-not-greedy", "generate-off-by-one"),
    stands_on="step8.generate.greedy",
)
def no_id_ends_it(subject: Subject, case: tuple[int, bool]) -> None:
    """No id ends the text: whichever it is, max_new_tokens come."""
    n, use_cache = case
    model = keep_model(subject, silent_decoder(2 * np.eye(n)))
    for token in range(n):  # every id is its own successor
        _must_give(subject, model, [token], [token, token], use_cache, n)


# -- what a new token costs --------------------------------------------------------------------------------------------

# A prompt this long and this many new tokens: with a cache they cost NEW - 1 further rows, without it whole texts.
PROMPT, NEW = 24, 10
_CACHED, _RECOMPUTED = (NEW - 1) / PROMPT, sum(range(PROMPT + 1, PROMPT + NEW)) / PROMPT
_BETWEEN = math.sqrt(_CACHED * _RECOMPUTED)
plain = sizes(layers=(1,), heads=((2, 1),), positions=("none",), tokens=(PROMPT, PROMPT))


def growth(subject: Subject, case: Sizes, use_cache: bool) -> float | None:
    """Rows multiplied by W_K for the new tokens after the first, by those of the prompt; None where these are not seen.

    What is multiplied for the prompt must be its rows, once or several times: a table of the keys of all ids tells nothing.
    """
    fields, prompt = random_decoder(case)
    rows = [subject.call("@rows", fields, GENERATE, prompt, n, use_cache=use_cache).value for n in (1, NEW)]
    if not all(isinstance(n, float) and n > 0 for n in rows) or rows[0] % PROMPT:
        return None
    return float((rows[1] - rows[0]) / rows[0])


def _must_run(subject: Subject, case: Sizes, use_cache: bool) -> None:
    """Where nothing was counted generate has to give its ids all the same."""
    fields, prompt = random_decoder(case)
    generated(subject, keep_model(subject, fields), prompt, 1, use_cache, VOCABULARY)


@check(
    "step8.generate.rows-with-the-cache",
    cases=plain,
    examples=1,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("cache-unused",),
    stands_on="step8.generate.greedy",
)
def rows_with_the_cache(subject: Subject, case: Sizes) -> None:
    """With the cache, a new token costs one row of keys, not the whole text again."""
    grown = growth(subject, case, True)
    if grown is None:
        _must_run(subject, case, True)
    if grown is not None and grown > _BETWEEN:
        seen = f"{NEW - 1} more tokens cost {grown:.1f} times the rows of keys that a prompt of {PROMPT} costs"
        raise Fail(seen, f"about {_CACHED:.2f} times", code="cache-unused", call=f"generate(model, prompt, {NEW})")


@check(
    "step8.generate.rows-without-the-cache",
    cases=plain,
    examples=1,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("use-cache-ignored",),
    stands_on="step8.generate.without-the-cache",
)
def rows_without_the_cache(subject: Subject, case: Sizes) -> None:
    """With use_cache=False, every new token costs the whole text again."""
    grown = growth(subject, case, False)
    if grown is None:
        _must_run(subject, case, False)
    if grown is not None and grown < _BETWEEN:
        seen = f"{NEW - 1} more tokens cost {grown:.2f} times the rows of keys that a prompt of {PROMPT} costs"
        call = f"generate(model, prompt, {NEW}, use_cache=False)"
        raise Fail(seen, f"about {_RECOMPUTED:.1f} times", code="use-cache-ignored", call=call)
