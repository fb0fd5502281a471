import math
import statistics
import time
import tracemalloc

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attention import causal_mask, project, scaled_dot_product_attention
from kv_cache import decode_step, forward, prefill


def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    torch.manual_seed(seed)
    rows = []
    for shape in shapes:
        q, k, v = (torch.randn(*shape, dtype=torch.float64).to(getattr(torch, dtype)) for _ in range(3))
        mask = torch.from_numpy(np.asarray(causal_mask(shape[2]))) if causal else None
        reference = sdpa(q, k, v, attn_mask=mask, dropout_p=0.0)
        own, _ = scaled_dot_product_attention(q.numpy(), k.numpy(), v.numpy(), mask=None if mask is None else mask.numpy())
        gap = (torch.from_numpy(np.asarray(own)) - reference).abs().max().item()
        rows.append(dict(shape=list(shape), max_abs_diff=gap, backend=torch.nn.attention.SDPBackend.MATH.name))
    return rows


def equivariance_gap(X, W_Q, W_K, W_V, permutation, positions=None, mask=None):
    order = list(permutation)
    inverse = [order.index(i) for i in range(len(order))]

    def outputs(tokens):
        if positions is not None:
            tokens = tokens + positions
        return scaled_dot_product_attention(*project(tokens, W_Q, W_K, W_V), mask=mask)[0]

    return float(abs(outputs(X[order])[inverse] - outputs(X)).max())


def append_invariance_gap(X, x_new, W_Q, W_K, W_V):
    def causal(tokens):
        mask = np.tril(np.ones((len(tokens), len(tokens)), dtype=bool))
        return scaled_dot_product_attention(*project(tokens, W_Q, W_K, W_V), mask=mask)[0]

    return float(abs(causal(np.vstack((X, x_new)))[: len(X)] - causal(X)).max())


def time_attention(attend, ns, d=64, warmup=3, repeats=5, clock=time.perf_counter, synchronize=None):
    wait = synchronize if synchronize is not None else lambda: None

    def once(inputs):
        wait()
        start = clock()
        attend(*inputs)
        wait()
        return clock() - start

    def measure(n):
        inputs = tuple(np.random.standard_normal((3, n, d)))
        for _ in range(warmup):
            once(inputs)  # thrown away
        return statistics.median([once(inputs) for _ in range(repeats)])

    return [measure(n) for n in ns]


def local_slopes(ns, seconds):
    return (np.diff(np.log(seconds)) / np.diff(np.log(ns))).tolist()


def fit_exponent(ns, seconds):
    design = np.stack([np.log(ns), np.ones(len(ns))], axis=1)
    return float(np.linalg.lstsq(design, np.log(seconds), rcond=None)[0][0])


def score_bytes(n, itemsize=2, heads=1):
    return math.prod((heads, n, n, itemsize))


def measure_peak_memory(fn):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fn()
        growth = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return {"allocated": growth, "reserved": growth}


def largest_n(fits, start=128, limit=2**24):
    known = {}

    def ok(n):
        if n not in known:
            try:
                known[n] = fits(n)
            except MemoryError:
                known[n] = False
        return known[n]

    if not ok(start):
        return 0
    n = start
    while 2 * n <= limit and ok(2 * n):
        n *= 2
    step = 1 << n.bit_length()
    while step:
        if n + step <= limit and ok(n + step):
            n += step
        step //= 2
    return n


def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    wait = synchronize if synchronize is not None else lambda: None
    seen, cache = [int(t) for t in prompt], None
    wait()
    mark = clock()
    if use_cache:
        logits, cache = prefill(model, seen)
    else:
        logits, _ = prefill(model, seen)
    wait()
    here = clock()
    prefill_s, mark = here - mark, here
    decode_s = []
    for _ in range(max_new_tokens):
        new = int(np.argmax(logits[-1]))
        logits = [decode_step(model, new, cache)] if use_cache else forward(model, seen)
        seen.append(new)
        wait()
        here = clock()
        decode_s.append(here - mark)
        mark = here
    return dict(prefill_s=prefill_s, decode_s=decode_s, cache_bytes=cache.nbytes if use_cache else 0)
