"""The attention formulas against the same formulas written entry by entry, and against torch."""

import math

import numpy as np
import pytest

from reference.attention import (
    Array,
    causal_mask,
    project,
    rope,
    scaled_dot_product_attention,
    self_attention,
    sinusoidal_positions,
    softmax,
)


def entry_by_entry(Q: Array, K: Array, V: Array, mask: Array, scale: float) -> tuple[Array, Array]:
    """2-D attention without a matrix product or a softmax: sums over visible keys alone."""
    (n, m), (_, d_v) = mask.shape, V.shape
    weights, output = np.zeros((n, m)), np.zeros((n, d_v))
    for i in range(n):
        visible = [j for j in range(m) if mask[i, j]]
        exps = {j: math.exp(scale * math.fsum(Q[i] * K[j])) for j in visible}
        for j in visible:
            weights[i, j] = exps[j] / math.fsum(exps.values())
            output[i] += weights[i, j] * V[j]
    return output, weights


def random_mask(rng: np.random.Generator, *shape: int) -> Array:
    mask = rng.random(shape) < 0.5
    mask[..., 0] = True
    return mask


def test_attention_is_the_formula_entry_by_entry() -> None:
    """All sizes unequal, a mask, batch axes and an explicit scale."""
    rng = np.random.default_rng(1)
    Q, K, V = rng.standard_normal((2, 3, 4, 6)), rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, 5, 7))
    mask = random_mask(rng, 2, 3, 4, 5)
    for scale in (None, 0.7):
        output, weights = scaled_dot_product_attention(Q, K, V, mask=mask, scale=scale)
        for b in np.ndindex(2, 3):
            expected = entry_by_entry(Q[b], K[b], V[b], mask[b], 1 / math.sqrt(6) if scale is None else scale)
            np.testing.assert_allclose(output[b], expected[0], rtol=1e-13, atol=1e-14)
            np.testing.assert_allclose(weights[b], expected[1], rtol=1e-13, atol=0)


def test_attention_is_torchs() -> None:
    """torch's SDPA in float64, with a boolean mask that is broadcast."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    Q, K, V = rng.standard_normal((2, 3, 4, 6)), rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, 5, 7))
    mask = random_mask(rng, 2, 1, 4, 5)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (Q, K, V)), attn_mask=torch.from_numpy(mask)
    )
    output, _ = scaled_dot_product_attention(Q, K, V, mask=mask)
    np.testing.assert_allclose(output, expected.numpy(), rtol=1e-12, atol=1e-13)


def test_self_attention_is_projection_and_attention() -> None:
    """d_v differs from d_k, and a batch axis leads."""
    rng = np.random.default_rng(3)
    X, W_Q, W_K, W_V = (rng.standard_normal(shape) for shape in ((2, 4, 5), (5, 3), (5, 3), (5, 6)))
    mask = causal_mask(4)
    expected = scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V, mask)
    for got, want in zip(self_attention(X, W_Q, W_K, W_V, mask=mask), expected, strict=True):
        assert np.array_equal(got, want)
    assert [a.shape for a in project(X, W_Q, W_K, W_V)] == [(2, 4, 3), (2, 4, 3), (2, 4, 6)]


def test_masked_weights_are_exactly_zero() -> None:
    """Whatever the hidden scores are."""
    Q, K = np.array([[1e3]]), np.array([[1.0], [1e3], [-1e3]])
    _, weights = scaled_dot_product_attention(Q, K, np.eye(3), mask=np.array([[True, False, False]]))
    assert weights.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("size", [1e6, 1e300, 1.7e308])
def test_softmax_of_any_size_is_finite(size: float) -> None:
    """One shared offset, rows far apart, one row far below zero; and no warning."""
    with np.errstate(all="raise", under="ignore"):
        weights = softmax(np.array([[size, size], [0.0, 0.0], [-size, -size], [size, -size]]))
    assert weights.tolist() == [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_softmax_sums_to_one_along_its_axis(axis: int) -> None:
    x = np.random.default_rng(4).standard_normal((3, 4, 5))
    before = x.copy()
    weights = softmax(x, axis=axis)
    np.testing.assert_allclose(weights, np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True), rtol=1e-14)
    assert np.array_equal(x, before)


def test_causal_mask_is_lower_right() -> None:
    """The queries are the last positions; with fewer keys than queries the first rows see nothing."""
    assert causal_mask(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, 4).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(1, 3).astype(int).tolist() == [[1, 1, 1]]
    assert causal_mask(2, n_keys=2).dtype == np.bool_


def test_sinusoids_are_the_formula_entry_by_entry() -> None:
    PE = sinusoidal_positions(9, 6)
    for pos, i in np.ndindex(9, 3):
        angle = pos / 10000 ** (2 * i / 6)
        assert PE[pos, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
        assert PE[pos, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-14)


def test_rope_turns_a_pair_as_a_complex_number() -> None:
    """Pair (2i, 2i+1) times e^(i m theta): lengths stay, and batch axes are allowed."""
    x = np.random.default_rng(5).standard_normal((2, 3, 8))
    positions = np.array([0, 4, 9])
    rotated = rope(x, positions)
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * positions[:, None] * 10000.0 ** (-np.arange(4) / 4))
    np.testing.assert_allclose(rotated[..., 0::2], turned.real, atol=1e-14)
    np.testing.assert_allclose(rotated[..., 1::2], turned.imag, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_stays(dtype: type) -> None:
    """float32 in, float32 out, masked or not."""
    Q, K, V = np.random.default_rng(6).standard_normal((3, 4, 4)).astype(dtype)
    for mask in (None, causal_mask(4)):
        assert {a.dtype for a in scaled_dot_product_attention(Q, K, V, mask=mask)} == {np.dtype(dtype)}
    assert rope(Q, np.arange(4)).dtype == dtype
