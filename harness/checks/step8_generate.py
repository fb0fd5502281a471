"""Step 8 without an oracle: generate gives the ids that the submission's own forward is for, and with the cache at its price."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check
from harness.checks.step8_cache import FORWARD, GENERATE, PREFILL
from harness.checks.step8_decoder import DECODING, VOCABULARY, Sizes, forward, keep_model, random_decoder, sizes
from harness.expect import Asked, ask
from harness.subject import Subject
from harness.values import Array, Handle

PLAIN_LOOP = "step8.generate.without-the-cache"
"""What shows something of generate even where decoding is wrong."""
CLEARLY = 1e-5  # of the best logit's size: closer to it, rounding may choose between two ids
GREEDY = ("generate-not-greedy", "generate-off-by-one", "cache-shared-state", "decode-stale-logits")


@check(
    "step8.generate.gives-ids",
    cases=st.tuples(sizes(layers=(1, 2)), st.integers(0, 6), st.booleans()),
    examples=15,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-off-by-one", "generate-total-length", "generate-not-greedy"),
    stands_on=PLAIN_LOOP,
)
def generate_gives_ids(subject: Subject, case: tuple[Sizes, int, bool]) -> None:
    """generate gives a list of exactly max_new_tokens ids, each an int of the vocabulary."""
    what, n, use_cache = case
    fields, tokens = random_decoder(what)
    as_many_as_asked(subject, keep_model(subject, fields), tokens, n, use_cache, VOCABULARY)


def as_many_as_asked(
    subject: Subject, model: Handle, prompt: Any, n: int, use_cache: bool, vocabulary: int
) -> list[int]:
    """The ids that generate gives: exactly as many as asked for, ints, of the vocabulary."""
    asked = _asked(subject, model, prompt, n, use_cache)
    ids = ids_of(asked, n, vocabulary)
    if len(ids) != n:
        raise asked.fail(f"{count(len(ids))} came back", count(n))
    return ids


def generated(subject: Subject, model: Handle, prompt: Any, n: int, use_cache: bool, vocabulary: int) -> list[int]:
    """The ids that generate gives, without the prompt. One too many or too few is for the checks that count them."""
    asked = _asked(subject, model, prompt, n, use_cache)
    return new_ids(asked, ids_of(asked, n, vocabulary), prompt, n)


def new_ids(asked: Asked, ids: list[int], prompt: Any, n: int) -> list[int]:
    """At most n of the ids that came; so far from n of them that nothing can be judged is a failure."""
    front = [int(token) for token in prompt]
    if len(ids) == n + len(front) and ids[: len(front)] == front:
        ids = ids[len(front) :]
    if not ids or abs(len(ids) - n) > 1:
        raise asked.fail(f"{count(len(ids))} came back", count(n))
    return ids[:n]


def count(n: int) -> str:
    return f"{n} id{'s' * (n != 1)}"


def _asked(subject: Subject, model: Handle, prompt: Any, n: int, use_cache: bool) -> Asked:
    shown = f"generate(model, {len(prompt)} tokens, {n}, use_cache={use_cache})"
    return ask(subject, GENERATE, model, prompt, n, use_cache=use_cache, shown=shown)


def ids_of(asked: Asked, n: int, vocabulary: int) -> list[int]:
    """What came back as ids: ints of the vocabulary."""
    value = asked.value
    if not isinstance(value, list | tuple | np.ndarray) or (isinstance(value, np.ndarray) and value.ndim != 1):
        raise asked.fail("no list came back", f"a list of {n} ids", "not-an-array")
    if isinstance(value, np.ndarray) and (value.dtype.kind in "iu" or not value.size):
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
    stands_on=PLAIN_LOOP,
)
def same_both_ways(subject: Subject, case: Sizes) -> None:
    """generate gives the same ids with the cache and without, wherever forward's two best logits differ clearly."""
    fields, tokens = random_decoder(case)
    model = keep_model(subject, fields)
    with_cache, without = (generated(subject, model, tokens, 6, use, VOCABULARY) for use in (True, False))
    text = tokens + without
    own = forward(subject, model, text, VOCABULARY, case.dtype)[len(tokens) - 1 : -1]
    for step_number, row in enumerate(own[: min(len(with_cache), len(without))]):
        best, second = np.sort(row)[[-1, -2]]
        if best - second < CLEARLY * (1 + abs(best)):
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
            if best - second > CLEARLY * (1 + abs(best)) and ids[i] != row.argmax():
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
    if got != right[: len(got)]:
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
    stands_on=PLAIN_LOOP,
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


def negative_decoder(n: int) -> dict[str, Any]:
    """A decoder in which every id is its own successor, though all logits are below 0: attention takes 20 from each."""
    embedding = np.concatenate([3 * np.eye(n), np.ones((n, 1))], axis=1)
    takes = np.zeros((n + 1, n + 1))
    takes[-1, -1] = 1
    layer = {"W_Q": 0 * takes, "W_K": 0 * takes, "W_V": takes, "W_O": -20 * takes}
    return {"embedding": embedding, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}


@check(
    "step8.generate.logits-below-zero",
    cases=st.tuples(st.sampled_from([6, 9]), st.booleans()),
    examples=4,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-not-greedy",),
    stands_on=PLAIN_LOOP,
)
def logits_below_zero(subject: Subject, case: tuple[int, bool]) -> None:
    """The id of the largest logit is taken where all logits are below 0 too."""
    n, use_cache = case
    model = keep_model(subject, negative_decoder(n))
    for token in (n - 1, 1, 0):
        _must_give(subject, model, [token], [token, token], use_cache, n)


@check(
    "step8.generate.no-id-ends-it",
    cases=st.tuples(st.sampled_from([7, 12, 20]), st.booleans()),
    examples=4,
    needs="kv",
    public=True,
    functions=(GENERATE,),
    families=("cache",),
    about=("generate-not-greedy", "generate-off-by-one", "generate-total-length"),
    stands_on=PLAIN_LOOP,
)
def no_id_ends_it(subject: Subject, case: tuple[int, bool]) -> None:
    """No id ends the text: whichever it is, max_new_tokens come."""
    n, use_cache = case
    model = keep_model(subject, silent_decoder(2 * np.eye(n)))
    for token in range(n):  # every id is its own successor
        got = as_many_as_asked(subject, model, [token], 2, use_cache, n)
        if got != [token, token]:
            call = f"generate(model, [{token}], 2, use_cache={use_cache})"
            raise Fail(f"{got} came back", f"{[token, token]}: each id is its own successor", call=call)


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


def _gives_all(subject: Subject, case: Sizes, use_cache: bool) -> list[int]:
    """The ids whose cost is looked at: generate has to give them, or there is nothing to be counted."""
    fields, prompt = random_decoder(case)
    return generated(subject, keep_model(subject, fields), prompt, NEW, use_cache, VOCABULARY)


# After how many reads of W_V it becomes another: each pass over the text reads it once, or once a head or a token.
READS = (1, 2, 3, 4, 6, 8, 12, 24, 25, 48, 50, 96, 100)
BINS = 9  # ids, each of which says how much of what a token sees was computed from the later W_V


def telling_decoder() -> tuple[dict[str, Any], Array]:
    """A decoder whose best id is the share, in eighths, of values that come from the other W_V: and that W_V.

    With W_Q = 0 a token takes the mean of the values that it sees, (2 s, -1, 0) where a share s are of the later matrix. So
    the logit of id j is largest where (s - j/8)² is least; W_O is so large that a token's own embedding does not matter.
    """
    share = np.arange(BINS) / (BINS - 1)
    embedding = np.stack([share, share**2, np.ones(BINS)], axis=1)
    first, later = np.zeros((3, 3)), np.zeros((3, 3))
    first[2], later[2] = (0, -1, 0), (2, -1, 0)
    layer = {"W_Q": np.zeros((3, 3)), "W_K": np.eye(3), "W_V": first, "W_O": 1e6 * np.eye(3)}
    fields = {"embedding": embedding, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}
    return fields, later


def computed_again(subject: Subject) -> list[int] | None:
    """Ids of a call of generate that show its prompt's values computed anew between two tokens; None where no call does.

    A new row among those of the prompt moves the share by less than an eighth, and the whole text once more, beside what a
    cache holds, by half: only where all rows are computed anew does it go from none to all. A decode that is not prefill's
    formula may do so with one W_V as well: then it shows nothing.
    """
    fields, later = telling_decoder()
    prompt = [i % BINS for i in range(PROMPT)]

    def jump(text: list[int], matrix: Array, reads: int) -> list[int] | None:
        ids = subject.call("@switched", fields, matrix, reads, GENERATE, text, NEW, use_cache=True).value
        are_ids = isinstance(ids, list | tuple) and len(ids) > 1 and all(type(i) is int and 0 <= i < BINS for i in ids)
        return list(ids) if are_ids and int(np.diff(ids).max()) >= BINS - 2 else None

    if jump(prompt[::-1], fields["layers"][0]["W_V"], 1):  # another text, so that no answer to it is remembered
        return None
    return next((ids for reads in READS if (ids := jump(prompt, later, reads))), None)


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
    _gives_all(subject, case, True)
    grown = growth(subject, case, True)
    if grown is not None and grown > _BETWEEN:
        # other ids come of a cache that is fed too much: it puts a token in more than one place
        placed = replace(case, positions="sinusoidal")
        recomputes = _gives_all(subject, placed, True) == _gives_all(subject, placed, False)
        seen = f"{NEW - 1} more tokens cost {grown:.1f} times the rows of keys that a prompt of {PROMPT} costs"
        code = "cache-unused" if recomputes else None
        raise Fail(seen, f"about {_CACHED:.2f} times", code=code, call=f"generate(model, prompt, {NEW})")
    told = computed_again(subject)
    if told is not None:
        seen = "where W_V becomes another between two new tokens, the prompt's values become others too"
        right = "the values of the prompt as the cache holds them"
        raise Fail(seen, right, code="cache-unused", call=f"generate(model, prompt, {NEW})", got=np.array(told))


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
    """With use_cache=False, every new token costs the whole text again, and once."""
    _gives_all(subject, case, False)
    grown = growth(subject, case, False)
    if grown is not None and grown < _BETWEEN:
        seen = f"{NEW - 1} more tokens cost {grown:.2f} times the rows of keys that a prompt of {PROMPT} costs"
        call = f"generate(model, prompt, {NEW}, use_cache=False)"
        raise Fail(seen, f"about {_RECOMPUTED:.1f} times", code="use-cache-ignored", call=call)
    passes = passes_without_the_cache(subject)
    if passes is not None and passes > 1.6 * (NEW + 1):
        seen = (
            f"{NEW} tokens cost as many rows of keys as about {passes:.0f} passes of forward over texts of this length"
        )
        call = f"generate(model, prompt, {NEW}, use_cache=False)"
        raise Fail(seen, f"{NEW}, or {NEW + 1}", code="speedup-faked", call=call)


def passes_without_the_cache(subject: Subject) -> float | None:
    """As how many passes of the submission's own forward or prefill, over texts of the mean length, NEW ids count; None where
    nothing is counted. With one head, as a pass may be written once for all of them or once for each."""
    case = Sizes(1, 1, 1, 4, "none", "float64", PROMPT, 11)
    fields, prompt = random_decoder(case)
    calls: tuple[tuple[str, dict[str, bool], tuple[int, ...]], ...] = (
        (FORWARD, {}, ()),
        (PREFILL, {}, ()),
        (GENERATE, {"use_cache": False}, (NEW,)),
    )
    rows = [subject.call("@rows", fields, name, prompt, *more, **options).value for name, options, more in calls]
    if not all(type(n) is float and n > 0 and n % PROMPT == 0 for n in rows[:2]) or type(rows[2]) is not float:
        return None
    one_pass = max(rows[:2]) * (PROMPT + NEW / 2) / PROMPT
    return float(rows[2] / one_pass)
