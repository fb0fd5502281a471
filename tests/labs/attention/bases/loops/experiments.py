"""Lab 7.9: the measurements."""

import time
import tracemalloc

import numpy as np

import attention
import kv_cache


def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    import torch

    generator = np.random.default_rng(seed)
    result = []
    for batch, heads, n, d in shapes:
        q = generator.standard_normal((batch, heads, n, d)).astype(dtype)
        k = generator.standard_normal((batch, heads, n, d)).astype(dtype)
        v = generator.standard_normal((batch, heads, n, d)).astype(dtype)
        mask = attention.causal_mask(n) if causal else None
        mine, _ = attention.scaled_dot_product_attention(q, k, v, mask=mask)
        theirs = torch.nn.functional.scaled_dot_product_attention(
            torch.as_tensor(q), torch.as_tensor(k), torch.as_tensor(v), is_causal=causal, dropout_p=0.0
        )
        difference = np.abs(mine - theirs.numpy())
        result.append({"shape": (batch, heads, n, d), "max_abs_diff": float(difference.max()), "backend": "MATH"})
    return result


def equivariance_gap(X, W_Q, W_K, W_V, permutation, positions=None, mask=None):
    shuffled = X[permutation]
    plain = X
    if positions is not None:
        shuffled = shuffled + positions
        plain = plain + positions
    out, _ = attention.self_attention(plain, W_Q, W_K, W_V, mask=mask)
    out_shuffled, _ = attention.self_attention(shuffled, W_Q, W_K, W_V, mask=mask)
    # row i of the shuffled run is token permutation[i]
    return float(np.max(np.abs(out_shuffled - out[permutation])))


def append_invariance_gap(X, x_new, W_Q, W_K, W_V):
    n = len(X)
    first, _ = attention.self_attention(X, W_Q, W_K, W_V, mask=attention.causal_mask(n))
    both = np.concatenate((X, x_new), axis=0)
    second, _ = attention.self_attention(both, W_Q, W_K, W_V, mask=attention.causal_mask(n + 1))
    return float(np.max(np.abs(second[:-1] - first)))


def time_attention(attend, ns, d=64, warmup=3, repeats=5, clock=time.perf_counter, synchronize=None):
    medians = []
    for n in ns:
        generator = np.random.default_rng(n)
        Q, K, V = (generator.standard_normal((n, d)) for _ in range(3))
        for _ in range(warmup):
            attend(Q, K, V)
        samples = []
        for _ in range(repeats):
            if synchronize:
                synchronize()
            begin = clock()
            attend(Q, K, V)
            if synchronize:
                synchronize()
            end = clock()
            samples.append(end - begin)
        samples.sort()
        medians.append(samples[len(samples) // 2])
    return medians


def local_slopes(ns, seconds):
    slopes = []
    for i in range(1, len(ns)):
        slopes.append(float(np.log(seconds[i] / seconds[i - 1]) / np.log(ns[i] / ns[i - 1])))
    return slopes


def fit_exponent(ns, seconds):
    slope, _ = np.polyfit(np.log10(ns), np.log10(seconds), 1)
    return float(slope)


def score_bytes(n, itemsize=2, heads=1):
    return heads * n**2 * itemsize


def measure_peak_memory(fn):
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    fn()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"allocated": peak - before, "reserved": peak - before}


def largest_n(fits, start=128, limit=2**24):
    def works(n):
        try:
            return bool(fits(n))
        except MemoryError:
            return False

    if not works(start):
        return 0
    low, high = start, limit  # low fits
    while low < high:
        middle = (low + high + 1) // 2
        if works(middle):
            low = middle
        else:
            high = middle - 1
    return low


def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    def now():
        if synchronize:
            synchronize()
        return clock()

    tokens = list(prompt)
    begin = now()
    if use_cache:
        logits, cache = kv_cache.prefill(model, tokens)
    else:
        logits = kv_cache.forward(model, tokens)
    prefill_s = now() - begin
    last = logits[-1]
    decode_s = []
    for _ in range(max_new_tokens):
        token = int(last.argmax())
        tokens.append(token)
        begin = now()
        if use_cache:
            last = kv_cache.decode_step(model, token, cache)
        else:
            last = kv_cache.forward(model, tokens)[-1]
        decode_s.append(now() - begin)
    return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": int(cache.nbytes) if use_cache else 0}
