"""Step 8 without an oracle: forward, prefill and decode_step of one submission against each other.

What is compared here is the submission with itself, and with what follows from the model's own arithmetic in special cases.
That its forward is right for every decoder is for the checks with an oracle to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check
from harness.checks.step8_cache import (
    DECODE,
    FORWARD,
    KV_CACHE,
    PRECISION,
    PREFILL,
    alike,
    held,
    length,
    must_refuse,
    new_cache,
)
from harness.expect import Asked, ask, spell_value
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Handle, Opaque

# What a decoder that answers wrongly over a sound cache is most likely about.
DECODING = (
    "cache-not-appended",
    "cache-appended-twice",
    "cache-missing-self",
    "decode-self-twice",
    "cache-layer-mixed",
    "cache-position-reset",
    "positions-ignored",
    "positions-misplaced",
    "cache-truncated",
    "cache-padding-attended",
    "cache-given-ignored",
    "cache-keys-values-swapped",
    "cache-shared-state",
    "cache-prefill-unmasked",
    "cache-chunk-misaligned",
    "cache-head-order",
    "cache-unused",
    "decode-residual-missing",
    "decode-extra-step",
    "decode-stale-logits",
)

# -- decoders and texts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """A decoder, and a text for it: values come from the seed."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    positions: str
    dtype: str
    n_tokens: int
    seed: int


def sizes(
    layers: tuple[int, ...] = (1, 2, 3),
    heads: tuple[tuple[int, int], ...] = ((2, 2), (4, 2), (3, 1), (6, 3)),
    positions: tuple[str, ...] = ("none", "sinusoidal"),
    dtypes: tuple[str, ...] = ("float64",),
    tokens: tuple[int, int] = (5, 9),
) -> st.SearchStrategy[Sizes]:
    return st.builds(
        lambda n_layers, h, d_head, where, dtype, n, seed: Sizes(n_layers, h[0], h[1], d_head, where, dtype, n, seed),
        st.sampled_from(layers),
        st.sampled_from(heads),
        st.sampled_from([4, 6]),
        st.sampled_from(positions),
        st.sampled_from(dtypes),
        st.integers(*tokens),
        st.integers(0, 2**32 - 1),
    )


# What a check is not about is as plain as can be, so that a fault costs the checks that are about it.
ONE_HEAD = ((1, 1),)
VOCABULARY = 23


def random_decoder(case: Sizes) -> tuple[dict[str, Any], list[int]]:
    """The fields of a Decoder and tokens for it; entries of q, k and v are of the order of 1."""
    rng = np.random.default_rng(case.seed)
    d, narrow = case.n_heads * case.d_head, case.n_kv_heads * case.d_head
    shapes = {"W_Q": (d, d), "W_K": (d, narrow), "W_V": (d, narrow), "W_O": (d, d)}
    layers = [
        {name: (rng.standard_normal(shape) / math.sqrt(d)).astype(case.dtype) for name, shape in shapes.items()}
        for _ in range(case.n_layers)
    ]
    fields = {
        "embedding": rng.standard_normal((VOCABULARY, d)).astype(case.dtype),
        "layers": layers,
        "n_heads": case.n_heads,
        "n_kv_heads": case.n_kv_heads,
        "positions": case.positions,
    }
    return fields, [int(t) for t in rng.integers(0, VOCABULARY, case.n_tokens)]


def keep_model(subject: Subject, fields: dict[str, Any]) -> Handle:
    """The given model.py's Decoder with these fields."""
    asked = ask(subject, "@model", fields, keep=True, shown="Decoder(…)")
    if not isinstance(asked.value, Handle):
        raise asked.fail(f"Decoder(…) is {spell_value(asked.value)}", "the Decoder of the given model.py")
    return asked.value


def cache_for(subject: Subject, fields: dict[str, Any], capacity: int) -> Handle:
    n_kv_heads = fields["n_kv_heads"]
    W_K = fields["layers"][0]["W_K"]
    return new_cache(subject, len(fields["layers"]), n_kv_heads, W_K.shape[1] // n_kv_heads, capacity, str(W_K.dtype))


def prefill(
    subject: Subject, model: Handle, tokens: Any, cache: Handle | None, shape: tuple[int, ...], dtype: str
) -> tuple[Array, Handle]:
    """Logits and cache of one prefill; the shape is that of the logits."""
    given = {} if cache is None else {"cache": cache}
    shown = f"prefill(model, {len(tokens)} tokens{'' if cache is None else ', cache=cache'})"
    asked = Asked(call := Call(PREFILL, (model, tokens), given, keep=True), subject.ask(call)[0], shown)
    value = asked.value
    if not isinstance(value, tuple | list) or len(value) != 2:
        came = f"{len(value)} values" if isinstance(value, tuple | list) else "one value"
        raise asked.fail(f"{came} came back", "(logits, cache)", "wrong-shape")
    if not isinstance(value[1], Handle) or isinstance(value[0], Opaque | Handle):
        raise asked.fail("something else came back", "(logits, cache)", "not-an-array")
    logits = Asked(call, Outcome("value", value=value[0]), shown).array(shape, like=dtype)
    return logits, value[1]


def decode(subject: Subject, model: Handle, token: int, cache: Handle, vocabulary: int, dtype: str) -> Array:
    asked = ask(subject, DECODE, model, token, cache, shown=f"decode_step(model, {token}, cache)")
    return asked.array((vocabulary,), like=dtype)


def forward(subject: Subject, model: Handle, tokens: list[int], vocabulary: int, dtype: str) -> Array:
    asked = ask(subject, FORWARD, model, tokens, shown=f"forward(model, {len(tokens)} tokens)")
    return asked.array((len(tokens), vocabulary), like=dtype)


def apart(got: Array, own: Array, dtype: str) -> bool:
    """Whether two ways of one submission to the same logits differ by more than rounding, in a float32 cache too."""
    size = 1 + float(np.abs(own).max())
    return bool(np.abs(got.astype(np.float64) - own).max() > max(2000 * float(np.finfo(dtype).eps), PRECISION) * size)


def own_forward(subject: Subject, model: Handle, tokens: list[int], dtype: str) -> Array:
    """The submission's forward, which has to tell two texts apart before anything can be compared with it."""
    logits = forward(subject, model, tokens, VOCABULARY, dtype)
    other = forward(subject, model, [*tokens[:-1], (tokens[-1] + 1) % VOCABULARY], VOCABULARY, dtype)
    if not apart(other[-1], logits[-1], dtype):
        seen = "forward gives the same logits for two different last tokens"
        raise Fail(seen, "logits that depend on the tokens", call="forward")
    return logits


@check(
    "step8.prefill.agrees-with-own-forward",
    cases=sizes(dtypes=("float64", "float32")),
    examples=10,
    needs="kv",
    public=True,
    functions=(PREFILL, FORWARD),
    families=("cache",),
    about=DECODING,
    stands_on="step8.forward.logits",
)
def prefill_agrees(subject: Subject, case: Sizes) -> None:
    """prefill gives the logits that forward gives for the same tokens."""
    fields, tokens = random_decoder(case)
    model = keep_model(subject, fields)
    own = own_forward(subject, model, tokens, case.dtype)
    got, _ = prefill(subject, model, tokens, None, own.shape, case.dtype)
    if apart(got, own, case.dtype):
        row = int(np.abs(got - own).max(axis=1).argmax())
        seen = f"prefill's logits of token {row + 1} of {len(tokens)} are not forward's"
        raise Fail(seen, "the same logits", call="prefill", got=got)


@check(
    "step8.decode.agrees-with-own-forward",
    cases=sizes(dtypes=("float64", "float32")),
    examples=10,
    needs="kv",
    public=True,
    functions=(PREFILL, DECODE, FORWARD),
    families=("cache",),
    about=DECODING,
    stands_on="step8.forward.logits",
)
def decode_agrees(subject: Subject, case: Sizes) -> None:
    """decode_step gives, at every step, the last row that forward gives for the text so far."""
    fields, tokens = random_decoder(case)
    model = keep_model(subject, fields)
    own = own_forward(subject, model, tokens, case.dtype)
    _, cache = prefill(subject, model, tokens[:2], None, (2, VOCABULARY), case.dtype)
    for n in range(2, len(tokens)):
        got = decode(subject, model, tokens[n], cache, VOCABULARY, case.dtype)
        if apart(got, own[n], case.dtype):
            seen = f"after 2 tokens of prefill, decode step {n - 1} does not give forward's last row"
            raise Fail(seen, "the same logits", call=f"decode_step(model, {tokens[n]}, cache)", got=got)


CHUNKS = ((2, 3), (3, 1, 2), (1, 2, 2))


@check(
    "step8.prefill.goes-on-from-a-cache",
    cases=st.tuples(sizes(layers=(1, 2), heads=ONE_HEAD, tokens=(7, 8)), st.sampled_from(CHUNKS)),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE, PREFILL, DECODE, FORWARD),
    families=("cache",),
    about=("cache-given-ignored", "cache-chunk-misaligned", "cache-position-reset"),
    stands_on="step8.prefill.logits",
)
def prefill_goes_on_from_a_cache(subject: Subject, case: tuple[Sizes, tuple[int, ...]]) -> None:
    """prefill goes on from the cache that it is given, an empty one too, and gives it back: a prompt may come in chunks."""
    what, chunks = case
    fields, tokens = random_decoder(what)
    model = keep_model(subject, fields)
    own = own_forward(subject, model, tokens, what.dtype)
    cache = cache_for(subject, fields, len(tokens))
    done = 0
    for n in chunks:
        got, back = prefill(subject, model, tokens[done : done + n], cache, (n, VOCABULARY), what.dtype)
        if (
            ask(subject, "@same", cache, back, shown="prefill(model, tokens, cache=cache)[1] is cache").value
            is not True
        ):
            unused = length(subject, cache) == done
            seen = f"another cache came back{f', and the given one still holds {done} tokens' if unused else ''}"
            code = "cache-given-ignored" if unused else None
            raise Fail(seen, "the given cache, continued", code=code, call="prefill(model, tokens, cache=cache)")
        done += n
        if apart(got, own[done - n : done], what.dtype):
            seen = f"prefill in chunks: the logits of tokens {done - n + 1} to {done} are not forward's"
            raise Fail(seen, "the same logits", call="prefill(model, tokens, cache=cache)", got=got)
    for n in range(done, len(tokens)):
        got = decode(subject, model, tokens[n], cache, VOCABULARY, what.dtype)
        if apart(got, own[n], what.dtype):
            seen = (
                f"after chunks of {', '.join(map(str, chunks))} tokens a decode step does not give forward's last row"
            )
            raise Fail(seen, "the same logits", call=f"decode_step(model, {tokens[n]}, cache)", got=got)


@check(
    "step8.prefill.refuses-a-long-chunk",
    cases=sizes(layers=(1, 2), heads=ONE_HEAD, positions=("none",), tokens=(6, 8)),
    examples=4,
    needs="kv",
    public=True,
    functions=(KV_CACHE, PREFILL),
    families=("cache",),
    about=("cache-unbounded", "cache-capacity-off-by-one", "cache-truncated"),
    stands_on=("step8.cache.refuses-more", "step8.prefill.logits"),
)
def prefill_refuses_a_long_chunk(subject: Subject, case: Sizes) -> None:
    """A chunk that does not fit raises ValueError, and leaves every layer as it was."""
    fields, tokens = random_decoder(case)
    model = keep_model(subject, fields)
    cache = cache_for(subject, fields, len(tokens) - 1)
    prefill(subject, model, tokens[:3], cache, (3, VOCABULARY), case.dtype)
    before = [held(subject, cache, layer) for layer in range(case.n_layers)]
    asked = ask(subject, PREFILL, model, tokens[3:], cache=cache, shown="prefill(model, chunk, cache=cache)")
    must_refuse(asked, f"a chunk of {len(tokens) - 3} tokens for {len(tokens) - 4} free places")
    for layer, (keys, values) in enumerate(before):
        after = held(subject, cache, layer)
        if not (alike(after[0], keys) and alike(after[1], values)):
            seen = f"layer {layer} held {len(keys)} tokens before the refused chunk, and {len(after[0])} after it"
            raise asked.fail(seen, "nothing changed")
