"""The decoder against its definition written token by token, and what drawn decoders are good for."""

import math
from typing import Any

import numpy as np
import pytest

from reference.attention import Array, sinusoidal_positions, softmax
from reference.decoder import (
    Decoder,
    Layer,
    Positions,
    forward,
    generate,
    keys_and_values,
    kv_cache_bytes,
    random_model,
)

SHAPES = [(4, 4), (4, 2), (4, 1), (1, 1)]  # n_heads, n_kv_heads: MHA, GQA, MQA, one head
POSITIONS: list[Positions] = ["none", "sinusoidal"]


def token_by_token(model: Decoder, tokens: list[int], d_head: int) -> tuple[Array, list[tuple[Array, Array]]]:
    """Logits, and each layer's K and V: every head of every token on its own, no mask, no reshape."""
    d = model.embedding.shape[1]
    xs = [model.embedding[token].copy() for token in tokens]
    if model.positions == "sinusoidal":
        xs = [x + p for x, p in zip(xs, sinusoidal_positions(len(tokens), d), strict=True)]
    held = []
    for layer in model.layers:
        qs, ks, vs = ([x @ W for x in xs] for W in (layer.W_Q, layer.W_K, layer.W_V))
        for t, q in enumerate(qs):
            heads = []
            for i in range(model.n_heads):
                g = i * model.n_kv_heads // model.n_heads
                own, read = slice(i * d_head, (i + 1) * d_head), slice(g * d_head, (g + 1) * d_head)
                scores = np.array([q[own] @ k[read] / math.sqrt(d_head) for k in ks[: t + 1]])
                heads.append(sum(w * v[read] for w, v in zip(softmax(scores), vs[: t + 1], strict=True)))
            xs[t] = xs[t] + np.concatenate(heads) @ layer.W_O
        shape = (len(tokens), model.n_kv_heads, d_head)
        held.append((np.array(ks).reshape(shape), np.array(vs).reshape(shape)))
    return np.array([x @ model.embedding.T for x in xs]), held


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_heads, n_kv_heads", SHAPES)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_forward_is_the_definition(n_layers: int, n_heads: int, n_kv_heads: int, positions: Positions) -> None:
    """Logits, and K and V of every layer; the width is not heads times head width."""
    rng = np.random.default_rng(1)
    model = random_model(
        rng, n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=4, d=10, positions=positions
    )
    tokens = rng.integers(0, 40, 7).tolist()
    logits, held = token_by_token(model, tokens, 4)
    np.testing.assert_allclose(forward(model, tokens), logits, rtol=1e-10, atol=1e-10)
    for got, expected in zip(keys_and_values(model, tokens), held, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_tokens_may_be_a_list_a_tuple_or_an_array() -> None:
    model = random_model(np.random.default_rng(2))
    expected = forward(model, [3, 1, 4])
    assert np.array_equal(forward(model, (3, 1, 4)), expected)
    assert np.array_equal(forward(model, np.array([3, 1, 4])), expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_earlier_logits_do_not_depend_on_later_tokens(positions: Positions) -> None:
    """The invariant that makes a cache legal."""
    model = random_model(np.random.default_rng(3), n_layers=3, positions=positions)
    np.testing.assert_allclose(forward(model, [5, 6, 7, 8])[:3], forward(model, [5, 6, 7]), rtol=1e-12, atol=1e-12)


def test_generate_is_greedy() -> None:
    """Each id is the argmax of a fresh forward; the prompt is neither changed nor returned."""
    model = random_model(np.random.default_rng(4))
    prompt = [1, 2, 3]
    new = generate(model, prompt, 6)
    assert prompt == [1, 2, 3]
    assert len(new) == 6
    for i, token in enumerate(new):
        assert token == int(np.argmax(forward(model, prompt + new[:i])[-1]))
    assert generate(model, prompt, 0) == []


def test_ties_go_to_the_lowest_id() -> None:
    """Rows 1 and 3 of the embedding are equal, and no other token scores as high."""
    embedding = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, -1.0], [2.0, 0.0]])
    none = np.zeros((2, 2))
    model = Decoder(embedding, (Layer(none, none, none, none),), n_heads=1, n_kv_heads=1)
    assert generate(model, [3], 3) == [1, 1, 1]


def test_cache_bytes_by_hand() -> None:
    """3 layers, 2 heads, width 5, 7 tokens, 4 bytes: 2 · 3 · 2 · 5 · 7 · 4."""
    assert kv_cache_bytes(3, 2, 5, 7, 4) == 1680


# drawn decoders


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_greedy_generations_vary(n_layers: int, positions: Positions) -> None:
    """Ten draws of GQA and MQA decoders: half of them give at least four ids in sixteen, and none repeats one alone."""
    counts = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        model = random_model(rng, n_layers=n_layers, n_kv_heads=1 + seed % 2, positions=positions)
        counts.append(len(set(generate(model, rng.integers(0, 40, 5).tolist(), 16))))
    assert sorted(counts)[5] >= 4
    assert min(counts) > 1


def test_plain_random_weights_repeat_themselves() -> None:
    """Why drawn decoders need more: with independent weights of the same sizes, most draws give one or two ids."""
    counts = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        plain = [Layer(*(rng.standard_normal((32, 32)) / math.sqrt(32) for _ in range(4))) for _ in range(2)]
        model = Decoder(rng.standard_normal((40, 32)), tuple(plain), n_heads=4, n_kv_heads=4)
        counts.append(len(set(generate(model, rng.integers(0, 40, 5).tolist(), 16))))
    assert sorted(counts)[5] <= 2


@pytest.mark.parametrize("positions", POSITIONS)
def test_scores_are_standard_normal_sized(positions: Positions) -> None:
    """In every layer, over heads and tokens: standard deviation between a half and two, where a wrong scale shows."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        model = random_model(rng, n_layers=3, n_kv_heads=4, positions=positions)
        tokens = rng.integers(0, 40, 30).tolist()
        for layer, (k, _) in zip(model.layers, keys_and_values(model, tokens), strict=True):
            q = queries(model, tokens, layer)
            scores = np.einsum("nhd,mhd->hnm", q, k) / math.sqrt(8)
            assert 0.5 < float(np.std(scores)) < 2


def queries(model: Decoder, tokens: list[int], layer: Layer) -> Array:
    """A layer's queries, (n, h, d_head), read as the keys of a decoder that ends in a layer with W_Q for W_K."""
    before = model.layers[: [candidate is layer for candidate in model.layers].index(True)]
    probe = Layer(layer.W_Q, layer.W_Q, layer.W_V, layer.W_O)
    shown = Decoder(model.embedding, (*before, probe), model.n_heads, model.n_kv_heads, model.positions)
    return keys_and_values(shown, tokens)[-1][0]


def test_drawn_shapes_and_dtype() -> None:
    model = random_model(
        np.random.default_rng(0), n_layers=3, n_heads=6, n_kv_heads=3, d_head=5, d=14, vocab=11, dtype=np.float32
    )
    assert model.embedding.shape == (11, 14)
    assert len(model.layers) == 3
    for layer in model.layers:
        arrays: list[Any] = [layer.W_Q, layer.W_K, layer.W_V, layer.W_O]
        assert [a.shape for a in arrays] == [(14, 30), (14, 15), (14, 15), (30, 14)]
        assert {a.dtype for a in arrays} == {np.dtype(np.float32)}
    assert forward(model, [1, 2]).dtype == np.float32


def test_the_same_seed_draws_the_same_decoder() -> None:
    first, second = (random_model(np.random.default_rng(8)) for _ in range(2))
    assert np.array_equal(first.embedding, second.embedding)
    assert np.array_equal(first.layers[1].W_O, second.layers[1].W_O)
