"""Makes report/ from your own functions: results.json, loglog.png, latency.png. Given: there is nothing to write here.

    python make_report.py               everything (a few minutes)
    python make_report.py 5 8           steps 5 and 8 alone; what report/results.json holds already is kept
    python make_report.py --memory 8    lets attention use 8 GiB in step 6 (2 otherwise; name what your machine has)

A step whose functions are not written yet is left out, and said so. The explanations of steps 4, 5 and 6 go into
report/note.md, in your own words.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: one thread gives times that compare
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parent
REPORT = HERE / "report"
GIB = 2**30

NS = [128, 256, 512, 1024, 2048, 4096]
D = 64
MEMORY_N = 2048
PROMPT, NEW_TOKENS = 32, 512
VOCAB, D_MODEL, LAYERS, HEADS, KV_HEADS, D_HEAD = 64, 64, 2, 4, 4, 16


def step3() -> dict[str, Any]:
    from experiments import compare_with_sdpa

    rows = compare_with_sdpa([(1, 1, 16, 8), (2, 4, 64, 32), (1, 2, 256, 64)])
    rows += compare_with_sdpa([(2, 4, 64, 32)], causal=True)
    for row in rows:
        row["shape"] = list(row["shape"])
        row["backend"] = getattr(row["backend"], "name", str(row["backend"]))
    return {"sdpa": rows}


def step4() -> dict[str, Any]:
    """The shuffle test on the chapter's sentence: kedi sütü içti, in the order [2, 0, 1]."""
    from attention import causal_mask, sinusoidal_positions
    from experiments import equivariance_gap

    X = np.array([[0.9, 0.1, 0.0, 0.5], [0.1, 0.9, 0.0, 0.5], [0.0, 0.1, 0.9, 0.5]])
    W_Q = np.array([[2.0, 0], [0, 2], [2, 2], [0, 0]])
    W_K = np.array([[1.5, 0], [0, 1.5], [0, 0], [0, 0]])
    W_V = np.array([[1.0, 0], [0, 1], [0, 0], [0.2, 0.2]])
    order = np.array([2, 0, 1])
    gaps = {
        "plain": equivariance_gap(X, W_Q, W_K, W_V, order),
        "with_positions": equivariance_gap(X, W_Q, W_K, W_V, order, positions=0.3 * sinusoidal_positions(3, 4)),
        "causal": equivariance_gap(X, W_Q, W_K, W_V, order, mask=causal_mask(3)),
    }
    return {"equivariance_gaps": gaps}


def step5() -> dict[str, Any]:
    from attention import scaled_dot_product_attention
    from experiments import fit_exponent, local_slopes, time_attention

    seconds = [float(s) for s in time_attention(scaled_dot_product_attention, NS, d=D)]
    exponent = float(fit_exponent(NS, seconds))
    draw_loglog(seconds, exponent)
    return {
        "ns": NS,
        "seconds": seconds,
        "exponent": exponent,
        "local_slopes": [float(s) for s in local_slopes(NS, seconds)],
    }


def step6(gib: float) -> dict[str, Any]:
    from attention import scaled_dot_product_attention
    from experiments import largest_n, measure_peak_memory, score_bytes

    Q, K, V = np.random.default_rng(0).standard_normal((3, MEMORY_N, D))
    peak = measure_peak_memory(lambda: scaled_dot_product_attention(Q, K, V))
    tables = peak["allocated"] / score_bytes(MEMORY_N, itemsize=8)
    print(f"  at n = {MEMORY_N} the peak is {tables:.1f} score tables; now the largest n in {gib:g} GiB", flush=True)

    def fits(n: int) -> bool:
        if sys.platform == "linux":
            return fits_in_child(n, gib)
        return bool(
            tables * score_bytes(n, itemsize=8) <= gib * GIB
        )  # elsewhere no limit can be set: by the measured peak

    return {
        "score_bytes": int(score_bytes(MEMORY_N, itemsize=8)),
        "memory_n": MEMORY_N,
        "itemsize": 8,
        "peak_allocated": int(peak["allocated"]),
        "peak_reserved": int(peak["reserved"]),
        "largest_n": int(largest_n(fits)),
        "limiting_resource": "cpu_memory",
    }


def fits_in_child(n: int, gib: float) -> bool:
    """Whether attention at n runs in a process that may take `gib` more than it starts with."""
    child = [sys.executable, str(HERE / "make_report.py"), "--try-n", str(n), "--memory", str(gib)]
    went_well = subprocess.run(child, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    print(f"  n = {n}: {'fits' if went_well else 'does not fit'}", flush=True)
    return went_well


def try_n(n: int, gib: float) -> None:
    import resource

    from attention import scaled_dot_product_attention

    Q, K, V = np.random.default_rng(0).standard_normal((3, n, D))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(gib * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    scaled_dot_product_attention(Q, K, V)


def step8() -> dict[str, Any]:
    from experiments import decode_latencies, measure_peak_memory
    from kv_cache import KVCache, kv_cache_bytes

    model = random_decoder()
    prompt = [int(t) for t in np.random.default_rng(1).integers(VOCAB, size=PROMPT)]
    decode_latencies(model, prompt, 8, True)  # warm-up
    cached = decode_latencies(model, prompt, NEW_TOKENS, True)
    print(f"  with a cache: {cached['decode_s'][-1]:.3g} s for the last token; now recomputing", flush=True)
    recomputed = decode_latencies(model, prompt, NEW_TOKENS, False)
    draw_latency(cached["decode_s"], recomputed["decode_s"])

    n_tokens = PROMPT + NEW_TOKENS
    blank = for_the_cache(np.zeros((n_tokens, KV_HEADS, D_HEAD)))
    kept = []

    def make_cache() -> None:
        kept.append(KVCache(LAYERS, KV_HEADS, D_HEAD, n_tokens, blank.dtype))
        for layer in range(LAYERS):
            kept[0].append(layer, blank, blank)

    return {
        "prefill_s": float(cached["prefill_s"]),
        "decode_cached_s": [float(s) for s in cached["decode_s"]],
        "decode_recomputed_s": [float(s) for s in recomputed["decode_s"]],
        "speedup_at_last_token": float(recomputed["decode_s"][-1] / cached["decode_s"][-1]),
        "cache_bytes": int(kv_cache_bytes(LAYERS, KV_HEADS, D_HEAD, n_tokens, 8)),
        "cache_bytes_allocated": int(measure_peak_memory(make_cache)["allocated"]),
        "decoder": {"n_layers": LAYERS, "n_kv_heads": KV_HEADS, "d_head": D_HEAD, "n_tokens": n_tokens, "itemsize": 8},
    }


def for_the_cache(array: np.ndarray) -> Any:
    """What kv_cache.py works with: a tensor where it says BACKEND = "torch"."""
    import kv_cache

    if getattr(kv_cache, "BACKEND", "numpy") != "torch":
        return array
    import torch

    return torch.from_numpy(array).to(torch.get_default_device())


def random_decoder() -> Any:
    from model import Decoder, Layer

    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return for_the_cache(rng.standard_normal((rows, columns)) / math.sqrt(rows))

    wide, narrow = HEADS * D_HEAD, KV_HEADS * D_HEAD
    layers = tuple(
        Layer(matrix(D_MODEL, wide), matrix(D_MODEL, narrow), matrix(D_MODEL, narrow), matrix(wide, D_MODEL))
        for _ in range(LAYERS)
    )
    return Decoder(for_the_cache(rng.standard_normal((VOCAB, D_MODEL))), layers, HEADS, KV_HEADS, "sinusoidal")


# -- pictures -----------------------------------------------------------------------------------------------------


OWN, OTHER = "#1f55a5", "#b3541e"  # as `attnlab profile` and the grader's page have them


def new_axes() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.4), dpi=120)
    axes.grid(True, which="both", alpha=0.25)
    return figure, axes


def draw_loglog(seconds: list[float], exponent: float) -> None:
    figure, axes = new_axes()
    middle = math.exp(sum(math.log(s) for s in seconds) / len(seconds))
    centre = math.exp(sum(math.log(n) for n in NS) / len(NS))
    axes.loglog(NS, seconds, "o", color=OWN, label="measured")
    axes.loglog(NS, [middle * (n / centre) ** exponent for n in NS], color=OWN, label=f"fit: n^{exponent:.2f}")
    axes.set_xticks(NS, [str(n) for n in NS])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("sequence length n")
    axes.set_ylabel("seconds")
    axes.set_title(f"Attention, d = {D}")
    axes.legend()
    figure.tight_layout()
    figure.savefig(REPORT / "loglog.png")


def draw_latency(cached: list[float], recomputed: list[float]) -> None:
    figure, axes = new_axes()
    axes.semilogy(range(1, len(recomputed) + 1), recomputed, color=OTHER, linewidth=1, label="recomputing everything")
    axes.semilogy(range(1, len(cached) + 1), cached, color=OWN, linewidth=1, label="with a KV cache")
    axes.set_xlabel("token generated")
    axes.set_ylabel("seconds a token")
    axes.set_title("Latency of each decode step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(REPORT / "latency.png")


# -- the whole ----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes report/ from your own functions.")
    parser.add_argument("steps", nargs="*", type=int, help="3, 4, 5, 6 and 8 unless you name some")
    parser.add_argument("--memory", type=float, default=2.0, metavar="GIB", help="what attention may use in step 6")
    parser.add_argument("--try-n", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.try_n:
        try_n(asked.try_n, asked.memory)
        return
    makers = {3: step3, 4: step4, 5: step5, 6: lambda: step6(asked.memory), 8: step8}
    unknown = sorted(set(asked.steps) - set(makers))
    if unknown:
        parser.error(f"no figures belong to step {unknown[0]}: choose from {', '.join(map(str, makers))}")
    REPORT.mkdir(exist_ok=True)
    file = REPORT / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for number in asked.steps or makers:
        began = time.perf_counter()
        print(f"step {number} …", flush=True)
        try:
            results |= makers[number]()
        except (NotImplementedError, ModuleNotFoundError) as error:
            print(f"  left out: {error}")
            continue
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores, NumPy {np.__version__}"
        results["hardware"] = f"{machine}; {asked.memory:g} GiB for step 6"
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"  done in {time.perf_counter() - began:.1f} s", flush=True)
    if not (REPORT / "note.md").exists():
        print("Now write report/note.md: why a causal mask breaks equivariance (step 4), where and why the slope")
        print("leaves 2 (step 5), and which resource ran out (step 6).")


if __name__ == "__main__":
    main()
