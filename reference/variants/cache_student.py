"""The decoder that is wrong as a variant says: one pass through the layers, run as forward, as prefill or as decode.

Keys and values are stored when a pass begins; what only its logits depend on is computed where they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from reference.attention import Array, softmax
from reference.attention import sinusoidal_positions as table_of_positions
from reference.decoder import Decoder, Layer
from reference.variants.cache_space import CACHED, LAST, LOOPS, TOO, WALKS, Taken, along, taken
from reference.variants.cache_store import FULL, Store
from reference.variants.space import Variant

Logits = Callable[[], Array]
IN_FORWARD = ("prefill.reads", "prefill.gives", "prefill.layer read", "own cache")


class Student:
    """One submission's kv_cache.py: `forward`, `prefill`, `decode` and `generate` of a model."""

    def __init__(self, variant: Variant, model: Decoder, uncommon: bool = False) -> None:
        """`uncommon`: caches are also made by prefill itself, and given ones run over."""
        self.variant, self.model, self.uncommon = variant, model, uncommon
        self.made_by_prefill: Store | None = None
        self.made_by_generate: Store | None = None

    def say(self, name: str) -> Taken:
        return taken(self.variant, name)

    def own_cache(self, capacity: int) -> Store:
        """One that nobody gave."""
        dtype = self.say("own cache").name
        return self.new_cache(capacity, None if dtype == "right" else dtype.removesuffix(TOO))

    def new_cache(self, capacity: int, dtype: str | None = None) -> Store:
        heads, dtype = self.model.n_kv_heads, dtype or self.model.embedding.dtype.name
        row = (heads, self.model.layers[0].W_K.shape[1] // heads)
        return Store(self.say, len(self.model.layers), row, capacity, dtype, watched="dtype")

    # -- the ways in -----------------------------------------------------------------------------------------------------

    def forward(self, tokens: list[int]) -> Array:
        through = self.say("forward through").name if self._shows_in_one_append() else "right"
        if any(self.say(name).name.endswith(TOO) for name in IN_FORWARD):
            through = "a roomy cache"
        room = {"right": 0, "an exact cache": len(tokens)}.get(through, len(tokens) + 64)
        cache = None if through == "right" else self.own_cache(room)
        return self._pass("forward", tokens, cache)()

    def _shows_in_one_append(self) -> bool:
        """Whether a cache that forward may run through would change its logits."""
        write = self.say("write").name in ("twice", "not at all", "the last of a chunk", "the first of a chunk")
        others = any(self.say(name).name != "right" for name in ("keep", "slots", "read", "dtype"))
        between = ("counter", "kept layers", "layers")
        counter = len(self.model.layers) > 1 and any(self.say(name).name != "right" for name in between)
        return write or others or counter or self.say("full").name == "one too early"

    def prefill(self, tokens: list[int], cache: Store | None) -> tuple[Logits, Store]:
        if cache is None:
            shared = self.say("default").name != "right"
            if shared and self.made_by_prefill is not None:
                cache = self.made_by_prefill
            else:
                cache = self.made_by_prefill = self.own_cache(len(tokens) + 1024)
        else:
            given = self.say("given").name
            if given == "replaced" or (given == "replaced when empty" and len(cache) == 0):
                cache = self.new_cache(len(tokens) + 1024)
            elif given == "copied":
                cache = cache.copy()
        if self.uncommon and len(cache) + len(tokens) > cache.capacity and self.say("overfull chunk").name != "right":
            if self.say("overfull chunk").name.endswith("first layer"):
                fits = cache.copy()
                self._pass("prefill", tokens[: cache.capacity - len(cache)], fits)
                cache.slots[0] = fits.slots[0]
                raise ValueError(FULL)
            rows = [self._pass("prefill", [token], cache) for token in tokens]
            return (lambda: np.concatenate([row() for row in rows])), cache
        if self.say("prompt").name == "run twice":
            self._pass("prefill", tokens, cache)
        logits = self._pass("prefill", tokens, cache)
        cache.steps = 0
        cache.last = lambda: logits()[-1]
        return partial(self._prefilled, logits), cache

    def _prefilled(self, logits: Logits) -> Array:
        rows = logits()
        late = len(rows) > 1 and self.say("prefilled logits").name != "right"
        return np.concatenate([rows[:1], rows[:-1]]) if late else rows

    def decode(self, token: int, cache: Store) -> Logits:
        before = cache.last
        if self.say("store").name == "run twice":
            self._pass("decode", [token], cache)
        logits = self._pass("decode", [token], cache)
        cache.last = lambda: logits()[0]
        return partial(self._decoded, before, cache.last)

    def _decoded(self, before: Logits | None, logits: Logits) -> Array:
        stale = self.say("decoded logits").name != "right"
        return before() if stale and before is not None else logits()

    def generate(self, prompt: list[int], n: int, use_cache: bool) -> list[int]:
        loop = LOOPS[use_cache]
        count, pick, stop, row = (along(self.variant, name, loop, LOOPS) for name in ("count", "pick", "stop", "row"))
        more = {"one more": n + 1, "one fewer": n - 1, "at least one": max(n, 1), "first left out": n + 1}
        more["the total length, at least one"] = max(n - len(prompt), 1) if n else 0
        more |= dict.fromkeys(("the total length", "the total length, with the prompt"), n - len(prompt))
        if n == 0 and self.say("nothing asked").name != "right":
            return []
        ids: list[int] = []
        cache: Store | None = None
        kept: Array | None = None
        while len(ids) < more.get(count.name, n):
            if not use_cache:
                of_all = not row.name.endswith("of the prompt") or not ids
                last = _row(self.forward(prompt + ids), row.name if of_all else "right")
            elif cache is None:
                cache, last = self._begin(prompt, row.name)
            elif self.say("fed").name == "the whole text each time":
                last = self._pass("prefill", prompt + ids, cache)()[-1]
            else:
                last = self.decode(ids[-1], cache)()
            if row.name == "the prompt's last, always":
                last = kept = last if kept is None else kept
            best = _pick(last, pick.name)
            end = len(last) - 1 if stop.value == LAST else int(stop.value)
            if stop.name == "before" and best == end:
                break
            ids.append(best)
            if stop.name.startswith("after") and best == end and (len(ids) > 1 or stop.name == "after"):
                break
        front = prompt if count.name.endswith("with the prompt") else []
        front = prompt[-1:] if count.name == "with the last of the prompt" else front
        return front + (ids[1:] if count.name == "first left out" else ids)

    def _begin(self, prompt: list[int], row: str) -> tuple[Store, Array]:
        """The cache of a prompt, and the logits that the first new token is taken from."""
        kept, cache = self.say("generate's cache").name, self.made_by_generate
        if kept.startswith("that of the first call") and cache is not None:
            return cache, self.decode(prompt[-1], cache)()
        if kept == "one for all calls" and cache is not None:
            rows = self._pass("prefill", prompt, cache)()
        else:
            logits, cache = self.prefill(prompt, None)
            rows = logits()
        self.made_by_generate = cache
        fed = self.say("fed").name
        if fed == "last of the prompt twice":
            return cache, self.decode(prompt[-1], cache)()
        if fed == "the whole prompt twice":
            rows = self._pass("prefill", prompt, cache)()
        return cache, _row(rows, row)

    # -- one pass --------------------------------------------------------------------------------------------------------

    def _pass(self, walk: str, tokens: list[int], cache: Store | None) -> Logits:
        how = partial(along, self.variant, path=walk, paths=WALKS)
        past = 0 if cache is None or walk == "forward" else len(cache)
        full = cache is not None and len(cache) + len(tokens) > cache.capacity
        if full and self.say("room checked").name != "right":
            raise ValueError(FULL)
        x: Array = self.model.embedding[tokens]
        if how("embedding").name != "right":
            x = x * math.sqrt(x.shape[1])
        placed = self.model.positions == "sinusoidal"
        positions = how("positions").name if placed else "right"
        where = None
        if (placed and positions != "ignored") or (not placed and how("unasked positions").name == "added"):
            where = self._where(walk, past, x.shape, cache, how("table"))
            x = x + where.astype(x.dtype)
        if cache is not None and walk == "decode":
            cache.steps += 1
        again = where if positions == "before every layer" else None
        first = x
        finish: Logits = lambda: first  # noqa: E731
        layers = list(enumerate(self.model.layers))
        if len(layers) > 1 and how("layer order").name != "right":
            layers.reverse()
        for nth, (i, layer) in enumerate(layers):
            x = finish()
            if again is not None and nth:
                x = x + again
            finish = self._layer(walk, i, layer, x, first, past, cache)
        return partial(self._logits, how, finish)

    def _where(self, walk: str, past: int, shape: tuple[int, ...], cache: Store | None, table: Taken) -> Array:
        """The rows of the table of positions that are added."""
        n, d = shape
        start = past
        here = "decode" if walk == "decode" else "chunks" if past else ""
        if cache is not None and (here or self.say("start").name == "end of the capacity"):
            kind, _, scope = self.say("start").name.partition(" in ")
            if kind == "none after the first tokens":
                return np.zeros((n, d)) if past else table_of_positions(n, d)
            starts = {"0": 0, "1": 1, "one early": past - 1, "one late": past + 1, "end of the chunk": past + n,
                      "steps since prefill": cache.steps, "steps since prefill, from 1,": cache.steps + 1,
                      "end of the prompt": past - cache.steps, "the capacity": cache.capacity}  # fmt: skip
            if kind == "end of the capacity":
                start = cache.capacity - n
            elif here in scope:
                start = max(starts[kind], 0)
            elif here == "decode" and self.say("store").name == "not stored, place counted":
                start += cache.steps
        start += table.name == "from one"
        return _table(start + n, d, table)[start:]

    def _layer(self, walk: str, i: int, layer: Layer, x: Array, first: Array, past: int, cache: Store | None) -> Logits:
        """Stores K and V of layer i; its output is computed by the function that is returned."""
        how = partial(along, self.variant, path=walk, paths=WALKS)
        extra = how("extra")
        seen = _norm(x, extra.value) if extra.name == "norm before attention" else x
        mixed = how("layer input").name if i else "right"
        for_kv = first if mixed != "right" else seen
        for_q = first if mixed == "embedding for all" else seen
        heads = along(self.variant, "heads", "forward" if walk == "forward" else "prefill", WALKS[:2]).name
        q = _split(for_q @ layer.W_Q, self.model.n_heads, heads, "queries split")
        k = _split(for_kv @ layer.W_K, self.model.n_kv_heads, heads, "keys and values split")
        v = _split(for_kv @ layer.W_V, self.model.n_kv_heads, heads, "keys and values split")
        if cache is None:
            K, V = k, v
        elif walk == "forward":
            if self.say("prefill.gives").name != "right":
                k, v = v, k
            cache.append(i, k, v)
            K, V = self._read("prefill", i, cache)
        else:
            if along(self.variant, "gives", walk, CACHED).name != "right":
                k, v = v, k
            if walk == "prefill":
                cache.append(i, k, v)
                if self.say("prompt").name == "stored twice":
                    cache.append(i, k, v)
                alone = past and self.say("chunk").name == "sees itself alone"
                K, V = (k, v) if alone else self._read(walk, i, cache)
            else:
                K, V = self._store_one(i, k, v, cache)
        K, V = K.copy(), V.copy()  # the cache may change before the logits are asked for

        def output() -> Array:
            merged = _merge(self._attend(walk, q, K, V, past), heads) @ layer.W_O
            residual = how("residual").name
            if residual == "missing" or (residual.startswith("missing in") and i == len(self.model.layers) - 1):
                y: Array = merged
            else:
                y = (first if residual == "to the embedding" else x) + merged
            return _norm(y, extra.value) if extra.name == "norm after each layer" else y

        return output

    def _read(self, walk: str, i: int, cache: Store) -> tuple[Array, Array]:
        """The keys and the values that attention of layer i gets."""
        layer = along(self.variant, "layer read", walk, CACHED).name if len(cache.slots) > 1 else "right"
        layer = layer.removesuffix(TOO)
        other = {"the layer before": max(i - 1, 0), "the last layer": len(cache.slots) - 1, "right": i}.get(layer, 0)
        K = cache.read(i if layer == "values of layer 0" else other, 0)
        V = cache.read(i if layer == "keys of layer 0" else other, 1)
        reads = along(self.variant, "reads", walk, CACHED).name.removesuffix(TOO)
        if reads == "keys as values":
            return K, K
        if reads == "values as keys":
            return V, V
        return (V, K) if reads == "keys and values exchanged" else (K, V)

    def _store_one(self, i: int, k: Array, v: Array, cache: Store) -> tuple[Array, Array]:
        """A decoded token's K and V are stored, or not; what it then attends to."""
        store = self.say("store").name
        layers = self.say("stored layers").name if len(cache.slots) > 1 else "right"
        off = (layers == "the first alone" and i > 0) or (layers == "the last alone" and i < len(cache.slots) - 1)
        kept = not off and not store.startswith(("not stored", "neither"))
        if kept:
            cache.append(i, k, v)
        K, V = self._read("decode", i, cache)
        if kept and store.startswith("twice"):
            cache.append(i, k, v)
            K, V = self._read("decode", i, cache) if store == "twice" else (K, V)
        if not kept and store != "neither stored nor seen":
            K, V = np.concatenate([K, k]), np.concatenate([V, v])
        itself = self.say("itself").name
        if itself == "missing" and len(K) > 1:
            K, V = K[:-1], V[:-1]
        elif itself == "twice":
            K, V = np.concatenate([K, K[-1:]]), np.concatenate([V, V[-1:]])
        look = self.say("look")
        size = int(look.value)
        part = {"the first": slice(size), "the oldest left out": slice(1, None)}
        seen = part.get(look.name, slice(None))
        return K[seen], V[seen]

    def _attend(self, walk: str, q: Array, K: Array, V: Array, past: int) -> Array:
        """(n, h, d_head), (m, h_kv, d_head) twice -> (n, h, d_head)."""
        how = partial(along, self.variant, path=walk, paths=WALKS)
        n, h, d_k = (int(size) for size in q.shape)
        m, h_kv = (int(size) for size in K.shape[:2])
        reads = np.arange(h) // (h // h_kv)
        if h > 1:
            groups = how("groups").name
            named = {"modulo": np.arange(h) % h_kv, "reversed": reads[::-1], "first head for all": 0 * reads}
            reads = named.get(groups, reads) if h != h_kv else reads
            reads = np.minimum(np.arange(h) // 2, h_kv - 1) if groups == "in twos" else reads
        d = self.model.embedding.shape[1]
        widths: dict[str, int] = {
            "missing": 1,
            "by d_k": d_k**2,
            "by the keys": m,
            "by the model's width": d,
            "by the heads": h,
        }
        scale = how("scale").name
        factor = math.sqrt(d_k) if scale == "inverted" else 1 / math.sqrt(widths.get(scale, d_k))
        scores = np.einsum("nhd,mhd->hnm", q, K[:, reads]) * factor
        mask = along(self.variant, "mask", walk, WALKS[:2]).name if walk != "decode" and n > 1 else "right"
        visible = self._visible(walk, mask, n, m, past)
        window = how("window")
        if window.name != "right" and m > window.value:
            i, j = np.arange(m - n, m)[:, None], np.arange(m)[None, :]
            scores = np.where(j > i - window.value, scores, -np.inf)
        if visible is not None and mask == "multiplied":
            scores = scores * visible
        elif visible is not None and mask != "after the softmax":
            scores = np.where(visible, scores, -np.inf)
        shape = how("softmax").name
        if shape == "not applied":
            weights = scores
        elif shape == "largest alone":
            weights = (scores == scores.max(-1, keepdims=True)).astype(float)
        else:
            weights = softmax(scores, axis=-2 if shape == "over the queries" else -1)
        if visible is not None and mask == "after the softmax":
            weights = weights * visible
        out: Array = np.einsum("hnm,mhd->nhd", weights, V[:, reads])
        return out

    def _visible(self, walk: str, mask: str, n: int, m: int, past: int) -> Array | None:
        """Which key each query sees, (n, m); None where no mask is applied."""
        chunk = self.say("chunk").name if past else "right"
        if walk == "decode":
            if chunk.endswith("in decode too"):
                return np.arange(m)[None, :] < 1
            if m == past + 1 or self.say("decode mask").name == "right":
                return None
        elif mask == "none" or (not past and mask == "none at first") or (past and chunk == "no mask"):
            return None
        elif chunk.startswith("mask from the top left"):
            return np.arange(m)[None, :] <= np.arange(n)[:, None]
        elif chunk == "sees itself alone":
            past = 0
        by = self.say("mask by").name if m != past + n else "right"
        if by == "right" and m != past + n:
            raise ValueError("the mask and the scores differ in size")
        i = np.arange(n)[:, None] + (m - n if by == "the last key" else past)
        j = np.arange(m)[None, :]
        return {"one ahead": j <= i + 1, "without itself": j < i, "inverted": j > i}.get(mask, j <= i)

    def _logits(self, how: Callable[[str], Taken], finish: Logits) -> Array:
        x = finish()
        extra = how("extra")
        if extra.name == "norm at the end":
            x = _norm(x, extra.value)
        elif extra.name == "root mean square at the end":
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + extra.value)
        elif extra.name == "relu":
            x = np.maximum(x, 0)
        logits: Array = x @ self.model.embedding.T
        if extra.name == "probabilities":
            return softmax(logits)
        if extra.name == "log-probabilities":
            logits = logits - logits.max(-1, keepdims=True)
            logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits / math.sqrt(x.shape[1]) if extra.name == "logits by sqrt(d)" else logits


def _table(n: int, d: int, how: Taken) -> Array:
    """The table of positions (n, d) as an option has it."""
    rows = table_of_positions(n, d)
    if how.name == "cosine first":
        rows = rows.reshape(-1, d // 2, 2)[:, :, ::-1].reshape(-1, d)
    elif how.name == "halves":
        rows = np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1)
    elif how.name in ("i for 2i", "of half the width", "per column", "another base"):
        pairs = np.repeat(np.arange(d // 2), 2)
        exponents = {"i for 2i": pairs / d, "of half the width": 4 * pairs / d, "per column": np.arange(d) / d}
        base = how.value if how.name == "another base" else 10000.0
        angles = np.arange(n)[:, None] / base ** exponents.get(how.name, 2 * pairs / d)
        rows = np.where(np.arange(d) % 2, np.cos(angles), np.sin(angles))
    return rows


def _norm(x: Array, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    normed: Array = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return normed


def _split(x: Array, heads: int, how: str, this: str) -> Array:
    """(n, heads * d_head) -> (n, heads, d_head)."""
    n = len(x)
    if how == "interleaved":
        return x.reshape(n, -1, heads).transpose(0, 2, 1)
    if how.startswith((this, "all split", "split")):
        return x.reshape(heads, n, -1).transpose(1, 0, 2)
    return x.reshape(n, heads, -1)


def _merge(out: Array, how: str) -> Array:
    """(n, h, d_head) -> (n, h * d_head)."""
    whole: Array = out.transpose(1, 0, 2) if how.endswith("merged without transpose") else out
    return whole.reshape(len(out), -1)


def _row(logits: Array, how: str) -> Array:
    """The row of a table of logits that the next token is taken from."""
    at = {"first": 0, "last but one": -2}.get(how.removesuffix(", of the prompt"), -1)
    row: Array = logits[at] if len(logits) > 1 else logits[0]
    return row


def _pick(logits: Array, how: str) -> int:
    if how == "last on ties":
        return int(len(logits) - 1 - np.argmax(logits[::-1]))
    if how == "smallest":
        return int(np.argmin(logits))
    if how == "second best":
        return int(np.argsort(-logits, kind="stable")[1])
    if how == "best above 0" and logits.max() <= 0:
        return 0
    return int(np.argmax(logits))
