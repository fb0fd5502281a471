"""Step 8 with an oracle: logits, and the keys and values held, against a recompute in float64.

Teacher forcing everywhere: the judge says every next token, so one wrong step does not hide the steps after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from grader import served
from harness.check import Fail, check
from harness.checks.step8_cache import (
    DECODE,
    FORWARD,
    GENERATE,
    KV_CACHE,
    PRECISION,
    PREFILL,
    held,
    length,
    must_refuse,
    store,
)
from harness.checks.step8_decoder import ONE_HEAD, Sizes, cache_for, decode, forward, keep_model, prefill, sizes
from harness.checks.step8_generate import PLAIN_LOOP, as_many_as_asked, count, generated, ids_of, new_ids
from harness.expect import ask, spell_value
from harness.subject import Subject
from harness.values import Array, Callback, Handle
from reference import cache as cached
from reference import decoder
from reference.decoder import Decoder, Layer

VOCABULARY = 31
ROUNDINGS = 16  # one rounding a weight moves logits by what a run in that dtype is off by; other orders are a few off
CACHED = (KV_CACHE, PREFILL, DECODE)
LOGITS, STEPS = "step8.prefill.logits", "step8.decode.logits"

# -- what is right, and how close is equal -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Logits (n, vocab) and each layer's K and V of a text, in float64.

    rounding   what legal orders of operations may move them by
    near       how far off they may be everywhere but in the checks of precision: a millionth of their size at least
    """

    logits: Array
    held: list[tuple[Array, Array]]
    rounding: float

    @property
    def near(self) -> float:
        return max(self.rounding, PRECISION * float(np.abs(self.logits).max()))


def truth(model: Decoder, tokens: Sequence[int]) -> Truth:
    """A legal order of operations gives the exact answer for weights that are moved by a few roundings.

    So the weights are moved, by a hundred-millionth, and what comes of it is scaled to the dtype's own rounding.
    """
    eps = float(np.finfo(model.embedding.dtype).eps)
    logits, kv = decoder.logits_and_keys_and_values(_wide(model), tokens)
    rng = np.random.default_rng(len(tokens))
    other, other_kv = decoder.logits_and_keys_and_values(_wide(model, rng, 1e-8), tokens)
    parts = zip([logits, *sum(kv, ())], [other, *sum(other_kv, ())], strict=True)
    moved = max(float(np.abs(a - b).max()) for a, b in parts)
    return Truth(logits, kv, ROUNDINGS * eps * (moved / 1e-8 + 1))


def _wide(model: Decoder, rng: np.random.Generator | None = None, by: float = 0.0) -> Decoder:
    """The model in float64, each weight moved by about its `by`-th part."""

    def move(weights: Array) -> Array:
        wide = weights.astype(np.float64)
        return wide if rng is None else wide * (1 + by * rng.standard_normal(wide.shape))

    layers = tuple(Layer(move(x.W_Q), move(x.W_K), move(x.W_V), move(x.W_O)) for x in model.layers)
    return replace(model, embedding=move(model.embedding), layers=layers)


def compare(got: Array, right: Array, near: float, what: str, call: str) -> None:
    error = np.abs(got.astype(np.float64) - right)
    if not error.size or error.max() <= near:
        return
    at = tuple(int(i) for i in np.unravel_index(error.argmax(), error.shape))
    seen = f"{what} are off by {error.max():.3g} at {list(at)}, {'/'.join(map(str, got.shape))} being the shape"
    raise Fail(seen, f"the recomputed ones to within {near:.1g}", call=call, got=got)


# -- decoders and texts ------------------------------------------------------------------------------------------------


def model_of(case: Sizes) -> tuple[Decoder, list[int]]:
    rng = np.random.default_rng(case.seed)
    model = decoder.random_model(
        rng,
        n_layers=case.n_layers,
        n_heads=case.n_heads,
        n_kv_heads=case.n_kv_heads,
        d_head=case.d_head,
        vocab=VOCABULARY,
        positions="sinusoidal" if case.positions == "sinusoidal" else "none",
        dtype=case.dtype,
    )
    return model, [int(t) for t in rng.integers(0, VOCABULARY, case.n_tokens)]


def fields_of(model: Decoder) -> dict[str, Any]:
    """The model as @model takes it."""
    layers = [{"W_Q": x.W_Q, "W_K": x.W_K, "W_V": x.W_V, "W_O": x.W_O} for x in model.layers]
    names = ("embedding", "n_heads", "n_kv_heads", "positions")
    return {**{name: getattr(model, name) for name in names}, "layers": layers}


@dataclass
class Run:
    """A submission's cache beside the truth about the text that is to go into it."""

    subject: Subject
    model: Decoder
    tokens: list[int]
    dtype: str

    def __post_init__(self) -> None:
        self.truth = truth(self.model, self.tokens)
        self.kept = keep_model(self.subject, fields_of(self.model))
        self.near = self.truth.near
        self.cache: Handle | None = None
        self.done = 0

    def start(self, capacity: int) -> None:
        """From here on a given cache of that capacity is filled."""
        self.cache = cache_for(self.subject, fields_of(self.model), capacity)

    def chunk(self, n: int, compared: bool = True) -> Array:
        """Prefills the next n tokens and compares their logits."""
        part = self.tokens[self.done : self.done + n]
        shape = (n, len(self.model.embedding))
        logits, self.cache = prefill(self.subject, self.kept, part, self.cache, shape, self.dtype)
        right = self.truth.logits[self.done : self.done + n]
        what = f"logits of tokens {self.done + 1} to {self.done + n}"
        self.done += n
        if compared:
            compare(logits, right, self.near, what, f"prefill(model, {part}, cache)")
        return logits

    def step(self, compared: bool = True) -> Array:
        """Decodes the next token and compares its logits."""
        assert self.cache is not None
        token = self.tokens[self.done]
        logits = decode(self.subject, self.kept, token, self.cache, len(self.model.embedding), self.dtype)
        what, call = f"logits of token {self.done + 1}", f"decode_step(model, {token}, cache)"
        self.done += 1
        if compared:
            compare(logits, self.truth.logits[self.done - 1], self.near, what, call)
        return logits

    def check_held(self) -> None:
        """Compares the K and V of every layer, and the length."""
        assert self.cache is not None
        for i, (k, v) in enumerate(self.truth.held):
            keys, values = held(self.subject, self.cache, i, k[: self.done].shape)
            compare(keys, k[: self.done], self.near, f"keys of layer {i}", f"cache.keys({i})")
            compare(values, v[: self.done], self.near, f"values of layer {i}", f"cache.values({i})")
        if (got := length(self.subject, self.cache)) != self.done:
            raise Fail(f"len(cache) is {got} after {self.done} tokens", f"{self.done}", call="len(cache)")


def begin(subject: Subject, case: Sizes) -> Run:
    model, tokens = model_of(case)
    return Run(subject, model, tokens, case.dtype)


# Of one layer, one head and no positions, and what may be added to that.
PLAIN: dict[str, Any] = {"layers": (1,), "heads": ONE_HEAD, "positions": ("none",)}
TWO_LAYERS = {**PLAIN, "layers": (1, 2)}
HEADS = ((2, 2), (3, 3))
GROUPED = ((4, 2), (3, 1), (6, 3), (6, 2))


def oracle(id: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A check of kv_cache.py in the worker it works with."""
    return check(id, **{"needs": "kv", "families": ("cache",), "examples": 8, **options})


# -- forward and prefill -----------------------------------------------------------------------------------------------


@oracle("step8.forward.logits", cases=sizes(**PLAIN, tokens=(1, 7)), functions=(FORWARD,))
def forward_logits(subject: Subject, case: Sizes) -> None:
    """forward gives the decoder's logits: one layer, one head, no positions."""
    _forward(subject, case)


@oracle(
    "step8.forward.every-decoder",
    cases=sizes(dtypes=("float64", "float32")),
    functions=(FORWARD,),
    examples=14,
    stands_on="step8.forward.logits",
)
def forward_every_decoder(subject: Subject, case: Sizes) -> None:
    """forward gives the decoder's logits with several heads and layers, grouped heads and sinusoidal positions too."""
    _forward(subject, case)


def _forward(subject: Subject, case: Sizes) -> None:
    model, tokens = model_of(case)
    right = truth(model, tokens)
    got = forward(subject, keep_model(subject, fields_of(model)), tokens, VOCABULARY, case.dtype)
    compare(got, right.logits, right.near, "logits", f"forward(model, {tokens})")


@oracle(LOGITS, cases=sizes(**PLAIN, tokens=(1, 8)), functions=(PREFILL,), examples=10)
def prefill_logits(subject: Subject, case: Sizes) -> None:
    """prefill of a whole prompt gives the logits of a recompute: one layer, one head, no positions."""
    run = begin(subject, case)
    run.chunk(len(run.tokens))


@oracle("step8.prefill.every-decoder", cases=sizes(tokens=(1, 8)), functions=(PREFILL,), examples=12, stands_on=LOGITS)
def prefill_every_decoder(subject: Subject, case: Sizes) -> None:
    """prefill gives the logits of a recompute with several heads and layers, grouped heads and sinusoidal positions too."""
    run = begin(subject, case)
    run.chunk(len(run.tokens))


@oracle(
    "step8.prefill.holds-keys-and-values",
    cases=st.one_of(sizes(**{**PLAIN, "heads": (*HEADS, *GROUPED)}), sizes(**{**PLAIN, "layers": (2, 3)})),
    functions=CACHED[:2],
)
def prefill_holds(subject: Subject, case: Sizes) -> None:
    """After prefill the cache holds every layer's K and V, of every prompt token once."""
    run = begin(subject, case)
    run.chunk(len(run.tokens), compared=False)
    run.check_held()


CHUNKS = ((6, 3), (4, 2, 2), (4, 3, 2), (1,) * 9, (6, 1, 1, 1), (2, 5))


@oracle(
    "step8.prefill.in-chunks",
    cases=st.tuples(sizes(layers=(1, 2), heads=ONE_HEAD, tokens=(9, 9)), st.sampled_from(CHUNKS)),
    functions=CACHED[:2],
    examples=12,
    stands_on=LOGITS,
)
def prefill_in_chunks(subject: Subject, case: tuple[Sizes, tuple[int, ...]]) -> None:
    """A prompt that arrives in chunks gives the same logits, and leaves the same K and V, as one that arrives whole."""
    run = begin(subject, case[0])
    for n in case[1]:
        run.chunk(n)
    run.check_held()


@oracle(
    "step8.prefill.continues-in-place",
    cases=sizes(**TWO_LAYERS, tokens=(4, 7)),
    functions=CACHED[:2],
    about=("cache-given-ignored",),
)
def prefill_continues_in_place(subject: Subject, case: Sizes) -> None:
    """prefill continues the cache that it is given, an empty one too, and returns that very cache."""
    run = begin(subject, case)
    run.start(len(run.tokens))
    given = run.cache
    assert given is not None
    for n in (2, len(run.tokens) - 2):
        before = length(subject, given)
        run.chunk(n, compared=False)
        same = ask(subject, "@same", given, run.cache, shown="prefill(model, tokens, cache)[1] is cache")
        if same.value is not True:
            unused = length(subject, given) == before
            seen = f"another cache came back, and the given one {'still ' if unused else ''}holds {before} tokens"
            raise same.fail(
                seen if unused else "another cache came back",
                "the given cache, continued",
                "cache-given-ignored" if unused else None,
            )
    run.check_held()


@oracle(
    "step8.prefill.makes-room",
    cases=sizes(**PLAIN, tokens=(1, 6)),
    functions=CACHED[:2],
    examples=3,
)
def prefill_makes_room(subject: Subject, case: Sizes) -> None:
    """Without a cache, prefill makes one with room for at least 1024 more tokens."""
    run = begin(subject, case)
    run.chunk(len(run.tokens), compared=False)
    assert run.cache is not None
    more = np.zeros((1024, case.n_kv_heads, case.d_head))
    store(subject, run.cache, 0, more, more)


@oracle(
    "step8.prefill.refuses-what-does-not-fit",
    cases=sizes(**TWO_LAYERS, tokens=(6, 9)),
    functions=CACHED[:2],
    about=("cache-unbounded", "cache-capacity-off-by-one", "cache-truncated"),
)
def prefill_refuses(subject: Subject, case: Sizes) -> None:
    """A chunk that does not fit raises ValueError and leaves every layer unchanged; one that fits exactly is fine."""
    run = begin(subject, case)
    room = len(run.tokens) - 3
    run.start(room)
    run.chunk(2, compared=False)
    asked = ask(
        subject,
        PREFILL,
        run.kept,
        run.tokens[2 : room + 1],
        cache=run.cache,
        shown="prefill(model, chunk, cache=cache)",
    )
    must_refuse(asked, f"a chunk of {room - 1} tokens for {room - 2} free places")
    run.check_held()
    run.chunk(room - 2, compared=False)
    run.check_held()


@oracle(
    "step8.prefill.tokens-of-any-kind",
    cases=sizes(**PLAIN, tokens=(3, 6)),
    functions=(PREFILL, FORWARD),
    stands_on=LOGITS,
)
def tokens_of_any_kind(subject: Subject, case: Sizes) -> None:
    """Tokens may come as a list, a tuple or an array."""
    model, tokens = model_of(case)
    right = truth(model, tokens)
    kept = keep_model(subject, fields_of(model))
    for given in (tuple(tokens), np.array(tokens), np.array(tokens, np.int32), tokens):
        got, _ = prefill(subject, kept, given, None, right.logits.shape, case.dtype)
        compare(got, right.logits, right.near, "logits", f"prefill(model, a {type(given).__name__} of tokens)")


# -- decode ------------------------------------------------------------------------------------------------------------


def _decode(subject: Subject, case: Sizes, prompt: int = 3) -> Run:
    run = begin(subject, case)
    run.chunk(prompt)
    for _ in range(len(run.tokens) - prompt):
        run.step()
    return run


@oracle(STEPS, cases=sizes(**PLAIN), functions=CACHED, examples=10)
def decode_logits(subject: Subject, case: Sizes) -> None:
    """decode_step gives the logits of a recompute at every step: one layer, one head, no positions."""
    _decode(subject, case)


@oracle(
    "step8.decode.holds-keys-and-values",
    cases=st.one_of(sizes(**{**PLAIN, "heads": (*HEADS, *GROUPED)}), sizes(**{**PLAIN, "layers": (2, 3)})),
    functions=CACHED,
)
def decode_holds(subject: Subject, case: Sizes) -> None:
    """After each decode_step the cache holds every layer's K and V of exactly one token more."""
    run = begin(subject, case)
    run.chunk(3, compared=False)
    for _ in range(3, len(run.tokens)):
        run.step(compared=case.n_layers > 1)  # what a second layer holds stands on what the first one gives
        run.check_held()


@oracle(
    "step8.decode.positions",
    cases=sizes(**{**PLAIN, "positions": ("sinusoidal",)}),
    functions=CACHED,
    stands_on=STEPS,
    about=("cache-position-reset", "positions-ignored", "positions-misplaced", "cache-chunk-misaligned"),
)
def decode_positions(subject: Subject, case: Sizes) -> None:
    """A decoded token has its absolute position in the text."""
    _decode(subject, case)


@oracle(
    "step8.decode.grouped-heads",
    cases=sizes(**{**PLAIN, "heads": (*HEADS, *GROUPED)}),
    functions=CACHED,
    examples=10,
    stands_on=STEPS,
)
def decode_grouped_heads(subject: Subject, case: Sizes) -> None:
    """Query head i reads K/V head i // (n_heads // n_kv_heads): multi-head, grouped-query and multi-query attention."""
    _decode(subject, case)


@oracle("step8.decode.layers", cases=sizes(**{**PLAIN, "layers": (2, 3)}), functions=CACHED, stands_on=STEPS)
def decode_layers(subject: Subject, case: Sizes) -> None:
    """With two and three layers, each decodes over its own keys and values."""
    _decode(subject, case)


@oracle(
    "step8.decode.every-decoder",
    cases=sizes(layers=(2, 3), heads=GROUPED, positions=("sinusoidal",)),
    functions=CACHED,
    stands_on=STEPS,
)
def decode_every_decoder(subject: Subject, case: Sizes) -> None:
    """Grouped heads, several layers and positions at once: logits at every step, and K and V at the end."""
    _decode(subject, case).check_held()


@oracle("step8.decode.float32", cases=sizes(**TWO_LAYERS, dtypes=("float32",)), functions=CACHED, stands_on=STEPS)
def decode_float32(subject: Subject, case: Sizes) -> None:
    """A float32 decoder decodes to within what float32 rounds."""
    _decode(subject, case)


@oracle(
    "step8.decode.after-chunks",
    cases=st.tuples(sizes(layers=(1, 2), heads=ONE_HEAD, tokens=(9, 9)), st.sampled_from(((4, 2), (2, 3, 2), (1, 6)))),
    functions=CACHED,
    stands_on=(STEPS, LOGITS),
)
def decode_after_chunks(subject: Subject, case: tuple[Sizes, tuple[int, ...]]) -> None:
    """Chunks and single tokens in turns give the logits of a recompute."""
    run = begin(subject, case[0])
    for n in case[1]:
        run.chunk(n)
    while run.done < len(run.tokens):
        run.step()
    run.check_held()


@oracle(
    "step8.decode.full-precision", cases=sizes(**TWO_LAYERS, dtypes=("float64",)), functions=CACHED, stands_on=STEPS
)
def decode_full_precision(subject: Subject, case: Sizes) -> None:
    """A float64 decoder decodes to within what float64 rounds: its keys and values are held in float64 too."""
    run = begin(subject, case)
    run.near = run.truth.rounding
    run.chunk(3)
    for _ in range(3, len(run.tokens)):
        run.step()


@oracle(
    "step8.decode.long-text",
    cases=sizes(layers=(1,), heads=ONE_HEAD, tokens=(516, 516)),
    functions=CACHED,
    examples=2,
    stands_on=STEPS,
    about=("cache-truncated",),
)
def decode_long_text(subject: Subject, case: Sizes) -> None:
    """In texts of 260 and 516 tokens the newest still sees the first, and stands in its own place."""
    for n in (260, 516):
        _decode(subject, replace(case, n_tokens=n), prompt=n - 6)


@oracle(
    "step8.decode.two-requests",
    cases=sizes(**TWO_LAYERS, tokens=(6, 8)),
    functions=CACHED,
    stands_on=STEPS,
    about=("cache-shared-state",),
)
def decode_two_requests(subject: Subject, case: Sizes) -> None:
    """Two requests that take turns get each its own logits."""
    first, second = begin(subject, case), begin(subject, replace(case, seed=case.seed ^ 1))
    first.chunk(3)
    second.chunk(2)
    for _ in range(3):
        first.step()
        second.step()
    first.check_held()
    second.check_held()


@oracle(
    "step8.decode.forked",
    cases=sizes(**TWO_LAYERS, tokens=(6, 8)),
    functions=CACHED,
    stands_on=STEPS,
    about=("cache-shared-state",),
)
def decode_forked(subject: Subject, case: Sizes) -> None:
    """A cache filled with another's keys and values goes its own way from there."""
    model, tokens = model_of(case)
    other_way = tokens[:3] + [(t + 1) % VOCABULARY for t in tokens[3:]]
    one, two = (Run(subject, model, text, case.dtype) for text in (tokens, other_way))
    one.chunk(3)
    two.start(len(tokens))
    assert one.cache is not None
    assert two.cache is not None
    for i in range(case.n_layers):
        store(subject, two.cache, i, *held(subject, one.cache, i))
    two.done = 3
    for _ in range(2):
        one.step()
        two.step()
    one.check_held()
    two.check_held()


@oracle(
    "step8.decode.uses-the-cache",
    cases=sizes(**TWO_LAYERS, tokens=(5, 8)),
    functions=CACHED,
    stands_on=STEPS,
    about=("cache-unused",),
)
def decode_uses_the_cache(subject: Subject, case: Sizes) -> None:
    """decode_step reads the K and V of earlier tokens from the cache: new W_K and W_V leave them as they are."""
    model, tokens = model_of(case)
    other, _ = model_of(replace(case, seed=case.seed ^ 1))
    layers = tuple(replace(x, W_K=y.W_K, W_V=y.W_V) for x, y in zip(model.layers, other.layers, strict=True))
    changed = replace(model, layers=layers)
    _, own = cached.prefill(model, tokens[:-1])
    from_cache = cached.decode_step(changed, tokens[-1], own)
    recomputed = decoder.forward(changed, tokens)[-1]
    run = Run(subject, model, tokens, case.dtype)
    run.chunk(len(tokens) - 1)
    assert run.cache is not None
    kept = keep_model(subject, fields_of(changed))
    got = decode(subject, kept, tokens[-1], run.cache, VOCABULARY, case.dtype)
    near = max(100 * run.truth.rounding, run.near)
    if np.abs(got - from_cache).max() <= near:
        return
    code = "cache-unused" if np.abs(got - recomputed).max() <= near else None
    seen = "with other W_K and W_V from here on, the logits are " + ("those of a recompute" if code else "neither")
    raise Fail(seen, "those over the cached K and V", code=code, call="decode_step(other_model, token, cache)", got=got)


@oracle(
    "step8.decode.refuses-when-full",
    cases=sizes(**TWO_LAYERS, tokens=(4, 7)),
    functions=CACHED,
    about=("cache-unbounded", "cache-capacity-off-by-one", "cache-truncated"),
)
def decode_refuses_when_full(subject: Subject, case: Sizes) -> None:
    """decode_step fills the last place, then raises ValueError and changes nothing."""
    run = begin(subject, case)
    run.start(len(run.tokens))
    run.chunk(len(run.tokens) - 1, compared=False)
    run.step(compared=False)
    asked = ask(subject, DECODE, run.kept, 0, run.cache, shown="decode_step(model, 0, cache)")
    must_refuse(asked, "a token for a full cache")
    run.check_held()


@oracle(
    "step8.decode.leaves-the-model",
    cases=sizes(**TWO_LAYERS, tokens=(4, 6)),
    functions=CACHED,
    examples=4,
)
def leaves_the_model(subject: Subject, case: Sizes) -> None:
    """Nothing passed in is changed but the cache: not the model's arrays, not the tokens."""
    model, tokens = model_of(case)
    kept = keep_model(subject, fields_of(model))
    prompt = ask(subject, "@array", np.array(tokens)).value
    _, cache = prefill(subject, kept, tokens, None, (len(tokens), VOCABULARY), case.dtype)
    decode(subject, kept, tokens[0], cache, VOCABULARY, case.dtype)
    if subject.backend == "numpy":
        forwarded = ask(subject, FORWARD, kept, prompt, shown="forward(model, tokens)")
        forwarded.array((len(tokens), VOCABULARY))
        if not np.array_equal(ask(subject, "@fetch", prompt).value, tokens):
            raise forwarded.fail(
                "the tokens were changed during the call", "arguments left as they were", "input-mutated"
            )
    for name, before in _arrays(model):
        after = _fetch(subject, kept, name)
        if not (isinstance(after, np.ndarray) and np.array_equal(after, before)):
            seen = f"the model's {'.'.join(map(str, name))} was changed"
            raise Fail(seen, "a model left as it was", code="input-mutated", call="prefill, decode_step", got=after)


def _arrays(model: Decoder) -> Iterator[tuple[tuple[str | int, ...], Array]]:
    yield ("embedding",), model.embedding
    for i, layer in enumerate(model.layers):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            yield ("layers", i, name), getattr(layer, name)


def _fetch(subject: Subject, model: Handle, name: tuple[str | int, ...]) -> Any:
    if len(name) == 1:
        return ask(subject, "@attr", model, name[0]).value
    layers = ask(subject, "@attr", model, "layers", keep=True).value
    return ask(subject, "@attr", layers[int(name[1])], name[2]).value


# -- generate ----------------------------------------------------------------------------------------------------------

GREEDY = "step8.generate.greedy"
texts = st.tuples(sizes(**PLAIN, tokens=(2, 6)), st.integers(2, 8))


def _asked(case: Sizes) -> tuple[Decoder, list[int]]:
    """A decoder and a prompt. Every second decoder has small embeddings: all ids are about as good, and one is best."""
    model, prompt = model_of(case)
    return (replace(model, embedding=model.embedding / 20) if case.seed % 2 else model), prompt


def _right_ids(model: Decoder, prompt: list[int], n: int) -> list[int]:
    """The greedy ids, as far as the two best logits differ by more than rounding, in a float32 cache too."""
    ids: list[int] = []
    for _ in range(n):
        right = truth(model, prompt + ids)
        second, best = np.sort(right.logits[-1])[-2:]
        if best - second <= 4 * right.near:
            break
        ids.append(int(np.argmax(right.logits[-1])))
    return ids


def _same_ids(got: list[int], right: list[int], call: str) -> None:
    first = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), None)
    if first is not None:
        seen = f"{got} came back: id {first + 1} is not the best"
        raise Fail(seen, "the id with the largest logit, each time", call=call)


@oracle(GREEDY, cases=texts, functions=(GENERATE,), examples=12)
def generate_greedy(subject: Subject, case: tuple[Sizes, int]) -> None:
    """generate gives, with the cache, the id of the largest logit at every step: one head, no positions."""
    _greedy(subject, case, True)


@oracle("step8.generate.without-the-cache", cases=texts, functions=(GENERATE,))
def generate_without_the_cache(subject: Subject, case: tuple[Sizes, int]) -> None:
    """generate gives the same ids with use_cache=False."""
    _greedy(subject, case, False)


@oracle(
    "step8.generate.every-decoder",
    cases=st.tuples(st.tuples(sizes(tokens=(2, 6)), st.integers(2, 8)), st.booleans()),
    functions=(GENERATE,),
    stands_on=GREEDY,
)
def generate_every_decoder(subject: Subject, case: tuple[tuple[Sizes, int], bool]) -> None:
    """generate gives these ids with several heads and layers, grouped heads and sinusoidal positions too."""
    _greedy(subject, *case)


def _greedy(subject: Subject, case: tuple[Sizes, int], use_cache: bool) -> None:
    (what, n) = case
    model, prompt = _asked(what)
    got = generated(subject, keep_model(subject, fields_of(model)), prompt, n, use_cache, VOCABULARY)
    how = "" if use_cache else ", use_cache=False"
    _same_ids(got, _right_ids(model, prompt, n), f"generate(model, {prompt}, {n}{how})")


@oracle(
    "step8.generate.as-many-as-asked",
    cases=st.tuples(texts, st.booleans()),
    functions=(GENERATE,),
    about=("generate-off-by-one", "generate-total-length", "generate-not-greedy"),
    stands_on=PLAIN_LOOP,
)
def generate_as_many_as_asked(subject: Subject, case: tuple[tuple[Sizes, int], bool]) -> None:
    """max_new_tokens may be 0 or 1, and 30 are not stopped short."""
    (what, _), use_cache = case
    model, prompt = model_of(replace(what, n_layers=1))
    kept = keep_model(subject, fields_of(model))
    for n in (0, 1, 30):
        as_many_as_asked(subject, kept, prompt, n, use_cache, VOCABULARY)


@oracle(
    "step8.generate.calls-apart",
    cases=st.tuples(texts, st.booleans()),
    functions=(GENERATE,),
    stands_on=GREEDY,
    about=("cache-shared-state", "not-deterministic"),
)
def generate_calls_apart(subject: Subject, case: tuple[tuple[Sizes, int], bool]) -> None:
    """Two calls of generate share nothing: what one was asked does not change what the other answers."""
    (what, n), use_cache = case
    model, prompt = _asked(what)
    kept = keep_model(subject, fields_of(model))
    other = [(t + 3) % VOCABULARY for t in prompt]
    for text in (prompt, other, prompt):
        got = generated(subject, kept, text, n, use_cache, VOCABULARY)
        _same_ids(got, _right_ids(model, text, n), f"generate(model, {text}, {n}, use_cache={use_cache})")


@oracle(
    "step8.generate.leaves-the-prompt",
    cases=st.tuples(sizes(**PLAIN, tokens=(2, 5)), st.booleans()),
    functions=(GENERATE,),
    stands_on=GREEDY,
    examples=6,
)
def generate_leaves_the_prompt(subject: Subject, case: tuple[Sizes, bool]) -> None:
    """The prompt is left unchanged, and may be a list, a tuple or an array."""
    model, prompt = model_of(case[0])
    kept = keep_model(subject, fields_of(model))
    right = _right_ids(model, prompt, 3)
    for given in (prompt, tuple(prompt), np.array(prompt)):
        asked = ask(
            subject, GENERATE, kept, given, 3, use_cache=case[1], echo=True, shown=f"generate(model, {prompt}, 3)"
        )
        ids = ids_of(asked, 3, VOCABULARY)
        if given is not prompt and len(ids) not in (2, 3, 4, 3 + len(prompt)):  # a list has got its ids
            seen = f"{count(len(ids))} came back for a {type(given).__name__}"
            raise asked.fail(seen, f"{count(3)}, as for a list", "generate-off-by-one")
        after = asked.outcome.echo[1] if len(asked.outcome.echo) > 1 else given
        if not np.array_equal(after, prompt):
            seen = f"the prompt was {prompt} and is {spell_value(after)}"
            raise asked.fail(seen, "a prompt left as it was", "input-mutated")
        _same_ids(new_ids(asked, ids, prompt, 3), right, asked.text)


# A prompt this long and this many new tokens: with a cache they add NEW - 1 query rows a head, without it whole texts.
PROMPT, NEW = 24, 10


class _Rows:
    """The right attention, lent, and the rows of queries that it was asked for."""

    def __init__(self) -> None:
        self.of_attention = self.of_softmax = 0

    def lent(self) -> dict[str, dict[str, Callback]]:
        functions = {name: callback.function for name, callback in served.stand_ins()["attention"].items()}

        def count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **kwargs: Any) -> Any:
                first = args[0] if args else next(iter(kwargs.values()), None)
                if isinstance(first, np.ndarray) and first.ndim:
                    rows = int(np.prod(first.shape[:-1]))
                    self.of_softmax += rows if name == "softmax" else 0
                    self.of_attention += rows if name in ("scaled_dot_product_attention", "self_attention") else 0
                return function(*args, **kwargs)

            return counted

        return {"attention": {name: Callback(count(name, f)) for name, f in functions.items()}}


def _growth(subject: Subject, case: Sizes, use_cache: bool) -> float | None:
    """Rows of queries that the new tokens after the first cost, by those of the prompt; None where none are seen.

    With a cache (NEW - 1) / PROMPT, without one about NEW - 1 + NEW² / (2 PROMPT).
    """
    model, prompt = model_of(replace(case, n_tokens=PROMPT))
    seen = []
    for n in (1, NEW):
        rows = _Rows()
        with subject.lend(rows.lent()) as over_ours:
            over_ours.load("kv_cache")
            rows.of_attention = rows.of_softmax = 0
            kept = keep_model(over_ours, fields_of(model))
            if not ask(over_ours, GENERATE, kept, prompt, n, use_cache=use_cache).outcome.ok:
                return None
        seen.append((rows.of_attention or rows.of_softmax, bool(rows.of_attention)))
    (first, kind), (all_of_them, other_kind) = seen
    return (all_of_them - first) / first if first and kind == other_kind else None


_CACHED = (NEW - 1) / PROMPT
_RECOMPUTED = sum(range(PROMPT + 1, PROMPT + NEW)) / PROMPT
_BETWEEN = float(np.sqrt(_CACHED * _RECOMPUTED))
small = sizes(layers=(1,), heads=((2, 1),), positions=("none",))


@oracle(
    "step8.generate.uses-the-cache",
    cases=small,
    functions=(GENERATE,),
    stands_on=GREEDY,
    examples=1,
    about=("cache-unused",),
)
def generate_uses_the_cache(subject: Subject, case: Sizes) -> None:
    """With the cache, every new token asks attention for one row a head, not for the whole text again."""
    growth = _growth(subject, case, True)
    if growth is not None and growth > _BETWEEN:
        seen = f"{NEW - 1} more tokens cost {growth:.1f} times the query rows that a prompt of {PROMPT} costs"
        raise Fail(seen, f"about {_CACHED:.2f} times", code="cache-unused", call=f"generate(model, prompt, {NEW})")


@oracle(
    "step8.generate.recomputes-without",
    cases=small,
    functions=(GENERATE,),
    examples=1,
    about=("use-cache-ignored",),
    stands_on="step8.generate.without-the-cache",
)
def generate_recomputes_without(subject: Subject, case: Sizes) -> None:
    """With use_cache=False the whole text is recomputed for every new token."""
    growth = _growth(subject, case, False)
    if growth is not None and growth < _BETWEEN:
        seen = f"{NEW - 1} more tokens cost {growth:.2f} times the query rows that a prompt of {PROMPT} costs"
        expected = f"about {_RECOMPUTED:.1f} times"
        raise Fail(seen, expected, code="use-cache-ignored", call=f"generate(model, prompt, {NEW}, use_cache=False)")
