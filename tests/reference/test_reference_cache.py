"""A cache holds what a recompute would make, and answers as a recompute would."""

import numpy as np
import pytest

from reference import decoder
from reference.attention import Array
from reference.cache import KVCache, decode_step, generate, prefill
from reference.decoder import Positions, forward, keys_and_values, random_model

SHAPES = [(4, 4), (4, 2), (4, 1)]
POSITIONS: list[Positions] = ["none", "sinusoidal"]
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9]


def close(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_heads, n_kv_heads", SHAPES)
@pytest.mark.parametrize("chunks", [(9,), (6, 3), (4, 3, 2), (6, 1, 1, 1), (1,) * 9])
def test_chunks_equal_one_forward(chunks: tuple[int, ...], n_heads: int, n_kv_heads: int, positions: Positions) -> None:
    """Logits after every chunk, and the K and V held at the end."""
    model = random_model(
        np.random.default_rng(1), n_layers=2, n_heads=n_heads, n_kv_heads=n_kv_heads, positions=positions
    )
    expected = forward(model, TOKENS)
    cache = KVCache(2, n_kv_heads, 8, 9, np.float64)
    start = 0
    for n in chunks:
        logits, returned = prefill(model, TOKENS[start : start + n], cache)
        assert returned is cache
        close(logits, expected[start : start + n])
        start += n
    for layer, (k, v) in enumerate(keys_and_values(model, TOKENS)):
        close(cache.keys(layer), k)
        close(cache.values(layer), v)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_heads, n_kv_heads", SHAPES)
def test_decoding_equals_recomputing_at_every_step(n_heads: int, n_kv_heads: int, positions: Positions) -> None:
    """Teacher forcing: the given tokens, not the generated ones."""
    model = random_model(
        np.random.default_rng(2), n_layers=3, n_heads=n_heads, n_kv_heads=n_kv_heads, positions=positions
    )
    _, cache = prefill(model, TOKENS[:3])
    for n in range(3, 9):
        close(decode_step(model, TOKENS[n], cache), forward(model, TOKENS[: n + 1])[-1])
        assert len(cache) == n + 1


def test_two_caches_do_not_meet() -> None:
    """Interleaved requests answer as each would alone."""
    model = random_model(np.random.default_rng(3))
    (_, a), (_, b) = prefill(model, [1, 2]), prefill(model, [30, 20, 10])
    close(decode_step(model, 5, a), forward(model, [1, 2, 5])[-1])
    close(decode_step(model, 6, b), forward(model, [30, 20, 10, 6])[-1])
    close(decode_step(model, 7, a), forward(model, [1, 2, 5, 7])[-1])


@pytest.mark.parametrize("seed", range(5))
def test_generating_with_a_cache_equals_without(seed: int) -> None:
    model = random_model(np.random.default_rng(seed))
    assert generate(model, TOKENS[:4], 20) == decoder.generate(model, TOKENS[:4], 20)
    assert generate(model, TOKENS, 0) == []


def test_decode_answers_from_the_cache() -> None:
    """W_K and W_V changed after prefill: old tokens keep their old K and V."""
    model = random_model(np.random.default_rng(4), n_layers=1)
    layer = model.layers[0]
    changed = decoder.Layer(layer.W_Q, -layer.W_K, -layer.W_V, layer.W_O)
    model_changed = decoder.Decoder(model.embedding, (changed,), model.n_heads, model.n_kv_heads, model.positions)
    _, cache = prefill(model, TOKENS[:4])
    held = cache.keys(0).copy(), cache.values(0).copy()
    logits = decode_step(model_changed, TOKENS[4], cache)
    assert np.array_equal(cache.keys(0)[:4], held[0])
    assert np.array_equal(cache.values(0)[:4], held[1])
    assert float(np.max(np.abs(logits - forward(model_changed, TOKENS[:5])[-1]))) > 0.1


def test_an_empty_cache_is_continued() -> None:
    """It is falsy, and given all the same."""
    model = random_model(np.random.default_rng(5))
    empty = KVCache(2, 2, 8, 4, np.float64)
    _, cache = prefill(model, [1, 2], empty)
    assert cache is empty
    assert len(empty) == 2


def test_a_new_cache_has_room_for_1024_more() -> None:
    _, cache = prefill(random_model(np.random.default_rng(6)), [1, 2])
    assert cache.capacity >= 2 + 1024


def test_a_chunk_that_does_not_fit_changes_nothing() -> None:
    """Prefill and decode, at capacity; filling it exactly is fine."""
    model = random_model(np.random.default_rng(7))
    _, cache = prefill(model, [1, 2, 3], KVCache(2, 2, 8, 5, np.float64))
    with pytest.raises(ValueError, match="do not fit"):
        prefill(model, [4, 5, 6], cache)
    assert [len(cache.keys(layer)) for layer in (0, 1)] == [3, 3]
    prefill(model, [4, 5], cache)
    held = cache.keys(1).copy()
    with pytest.raises(ValueError, match="do not fit"):
        decode_step(model, 6, cache)
    assert len(cache) == 5
    assert np.array_equal(cache.keys(1), held)


def test_append_refuses_what_does_not_fit_and_stores_nothing() -> None:
    cache = KVCache(1, 2, 3, 4, np.float64)
    cache.append(0, np.ones((3, 2, 3)), np.ones((3, 2, 3)))
    with pytest.raises(ValueError, match="do not fit"):
        cache.append(0, np.ones((2, 2, 3)), np.ones((2, 2, 3)))
    assert len(cache) == 3
    cache.append(0, np.ones((1, 2, 3)), np.ones((1, 2, 3)))
    assert len(cache) == 4


def test_append_copies_and_casts() -> None:
    """The caller's array may change later; float64 in, the cache's float16 held."""
    cache = KVCache(1, 1, 2, 4, np.float16)
    k, v = np.full((1, 1, 2), 0.1), np.full((1, 1, 2), 0.2)
    cache.append(0, k, v)
    k[:], v[:] = 9, 9
    assert cache.keys(0).tolist() == np.full((1, 1, 2), 0.1, np.float16).tolist()
    assert cache.values(0).tolist() == np.full((1, 1, 2), 0.2, np.float16).tolist()
    assert cache.keys(0).dtype == cache.values(0).dtype == np.float16


def test_length_is_the_least_of_the_layers_and_bytes_follow_it() -> None:
    """2 layers, 1 head, width 2, float32; unused capacity does not count."""
    cache = KVCache(2, 1, 2, 8, np.float32)
    assert (len(cache), cache.nbytes) == (0, 0)
    cache.append(0, np.ones((3, 1, 2)), np.ones((3, 1, 2)))
    assert (len(cache), len(cache.keys(0)), len(cache.keys(1))) == (0, 3, 0)
    cache.append(1, np.ones((2, 1, 2)), np.ones((2, 1, 2)))
    assert (len(cache), cache.nbytes) == (2, 2 * 2 * 1 * 2 * 2 * 4)
