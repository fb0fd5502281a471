"""Step 8, measured from outside: what an append costs in a long cache, and a token with the cache and without it. Worth no points.

Only some positions of a text are measured: `attnlab profile` runs them all.
"""

from __future__ import annotations

import numpy as np

from grader.checks.step8_growth import SLOW, Decoding
from grader.measure.clock import apart, cost_of_an_empty_call, forget, spent
from harness.check import Fail, check, note, tell
from harness.checks.step8_cache import new_cache, store
from harness.expect import ask
from harness.subject import Call, Subject

SHORT, LONG = 16, 8192  # tokens held
HEADS, WIDTH = 4, 64
CLEARLY = 10
TOKENS = (32, 64, 128, 256, 512)  # of the texts that a token is added to
REPEATS = 3


@check("step8.cost.append", needs="kv", weight=0)
def append(subject: Subject) -> None:
    """What an append costs in a short cache and in a long one: measured here, and worth no points."""
    try:
        with apart(subject):
            few, many = (cost_of_appending(subject, held) for held in (SHORT, LONG))
    except Fail:  # that it works is for other checks to say
        return
    if many > CLEARLY * few:
        note("cost-growing-copies", "Every append copies the whole cache: right, and slower the longer the text.")


def cost_of_appending(subject: Subject, held: int) -> float:
    """CPU seconds of one token's append to a cache that holds so many. Raises Fail."""
    cache = new_cache(subject, 1, HEADS, WIDTH, held + 8)
    store(subject, cache, 0, *(np.ones((held, HEADS, WIDTH)) for _ in range(2)))
    token = ask(subject, "@tensor", np.ones((1, HEADS, WIDTH))).value
    empty = cost_of_an_empty_call(subject)
    costs = []
    for _ in range(6):
        outcome, cost = spent(subject, Call("@method", (cache, "append", 0, token, token)))
        if not outcome.ok:
            raise Fail("an append gave no value")
        costs.append(cost.cpu)
    forget(subject, cache, token)
    return max(min(costs) - empty, 0.0) + 1e-4  # what is less is lost in the cost of asking


@check("step8.cost.decode", needs="kv", weight=0)
def decode(subject: Subject, rng: np.random.Generator) -> None:
    """What one more token costs with the cache and without it: measured here, and worth no points."""
    cached: dict[int, float] = {}
    recomputed: dict[int, float] = {}
    try:
        with apart(subject):
            costs_of_tokens(subject, rng, cached, recomputed)
    except Fail:  # that it works is for other checks to say
        return
    if not cached:
        return
    each = ", ".join(f"{_ms(cached[n])} against {_ms(recomputed[n])} at {n}" for n in cached)
    last = max(cached)
    tell(
        f"One more token costs with the cache, and without it: {each} tokens; at {last} the cache is "
        f"{recomputed[last] / cached[last]:.3g} times as fast (CPU time, a decoder of one layer).",
        cached=cached,
        recomputed=recomputed,
    )


def costs_of_tokens(
    subject: Subject, rng: np.random.Generator, cached: dict[int, float], recomputed: dict[int, float]
) -> None:
    """Enters the CPU seconds of a token after texts of n tokens, by n, as far as a pass is quick enough. Raises Fail."""
    decoding = Decoding(subject, rng)
    for n in TOKENS:
        decoding.forward(n)  # what is imported or made once is no part of a cost
        whole = min(decoding.forward(n) for _ in range(REPEATS))
        _, cache = decoding.prefill(n)
        if cache is None:
            break
        step = min(decoding.steps(cache, REPEATS + 1))
        forget(subject, cache)
        if min(whole, step) > 0:
            cached[n], recomputed[n] = step, whole
        if whole > SLOW:
            break


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
