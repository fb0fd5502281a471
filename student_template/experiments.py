"""The measurements: steps 3 to 8. Uses attention.py and kv_cache.py only by calling their functions.

`clock` and `synchronize` are parameters: read time from that clock only, and call `synchronize()` (where it is not
None) before every reading that counts. On a GPU a call returns before its work is done; synchronising waits for it.
"""

import time

import numpy as np
from attention import causal_mask, scaled_dot_product_attention, self_attention
from kv_cache import decode_step, forward, prefill


def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    """Step 3: your attention against torch.nn.functional.scaled_dot_product_attention, on the same random inputs.

    `shapes` is a list of (batch, heads, n, d); Q, K and V of that shape are drawn from `seed` in `dtype` ("float16",
    "float32" or "float64"). Both sides get the same mask (causal or none) and the same scale, and dropout_p=0.
    Returns a list of dicts, one a shape:
        shape          the (batch, heads, n, d)
        max_abs_diff   the largest absolute difference of the outputs, a float
        backend        what computed SDPA: a member of torch.nn.attention.SDPBackend (choose it by sdpa_kernel there)
    Import torch inside this function, so that the other steps work without it.
    """
    raise NotImplementedError(
        "Write compare_with_sdpa: run both on the same inputs and report the largest absolute difference."
    )


def equivariance_gap(X, W_Q, W_K, W_V, permutation, positions=None, mask=None):
    """Step 4: shuffle the tokens, run self_attention, un-shuffle the outputs; the largest absolute difference, a float.

    The shuffled run is that of X[permutation]. `positions` (n, d), when given, are added after the shuffle: a slot
    keeps its position vector, whichever token sits in it. `mask` stays with the slots too. (Section 7.4 found 1.11e-16
    without positions.)
    """
    raise NotImplementedError(
        "Write equivariance_gap: compare the run on X with the un-shuffled run on X[permutation]."
    )


def append_invariance_gap(X, x_new, W_Q, W_K, W_V):
    """Step 7: causal outputs for X (n, d), against the first n outputs with the row x_new (1, d) appended; a float.

    The largest absolute difference. What should it be, and why does that make a KV cache legal?
    """
    raise NotImplementedError(
        "Write append_invariance_gap: run with a causal mask, append x_new, run again, compare the first n."
    )


def time_attention(attend, ns, d=64, warmup=3, repeats=5, clock=time.perf_counter, synchronize=None):
    """Step 5: the median seconds of one attend(Q, K, V) for every n in `ns`, a list of floats. Q, K, V are (n, d).

    For every n: make the inputs (not timed), call attend `warmup` times (not timed), then time `repeats` calls one by
    one.
    """
    raise NotImplementedError("Write time_attention: warm up, time each repeat by the given clock, take the median.")


def local_slopes(ns, seconds):
    """Step 5: the slope of log seconds on log n between neighbouring points, a list of len(ns) - 1 floats."""
    raise NotImplementedError("Write local_slopes: differences of log seconds divided by differences of log n.")


def fit_exponent(ns, seconds):
    """Step 5: the least-squares slope of log seconds on log n through all points, a float: 2 for seconds = c·n²."""
    raise NotImplementedError("Write fit_exponent: fit a line to log seconds against log n and return its slope.")


def score_bytes(n, itemsize=2, heads=1):
    """Step 6: bytes of the raw n × n score tensor, an int. (section 7.6: 2.00 GiB for n = 32,768 at fp16)"""
    raise NotImplementedError("Write score_bytes: entries of the score tensor times bytes an entry.")


def measure_peak_memory(fn):
    """Step 6: how much memory fn() needs: bytes at the peak while it runs, above what was held before.

    Calls fn exactly once. Returns {"allocated": …, "reserved": …}: what was asked for, and what the process got from
    the system (torch.cuda has both; with NumPy, tracemalloc gives the first, and `reserved` may equal it).
    """
    raise NotImplementedError("Write measure_peak_memory: the peak while fn() runs, minus what was held before.")


def largest_n(fits, start=128, limit=2**24):
    """Step 6: the largest n from start to limit (both included) for which fits(n) is true; 0 if start does not fit.

    Where n fits, every smaller one does. A MemoryError raised by fits counts as false. Calls of fits are dear: double n
    until it fails, then halve the gap.
    """
    raise NotImplementedError("Write largest_n: double until fits(n) fails, then search between the last two.")


def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    """Step 8: seconds of prefill, and of each decode step after it, apart. Returns a dict:

        prefill_s     float: running the prompt, which also yields the first new token
        decode_s      list of max_new_tokens floats: one a decode step after prefill
        cache_bytes   int: cache.nbytes after the last step; 0 without a cache
    With use_cache a step is decode_step; without, a step is `forward` on the whole prefix. Tokens are chosen greedily.
    """
    raise NotImplementedError("Write decode_latencies: time prefill, then every step by itself.")
