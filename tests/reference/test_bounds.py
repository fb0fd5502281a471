"""The bounds hold for right answers written in ways that they do not list, and for nothing coarser."""

import math

import numpy as np
import pytest

from reference import attention, bounds

DTYPES = ("float64", "float32")
SEEDS = range(5)


def problem(seed, dtype, batch=()):
    rng = np.random.default_rng(seed)
    n, m, d_k, d_v = rng.integers(1, 9, 4)
    Q, K, V = (rng.standard_normal((*batch, *shape)).astype(dtype) for shape in ((n, d_k), (m, d_k), (m, d_v)))
    mask = rng.random((n, m)) < 0.7
    mask[:, 0] = True
    return Q, K, V, mask


def wide(*arrays):
    return tuple(a.astype(np.float64) for a in arrays)


def one_by_one(Q, K, V, mask, scale):
    """Entry by entry, sums in order, in the dtype of the inputs."""
    dtype = Q.dtype.type
    A = np.zeros((len(Q), len(K)), dtype)
    out = np.zeros((len(Q), V.shape[1]), dtype)
    for i, q in enumerate(Q):
        scores = []
        for j, k in enumerate(K):
            total = dtype(0)
            for a, b in zip(q, k, strict=True):
                total += a * b
            scores.append(total * dtype(scale) if mask[i, j] else dtype(-math.inf))
        top = max(scores)
        exps = [np.exp(s - top) for s in scores]
        total = dtype(0)
        for e in exps:
            total += e
        for j, e in enumerate(exps):
            A[i, j] = e / total
            out[i] += A[i, j] * V[j]
    return out, A


def powers_of_two(Q, K, V, mask, scale):
    """2 to the power of log2(e) times the score, the scale taken into it."""
    scores = Q @ K.T * np.asarray(scale * math.log2(math.e), Q.dtype)
    scores = np.where(mask, scores, np.asarray(-np.inf, Q.dtype))
    E = np.exp2(scores - scores.max(axis=-1, keepdims=True))
    return (E @ V) / E.sum(axis=-1, keepdims=True), E / E.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [one_by_one, powers_of_two])
@pytest.mark.parametrize("size", [0.1, 1.0, 16.0])
def test_a_right_answer_written_in_another_way_lies_within_the_bound(way, dtype, size):
    for seed in SEEDS:
        Q, K, V, mask = problem(seed, dtype)
        Q = (Q * size).astype(dtype)
        scale = Q.shape[-1] ** -0.5
        right = attention.scaled_dot_product_attention(*wide(Q, K, V), mask=mask)
        bound = bounds.scaled_dot_product_attention(Q, K, V, mask)
        output, weights = way(Q, K, V, mask, scale)
        assert np.abs(weights - right[1]).max() <= bound.weights
        assert np.abs(output - right[0]).max() <= bound.output
        assert np.abs(weights.sum(axis=-1) - 1).max() <= bound.weights


@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-12), ("float32", 1e-3)])
def test_a_bound_for_standard_normal_inputs_is_sharp(dtype, most):
    for seed in SEEDS:
        Q, K, V, mask = problem(seed, dtype, batch=(2,))
        bound = bounds.scaled_dot_product_attention(Q, K, V, mask)
        assert 0 < bound.weights <= most
        assert 0 < bound.output <= most


def test_an_epsilon_of_1e_12_lies_outside_the_bound_of_float64():
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((4, 8)), rng.standard_normal((5, 8)), rng.standard_normal((5, 3))
    scores = Q @ K.T / math.sqrt(8)
    E = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = E / (E.sum(axis=-1, keepdims=True) + 1e-12)
    right = attention.scaled_dot_product_attention(Q, K, V)[1]
    assert np.abs(weights - right).max() > bounds.scaled_dot_product_attention(Q, K, V).weights


def test_single_precision_lies_outside_the_bound_of_float64():
    Q, K, V, mask = problem(3, "float64")
    narrow = attention.scaled_dot_product_attention(*(a.astype(np.float32) for a in (Q, K, V)), mask=mask)[0]
    right = attention.scaled_dot_product_attention(Q, K, V, mask=mask)[0]
    assert np.abs(narrow - right).max() > bounds.scaled_dot_product_attention(Q, K, V, mask).output


def test_the_bound_grows_with_the_scores():
    Q, K, V, _ = problem(1, "float32")
    small, large = (bounds.scaled_dot_product_attention((s * Q).astype("float32"), K, V) for s in (1, 64))
    assert large.weights > 4 * small.weights


def test_the_factor_multiplies_the_bound():
    Q, K, V, _ = problem(2, "float64")
    once, twice = (bounds.scaled_dot_product_attention(Q, K, V, factor=f) for f in (1, 2))
    assert twice == bounds.Bound(2 * once.output, 2 * once.weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1000, -1_000_000])
def test_softmax_by_logs_lies_within_the_bound_at_every_offset(dtype, offset):
    for seed in SEEDS:
        x = (np.random.default_rng(seed).integers(-64, 65, (3, 7)) / 16 + offset).astype(dtype)
        top = x.max(axis=-1, keepdims=True)
        by_logs = np.exp(x - (top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True))))
        right = attention.softmax(x.astype(np.float64))
        assert np.abs(by_logs - right).max() <= bounds.softmax(x)


def test_the_axis_of_softmax_is_the_one_that_is_bounded():
    x = np.zeros((40, 2))
    x[:, 1] = 500
    assert bounds.softmax(x.T, axis=0) == bounds.softmax(x, axis=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_summed_in_order_lies_within_the_bound(dtype):
    rng = np.random.default_rng(5)
    X, W = rng.standard_normal((4, 64)).astype(dtype), rng.standard_normal((64, 3)).astype(dtype)
    in_order = np.cumsum(X[:, :, None] * W, axis=1, dtype=dtype)[:, -1]
    off = np.abs(in_order - X.astype(np.float64) @ W.astype(np.float64)).max()
    assert off <= bounds.product(X, W)
    assert bounds.product(X, W) < {"float64": 1e-12, "float32": 1e-3}[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_self_attention_with_merged_matrices_lies_within_the_bound(dtype):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        X, W_Q, W_K, W_V = (rng.standard_normal(s).astype(dtype) for s in ((5, 6), (6, 3), (6, 3), (6, 2)))
        scores = (X @ (W_Q @ W_K.T) @ X.T) * dtype_number(dtype, 3**-0.5)
        E = np.exp(scores - scores.max(axis=-1, keepdims=True))
        A = E / E.sum(axis=-1, keepdims=True)
        right = attention.self_attention(*wide(X, W_Q, W_K, W_V))
        bound = bounds.self_attention(X, W_Q, W_K, W_V)
        assert np.abs(A - right[1]).max() <= bound.weights
        assert np.abs(A @ X @ W_V - right[0]).max() <= bound.output


def dtype_number(dtype, value):
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_sinusoids_by_exp_of_a_log_lie_within_the_bound_of_their_dtype(dtype):
    n, d = 30, 16
    steps = np.arange(0, d, 2, dtype=dtype)
    angles = np.arange(n, dtype=dtype)[:, None] * np.exp(steps * dtype_number(dtype, -math.log(10000.0) / d))
    table = np.empty((n, d))
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    off = np.abs(table - attention.sinusoidal_positions(n, d)).max()
    assert off <= bounds.sinusoidal_positions(n, d, dtype)


def test_sinusoids_of_another_base_lie_outside_the_bound():
    n, d = 30, 16
    angles = np.arange(n)[:, None] / 9999.0 ** (np.arange(0, d, 2) / d)
    off = np.abs(np.sin(angles) - attention.sinusoidal_positions(n, d)[:, ::2]).max()
    assert off > bounds.sinusoidal_positions(n, d)
