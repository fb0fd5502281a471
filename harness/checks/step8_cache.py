"""Step 8 without an oracle: a cache gives back what it was given, and cached decoding answers as forward does.

What is compared here is the submission with itself, and with the contract's own arithmetic. That its forward is right
is for the checks with an oracle to say.
"""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check, fail_of, step
from harness.expect import Asked, ask
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Dtype, Handle, Opaque

step(8, "KV cache: prefill, decode, generate", "7.9, step 8")

ITEMSIZE = {"float16": 2, "float32": 4, "float64": 8}
KV_CACHE = "kv_cache.KVCache"
PREFILL, DECODE, FORWARD, GENERATE = (f"kv_cache.{name}" for name in ("prefill", "decode_step", "forward", "generate"))

# -- caches ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CacheCase:
    """Sizes of a cache, what is appended to it as (layer, n_new), and the seed of the values."""

    n_layers: int
    n_kv_heads: int
    d_head: int
    appends: tuple[tuple[int, int], ...]
    dtype: Dtype
    seed: int

    @property
    def longest(self) -> int:
        return max((sum(n for at, n in self.appends if at == layer) for layer in range(self.n_layers)), default=0)


@st.composite
def cache_cases(draw: st.DrawFn) -> CacheCase:
    """Layers of unequal length, several appends each, of one token or more."""
    n_layers = draw(st.integers(1, 3))
    one = st.tuples(st.integers(0, n_layers - 1), st.integers(1, 4))
    appends = [(layer, draw(st.integers(1, 3))) for layer in range(n_layers)]
    appends += draw(st.lists(one, min_size=2, max_size=4))
    return CacheCase(
        n_layers,
        draw(st.integers(1, 3)),
        draw(st.integers(2, 5)),
        tuple(appends),
        Dtype(draw(st.sampled_from(sorted(ITEMSIZE))), draw(st.sampled_from(["type", "text", "object"]))),
        draw(st.integers(0, 2**32 - 1)),
    )


def new_cache(
    subject: Subject, n_layers: int, n_kv_heads: int, d_head: int, capacity: int, dtype: Dtype | str = "float64"
) -> Handle:
    """A cache of the submission's, which must hold nothing yet."""
    kind = dtype if isinstance(dtype, Dtype) else Dtype(dtype)
    shown = f"KVCache({n_layers}, {n_kv_heads}, {d_head}, {capacity}, {kind.name})"
    made = ask(subject, KV_CACHE, n_layers, n_kv_heads, d_head, capacity, kind, keep=True, shown=shown)
    if not isinstance(made.value, Handle):
        raise made.fail(f"{shown} gives {type(made.value).__name__}", "a cache", "not-an-array")
    if length(subject, made.value) != 0:
        raise made.fail(f"a new cache has length {length(subject, made.value)}", "0: it holds nothing yet")
    return made.value


def append(subject: Subject, cache: Handle, layer: int, k: Any, v: Any) -> Asked:
    return ask(subject, "@method", cache, "append", layer, k, v, shown=f"cache.append({layer}, k, v)")


def store(subject: Subject, cache: Handle, layer: int, k: Any, v: Any) -> None:
    """An append that must work."""
    asked = append(subject, cache, layer, k, v)
    if not asked.outcome.ok:
        raise fail_of(asked.outcome, asked.text, asked.inputs)


def length(subject: Subject, cache: Handle) -> int:
    asked = ask(subject, "@len", cache, shown="len(cache)")
    if type(asked.value) is not int:
        raise asked.fail("len(cache) is no int", "a number of tokens", "not-an-array")
    return asked.value


def held(subject: Subject, cache: Handle, layer: int, shape: tuple[int, ...] | None = None) -> tuple[Array, Array]:
    """keys(layer) and values(layer), of that shape where one is given."""
    both = []
    for name in ("keys", "values"):
        asked = ask(subject, "@method", cache, name, layer, shown=f"cache.{name}({layer})")
        if not isinstance(asked.value, np.ndarray):
            raise asked.fail("no array came back", "an array (length, n_kv_heads, d_head)", "not-an-array")
        both.append(asked.value if shape is None else asked.array(shape, finite=False))
    return both[0], both[1]


def random_rows(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape)


def fill(subject: Subject, case: CacheCase, capacity: int) -> tuple[Handle, list[tuple[Array, Array]]]:
    """A cache with the case's appends in it, and what each layer should hold."""
    rng = np.random.default_rng(case.seed)
    cache = new_cache(subject, case.n_layers, case.n_kv_heads, case.d_head, capacity, case.dtype)
    given: list[list[tuple[Array, Array]]] = [[] for _ in range(case.n_layers)]
    for layer, n in case.appends:
        k, v = (random_rows(rng, n, case.n_kv_heads, case.d_head).astype(case.dtype.name) for _ in range(2))
        store(subject, cache, layer, k, v)
        given[layer].append((k, v))
    return cache, [(np.concatenate([k for k, _ in pairs]), np.concatenate([v for _, v in pairs])) for pairs in given]


def refused(outcome: Outcome) -> bool:
    """Whether a call raised ValueError; an exception class of the submission's own may be a kind of it."""
    if outcome.kind != "raised":
        return False
    known = getattr(builtins, outcome.type, None)
    return issubclass(known, ValueError) if isinstance(known, type) else True


def must_refuse(asked: Asked, what: str) -> None:
    if not refused(asked.outcome):
        if asked.outcome.kind == "value":
            raise asked.fail(f"{what} was accepted", "ValueError")
        if asked.outcome.kind == "raised":
            raise asked.fail(f"{what} raised {asked.outcome.type}", "ValueError")
        raise fail_of(asked.outcome, asked.text, asked.inputs)


@check(
    "step8.cache.stores-what-is-appended",
    cases=cache_cases(),
    examples=10,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
)
def stores_what_is_appended(subject: Subject, case: CacheCase) -> None:
    """keys(layer) and values(layer) give everything appended to that layer, in order, cast to the cache's dtype."""
    cache, expected = fill(subject, case, case.longest + 3)
    for layer, (k, v) in enumerate(expected):
        keys, values = held(subject, cache, layer, k.shape)
        _equal_rows(keys, k, f"keys({layer})")
        _equal_rows(values, v, f"values({layer})")


def _equal_rows(got: Array, appended: Array, name: str) -> None:
    if not np.array_equal(got, appended):
        wrong = sorted({int(row) for row in np.argwhere(got != appended)[:, 0]})
        rows = ", ".join(str(row) for row in wrong[:6])
        seen = f"{name}: row {rows} is not what was appended there"
        raise Fail(seen, "what was appended, in order", call=f"cache.{name}", got=got)


@check(
    "step8.cache.counts-tokens",
    cases=cache_cases(),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    about=("cache-length-wrong",),
    stands_on="step8.cache.stores-what-is-appended",
)
def counts_tokens(subject: Subject, case: CacheCase) -> None:
    """len(cache) is the number of tokens that every layer holds: the least of the layers."""
    cache, expected = fill(subject, case, case.longest + 2)
    lengths = [len(k) for k, _ in expected]
    got = length(subject, cache)
    if got != min(lengths):
        raise Fail(f"len(cache) is {got} where the layers hold {lengths} tokens", f"{min(lengths)}", call="len(cache)")


@check(
    "step8.cache.holds-the-dtype",
    cases=cache_cases(),
    examples=10,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    stands_on="step8.cache.stores-what-is-appended",
)
def holds_the_dtype(subject: Subject, case: CacheCase) -> None:
    """Keys and values are held in the dtype that was asked for, however wide the arrays appended are."""
    rng = np.random.default_rng(case.seed)
    cache = new_cache(subject, 1, case.n_kv_heads, case.d_head, 9, case.dtype)
    name = case.dtype.name
    for n, given in ((2, "float32"), (1, "float64"), (3, "float32")):
        k, v = (random_rows(rng, n, case.n_kv_heads, case.d_head).astype(given) for _ in range(2))
        store(subject, cache, 0, k, v)
        for what, array in zip(("keys", "values"), held(subject, cache, 0), strict=True):
            if str(array.dtype) != name:
                seen = f"{what}(0) has dtype {array.dtype} in a cache of {name}, after {given} was appended"
                raise Fail(seen, name, code="cache-wrong-dtype", call=f"cache.{what}(0)", got=array)


@check(
    "step8.cache.copies-in",
    cases=cache_cases(),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    stands_on="step8.cache.stores-what-is-appended",
)
def copies_in(subject: Subject, case: CacheCase) -> None:
    """append copies: an array that its owner changes afterwards changes nothing in the cache."""
    rng = np.random.default_rng(case.seed)
    cache = new_cache(subject, 1, case.n_kv_heads, case.d_head, 9, case.dtype)
    for n, start in ((3, 0), (2, 3)):
        shape = (n, case.n_kv_heads, case.d_head)
        for_later: list[tuple[Handle, Array, Array]] = []
        for _ in range(2):
            before, after = (random_rows(rng, *shape).astype(case.dtype.name) for _ in range(2))
            for_later.append((ask(subject, "@tensor", before).value, before, after))
        store(subject, cache, 0, for_later[0][0], for_later[1][0])
        for handle, _, after in for_later:
            changed = ask(subject, "@set", handle, after).value
            assert changed is True
        for what, array, (_, before, after) in zip(("keys", "values"), held(subject, cache, 0), for_later, strict=True):
            rows = array[start : start + n]
            if rows.shape == shape and np.array_equal(rows, after):
                seen = f"{what}(0) changed when the array that had been appended was changed"
                code = "cache-aliases-input"
                raise Fail(seen, "a copy of what was appended", code=code, call="cache.append(0, k, v)", got=array)
            if not np.array_equal(rows, before):
                seen = f"{what}(0) is not what was appended"
                raise Fail(seen, "what was appended", call=f"cache.{what}(0)", got=array)


@dataclass(frozen=True)
class Full:
    """A cache of `capacity`, filled by chunks, and how many tokens too many come next."""

    chunks: tuple[int, ...]
    extra: int
    room: int
    n_layers: int
    seed: int

    @property
    def capacity(self) -> int:
        return sum(self.chunks) + self.room


def full_caches(room: st.SearchStrategy[int]) -> st.SearchStrategy[Full]:
    chunks = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
    return st.builds(Full, chunks, st.integers(1, 3), room, st.integers(1, 2), st.integers(0, 2**32 - 1))


@check(
    "step8.cache.fills-exactly",
    cases=full_caches(st.just(0)),
    examples=12,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    about=("cache-capacity-off-by-one",),
    stands_on="step8.cache.stores-what-is-appended",
)
def fills_exactly(subject: Subject, case: Full) -> None:
    """A cache takes exactly `capacity` tokens in every layer, in any chunks."""
    rng = np.random.default_rng(case.seed)
    cache = new_cache(subject, case.n_layers, 2, 3, case.capacity)
    for n in case.chunks:
        for layer in range(case.n_layers):
            k, v = random_rows(rng, n, 2, 3), random_rows(rng, n, 2, 3)
            store(subject, cache, layer, k, v)
    if length(subject, cache) != case.capacity:
        raise Fail(f"len(cache) is {length(subject, cache)}", f"{case.capacity}, its capacity", call="len(cache)")


@check(
    "step8.cache.refuses-more",
    cases=full_caches(st.sampled_from([0, 0, 1, 2])),
    examples=12,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    about=("cache-unbounded", "cache-capacity-off-by-one", "cache-truncated"),
    stands_on="step8.cache.stores-what-is-appended",
)
def refuses_more(subject: Subject, case: Full) -> None:
    """An append that does not fit raises ValueError, and nothing of it is stored."""
    rng = np.random.default_rng(case.seed)
    cache = new_cache(subject, case.n_layers, 2, 3, case.capacity)
    for n in case.chunks:
        for layer in range(case.n_layers):
            store(subject, cache, layer, random_rows(rng, n, 2, 3), random_rows(rng, n, 2, 3))
    before = held(subject, cache, 0)
    extra = case.room + case.extra
    asked = append(subject, cache, 0, random_rows(rng, extra, 2, 3), random_rows(rng, extra, 2, 3))
    must_refuse(asked, f"an append of {extra} to a cache with {case.room} free places")
    _unchanged(before, held(subject, cache, 0), "the refused append")
    if (after := length(subject, cache)) != sum(case.chunks):
        raise Fail(f"len(cache) is {after} after a refused append", f"{sum(case.chunks)}", call="len(cache)")


def _unchanged(before: tuple[Array, Array], after: tuple[Array, Array], what: str) -> None:
    for name, b, a in zip(("keys", "values"), before, after, strict=True):
        if not np.array_equal(b, a):
            raise Fail(f"{name} differ after {what}: shape {b.shape} before, {a.shape} after", "nothing changed", got=a)


@check(
    "step8.cache.caches-apart",
    cases=cache_cases(),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    about=("cache-shared-state",),
    stands_on="step8.cache.stores-what-is-appended",
)
def caches_apart(subject: Subject, case: CacheCase) -> None:
    """Two caches filled in turns hold each its own."""
    sizes = (case.n_layers, case.n_kv_heads, case.d_head)
    rng = np.random.default_rng(case.seed)
    caches = [new_cache(subject, *sizes, case.longest * 2, case.dtype) for _ in range(2)]
    given: list[list[list[Array]]] = [[[] for _ in range(case.n_layers)] for _ in range(2)]
    for layer, n in case.appends:
        for cache, mine in zip(caches, given, strict=True):
            k = random_rows(rng, n, *sizes[1:]).astype(case.dtype.name)
            store(subject, cache, layer, k, -k)
            mine[layer].append(k)
    for cache, mine in zip(caches, given, strict=True):
        for layer, parts in enumerate(mine):
            k = np.concatenate(parts)
            keys, values = held(subject, cache, layer, k.shape)
            _equal_rows(keys, k, f"keys({layer})")
            _equal_rows(values, -k, f"values({layer})")


@check(
    "step8.bytes.held",
    cases=cache_cases(),
    examples=8,
    needs="kv",
    public=True,
    functions=(KV_CACHE,),
    families=("cache",),
    about=("cache-bytes-formula",),
    stands_on="step8.cache.stores-what-is-appended",
)
def bytes_held(subject: Subject, case: CacheCase) -> None:
    """cache.nbytes is the bytes of K and V of its len(cache) tokens: unused room does not count."""
    cache, expected = fill(subject, case, case.longest + 5)
    tokens = min(len(k) for k, _ in expected)
    right = 2 * case.n_layers * case.n_kv_heads * case.d_head * tokens * ITEMSIZE[case.dtype.name]
    asked = ask(subject, "@attr", cache, "nbytes", shown="cache.nbytes")
    if asked.number() != right:
        what = f"{tokens} tokens in {case.n_layers} layers of {case.n_kv_heads} x {case.d_head}, {case.dtype.name}"
        raise asked.fail(f"nbytes is {asked.number():g} for {what}", f"{right}")


@check(
    "step8.bytes.formula",
    needs="kv",
    public=True,
    functions=("kv_cache.kv_cache_bytes",),
    families=("kv_cache_bytes",),
    cases=st.tuples(*[st.integers(1, most) for most in (90, 64, 256, 100_000)], st.sampled_from([1, 2, 4, 8])),
    examples=20,
)
def bytes_formula(subject: Subject, case: tuple[int, ...]) -> None:
    """kv_cache_bytes is 2 (for K and V) times layers, K/V heads, d_head, tokens and bytes a value."""
    asked = ask(subject, "kv_cache.kv_cache_bytes", *case)
    value = asked.number()
    if value != 2 * math.prod(case):
        raise asked.fail(f"{value:g} came back", f"2 x {' x '.join(str(n) for n in case)} = {2 * math.prod(case)}")
    if not isinstance(asked.value, int):
        raise asked.fail(f"a {type(asked.value).__name__} came back", "an int", "wrong-dtype")


# -- the decoder against itself ----------------------------------------------------------------------------------------


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
    value = ask(subject, "@model", fields, keep=True, shown="Decoder(…)").value
    assert isinstance(value, Handle)
    return value


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
    """Whether two ways of one submission to the same logits differ by more than the order of summation can make."""
    size = 1 + float(np.abs(own).max())
    return bool(np.abs(got.astype(np.float64) - own).max() > 2000 * float(np.finfo(dtype).eps) * size)


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
