"""Step 8: latencies of the decode steps, with a cache and without."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.check import check
from harness.checks.step5_exponent import close, finite
from harness.expect import Asked, ask, spell_value
from harness.subject import Call, Subject
from harness.values import Handle
from harness.virtual_decoder import SIZES, Decoded, Decoding, bytes_of, decode_latencies, decoding

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
    if not isinstance(steps, list | tuple | np.ndarray) or (isinstance(steps, np.ndarray) and steps.ndim != 1):
        raise asked.fail(f"decode_s is {spell_value(steps)}", f"a list of {n_steps} floats")
    if len(steps) != n_steps:
        raise asked.fail(f"decode_s has {len(steps)} times", f"{n_steps}: one a decode step after the prefill")
    steps = steps.tolist() if isinstance(steps, np.ndarray) else steps
    plain = [
        v.item() if getattr(v, "ndim", None) == 0 else v for v in (value["prefill_s"], value["cache_bytes"], *steps)
    ]
    for number in plain:
        if isinstance(number, bool) or not isinstance(number, int | float) or not finite(number):
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
        if cache_bytes != n_bytes and not (use_cache and cache_bytes == _own_bytes(subject, model)):
            raise asked.fail(
                f"cache_bytes is {cache_bytes}",
                f"{n_bytes}: 7 tokens are in the cache after the last step" if use_cache else "0: there is no cache",
            )


def _own_bytes(subject: Subject, model: Any) -> Any:
    """What the submission's own cache says of its bytes after the same tokens: what is wrong with that, another check says."""
    value = subject.ask(Call("kv_cache.prefill", (model, [1, 5, 2]), keep=True))[0].value
    cache = value[1] if isinstance(value, tuple | list) and len(value) == 2 else None
    if not isinstance(cache, Handle):
        return None
    for token in (1, 5, 2, 1):
        subject.ask(Call("kv_cache.decode_step", (model, token, cache), keep=True))
    return subject.ask(Call("@attr", (cache, "nbytes")))[0].value


# -- in virtual time ---------------------------------------------------------------------------------------------------

SECONDS = "times by the clock that was given"


def _scenarios(rng: np.random.Generator, use_cache: bool, asynchronous: bool) -> list[Decoding]:
    return [
        decoding(int(rng.integers(2**32)), prompt, new, use_cache, asynchronous) for prompt, new in ((4, 3), (2, 5))
    ]


def _shown(scenario: Decoding) -> str:
    synchronize = ", synchronize=…" if scenario.asynchronous else ""
    options = f"use_cache={scenario.use_cache}, clock=…{synchronize}"
    return f"decode_latencies(model, {scenario.prompt} tokens, {scenario.new}, {options})"


def _compare(subject: Subject, scenarios: list[Decoding]) -> list[tuple[Decoding, Decoded, Asked]]:
    found = []
    for scenario, decoded in zip(scenarios, decode_latencies(subject, scenarios), strict=True):
        asked = Asked(Call(LATENCIES), decoded.outcome, _shown(scenario))
        prefill_s, decode_s, _ = latencies(asked, scenario.new)
        if not decoded.readings:
            raise asked.fail("the clock that was given was not read", SECONDS, "timing-wrong-clock")
        prefill, steps = _taken(scenario, decoded)
        if not close(prefill_s, prefill):
            raise asked.fail(f"prefill_s is {prefill_s:.6g}", f"{prefill:.6g}: the prefill alone, {SECONDS}")
        for i, (seconds, wanted) in enumerate(zip(decode_s, steps, strict=True)):
            if not close(seconds, wanted):
                raise asked.fail(f"decode_s[{i}] is {seconds:.6g}", f"{wanted:.6g}: that step alone, {SECONDS}")
        found.append((scenario, decoded, asked))
    return found


def _taken(scenario: Decoding, decoded: Decoded) -> tuple[float, list[float]]:
    """Seconds of the prefill and of the steps after it: the last ones, as untimed work may come before."""
    if len(decoded.work) <= scenario.new:  # too little was done to tell: what should have been
        steps = scenario.steps if scenario.use_cache else scenario.passes[1:]
        return scenario.passes[0], list(steps[: scenario.new])
    passes = [seconds for _, seconds in decoded.work[: -scenario.new]]
    return passes[-1], [seconds for _, seconds in decoded.work[-scenario.new :]]


@check("step8.latencies.steps", functions=LATENCIES, families="decode_latencies", needs="torch", public=True)
def steps(subject: Subject, rng: np.random.Generator) -> None:
    """With a cache the prefill has its time, and every decode step after it its own."""
    for _, decoded, asked in _compare(subject, _scenarios(rng, True, False)):
        if decoded.path == "passes":
            raise asked.fail(
                "a step recomputed the prefix", "use_cache=True: decode_step with the cache", "cache-unused"
            )


@check("step8.latencies.recomputed", functions=LATENCIES, families="decode_latencies", needs="torch", public=True)
def recomputed(subject: Subject, rng: np.random.Generator) -> None:
    """Without a cache the first pass has its time, and every step recomputes the prefix."""
    scenarios = _scenarios(rng, False, False)
    found = decode_latencies(subject, scenarios)
    for scenario, decoded in zip(scenarios, found, strict=True):
        asked = Asked(Call(LATENCIES), decoded.outcome, _shown(scenario))
        latencies(asked, scenario.new)
        if decoded.path != "passes":
            code = "use-cache-ignored" if decoded.path == "steps" else None
            raise asked.fail("decode_step was called", "use_cache=False: the prefix recomputed in every step", code)
        lengths = [n for event, n in decoded.events if event == "pass"][-scenario.new :]
        for i, n in enumerate(lengths):
            if n not in (scenario.prompt + i, scenario.prompt + i + 1):
                raise asked.fail(
                    f"step {i + 1} recomputed {n} tokens",
                    f"{scenario.prompt + i}, or {scenario.prompt + i + 1} with the newest",
                )
    _compare(subject, scenarios)


@check("step8.latencies.synchronised", functions=LATENCIES, families="decode_latencies", needs="torch", public=True)
def synchronised(subject: Subject, rng: np.random.Generator) -> None:
    """Queued work is waited for before the clock is read, with a cache and without."""
    _compare(subject, _scenarios(rng, True, True) + _scenarios(rng, False, True))


@check(
    "step8.latencies.cache-bytes",
    functions=LATENCIES,
    families="decode_latencies",
    needs="torch",
    public=True,
)
def cache_bytes(subject: Subject, rng: np.random.Generator) -> None:
    """cache_bytes is what the cache holds after the last step, and 0 where there is no cache."""
    scenarios = [_scenarios(rng, use_cache, False)[i] for use_cache, i in ((True, 0), (True, 1), (False, 0))]
    for scenario, decoded in zip(scenarios, decode_latencies(subject, scenarios), strict=True):
        wanted = bytes_of(*SIZES, scenario.prompt + scenario.new) if scenario.use_cache else 0
        _bytes(Asked(Call(LATENCIES), decoded.outcome, _shown(scenario)), scenario.new, wanted)


def _bytes(asked: Asked, n_steps: int, wanted: int) -> None:
    _, _, found = latencies(asked, n_steps)
    if found != wanted:
        raise asked.fail(
            f"cache_bytes is {found}", f"{wanted}: read after the last step" if wanted else "0: there is no cache"
        )
