"""Step 8, measured from outside: what an append costs in a long cache. Worth no points."""

from __future__ import annotations

import numpy as np

from grader.measure.clock import cost_of_an_empty_call, forget, spent
from harness.check import Fail, check, note
from harness.checks.step8_cache import new_cache, store
from harness.expect import ask
from harness.subject import Call, Subject

SHORT, LONG = 16, 4096  # tokens held
HEADS, WIDTH = 4, 64
CLEARLY = 10


@check("step8.cost.append", needs="kv", weight=0)
def append(subject: Subject) -> None:
    """What an append costs in a short cache and in a long one: measured here, and worth no points."""
    try:
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
