"""Hints on kv_cache.py, by questions that anybody could ask: what a cache does alone, what is computed over it, what is chosen.

What stands on something wrong says nothing: decoding is looked at over a cache that gives back what it was given, generate
over logits that are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.signs import Hint
from harness.signs import attention as signs_attention
from harness.signs import cache as signs_cache
from harness.signs import decode as signs_decode
from harness.signs import generate as signs_generate
from harness.subject import Asking

# Faults of a cache alone over which decoding can be looked at all the same, where it gives back what it was given.
BESIDE = {
    "cache-unbounded",
    "cache-bytes-formula",
    "cache-aliases-input",
    "cache-wrong-dtype",
    "cache-capacity-off-by-one",
}


def _cache(subject: Asking) -> Iterator[Hint]:
    said = []
    for hint in _in_order(subject):
        said.append(hint.code or "")
        yield hint
    if not any(code.startswith("generate") for code in said):
        yield from signs_generate.counts(subject)  # how many ids come has to do with nothing else


def _in_order(subject: Asking) -> Iterator[Hint]:
    stored = list(signs_cache.storage(subject))
    yield from stored
    if any(hint.code not in BESIDE for hint in stored):
        return
    accounts = list(signs_cache.accounts(subject))
    yield from accounts
    yield from _kv_cache_bytes(subject) if not any(hint.code == "cache-bytes-formula" for hint in accounts) else ()
    if any(hint.code not in BESIDE for hint in accounts) or ((stored or accounts) and not signs_cache.sound(subject)):
        return
    if any(True for name in ("softmax", "sdpa", "causal_mask") for _ in signs_attention.FAMILIES[name](subject)):
        return  # what stands on attention says nothing where that is odd
    said = {hint.code for hint in (*stored, *accounts)}
    decoding = [hint for hint in signs_decode.hints(subject) if hint.code not in said]
    yield from decoding or signs_generate.hints(subject)


def _kv_cache_bytes(subject: Asking) -> Iterator[Hint]:
    number = subject.call("kv_cache.kv_cache_bytes", 2, 3, 5, 7, 4)
    if number.ok and isinstance(number.value, int | float) and number.value != 1680:
        yield Hint("cache-bytes-formula", f"kv_cache_bytes(2, 3, 5, 7, 4) is {number.value:g}; 2·2·3·5·7·4 is 1680.")


FAMILIES: dict[str, Callable[[Asking], Iterator[Hint]]] = {"cache": _cache, "kv_cache_bytes": _kv_cache_bytes}
