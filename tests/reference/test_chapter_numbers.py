"""Every number that the chapter prints, recomputed by the reference, to the printed digit."""

import math
from typing import Any

import numpy as np
import pytest

from reference import chapter
from reference.attention import (
    causal_mask,
    project,
    rope,
    scaled_dot_product_attention,
    self_attention,
    sinusoidal_positions,
    softmax,
)
from reference.chapter import W_K, W_Q, W_V, E
from reference.decoder import kv_cache_bytes
from reference.experiments import equivariance_gap, score_bytes


def printed(values: Any, digits: int) -> Any:
    """Values rounded as the chapter prints them, as nested tuples that compare with its tables."""
    array = np.round(np.asarray(values), digits)
    return tuple(map(tuple, array.tolist())) if array.ndim == 2 else tuple(array.tolist())


# 7.2: the worked example


def test_queries_keys_and_values() -> None:
    """Step 1's table, which prints two digits of numbers that have no more."""
    Q, K, V = project(E, W_Q, W_K, W_V)
    assert printed(Q, 2) == chapter.Q_PRINTED
    assert printed(K, 2) == chapter.K_PRINTED
    assert printed(V, 2) == chapter.V_PRINTED
    assert np.allclose(Q, chapter.Q_PRINTED, rtol=0, atol=1e-15)


def test_scores() -> None:
    """Step 2's nine dot products."""
    Q, K, _ = project(E, W_Q, W_K, W_V)
    assert printed(Q @ K.T, 2) == chapter.SCORES_PRINTED


def test_scaled_scores() -> None:
    """Step 3 divides them by sqrt(2)."""
    Q, K, _ = project(E, W_Q, W_K, W_V)
    assert printed(Q @ K.T / math.sqrt(2), 4) == chapter.SCALED_SCORES_PRINTED


def test_softmax_of_the_verb_spelled_out() -> None:
    """Step 4's exponentials and their sum, from unrounded scores; their quotient is the softmax."""
    Q, K, _ = project(E, W_Q, W_K, W_V)
    row = (Q @ K.T / math.sqrt(2))[2]
    assert printed(np.exp(row), 4) == chapter.ICTI_EXP_PRINTED
    assert round(float(np.exp(row).sum()), 4) == chapter.ICTI_EXP_SUM_PRINTED
    assert printed(softmax(row), 4) == chapter.WEIGHTS_PRINTED[2]


def test_weights_and_outputs() -> None:
    """Step 4's attention matrix and step 5's outputs."""
    output, weights = self_attention(E, W_Q, W_K, W_V)
    assert printed(weights, 4) == chapter.WEIGHTS_PRINTED
    assert printed(output, 4) == chapter.OUTPUTS_PRINTED


def test_the_words_around_the_weights() -> None:
    """The verb's 42%, 50% and 7.6%, and the nouns' about 70% on themselves."""
    _, weights = self_attention(E, W_Q, W_K, W_V)
    assert printed(100 * weights[2], 0)[:2] == (42, 50)
    assert round(100 * float(weights[2, 2]), 1) == 7.6
    assert printed(weights.diagonal()[:2], 1) == (0.7, 0.7)
    assert printed(weights.sum(axis=1), 3) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("d_k, std, root, scaled_std", chapter.SCORE_SPREAD)
def test_spread_of_random_scores(d_k: int, std: float, root: float, scaled_std: float) -> None:
    """The printed spread and a fresh one are within five standard errors (of 20,000 pairs) of sqrt(d_k)."""
    pairs = chapter.SCORE_SPREAD_PAIRS
    kurtosis = 3 + 6 / d_k  # of a sum of d_k products of two standard normals
    error = math.sqrt((kurtosis - 1) / (4 * pairs))  # relative
    q, k = np.random.default_rng(7).standard_normal((2, pairs, d_k))
    fresh = float(np.std(np.sum(q * k, axis=1)))
    assert round(math.sqrt(d_k), 3) == root
    assert abs(fresh / root - 1) < 5 * error
    assert abs(std / root - 1) < 5 * error
    # the chapter divides before it rounds, so the two columns agree to half a last digit each
    assert scaled_std == pytest.approx(std / math.sqrt(d_k), abs=0.0005 + 0.0005 / root)


@pytest.mark.parametrize("d_k, with_scale, without_scale", chapter.WINNERS_WEIGHT)
def test_weight_of_the_winner_among_random_keys(d_k: int, with_scale: float, without_scale: float) -> None:
    """The printed averages and fresh ones over 400 queries agree within five standard errors of the fresh."""
    rng = np.random.default_rng(7)
    for scale, average in ((None, with_scale), (1.0, without_scale)):
        Q = rng.standard_normal((400, 1, d_k))
        K = rng.standard_normal((400, chapter.WINNERS_WEIGHT_KEYS, d_k))
        _, weights = scaled_dot_product_attention(Q, K, K, scale=scale)
        winners = weights.max(axis=-1)
        assert abs(float(winners.mean()) - average) < 5 * float(winners.std()) / math.sqrt(winners.size)


# 7.4: order and positions


def test_shuffled_and_unshuffled_outputs_are_the_same() -> None:
    """The first shuffle table, equal in every digit; the gap is rounding, the chapter's 1.11e-16 or little more."""
    permutation = list(chapter.PERMUTATION)
    shuffled, _ = self_attention(E[permutation], W_Q, W_K, W_V)
    assert [chapter.TOKENS[i] for i in permutation] == ["içti", "kedi", "sütü"]
    assert printed(shuffled[np.argsort(permutation)], 4) == chapter.OUTPUTS_PRINTED
    assert equivariance_gap(E, W_Q, W_K, W_V, permutation) <= 4 * chapter.SHUFFLE_GAP_PRINTED


def test_positions_break_the_tie() -> None:
    """The second shuffle table: 0.3 PE is added after the shuffle, and the gap is 0.3289."""
    permutation = list(chapter.PERMUTATION)
    P = chapter.POSITION_SCALE * sinusoidal_positions(3, 4)
    output, _ = self_attention(E + P, W_Q, W_K, W_V)
    shuffled, _ = self_attention(E[permutation] + P, W_Q, W_K, W_V)
    assert printed(output, 4) == chapter.OUTPUTS_WITH_POSITIONS_PRINTED
    assert printed(shuffled[np.argsort(permutation)], 4) == chapter.SHUFFLED_WITH_POSITIONS_PRINTED
    gap = equivariance_gap(E, W_Q, W_K, W_V, permutation, positions=P)
    assert round(gap, 4) == chapter.SHUFFLE_GAP_WITH_POSITIONS_PRINTED


def test_a_causal_mask_breaks_the_tie_too() -> None:
    """The mask leaks positions: without any encoding the gap is no rounding."""
    assert equivariance_gap(E, W_Q, W_K, W_V, chapter.PERMUTATION, mask=causal_mask(3)) > 0.1


def test_sinusoids() -> None:
    """PE at d = 4, three positions."""
    assert printed(sinusoidal_positions(3, 4), 4) == chapter.SINUSOIDS


@pytest.mark.parametrize("offset, mean, std, spread", chapter.SINUSOID_OFFSETS)
def test_position_vectors_know_their_offset_alone(offset: int, mean: float, std: float, spread: float) -> None:
    """PE_p · PE_{p+k} over p: the mean to six decimals, std and range of the size of rounding."""
    n = chapter.SINUSOID_POSITIONS
    PE = sinusoidal_positions(n + offset, 64)
    products = np.sum(PE[:n] * PE[offset:], axis=1)
    assert round(float(products.mean()), 6) == mean
    assert float(products.std()) < 10 * std
    assert float(np.ptp(products)) < 10 * spread


def test_position_vectors_have_one_length() -> None:
    """sqrt(d/2), to ten digits."""
    lengths = np.linalg.norm(sinusoidal_positions(chapter.SINUSOID_POSITIONS, 64), axis=1)
    assert round(math.sqrt(32), 6) == chapter.SINUSOID_LENGTH_PRINTED
    assert np.allclose(lengths, math.sqrt(32), rtol=1e-10, atol=0)


def test_queries_and_keys_of_the_offset_tables_come_from_the_seed() -> None:
    """The score of the seed's q and k without any position is the RoPE table's offset 0."""
    q, k = query_and_key()
    assert round(float(q @ k), 6) == chapter.ROPE_OFFSETS[0][1]


@pytest.mark.parametrize("offset, score, spread", chapter.ROPE_OFFSETS)
def test_rope_scores_know_their_offset_alone(offset: int, score: float, spread: float) -> None:
    """The score to six decimals at each of the four positions; their spread is rounding."""
    q, k = query_and_key()
    n = np.array(chapter.OFFSET_POSITIONS)
    rotated_q = rope(np.tile(q, (4, 1)), n + offset)
    rotated_k = rope(np.tile(k, (4, 1)), n)
    scores = np.sum(rotated_q * rotated_k, axis=1)
    assert printed(scores, 6) == (score,) * 4
    assert float(np.ptp(scores)) < 10 * spread


@pytest.mark.parametrize("offset, at_0, at_100, at_1000, spread", chapter.ADDITIVE_OFFSETS)
def test_additive_scores_depend_on_where(
    offset: int, at_0: float, at_100: float, at_1000: float, spread: float
) -> None:
    """Position vectors added to q and k: the score at three positions, the spread over all four."""
    q, k = query_and_key()
    n = np.array(chapter.OFFSET_POSITIONS)
    PE = sinusoidal_positions(int(n.max()) + offset + 1, 64)
    scores = np.sum((q + PE[n + offset]) * (k + PE[n]), axis=1)
    assert printed(scores[:3], 2) == (at_0, at_100, at_1000)
    assert round(float(np.ptp(scores)), 1) == spread


def query_and_key() -> tuple[Any, Any]:
    rng = np.random.default_rng(chapter.OFFSET_SEED)
    return rng.standard_normal(64), rng.standard_normal(64)


# 7.6: sizes


@pytest.mark.parametrize("n, entries, gib", chapter.SCORE_BYTES)
def test_score_matrix_sizes(n: int, entries: int, gib: str) -> None:
    """Entries and GiB of one score matrix at fp16."""
    assert score_bytes(n) == 2 * entries
    digits = len(gib.split(".")[1])
    assert f"{score_bytes(n) / 2**30:.{digits}f}" == gib


@pytest.mark.parametrize("n_layers, n_kv_heads, d_head, n_tokens, gb", chapter.KV_CACHE)
def test_kv_cache_sizes(n_layers: int, n_kv_heads: int, d_head: int, n_tokens: int, gb: str) -> None:
    """GB of the KV cache with 16-bit values."""
    assert f"{kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, 2) / 1e9:.1f}" == gb


def test_given_arrays_are_read_only() -> None:
    """Nobody can change the chapter's numbers for the next reader."""
    for given in (E, W_Q, W_K, W_V):
        with pytest.raises(ValueError, match="read-only"):
            given[0, 0] = 1.0
