"""The judge's own kv_cache.py of a variant: the right one is the reference, a wrong one is wrong where its scripts say."""

from __future__ import annotations

import numpy as np
import pytest

from reference import decoder
from reference.variants.cache import MODELS, SPACE, TEXT
from reference.variants.cache_module import functions
from reference.variants.space import Option, Variant

KV = functions(Variant())


def wrong(decision: str, name: str) -> dict[str, Option]:
    return {decision: next(o for d in SPACE if d.name == decision for o in d.options if o.name == name)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_right_one_prefills_and_decodes_as_the_reference_recomputes(name: str, dtype: str) -> None:
    """A prompt in two chunks and two tokens, in the model's dtype."""
    model = MODELS[name]
    if dtype == "float32":
        layers = tuple(type(x)(*(w.astype(dtype) for w in (x.W_Q, x.W_K, x.W_V, x.W_O))) for x in model.layers)
        model = type(model)(
            model.embedding.astype(dtype), layers, model.n_heads, model.n_kv_heads, positions=model.positions
        )
    text = [t % len(model.embedding) for t in TEXT[:8]]
    first, cache = KV.prefill(model, text[:4])
    second, same = KV.prefill(model, np.array(text[4:6]), cache=cache)
    steps = [KV.decode_step(model, token, cache) for token in text[6:]]
    assert (same is cache, len(cache), cache.nbytes) == (
        True,
        8,
        KV.kv_cache_bytes(len(model.layers), *cache.keys(0).shape[1:], 8, np.dtype(dtype).itemsize),
    )
    got = np.concatenate([first, second, np.array(steps)])
    assert got.dtype == dtype
    np.testing.assert_allclose(got, decoder.forward(MODELS[name], text), rtol=1e-4 if dtype == "float32" else 1e-10,
                               atol=1e-3 if dtype == "float32" else 1e-9)  # fmt: skip


def test_the_right_one_generates_and_refuses() -> None:
    """Greedy ids both ways, and ValueError where nothing fits."""
    model = MODELS["deep"]
    right = decoder.generate(model, TEXT[:5], 4)
    assert [KV.generate(model, tuple(TEXT[:5]), 4), KV.generate(model, TEXT[:5], 4, use_cache=False)] == [right, right]
    cache = KV.KVCache(2, 3, 4, 3, np.float64)
    KV.prefill(model, TEXT[:3], cache=cache)
    with pytest.raises(ValueError):
        KV.decode_step(model, 1, cache)
    assert [len(cache.keys(layer)) for layer in (0, 1)] == [3, 3]


def test_a_wrong_one_is_wrong() -> None:
    """One of storage, one of the layers, one of the ids, one of the formula."""
    model = MODELS["plain"]
    never = functions(wrong("full", "never")).KVCache(1, 1, 1, 1, "float32")
    never.append(0, np.zeros((3, 1, 1)), np.zeros((3, 1, 1)))
    assert len(never) == 3
    alone = functions(wrong("prefill.residual", "missing"))
    assert not np.allclose(alone.prefill(model, TEXT[:3])[0], decoder.forward(model, TEXT[:3]))
    assert len(functions(wrong("plain.count", "one more")).generate(model, TEXT[:3], 2, use_cache=False)) == 3
    formula = functions({}, {"keys and values": Option("keys alone", "cache-bytes-formula")})
    assert formula.kv_cache_bytes(1, 2, 3, 4, 5) == 120


def test_two_sets_of_functions_share_nothing() -> None:
    """Not even where two caches of one do."""
    variant = wrong("caches", "share")
    one, other = functions(variant), functions(variant)
    assert one.KVCache(1, 2, 3, 4, "float64") is one.KVCache(1, 2, 3, 4, "float64")
    assert one.KVCache(1, 2, 3, 4, "float64") is not other.KVCache(1, 2, 3, 4, "float64")
