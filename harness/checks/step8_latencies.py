"""Step 8: latencies of the decode steps, with a cache and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.check import check
from harness.expect import Asked, ask, spell_value
from harness.subject import Call, Subject

LATENCIES = "experiments.decode_latencies"


def latencies(asked: Asked, n_steps: int) -> tuple[float, list[float], int]:
    """`prefill_s`, `decode_s` and `cache_bytes` of the result: finite numbers. Raises Fail."""
    value = asked.value
    if not isinstance(value, dict):
        raise asked.fail(f"the result is {spell_value(value)}", "a dict with prefill_s, decode_s and cache_bytes")
    missing = [name for name in ("prefill_s", "decode_s", "cache_bytes") if name not in value]
    if missing:
        raise asked.fail(f"the result has no {' and no '.join(missing)}", "prefill_s, decode_s and cache_bytes")
    steps = value["decode_s"]
    steps = steps.tolist() if isinstance(steps, np.ndarray) else steps
    if not isinstance(steps, list | tuple):
        raise asked.fail(f"decode_s is {spell_value(steps)}", f"a list of {n_steps} floats")
    if len(steps) != n_steps:
        raise asked.fail(f"decode_s has {len(steps)} times", f"{n_steps}: one a decode step after the prefill")
    plain = [
        v.item() if getattr(v, "ndim", None) == 0 else v for v in (value["prefill_s"], value["cache_bytes"], *steps)
    ]
    for number in plain:
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise asked.fail(f"{spell_value(number)} is among the results", "finite numbers")
    return float(plain[0]), [float(number) for number in plain[2:]], int(plain[1])


def small_decoder() -> dict[str, Any]:
    """Fields of a decoder with two layers, two K/V heads of width 2 and 7 tokens."""
    rng = np.random.default_rng(3)
    shapes = {"W_Q": (8, 8), "W_K": (8, 4), "W_V": (8, 4), "W_O": (8, 8)}
    layers = [{name: rng.standard_normal(shape) / 3 for name, shape in shapes.items()} for _ in range(2)]
    return {
        "embedding": rng.standard_normal((7, 8)),
        "layers": layers,
        "n_heads": 4,
        "n_kv_heads": 2,
        "positions": "none",
    }


@check(
    "step8.latencies.real-clock",
    functions=(LATENCIES, "kv_cache.prefill", "kv_cache.decode_step", "kv_cache.forward"),
    families="decode_latencies",
    needs="torch",
    public=True,
)
def real_clock(subject: Subject) -> None:
    """With its own clock, decode_latencies gives one time a step, a prefill, and the bytes of the cache: 0 without one."""
    model = subject.ask(Call("@model", (small_decoder(),), keep=True))[0].value
    for use_cache, n_bytes in ((True, 2 * 2 * 2 * 2 * (3 + 4) * 8), (False, 0)):
        asked = ask(subject, LATENCIES, model, [1, 5, 2], 4, use_cache)
        prefill_s, decode_s, cache_bytes = latencies(asked, 4)
        if not all(0 < seconds < 60 for seconds in (prefill_s, *decode_s)):
            raise asked.fail("a time is not above 0", "seconds, more than 0")
        if cache_bytes != n_bytes:
            raise asked.fail(
                f"cache_bytes is {cache_bytes}",
                f"{n_bytes}: 7 tokens are in the cache after the last step" if use_cache else "0: there is no cache",
            )
