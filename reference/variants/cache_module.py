"""A whole kv_cache.py that is wrong as a variant says: its functions, by the contract's names, to be asked like a submission's."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from reference.attention import Array
from reference.decoder import Tokens
from reference.variants import kv_cache_bytes as formula
from reference.variants.cache_space import Taken, taken
from reference.variants.cache_store import Store
from reference.variants.cache_student import Student
from reference.variants.space import Failed, Option, Probe, Variant


def functions(variant: Mapping[str, Option], bytes_variant: Mapping[str, Option] | None = None) -> SimpleNamespace:
    """KVCache, forward, prefill, decode_step, generate and kv_cache_bytes of `variant`, loaded afresh: nothing is shared.

    `bytes_variant` is one of the formula for a cache's size.
    """
    chosen, counted = Variant(variant), Variant(bytes_variant or {})
    made: list[Student] = []
    shared: dict[int, Store] = {}

    def say(name: str) -> Taken:
        return taken(chosen, name)

    def student(model: Any) -> Student:
        if not made:
            made.append(Student(chosen, model, uncommon=True))
        made[0].model = model
        return made[0]

    def KVCache(n_layers: int, n_kv_heads: int, d_head: int, capacity: int, dtype: DTypeLike) -> Store:
        cache = Store(say, n_layers, (n_kv_heads, d_head), capacity, np.dtype(dtype).name, watched="dtype copy")
        return shared.setdefault(n_layers, cache) if say("caches").name != "right" else cache

    def forward(model: Any, tokens: Tokens) -> Array:
        return student(model).forward(_ids(tokens))

    def prefill(model: Any, tokens: Tokens, cache: Store | None = None) -> tuple[Array, Store]:
        logits, cache = student(model).prefill(_ids(tokens), cache)
        return logits(), cache

    def decode_step(model: Any, token: int, cache: Store) -> Array:
        return student(model).decode(int(token), cache)()

    def generate(model: Any, prompt: Tokens, max_new_tokens: int, use_cache: bool = True) -> list[int]:
        return student(model).generate(_ids(prompt), max_new_tokens, use_cache)

    def kv_cache_bytes(n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, bytes_per_value: int) -> Any:
        sizes = (n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value)
        answer = formula.predict(counted, Probe("", "kv_cache.kv_cache_bytes", sizes))
        assert not isinstance(answer, Failed)
        return int(answer[0]) if answer[0] == int(answer[0]) else answer[0]

    names = (KVCache, forward, prefill, decode_step, generate, kv_cache_bytes)
    return SimpleNamespace(**{function.__name__: function for function in names})


def _ids(tokens: Tokens) -> list[int]:
    return [int(token) for token in tokens]
