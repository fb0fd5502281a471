"""The space of wrong caches: its right variant is the reference, and every wrong option shows in some script."""

import numpy as np
import pytest

from reference import decoder
from reference.variants import cache, kv_cache_bytes
from reference.variants.cache_store import append_of, named_rows, names_of
from reference.variants.space import Answer, Variant, codes, variants

# Every code of a cache, but those seen by counting query rows or with other W_K and W_V; and what else a decoder may do.
CODES = {
    "cache-not-appended", "cache-appended-twice", "cache-missing-self", "decode-self-twice", "cache-layer-mixed",
    "cache-position-reset", "cache-overwritten", "cache-prepended", "cache-truncated", "cache-padding-attended",
    "cache-length-wrong", "cache-wrong-dtype", "cache-given-ignored", "cache-keys-values-swapped", "cache-shared-state",
    "cache-wrong-axis", "cache-aliases-input", "cache-prefill-unmasked", "cache-chunk-misaligned", "cache-head-order",
    "cache-unbounded", "cache-capacity-off-by-one", "cache-bytes-formula", "decode-residual-missing", "decode-extra-step",
    "decode-stale-logits", "generate-off-by-one", "generate-not-greedy", "positions-ignored", "positions-misplaced",
}  # fmt: skip


def equal(one: Answer, other: Answer) -> bool:
    return repr(one) == repr(other)


def test_every_code_of_a_cache_has_an_option() -> None:
    """The catalogue's codes are in the space."""
    options = {option.code for decision in cache.SPACE for option in decision.options}
    assert CODES - options == set()


@pytest.mark.parametrize("script", ["plain forward", "placed forward", "deep forward", "unplaced forward"])
def test_the_right_variant_is_the_reference(script: str) -> None:
    """forward of every decoder of the scripts."""
    probe = next(p for p in cache.PROBES if p.name == script)
    run = next(s for s in cache.SCRIPTS if s.name == script)
    ((logits,),) = cache.predict(Variant(), probe)  # type: ignore[misc]
    np.testing.assert_allclose(logits, decoder.forward(cache.MODELS[run.model], run.ops[0][1]), rtol=1e-11)


def test_the_right_variant_decodes_as_the_reference_recomputes() -> None:
    """The last logits of the deepest script, and what its last layer holds."""
    probes = [p for p in cache.PROBES if p.name.startswith("unplaced steps")]
    (logits,), (keys, values) = cache.predict(Variant(), probes[-1])  # type: ignore[misc]
    model, text = cache.MODELS["deep, unplaced"], [*cache.TEXT[:4], 9, 2]
    np.testing.assert_allclose(logits, decoder.forward(model, text)[-1], rtol=1e-11)
    np.testing.assert_allclose([keys, values], decoder.keys_and_values(model, text)[-1], rtol=1e-11)


def test_every_wrong_option_shows() -> None:
    """Each fault alone changes an answer; LayerNorm's epsilon and a window are tried at every number."""
    right = {p.name: cache.predict(Variant(), p) for p in cache.PROBES}
    silent = [
        variant
        for variant in variants(cache.SPACE, 1)
        if len(variant) and all(equal(cache.predict(variant, p), right[p.name]) for p in cache.PROBES)
    ]
    assert silent == []


def test_rows_know_their_names() -> None:
    """A row tells which append it came with; one that never came has no name."""
    rows = named_rows(3, (2, 1, 4), 1, np.dtype("float16"))
    shape, names = names_of(np.concatenate([rows, np.zeros((1, 1, 4)), np.full((1, 1, 4), np.nan)]))
    assert shape.tolist() == [4, 1, 4]
    assert [append_of(name) for name in names[:2]] == [3, 3]
    assert names[2:].tolist() == [0, 0]
    assert names[0] != names[1]


def test_every_wrong_formula_for_the_bytes_has_the_one_code() -> None:
    """kv_cache_bytes: any factor."""
    found = [codes(v) for v in variants(kv_cache_bytes.SPACE, 1) if len(v)]
    assert set(found) == {frozenset({"cache-bytes-formula"})}


def test_the_right_formula() -> None:
    """2 L h_kv d_head n bytes."""
    probe = kv_cache_bytes.PROBES[0]
    assert kv_cache_bytes.predict(Variant(), probe) == (2 * 3 * 5 * 7 * 11 * 2,)
