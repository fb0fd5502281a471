"""attention_torch.py and a cache of tensors, measured on their device: times, memory, and parts of the machine's own speed.

Worth no points, and run where numbers are asked for alone: they differ from run to run.
"""

from __future__ import annotations

import numpy as np

from grader.checks.step8_cache import fields_of
from grader.checks.step10_narrow import SDPA, in_each_dtype
from grader.measure import memory
from grader.measure.clock import forget
from grader.measure.device import ITEMSIZE, Taken, attention_at, call_at, ceilings, work
from harness.check import Fail, check, tell
from harness.growth import growth
from harness.subject import Call, Subject
from harness.values import Dtype, Handle
from reference import decoder, narrow
from reference.experiments import score_bytes

NS = (256, 512, 1024, 2048)
LONGER = (4096, 8192)  # where there is a GPU
D = 64
LONGEST = 0.5  # seconds that a call may be expected to take
HELD = (64, 1024)  # tokens in a cache
MIB = 2**20


def on_gpu(subject: Subject) -> bool:
    return getattr(subject, "device", "cpu") != "cpu"


@in_each_dtype("step10.cost.attention", functions=SDPA, weight=0)
def attention(dtype: str, subject: Subject) -> None:
    """what attention costs is measured here, and worth no points."""
    gpu = on_gpu(subject)
    try:
        taken, left_out = _lengths(subject, dtype, gpu)
    except Fail as failure:
        if failure.got is None:  # that it works is for other checks to say
            return
        raise
    if taken:
        tell(_told(subject, taken, dtype, gpu) + left_out, seconds={n: t.seconds for n, t in taken.items()})


def _lengths(subject: Subject, dtype: str, gpu: bool) -> tuple[dict[int, Taken], str]:
    """What calls took by their length, and why longer ones were left out where memory ended."""
    taken: dict[int, Taken] = {}
    there = memory.available()
    for n in NS + (LONGER if gpu else ()):
        if taken and 5 * max(t.seconds for t in taken.values()) > LONGEST:
            break
        if not gpu and there is not None and 6 * score_bytes(n, 4) > there:
            break
        try:
            taken[n] = attention_at(subject, SDPA, n, D, dtype)
        except Fail as failure:
            if failure.code != "out-of-memory" or not taken:
                raise
            return taken, f" n = {n} does not fit into the memory that a call may use."
    return taken, ""


def _told(subject: Subject, taken: dict[int, Taken], dtype: str, gpu: bool) -> str:
    n = max(taken)
    times = ", ".join(f"{1e3 * t.seconds:.3g} ms at {m}" for m, t in taken.items())
    parts = [f"One call takes {times} (n queries and keys, d = {D}, {dtype}, on {'the GPU' if gpu else 'the CPU'})."]
    if len(taken) > 3:
        found = growth(list(taken), [t.seconds for t in taken.values()])
        parts.append(f"It grows as n to the {found.exponent:.2f} ({found.low:.2f} to {found.high:.2f}).")
    most = ceilings(subject, dtype, gpu)
    copied, computed = most.share(*work(n, D, dtype), taken[n].seconds)
    parts.append(
        f"At n = {n} that is {copied:.1%} of what this machine copies ({most.bytes / 1e9:.0f} GB/s) and {computed:.1%} of "
        f"its matrix products ({most.operations / 1e9:.0f} Gflop/s), both measured here."
    )
    allocated, reserved = taken[n].allocated, taken[n].reserved
    if allocated is not None and reserved is not None:
        table = score_bytes(n, ITEMSIZE[dtype])
        parts.append(
            f"The GPU held {allocated / MIB:.1f} MiB more at the peak, and {reserved / MIB:.1f} more were reserved; the "
            f"score tensor has {table / MIB:.1f}."
        )
    if any(t.contradicted for t in taken.values()):
        parts.append("These times are not to be trusted: far more time passed outside than the events tell of.")
    return " ".join(parts)


@check("step10.cost.decode", needs="tensors", functions=("kv_cache.prefill", "kv_cache.decode_step"), weight=0)
def decode(subject: Subject) -> None:
    """What a decode step costs on tensors, in a short cache and in a long one: measured here, and worth no points."""
    if subject.call("@backend").value != "torch":
        return
    gpu = on_gpu(subject)
    dtype = "bfloat16" if gpu else "float32"
    try:
        steps = {n: decode_step_at(subject, n, dtype) for n in HELD}
    except Fail:
        return
    times = ", ".join(f"{1e3 * step.seconds:.3g} ms with {n} tokens held" for n, step in steps.items())
    tell(f"A decode step takes {times} ({dtype}, on {'the GPU' if gpu else 'the CPU'}).")


def decode_step_at(subject: Subject, held: int, dtype: str) -> Taken:
    """One decode step with so many tokens in the cache, or a few more. Raises Fail."""
    rng = np.random.default_rng(held)
    model = narrow.representable(decoder.random_model(rng, n_layers=2, n_heads=4, n_kv_heads=2, d_head=32), dtype)
    kept = subject.ask(Call("@model", (fields_of(model), dtype), keep=True))[0].value
    made = subject.ask(Call("kv_cache.KVCache", (2, 2, 32, held + 16, Dtype(dtype)), keep=True))[0].value
    tokens = rng.integers(0, len(model.embedding), held).tolist()
    filled = subject.ask(Call("kv_cache.prefill", (kept, tokens), {"cache": made}, keep="whole"))[0]
    if not isinstance(made, Handle) or not filled.ok:
        raise Fail("a cache could not be filled")
    forget(subject, filled.value)
    return call_at(subject, "kv_cache.decode_step", kept, 1, made)
