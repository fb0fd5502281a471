"""Step 8: a cache gives back what it was given, counts it, and refuses what does not fit."""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check, fail_of
from harness.expect import Asked, ask
from harness.subject import Outcome, Subject
from harness.values import Array, Dtype, Handle

PRECISION = 1e-6  # of a value's size: what is off by less costs the checks of precision alone
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
        raise asked.fail("len(cache) is not an int", "a number of tokens", "not-an-array")
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


def alike(got: Array, given: Array) -> bool:
    """The same values, to the precision that a narrower cache leaves: that it is one is for holds-the-dtype to say."""
    return got.shape == given.shape and bool(_off(got, given).max(initial=0.0) <= 0)


def _off(got: Array, given: Array) -> Array:
    """By how much values differ, beyond a millionth of their size; NaN and infinity differ from all."""
    wide, right = got.astype(np.float64), given.astype(np.float64)
    return np.nan_to_num(np.abs(wide - right) - PRECISION * np.abs(right), nan=np.inf)


def _equal_rows(got: Array, appended: Array, name: str) -> None:
    if not alike(got, appended):
        wrong = sorted({int(row) for row in np.argwhere(_off(got, appended) > 0)[:, 0]})
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
            ask(subject, "@set", handle, after, shown="k[...] = new values").value  # noqa: B018  what it raises is told
            now = ask(subject, "@fetch", handle, shown="k")
            if not np.array_equal(now.array(shape), after):
                raise now.fail("k is not what was written into it", "an array that takes new values", got=now.value)
        for what, array, (_, before, after) in zip(("keys", "values"), held(subject, cache, 0), for_later, strict=True):
            rows = array[start : start + n]
            if alike(rows, after):
                seen = f"{what}(0) changed when the array that had been appended was changed"
                code = "cache-aliases-input"
                raise Fail(seen, "a copy of what was appended", code=code, call="cache.append(0, k, v)", got=array)
            if not alike(rows, before):
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
    extra = case.room + case.extra
    for layer in range(case.n_layers):
        before = held(subject, cache, layer)
        asked = append(subject, cache, layer, random_rows(rng, extra, 2, 3), random_rows(rng, extra, 2, 3))
        must_refuse(asked, f"an append of {extra} to layer {layer} of a cache with {case.room} free places")
        _unchanged(before, held(subject, cache, layer), "the refused append")
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
        many, layers = ("s" if number != 1 else "" for number in (tokens, case.n_layers))
        what = f"{tokens} token{many} in {case.n_layers} layer{layers} of {case.n_kv_heads} x {case.d_head}, {case.dtype.name}"
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
