"""Lab 7.9: the measurements."""

import time
import tracemalloc

import numpy as np

import attention
import kv_cache


def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    generator = np.random.default_rng(seed)
    result = []
    for batch, heads, n, d in shapes:
        worst = 0.0
        for _ in range(batch * heads):
            q, k, v = generator.random((3, n, d)).astype(dtype)
            mine, _ = attention.scaled_dot_product_attention(q, k, v, attention.causal_mask(n, n) if causal else None)
            with sdpa_kernel([SDPBackend.MATH]):
                theirs = torch.nn.functional.scaled_dot_product_attention(
                    *(torch.tensor(a)[None, None] for a in (q, k, v)), is_causal=causal
                )
            worst = max(worst, float(np.abs(mine.astype(float) - theirs[0, 0].double().numpy()).max()))
        result.append({"shape": [batch, heads, n, d], "max_abs_diff": worst, "backend": SDPBackend.MATH})
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
    sync = synchronize or (lambda: None)
    inputs = {n: [np.ones((n, d), dtype="float32") for _ in range(3)] for n in ns}
    attend(*inputs[ns[0]])  # the first call of all loads libraries
    results = {}
    for n, (q, k, v) in inputs.items():
        clock()
        for _ in range(warmup):
            attend(q, k, v)
            sync()
        clock()
        marks = []
        sync()
        marks.append(clock())
        for _ in range(repeats):
            attend(q, k, v)
            sync()
            sync()
            marks.append(clock())
        results[n] = float(np.percentile(np.diff(marks), 50))
    return [results[n] for n in ns]


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
    import os
    import threading

    page = os.sysconf("SC_PAGE_SIZE")

    def resident():
        with open("/proc/self/statm") as file:
            return page * int(file.read().split()[1])

    before = peak = resident()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.0005):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    fn()
    done.set()
    watcher.join()
    return {"allocated": peak - before, "reserved": peak - before}


def largest_n(fits, start=128, limit=2**24):
    def works(n):
        try:
            return fits(n)
        except MemoryError:
            return False

    if not works(start):
        return 0
    if works(limit):
        return limit
    good, bad = start, limit
    while bad > good + 1:
        middle = good + (bad - good) // 2
        good, bad = (middle, bad) if works(middle) else (good, middle)
    return good


def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    tokens = list(prompt)
    if use_cache:
        kv_cache.prefill(model, tokens)  # untimed, to warm up
    else:
        kv_cache.forward(model, tokens)

    def stopwatch(work, *args):
        if synchronize is not None:
            synchronize()
        begin = clock()
        result = work(*args)
        if synchronize is not None:
            synchronize()
        return clock() - begin, result

    if not use_cache:
        prefill_s, logits = stopwatch(kv_cache.forward, model, tokens)
        decode_s = []
        for _ in range(max_new_tokens):
            seconds, logits = stopwatch(kv_cache.forward, model, tokens)
            decode_s.append(seconds)
            tokens.append(int(np.argmax(logits[-1])))
        return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": 0}
    width = model.layers[0].W_K.shape[1] // model.n_kv_heads
    room = len(tokens) + max_new_tokens
    cache = kv_cache.KVCache(len(model.layers), model.n_kv_heads, width, room, model.embedding.dtype)
    prefill_s, (logits, cache) = stopwatch(kv_cache.prefill, model, tokens, cache)
    row, decode_s = logits[-1], []
    while len(decode_s) < max_new_tokens:
        seconds, row = stopwatch(kv_cache.decode_step, model, int(np.argmax(row)), cache)
        decode_s.append(seconds)
    n_bytes = kv_cache.kv_cache_bytes(len(model.layers), model.n_kv_heads, width, len(cache), model.embedding.dtype.itemsize)
    return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": n_bytes}
