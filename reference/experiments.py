"""The lab's measurements (chapter section 7.9, steps 4 to 8), each by its plain formula.

A clock is a function without arguments that returns seconds; it and `synchronize` are always passed in or defaulted,
never reached for. Comparing with torch's SDPA is not here: this package knows NumPy alone.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.attention import Array, causal_mask, self_attention
from reference.cache import decode_step, prefill
from reference.decoder import Decoder, Tokens, forward

Clock = Callable[[], float]
Synchronize = Callable[[], object]
Attend = Callable[[Array, Array, Array], object]
SelfAttention = Callable[..., tuple[Array, Array]]
Permutation = Sequence[int] | NDArray[np.integer[Any]]


def equivariance_gap(
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    permutation: Permutation,
    positions: Array | None = None,
    mask: Array | None = None,
    attention: SelfAttention = self_attention,
) -> float:
    """Largest |un-shuffled output of X[permutation] - output of X|, X (n, d) (7.4).

    Positions (n, d) and mask belong to slots: they stay where they are when the tokens move. `attention` may be any
    function with the arguments of `self_attention`, also one that is wrong.
    """
    P = 0 if positions is None else positions
    output, _ = attention(X + P, W_Q, W_K, W_V, mask=mask)  # (n, d_v)
    shuffled, _ = attention(X[np.asarray(permutation)] + P, W_Q, W_K, W_V, mask=mask)  # row i is token permutation[i]
    unshuffled = shuffled[np.argsort(permutation)]  # argsort inverts a permutation
    return float(np.max(np.abs(unshuffled - output)))


def append_invariance_gap(
    X: Array, x_new: Array, W_Q: Array, W_K: Array, W_V: Array, attention: SelfAttention = self_attention
) -> float:
    """Largest change of the causal outputs of X (n, d) when the row x_new (1, d) is appended (7.9, step 7)."""
    n = len(X)
    before, _ = attention(X, W_Q, W_K, W_V, mask=causal_mask(n))  # (n, d_v)
    after, _ = attention(np.concatenate([X, x_new]), W_Q, W_K, W_V, mask=causal_mask(n + 1))  # (n + 1, d_v)
    return float(np.max(np.abs(after[:n] - before)))


def time_attention(
    attend: Attend,
    ns: Sequence[int],
    d: int = 64,
    warmup: int = 3,
    repeats: int = 5,
    clock: Clock = time.perf_counter,
    synchronize: Synchronize | None = None,
) -> list[float]:
    """Median seconds of one attend(Q, K, V) for each n, Q, K and V (n, d), after `warmup` untimed calls (step 5)."""
    rng = np.random.default_rng(0)
    medians = []
    for n in ns:
        Q, K, V = rng.standard_normal((3, n, d))
        for _ in range(warmup):
            attend(Q, K, V)
        medians.append(statistics.median(_seconds(clock, synchronize, attend, Q, K, V)[0] for _ in range(repeats)))
    return medians


def local_slopes(ns: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Slope of log seconds over log n between neighbours -> len(ns) - 1 floats (step 5)."""
    slopes = np.diff(np.log(seconds)) / np.diff(np.log(ns))
    return [float(slope) for slope in slopes]


def fit_exponent(ns: Sequence[float], seconds: Sequence[float]) -> float:
    """Least-squares slope of log seconds on log n: sum(dx dy) / sum(dx²), dx and dy from their means (step 5)."""
    x, y = np.log(ns), np.log(seconds)
    dx, dy = x - np.mean(x), y - np.mean(y)
    return float(np.sum(dx * dy) / np.sum(dx * dx))


def score_bytes(n: int, itemsize: int = 2, heads: int = 1) -> int:
    """Bytes of the raw n x n scores of `heads` heads (7.6)."""
    return heads * n * n * itemsize


def largest_n(fits: Callable[[int], object], start: int = 128, limit: int = 2**24) -> int:
    """Largest n in start … limit that fits, by doubling and then halving the gap; 0 if `start` does not (step 6).

    `fits` is monotone; a MemoryError from it counts as false.
    """

    def holds(n: int) -> bool:
        try:
            return bool(fits(n))
        except MemoryError:
            return False

    if not holds(start):
        return 0
    good, bad = start, limit + 1  # good fits; bad does not, or may not be asked
    while 2 * good < bad:
        if holds(2 * good):
            good *= 2
        else:
            bad = 2 * good
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def decode_latencies(
    model: Decoder,
    prompt: Tokens,
    max_new_tokens: int,
    use_cache: bool,
    clock: Clock = time.perf_counter,
    synchronize: Synchronize | None = None,
) -> dict[str, Any]:
    """`prefill_s`, one `decode_s` for each step after it, and the `cache_bytes` held at the end (step 8).

    Without a cache a step recomputes the prefix with its newest token, and `cache_bytes` is 0.
    """
    tokens = [int(token) for token in prompt]
    cache = None
    if use_cache:
        prefill_s, (logits, cache) = _seconds(clock, synchronize, prefill, model, tokens)
    else:
        prefill_s, logits = _seconds(clock, synchronize, forward, model, tokens)
    logits = logits[-1]  # (vocab,)
    decode_s = []
    for _ in range(max_new_tokens):
        tokens.append(int(np.argmax(logits)))
        if cache is not None:
            seconds, logits = _seconds(clock, synchronize, decode_step, model, tokens[-1], cache)
        else:
            seconds, logits = _seconds(clock, synchronize, forward, model, tokens)
            logits = logits[-1]
        decode_s.append(seconds)
    return {"prefill_s": prefill_s, "decode_s": decode_s, "cache_bytes": 0 if cache is None else cache.nbytes}


def _seconds(clock: Clock, synchronize: Synchronize | None, fn: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Seconds of one fn(*args), and its result; work still queued on a device is waited for before each reading."""
    wait = synchronize or (lambda: None)
    wait()
    start = clock()
    result = fn(*args)
    wait()
    return clock() - start, result
