"""Hints name what outputs prove, and nothing else; a correct submission, however written, gets none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.check import Check, CheckResult, Fail
from harness.expect import told_apart
from harness.hints import FAMILIES, Hints
from harness.local import Held
from harness.messages import MESSAGES
from tests.labs.attention.edits import entries, named, write

BASE = Path(__file__).parents[2] / "examples" / "base"
ATTENTION = ("softmax", "project", "sdpa", "self_attention", "causal_mask", "positions")

POWERS = "    return powers / powers.sum(axis=axis, keepdims=True)"
LARGEST = "    largest = x.max(axis=axis, keepdims=True)"
SCALE = "        scale = 1 / math.sqrt(Q.shape[-1])"
SCORES = "    scores = Q @ K.swapaxes(-1, -2) * scale  # (..., n, m)"
MASKED = "        scores = np.where(mask, scores, -np.inf)"
WEIGHTS = "    weights = softmax(scores)"
BLEND = "    return weights @ V, weights"
SELF = "    return scaled_dot_product_attention(Q, K, V, mask=mask)"
PROJECT = "    return X @ W_Q, X @ W_K, X @ W_V"
TRI = "    return np.tri(n_queries, n_keys, k=n_keys - n_queries, dtype=bool)"
SINE = "    table[:, 0::2] = np.sin(position * frequency)"
COSINE = "    table[:, 1::2] = np.cos(position * frequency)"
FREQUENCY = "    frequency = 10000.0 ** -(np.arange(0, d, 2) / d)"
SOFTMAX = "def softmax(x, axis=-1):"
MEMORY = """seen = {}


def softmax(x, axis=-1):
    return seen.setdefault((KEY), once(x, axis))


def once(x, axis):"""
APPEND = "        self.k[layer][begin:end] = k"
FULL = "        if end > self.capacity:"
FIT = "    x, y = np.log(ns), np.log(seconds)"
FIT_TURNED = "    y, x = np.log(ns), np.log(seconds)"
STEP = "    return run(model, [token], cache)[0]"

FAULTS: list[tuple[str, str, str, str]] = [
    ("softmax", "softmax-wrong-axis", POWERS, "    return powers / powers.sum(axis=0, keepdims=True)"),
    ("softmax", "softmax-whole-matrix", POWERS, "    return powers / powers.sum()"),
    ("softmax", "softmax-overflow", LARGEST, "    largest = 0 * x"),
    ("softmax", "softmax-overflow", LARGEST, "    largest = x.mean(axis=axis, keepdims=True)"),
    ("softmax", "softmax-global-max", LARGEST, "    largest = x.max()"),
    ("softmax", "softmax-max-wrong-axis", LARGEST, "    largest = x.max(axis=0, keepdims=True)"),
    ("softmax", "softmax-clamped-max", LARGEST, "    largest = np.maximum(0, x.max(axis=axis, keepdims=True))"),
    ("softmax", "softmax-ignores-axis", POWERS, "    return powers / powers.sum(axis=-1, keepdims=True)"),
    ("softmax", "softmax-argmax", POWERS, "    return (powers == powers.max(axis=axis, keepdims=True)) * 1.0"),
    ("softmax", "softmax-epsilon", POWERS, "    return powers / (powers.sum(axis=axis, keepdims=True) + 1e-3)"),
    ("softmax", "softmax-unnormalised", POWERS, "    return powers"),
    ("softmax", "softmax-wrong-base", "np.exp(", "np.exp2("),
    ("softmax", "softmax-not-applied", POWERS, "    return x"),
    ("softmax", "softmax-missing-keepdims", POWERS, "    return powers / powers.sum(axis=axis)"),
    (
        "softmax",
        "softmax-positional-axis",
        LARGEST,
        "    axis = 1 if axis == -1 else axis\n    largest = x.max(axis=axis, keepdims=True)",
    ),
    ("softmax", "softmax-positional-axis", LARGEST, "    axis = 2 if axis == -1 else axis\n    largest = x.max(axis=axis, keepdims=True)"),
    ("softmax", "softmax-epsilon", POWERS, "    return powers / (powers.sum(axis=axis, keepdims=True) + 1e-12)"),
    ("softmax", "stale-result", SOFTMAX, MEMORY.replace("KEY", "x.shape, axis")),
    ("softmax", "stale-result", SOFTMAX, MEMORY.replace("KEY", "x.shape, axis, x.flat[0], x.flat[-1]")),
    ("softmax", "not-deterministic", LARGEST, "    x = x + 1e-3 * np.random.standard_normal(x.shape)\n" + LARGEST),
    ("softmax", "input-mutated", LARGEST, "    x -= x.max(axis=axis, keepdims=True)\n    largest = 0"),
    ("sdpa", "softmax-wrong-axis", WEIGHTS, "    weights = softmax(scores, axis=-2)"),
    ("sdpa", "softmax-positional-axis", WEIGHTS, "    weights = softmax(scores, axis=1)"),
    ("sdpa", "softmax-argmax", WEIGHTS, "    weights = np.eye(scores.shape[-1])[scores.argmax(-1)]"),
    ("sdpa", "softmax-not-applied", WEIGHTS, "    weights = scores"),
    ("sdpa", "scale-missing", SCALE, "        scale = 1"),
    ("sdpa", "scale-by-dk", SCALE, "        scale = 1 / Q.shape[-1]"),
    ("sdpa", "scale-inverted", SCALE, "        scale = math.sqrt(Q.shape[-1])"),
    ("sdpa", "scale-by-wrong-width", SCALE, "        scale = 1 / math.sqrt(V.shape[-1])"),
    ("sdpa", "scale-by-wrong-width", SCALE, "        scale = 1 / math.sqrt(K.shape[-2])"),
    ("sdpa", "scale-by-wrong-width", SCALE, "        scale = 1 / math.sqrt(Q.shape[-2])"),
    ("sdpa", "scale-ignored", SCORES, "    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])"),
    ("sdpa", "scale-compounded", SCORES, "    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])\n"
     "    scores = scores if scale == 1 / math.sqrt(Q.shape[-1]) else scores * scale"),
    ("sdpa", "scale-after-softmax", f"{SCORES}|{WEIGHTS}", "    scores = Q @ K.swapaxes(-1, -2)|    weights = softmax(scores) * scale"),
    ("sdpa", "scale-after-softmax", f"{SCORES}|{BLEND}", "    scores = Q @ K.swapaxes(-1, -2)|    return weights @ V * scale, weights"),
    ("sdpa", "scores-transposed", SCORES, "    scores = K @ Q.swapaxes(-1, -2) * scale"),
    ("sdpa", "weights-transposed", BLEND, "    return weights.swapaxes(-1, -2) @ V, weights"),
    ("sdpa", "values-swapped", BLEND, "    return weights @ K, weights"),
    ("sdpa", "batch-unsupported", SCORES, "    scores = Q @ K.T * scale"),
    ("sdpa", "batch-mixed", SCORES, "    K = K[::-1] if K.ndim == 3 else K\n    scores = Q @ K.swapaxes(-1, -2) * scale"),
    ("sdpa", "input-mutated", SCORES, "    Q *= scale\n    scores = Q @ K.swapaxes(-1, -2)"),
    ("sdpa", "not-deterministic", SCORES, SCORES.split("  #")[0] + " + 0.01 * np.random.standard_normal(K.shape[-2])"),
    ("sdpa", "not-deterministic", BLEND, "    return weights * (np.random.random(weights.shape) > 0.1) / 0.9 @ V, weights"),
    ("sdpa", "stale-result", SOFTMAX, MEMORY.replace("KEY", "x.shape, axis")),
    ("sdpa", "batch-unsupported", SCORES, "    while Q.ndim > 2:\n        Q, K, V = Q[0], K[0], V[0]\n" + SCORES),
    ("sdpa", "softmax-positional-axis", SCORES, "    scores = Q @ K.swapaxes(1, 2) * scale"),
    ("sdpa", "softmax-positional-axis", SCORES, "    scores = Q @ K.transpose(0, 2, 1) * scale"),
    ("sdpa", "weights-missing", BLEND, "    return weights @ V"),
    ("sdpa", "output-order", BLEND, "    return weights, weights @ V"),
    ("sdpa", "mask-ignored", MASKED, "        pass"),
    ("sdpa", "mask-inverted", MASKED, "        scores = np.where(mask, -np.inf, scores)"),
    ("sdpa", "mask-multiplied", MASKED, "        scores = scores * mask"),
    ("sdpa", "mask-added", MASKED, "        scores = scores + mask"),
    ("sdpa", "mask-added", MASKED, "        scores = scores + (mask - 1.0)"),
    ("sdpa", "mask-after-softmax", f"{MASKED}|{WEIGHTS}", "        pass|    weights = softmax(scores) * (1 if mask is None else mask)"),
    ("sdpa", "mask-transposed", MASKED, "        scores = np.where(mask.T, scores, -np.inf)"),
    ("sdpa", "mask-not-broadcast", "    if mask is not None:", "    if mask:"),
    ("sdpa", "mask-not-broadcast", MASKED, "        scores = scores.copy()\n        scores[~mask] = -np.inf"),
    ("sdpa", "mask-finite-fill", MASKED, "        scores = np.where(mask, scores, -1e4)"),
    ("softmax", "softmax-sum-unshifted", POWERS, "    return powers / np.exp(x).sum(axis=axis, keepdims=True)"),
    ("softmax", "softmax-sum-unshifted", POWERS, "    return np.exp(x) / powers.sum(axis=axis, keepdims=True)"),
    ("softmax", "softmax-plus-one", POWERS, "    return powers / (1 + powers.sum(axis=axis, keepdims=True))"),
    ("softmax", "softmax-plus-one", POWERS, "    return powers / (np.exp(-largest) + powers.sum(axis=axis, keepdims=True))"),
    ("softmax", "softmax-wrong-base", "np.exp(x - largest)", "2.7 ** (x - largest)"),
    ("softmax", "softmax-wrong-base", "np.exp(x - largest)", "2.718281828 ** (x - largest)"),
    ("softmax", "narrow-arithmetic", POWERS, "    weights = powers / powers.sum(axis=axis, keepdims=True)\n    return weights.astype(np.float32).astype(x.dtype)"),
    ("softmax", "batch-unsupported", POWERS, "    return (powers.T / powers.sum(axis=axis)).T"),
    ("sdpa", "transpose-permutation", "K.swapaxes(-1, -2)", "K.transpose(-2, -1)"),
    ("sdpa", "square-only", WEIGHTS, "    weights = softmax(scores).reshape(Q.shape[:-1] + Q.shape[-2:-1])"),
    ("sdpa", "square-only", WEIGHTS, "    assert Q.shape == K.shape\n    weights = softmax(scores)"),
    ("sdpa", "softmax-positional-axis", "Q.shape[-1])", "Q.shape[2])"),
    ("sdpa", "softmax-max-wrong-axis", WEIGHTS, "    powers = np.exp(scores - scores.max(-2, keepdims=True))\n    weights = powers / powers.sum(-1, keepdims=True)"),
    ("sdpa", "softmax-overflow", WEIGHTS, "    powers = np.exp(scores)\n    weights = powers / powers.sum(-1, keepdims=True)"),
    ("sdpa", "softmax-global-max", WEIGHTS, "    powers = np.exp(scores - scores.max())\n    weights = powers / powers.sum(-1, keepdims=True)"),
    ("sdpa", "softmax-epsilon", WEIGHTS, "    powers = np.exp(scores - scores.max(-1, keepdims=True))\n    weights = powers / (powers.sum(-1, keepdims=True) + 1e-9)"),
    ("sdpa", "narrow-arithmetic", SCALE, "        scale = float(1 / np.sqrt(np.float32(Q.shape[-1])))"),
    ("sdpa", "softmax-not-applied", BLEND, "    return weights @ V, scores"),
    ("sdpa", "softmax-not-applied", BLEND, "    return scores @ V, weights"),
    ("sdpa", "batch-mixed", BLEND, "    weights = weights if weights.ndim < 3 else weights[:1] + 0 * weights\n    return weights @ V, weights"),
    ("sdpa", "batch-mixed", MASKED, "        scores = np.where(mask if mask.ndim < 3 else mask[0], scores, -np.inf)"),
    ("sdpa", "mask-not-broadcast", MASKED, "        scores = np.where(mask if mask.ndim == scores.ndim or mask.ndim < 2 else mask[:, None], scores, -np.inf)"),
    ("sdpa", "mask-inverted", MASKED, "        scores = scores + mask * -1e9"),
    ("sdpa", "mask-finite-fill", f"{SCORES}|{MASKED}", "    scores = Q @ K.swapaxes(-1, -2)|        scores = scores + np.where(mask, 0, -1e9)\n    scores = scores * scale"),
    ("sdpa", "not-finite", MASKED, "        scores = scores + (~mask) * -np.inf"),
    ("causal_mask", "wrong-dtype", "k=n_keys - n_queries, dtype=bool)", "k=n_keys - n_queries)"),
    ("causal_mask", "wrong-dtype", TRI, "    return np.triu(np.ones((n_queries, n_keys)), n_keys - n_queries + 1) * -1e9"),
    ("positions", "positions-wrong-frequency", FREQUENCY, "    frequency = 10000.0 ** -(np.arange(0, d, 2) // d)"),
    ("positions", "positions-wrong-frequency", FREQUENCY, "    frequency = 10000.0 ** -(np.arange(0, d, 2) / max(d - 2, 1))"),
    ("project", "batch-unsupported", PROJECT, "    n, d = X.shape\n" + PROJECT),
    ("project", "projection-transposed", PROJECT, "    return X @ W_Q.T, X @ W_K.T, X @ W_V.T"),
    ("project", "values-swapped", PROJECT, "    return X @ W_Q, X @ W_V, X @ W_K"),
    ("project", "scores-transposed", PROJECT, "    return X @ W_K, X @ W_Q, X @ W_V"),
    ("project", "values-unprojected", PROJECT, "    return X @ W_Q, X @ W_K, X"),
    ("self_attention", "values-unprojected", SELF, "    return scaled_dot_product_attention(Q, K, X, mask=mask)"),
    ("self_attention", "values-swapped", SELF, "    return scaled_dot_product_attention(Q, K, K, mask=mask)"),
    ("self_attention", "scores-transposed", SELF, "    return scaled_dot_product_attention(K, Q, V, mask=mask)"),
    ("self_attention", "scale-by-wrong-width", SELF, "    return scaled_dot_product_attention(Q, K, V, mask=mask, scale=X.shape[-1] ** -0.5)"),
    ("self_attention", "mask-ignored", SELF, "    return scaled_dot_product_attention(Q, K, V)"),
    ("causal_mask", "causal-mask-strict", TRI, "    return np.tri(n_queries, n_keys, k=n_keys - n_queries - 1, dtype=bool)"),
    ("causal_mask", "causal-mask-lookahead", TRI, "    return np.tri(n_queries, n_keys, k=n_keys - n_queries + 1, dtype=bool)"),
    ("causal_mask", "causal-mask-inverted", TRI, "    return ~np.tri(n_queries, n_keys, k=n_keys - n_queries, dtype=bool)"),
    ("causal_mask", "causal-mask-inverted", TRI, "    return np.triu(np.ones((n_queries, n_keys), bool))"),
    ("causal_mask", "causal-mask-upper-left", TRI, "    return np.tri(n_queries, n_keys, dtype=bool)"),
    ("positions", "positions-halves", f"{SINE}|{COSINE}", "    table[:, : d // 2] = np.sin(position * frequency)|"
     "    table[:, d // 2 :] = np.cos(position * frequency)"),
    ("positions", "positions-sin-cos-swapped", f"{SINE}|{COSINE}", SINE.replace("sin", "cos") + "|" + COSINE.replace("cos", "sin")),
    ("positions", "positions-from-one", "np.arange(n)[", "np.arange(1, n + 1)["),
    ("positions", "positions-wrong-frequency", FREQUENCY, "    frequency = 10000.0 ** -(np.arange(d // 2) / d)"),
    ("positions", "positions-wrong-frequency", FREQUENCY, "    frequency = 1000.0 ** -(np.arange(0, d, 2) / d)"),
    ("positions", "positions-wrong-frequency", COSINE, "    table[:, 1::2] = np.cos(position * 10000.0 ** -(np.arange(1, d, 2) / d))"),
    ("cache", "cache-aliases-input", APPEND, "        k = k.astype(self.k[layer].dtype, copy=False)\n        self.k[layer] = k if begin == 0 else np.concatenate([self.k[layer][:begin], k])"),
    ("cache", "cache-wrong-dtype", "n_kv_heads, d_head), dtype)", "n_kv_heads, d_head))"),
    ("cache", "cache-capacity-off-by-one", FULL, "        if end >= self.capacity:"),
    ("cache", "cache-capacity-off-by-one", "raise ValueError(f\"{end}", "raise IndexError(f\"{end}"),
    ("cache", "cache-keys-values-swapped", "        return self.k[layer][:", "        return self.v[layer][:"),
    ("cache", "cache-bytes-formula", "    return 2 * n_layers", "    return n_layers"),
    ("cache", "generate-off-by-one", "    return new\n", "    return tokens + new\n"),
    ("cache", "cache-not-appended", STEP, "    import copy\n\n    return run(model, [token], copy.deepcopy(cache))[0]"),
    ("cache", "cache-appended-twice", STEP, "    run(model, [token], cache)\n" + STEP),
    ("cache", "cache-unbounded", f"{FULL}|{APPEND}|{APPEND.replace('k', 'v')}", "        if False:|"
     "        self.k[layer] = np.concatenate([self.k[layer][:begin], k]).astype(self.k[layer].dtype)|"
     "        self.v[layer] = np.concatenate([self.v[layer][:begin], v]).astype(self.v[layer].dtype)"),
    ("cache", "cache-prefill-unmasked", "    mask = causal_mask(n, before + n)", "    import sys\n\n    mask = causal_mask(n, before + n)\n"
     "    mask = np.logical_or(mask, sys._getframe(1).f_code.co_name == 'prefill')"),
    ("cache", "cache-position-reset", "[before:].astype", "[before if n > 1 else 0 :][:n].astype"),
    ("cache", "positions-ignored", '    if model.positions == "sinusoidal":', '    if model.positions == "sinusoidal" and n > 1:'),
    ("cache", "cache-shared-state", "        self.k = [np.zeros((capacity, n_kv_heads, d_head), dtype) for _ in range(n_layers)]",
     "        self.k = [np.zeros((capacity, n_kv_heads, d_head), dtype)] * n_layers"),
    ("compare_with_sdpa", "sdpa-scale-mismatch", "dropout_p=0.0)", "dropout_p=0.0, scale=1.0 / q.shape[-1])"),
    ("cache", "cache-missing-self", "        mixed, _ = scaled", "        mask = mask if n > 1 else np.arange(before + 1)[None] < before\n        mixed, _ = scaled"),
    ("cache", "cache-layer-mixed", "        all_v = cache.values(index)", "        all_v = cache.values(index if n > 1 else 0)"),
    ("kv_cache_bytes", "cache-bytes-formula", "    return 2 * n_layers", "    return n_layers"),
    ("equivariance_gap", "equivariance-not-unshuffled", "shuffled[back]", "shuffled[permutation]"),
    ("equivariance_gap", "equivariance-not-unshuffled", "shuffled[back]", "shuffled"),
    ("score_bytes", "memory-formula", "    return n * n * itemsize * heads", "    return n * itemsize * heads"),
    ("fit_exponent", "fit-inverted", "    x, y = np.log(ns), np.log(seconds)", "    y, x = np.log(ns), np.log(seconds)"),
    ("local_slopes", "fit-inverted", "    x, y = np.log2(ns), np.log2(seconds)", "    y, x = np.log2(ns), np.log2(seconds)"),
    ("largest_n", "search-off-by-one", "    return good\n", "    return bad\n"),
]  # fmt: skip

DESCRIBED: list[tuple[str, str, str, str]] = [
    ("softmax", "ratio is 1.649, not e", "np.exp(x - largest)", "np.exp((x - largest) / 2)"),
    ("softmax", "do not have the ratio", "    powers = np.exp(x - largest)", "    powers = 1 + (x - x.min(axis=axis, keepdims=True))"),
    ("softmax", "Rows of weights do not sum to 1", POWERS, "    return 0.9 * powers / powers.sum(axis=axis, keepdims=True)"),
    ("project", "K is not X @ W_K", PROJECT, "    return X @ W_Q, 2 * X @ W_K, X @ W_V"),
    ("sdpa", "changes with the number of keys: 0.449 with 2, 0.94 with 9", SCALE, "        scale = math.log(K.shape[-2] + 1) / math.sqrt(Q.shape[-1])"),
    ("sdpa", "changes with the number of queries", SCALE, "        scale = 1 / Q.shape[-2]"),
    ("sdpa", "changes with the width of the values", SCALE, "        scale = 1 / V.shape[-1]"),
    ("sdpa", "With other numbers in Q and K", SCALE, "        scale = 1 / (Q @ K.swapaxes(-1, -2)).std((-1, -2), keepdims=True)"),
    ("sdpa", "by 0.7071 at d_k = 6 and at d_k = 24", SCALE, "        scale = 1 / math.sqrt(2)"),
    ("sdpa", "by 0.3536 at d_k = 6 and at d_k = 24", SCALE, "        scale = 1 / math.sqrt(8)"),
    ("sdpa", "by 0.5503 at d_k = 6 and by 0.3467 at 24", SCALE, "        scale = Q.shape[-1] ** (-1 / 3)"),
    ("sdpa", "a factor of its own", SCORES, SCORES.split("  #")[0] + " / np.linalg.norm(Q, axis=-1, keepdims=True)"),
    ("sdpa", "do not follow Q·Kᵀ", SCORES, SCORES.split("  #")[0] + " + np.arange(K.shape[-2])"),
    ("sdpa", "not weights @ V", BLEND, "    return weights @ np.tanh(V), weights"),
    ("sdpa", "A key that the mask shows gets no weight", MASKED, "        scores = np.where(mask & (np.arange(K.shape[-2]) > 0), scores, -np.inf)"),
    ("sdpa", "A batch works, and one sequence", SCORES, "    scores = np.einsum('bnd,bmd->bnm', Q, K) * scale"),
    ("self_attention", "weights are not what attention gives", SELF, "    return scaled_dot_product_attention(Q + 1, 2 * K - 1, V, mask=mask)"),
    ("causal_mask", "hides nothing", TRI, "    return np.ones((n_queries, n_keys), bool)"),
    ("causal_mask", "hides key 0 from query 3", TRI, "    full = np.tri(n_queries, n_keys, k=n_keys - n_queries, dtype=bool)\n    return full & ~np.tri(n_queries, n_keys, k=n_keys - n_queries - 3, dtype=bool)"),
    ("positions", "position 0", "    table = np.zeros((n, d))", "    table = np.zeros((n, d))\n    position = position + 0.5"),
]  # fmt: skip
"""Family, words of what is seen, and the mistake: one that no code names."""

ODDITIES: list[tuple[str, str, str]] = [
    ("a very large finite fill", MASKED, "        scores = np.where(mask, scores, -1e9)"),
    ("an added fill", MASKED, "        scores = scores + np.where(mask, 0.0, -1e4)"),
    ("Q scaled first", SCORES, "    scores = (Q * scale) @ np.moveaxis(K, -1, -2)"),
    ("float64 inside", SCORES, "    scores = np.einsum('...nd,...md->...nm', Q.astype(float), K.astype(float)) * scale"),
    ("renormalised after the softmax", f"{MASKED}|{WEIGHTS}", "        pass|    weights = softmax(scores)\n    if mask is not None:\n"
     "        weights = weights * mask\n        weights = weights / weights.sum(-1, keepdims=True)"),
    ("a list for a pair", BLEND, "    return [weights @ V, weights]"),
    ("by logarithms", POWERS, "    return np.exp(x - largest - np.log(powers.sum(axis=axis, keepdims=True)))"),
    ("a fresh copy of what was worked out before", SOFTMAX, MEMORY.replace("KEY", "x.tobytes(), x.shape, x.dtype, axis").replace("axis))", "axis)).copy()")),
    ("scores cut off at a million", SCORES, "    scores = np.clip(Q @ K.swapaxes(-1, -2) * scale, -1e7, 1e7)"),
    ("one sequence as a batch of one", SCORES, "    single = Q.ndim == 2\n    Q, K, V = (Q[None], K[None], V[None]) if single else (Q, K, V)\n"
     "    scores = np.matmul(Q, K.swapaxes(-1, -2)) * scale\n    scores, V = (scores[0], V[0]) if single else (scores, V)"),
    ("positions in float32", "    table = np.zeros((n, d))", "    table = np.zeros((n, d), np.float32)"),
    ("copies handed out", "        return self.k[layer][: self.stored[layer]]", "        return self.k[layer][: self.stored[layer]].copy()"),
]  # fmt: skip


def patched(folder: Path, old: str, new: str) -> Path:
    """examples/base with each part of `old` replaced by that of `new`, in whichever file holds it."""
    shutil.copytree(BASE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("report"))
    for before, after in zip(old.split("|"), new.split("|"), strict=True):
        files = [file for file in folder.glob("*.py") if before in file.read_text()]
        assert len(files) == 1, f"{before!r} is in {len(files)} files"
        files[0].write_text(files[0].read_text().replace(before, after))
    return folder


def all_hints(folder: Path) -> dict[str, list[str | None]]:
    subject = Held(folder)
    hints = Hints(subject)
    with subject.held():
        return {family: [hint.code for hint in hints.of(family)] for family in FAMILIES}


@pytest.mark.parametrize(
    ("family", "code", "old", "new"), FAULTS, ids=[f"{f}-{c}-{i}" for i, (f, c, _, _) in enumerate(FAULTS)]
)
def test_a_fault_is_named(tmp_path: Path, family: str, code: str, old: str, new: str) -> None:
    """The first hint of the faulty function's family names the fault, and no other hint of it names another."""
    found = all_hints(patched(tmp_path, old, new))
    assert found[family][:1] == [code]
    assert {c for c in found[family] if c is not None} == {code}


@pytest.mark.parametrize(
    ("family", "words", "old", "new"), DESCRIBED, ids=[f"{f}-{i}" for i, (f, _, _, _) in enumerate(DESCRIBED)]
)
def test_a_fault_without_a_name_is_described(tmp_path: Path, family: str, words: str, old: str, new: str) -> None:
    """A fault that no code names gets a hint without one, which says what is odd; and no family names any code."""
    subject = Held(patched(tmp_path, old, new))
    hints = Hints(subject)
    with subject.held():
        found = hints.of(family)
        others = [hint for other in ATTENTION for hint in hints.of(other)]
    assert len(found) == 1
    assert words in found[0].seen
    assert {hint.code for hint in others} == {None}


@pytest.mark.parametrize("name", [e.name for e in entries() if e.kind == "right" and e.file == "attention.toml"])
def test_a_correct_attention_gets_no_hint(tmp_path: Path, name: str) -> None:
    """attention.py written in any right way gets no hint of any family that looks at it."""
    subject = Held(write(named()[name], tmp_path / "submission"))
    hints = Hints(subject)
    with subject.held():
        assert [hint for family in ATTENTION for hint in hints.of(family)] == []


@pytest.mark.parametrize(("old", "new"), [o[1:] for o in ODDITIES], ids=[o[0] for o in ODDITIES])
def test_an_unusual_correct_form_gets_no_hint(tmp_path: Path, old: str, new: str) -> None:
    """Correct code of any form gets no hint."""
    assert all_hints(patched(tmp_path, old, new)) == {family: [] for family in FAMILIES}


def test_the_correct_example_gets_no_hint() -> None:
    """examples/base gets no hint."""
    assert all_hints(BASE) == {family: [] for family in FAMILIES}


SEVERAL: list[tuple[set[str], str]] = [
    ({"transpose-permutation", "scale-missing", "scale-ignored", "mask-ignored"}, "    scores = Q @ K.transpose(-2, -1)\n    weights = softmax(scores)\n    return weights @ V, weights"),
    ({"square-only", "scale-missing", "scale-ignored", "mask-inverted"}, "    assert len(Q) == len(K)\n    scores = Q @ K.swapaxes(-1, -2)\n    if mask is not None:\n"
     "        scores = np.where(mask, -1e9, scores)\n    weights = softmax(scores)\n    return weights @ V, weights"),
    ({"batch-unsupported", "scale-missing", "scale-ignored", "mask-ignored"}, "    weights = softmax(np.dot(Q, K.T))\n    return np.dot(weights, V), weights"),
    ({"weights-missing", "scale-by-dk", "scale-ignored", "mask-added"}, "    scores = Q @ K.swapaxes(-1, -2) / K.shape[-1]\n    if mask is not None:\n        scores = scores + mask\n"
     "    return softmax(scores) @ V"),
    ({"output-order", "scale-inverted", "scale-ignored", "mask-after-softmax"}, "    weights = softmax(Q @ K.swapaxes(-1, -2) * math.sqrt(K.shape[-1]))\n    if mask is not None:\n        weights = weights * mask\n"
     "    return weights, weights @ V"),
    ({"softmax-positional-axis", "scale-missing", "scale-ignored", "mask-ignored"}, "    weights = softmax(Q @ K.transpose(0, 2, 1))\n    return weights @ V, weights"),
]  # fmt: skip


@pytest.mark.parametrize(("codes", "body"), SEVERAL, ids=lambda value: "" if isinstance(value, str) else min(value))
def test_faults_beside_each_other_are_all_named(tmp_path: Path, codes: set[str], body: str) -> None:
    """An attention with four faults at once is told all four, whatever it answers and to what."""
    folder = patched(tmp_path, "def scaled_dot_product_attention(", "def once(")
    with (folder / "attention.py").open("a") as file:
        file.write(f"\n\ndef scaled_dot_product_attention(Q, K, V, mask=None, scale=None):\n{body}\n")
    assert set(all_hints(folder)["sdpa"]) == codes


def test_a_numbers_digits_show_the_difference() -> None:
    """Six digits where they are enough, as many as are needed where they are not."""
    assert told_apart(0.725, 0.707107) == ("0.725", "0.707107")
    assert told_apart(0.70710680, 0.70710678) == ("0.7071068", "0.70710678")
    assert told_apart(1 - 1e-12, 1.0) == ("0.999999999999", "1")


def test_every_code_of_a_hint_has_its_words() -> None:
    """Codes that hints use are in the catalogue of messages."""
    assert {code for _, code, _, _ in FAULTS} <= set(MESSAGES)


def result_of(check_id: str, failure: Fail, **options: tuple[str, ...]) -> CheckResult:
    check = Check(check_id, 1, "A title.", lambda: None, **options)
    return CheckResult(check, "failed", failure)


def test_a_hint_is_first_what_the_check_is_about(tmp_path: Path) -> None:
    """Of two faults a failed check gets the hint on the one that it is about."""
    folder = patched(tmp_path, f"{SCALE}|{MASKED}", "        scale = 1|        pass")
    subject = Held(folder)
    with subject.held():
        on_mask = Hints(subject).on(result_of("step1.a", Fail("wrong"), families=("sdpa",), about=("mask-ignored",)))
        on_scale = Hints(subject).on(result_of("step1.b", Fail("wrong"), families=("sdpa",), about=("scale-missing",)))
    assert on_mask is not None and on_scale is not None
    assert (on_mask.code, on_scale.code) == ("mask-ignored", "scale-missing")
    assert "multiplied by 1," in on_scale.seen


def test_a_fault_of_what_a_check_calls_is_its_hint(tmp_path: Path) -> None:
    """Where a check's own family sees nothing, a fault of a function that it calls is named, or of what that stands on."""
    subject = Held(
        patched(tmp_path, f"{TRI}|{POWERS}", "    return ~np.tri(n_queries, n_keys, dtype=bool)|    return powers")
    )
    calls = ("experiments.append_invariance_gap", "attention.causal_mask")
    attends = ("experiments.equivariance_gap", "attention.self_attention")
    with subject.held():
        on_gap = Hints(subject).on(
            result_of("step7.a", Fail("wrong"), families=("append_invariance_gap",), functions=calls)
        )
        on_self = Hints(subject).on(
            result_of("step4.a", Fail("wrong"), families=("equivariance_gap",), functions=attends)
        )
    assert on_gap is not None and on_self is not None
    assert (on_gap.code, on_self.code) == ("causal-mask-inverted", "softmax-unnormalised")


def test_a_checks_own_family_comes_first(tmp_path: Path) -> None:
    """A fault that the check's own family names is its hint, whatever the functions are that it calls."""
    subject = Held(patched(tmp_path, f"{FIT}|{TRI}", FIT_TURNED + "|    return ~np.tri(n_queries, n_keys, dtype=bool)"))
    calls = ("attention.causal_mask", "experiments.fit_exponent")
    with subject.held():
        hint = Hints(subject).on(result_of("step5.a", Fail("wrong"), families=("fit_exponent",), functions=calls))
    assert hint is not None
    assert hint.code == "fit-inverted"


def test_a_name_comes_before_a_description(tmp_path: Path) -> None:
    """What attention does oddly is described only where nothing that it stands on has a fault with a name."""
    subject = Held(patched(tmp_path, "np.exp(", "np.exp2("))
    with subject.held():
        hints = Hints(subject)
        hint = hints.on(result_of("step1.a", Fail("wrong"), families=("sdpa",)))
        assert [found.code for found in hints.of("sdpa")] == [None]
    assert hint is not None
    assert hint.code == "softmax-wrong-base"


def test_what_a_check_saw_itself_needs_no_looking() -> None:
    """A failure that carries its own code gets that code's words as its hint."""
    hint = Hints(Held(BASE)).on(result_of("step1.a", Fail("Q was changed", code="input-mutated"), families=("sdpa",)))
    assert hint is not None
    assert hint.code == "input-mutated"
    assert hint.seen == MESSAGES["input-mutated"].says


def test_an_unwritten_function_gets_no_hint() -> None:
    """A stub's own sentence says all."""
    failure = Fail("NotImplementedError: Write softmax.", "a result", code="raised")
    assert Hints(Held(BASE)).on(result_of("step1.a", failure, families=("softmax",))) is None
