"""Step 8 in a special case that needs no softmax: with W_Q = 0 all scores are 0, and a token takes the mean of what it sees.

So logits follow from products of matrices alone, and whatever is done beside them (a norm, a second residual, positions
that nobody asked for, heads in another order) shows. Positions are those of the submission's own sinusoidal_positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from harness.attend import POSITIONS
from harness.check import Fail, check
from harness.checks.step8_cache import DECODE, FORWARD, KV_CACHE, PREFILL, store
from harness.checks.step8_decoder import (
    DECODING,
    VOCABULARY,
    Sizes,
    apart,
    cache_for,
    decode,
    forward,
    keep_model,
    prefill,
    random_decoder,
    sizes,
)
from harness.expect import ask
from harness.subject import Subject
from harness.values import Array

LONG = 300  # tokens: longer than any window that looks long enough


def attending_evenly(case: Sizes) -> tuple[dict[str, Any], list[int]]:
    """A random decoder with W_Q = 0, and tokens for it."""
    fields, tokens = random_decoder(case)
    layers = [{**layer, "W_Q": np.zeros_like(layer["W_Q"])} for layer in fields["layers"]]
    return {**fields, "layers": layers}, tokens


def mixed(fields: dict[str, Any], layer: dict[str, Array], means: Array) -> Array:
    """What a layer adds for means (n, n_kv_heads, d_head): each K/V head serves a group of query heads in a row."""
    group = fields["n_heads"] // fields["n_kv_heads"]
    return np.asarray(means.repeat(group, axis=1).reshape(len(means), -1) @ layer["W_O"])


def mean_logits(fields: dict[str, Any], tokens: list[int], positions: Array | float = 0.0) -> Array:
    """The logits (n, vocab) where each token takes the mean of the values up to its own."""
    x = fields["embedding"][tokens] + positions
    for layer in fields["layers"]:
        values = (x @ layer["W_V"]).reshape(len(x), fields["n_kv_heads"], -1)
        x = x + mixed(fields, layer, values.cumsum(axis=0) / np.arange(1, len(x) + 1)[:, None, None])
    return np.asarray(x @ fields["embedding"].T)


@check(
    "step8.forward.mean-of-values",
    cases=sizes(positions=("none",), tokens=(1, 6)),
    examples=8,
    needs="kv",
    public=True,
    functions=(FORWARD, POSITIONS),
    families=("cache",),
    about=DECODING,
    stands_on="step8.forward.logits",
)
def forward_mean_of_values(subject: Subject, case: Sizes) -> None:
    """With W_Q = 0 a token takes the mean of the values up to its own, and forward's logits follow from that alone."""
    fields, tokens = attending_evenly(case)
    shape = (len(tokens), fields["embedding"].shape[1])
    table = ask(subject, POSITIONS, *shape).array(shape)
    for which, positions in (("none", 0 * table), ("sinusoidal", table)):
        model = keep_model(subject, {**fields, "positions": which})
        got = forward(subject, model, tokens, VOCABULARY, case.dtype)
        right = mean_logits(fields, tokens, positions)
        if apart(got, right, case.dtype):
            row = int(np.abs(got - right).max(axis=1).argmax())
            where = f'with W_Q = 0 and positions="{which}", the logits of token {row + 1} of {len(tokens)}'
            seen = f"{where} are not those of a mean of values"
            raise Fail(seen, "x + mean of the values up to x, times W_O, a layer", call="forward", got=got)


@check(
    "step8.decode.reads-the-cache",
    cases=sizes(positions=("none",), tokens=(3, 6)),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE, DECODE),
    families=("cache",),
    about=DECODING,
    stands_on=("step8.cache.stores-what-is-appended", "step8.decode.logits"),
)
def decode_reads_the_cache(subject: Subject, case: Sizes) -> None:
    """decode_step reads what the cache holds, whoever put it there: with W_Q = 0, the mean of those values and its own."""
    fields, (token, *rest) = attending_evenly(case)
    rng = np.random.default_rng(case.seed)
    cache = cache_for(subject, fields, len(rest) + 1)
    x = fields["embedding"][[token]]
    for index, layer in enumerate(fields["layers"]):
        own = (x @ layer["W_V"]).reshape(1, case.n_kv_heads, -1)
        k, v = (rng.standard_normal((len(rest), *own.shape[1:])) for _ in range(2))
        store(subject, cache, index, k, v)
        x = x + mixed(fields, layer, np.concatenate([v, own]).mean(axis=0, keepdims=True))
    got = decode(subject, keep_model(subject, fields), token, cache, VOCABULARY, case.dtype)
    if apart(got, (x @ fields["embedding"].T)[0], case.dtype):
        seen = f"over a cache of {len(rest)} tokens and with W_Q = 0, the logits are not those of a mean of its values"
        raise Fail(seen, "the mean of the cached values and the new one", call=f"decode_step(model, {token}, cache)")


@check(
    "step8.decode.long-memory",
    cases=sizes(layers=(1,), heads=((2, 1),), positions=("none",), tokens=(LONG, LONG)),
    examples=1,
    needs="kv",
    public=True,
    functions=(PREFILL, DECODE),
    families=("cache",),
    about=("cache-truncated",),
    stands_on="step8.decode.logits",
)
def decode_long_memory(subject: Subject, case: Sizes) -> None:
    """In a text of 300 tokens the newest still sees the first."""
    fields, tokens = attending_evenly(replace(case, d_head=4))
    model = keep_model(subject, fields)
    shape = (LONG - 1, VOCABULARY)
    for first in (tokens[0], (tokens[0] + 1) % VOCABULARY):
        text = [first, *tokens[1:]]
        _, cache = prefill(subject, model, text[:-1], None, shape, case.dtype)
        got = decode(subject, model, text[-1], cache, VOCABULARY, case.dtype)
        if apart(got, mean_logits(fields, text)[-1], case.dtype):
            seen = f"with W_Q = 0, the logits after {LONG} tokens are not those of the mean of all their values"
            raise Fail(seen, "every token so far takes part", call=f"decode_step(model, {text[-1]}, cache)", got=got)
