"""The measurements of steps 3 to 8."""

import time
import tracemalloc
from statistics import median

import numpy as np

from attention import causal_mask, scaled_dot_product_attention, self_attention
from kv_cache import decode_step, forward, prefill


def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    rng = np.random.default_rng(seed)
    table = []
    for shape in shapes:
        Q, K, V = rng.standard_normal((3, *shape)).astype(dtype)
        mask = causal_mask(shape[2]) if causal else None
        own, _ = scaled_dot_product_attention(Q, K, V, mask=mask)
        q, k, v = torch.from_numpy(Q), torch.from_numpy(K), torch.from_numpy(V)
        visible = None if mask is None else torch.from_numpy(mask)
        with sdpa_kernel(SDPBackend.MATH):
            torchs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=0.0)
        gap = np.abs(own.astype("float64") - torchs.double().numpy()).max()
        table.append({"shape": tuple(shape), "max_abs_diff": float(gap), "backend": SDPBackend.MATH})
    return table


def equivariance_gap(X, W_Q, W_K, W_V, permutation, positions=None, mask=None):
    slots = 0 if positions is None else positions

    def outputs(tokens):
        return self_attention(tokens + slots, W_Q, W_K, W_V, mask=mask)[0]

    straight = outputs(X)
    shuffled = outputs(X[permutation])
    back = np.argsort(permutation)
    return float(np.abs(shuffled[back] - straight).max())


def append_invariance_gap(X, x_new, W_Q, W_K, W_V):
    n = X.shape[0]
    short, _ = self_attention(X, W_Q, W_K, W_V, mask=causal_mask(n))
    long, _ = self_attention(np.vstack([X, x_new]), W_Q, W_K, W_V, mask=causal_mask(n + 1))
    return float(np.abs(long[:n] - short).max())


def timed(work, clock, synchronize):
    """What work() returns, and the seconds it took."""
    if synchronize is not None:
        synchronize()
    begin = clock()
    result = work()
    if synchronize is not None:
        synchronize()
    return result, clock() - begin


def time_attention(attend, ns, d=64, warmup=3, repeats=5, clock=time.perf_counter, synchronize=None):
    rng = np.random.default_rng(0)
    seconds = []
    for n in ns:
        Q, K, V = rng.standard_normal((3, n, d))
        for _ in range(warmup):
            attend(Q, K, V)
        seconds.append(median(timed(lambda: attend(Q, K, V), clock, synchronize)[1] for _ in range(repeats)))
    return seconds


def local_slopes(ns, seconds):
    x, y = np.log2(ns), np.log2(seconds)
    return [float((y[i + 1] - y[i]) / (x[i + 1] - x[i])) for i in range(len(x) - 1)]


def fit_exponent(ns, seconds):
    x, y = np.log(ns), np.log(seconds)
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def score_bytes(n, itemsize=2, heads=1):
    return n * n * itemsize * heads


def measure_peak_memory(fn):
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    fn()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"allocated": peak - held, "reserved": peak - held}


def largest_n(fits, start=128, limit=2**24):
    def ok(n):
        try:
            return fits(n)
        except MemoryError:
            return False

    if not ok(start):
        return 0
    good = start
    bad = limit + 1
    while good * 2 < bad:  # doubling finds the last power that fits, halving then closes the gap
        if ok(good * 2):
            good *= 2
        else:
            bad = good * 2
    while bad - good > 1:
        middle = (good + bad) // 2
        if ok(middle):
            good = middle
        else:
            bad = middle
    return good


def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    tokens = list(prompt)
    decode_s = []
    if use_cache:
        (logits, cache), prefill_s = timed(lambda: prefill(model, tokens), clock, synchronize)
    else:
        logits, prefill_s = timed(lambda: forward(model, tokens), clock, synchronize)
    token = int(logits[-1].argmax())
    for _ in range(max_new_tokens):
        tokens.append(token)
        if use_cache:
            last, seconds = timed(lambda: decode_step(model, token, cache), clock, synchronize)
        else:
            last, seconds = timed(lambda: forward(model, tokens)[-1], clock, synchronize)
        decode_s.append(seconds)
        token = int(last.argmax())
    return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": int(cache.nbytes) if use_cache else 0}
