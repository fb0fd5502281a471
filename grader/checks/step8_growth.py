"""Step 8 by cost: what generate takes of its process's CPU, where no count of its calls shows what it does.

The one place where a measured time decides points. What counts is how a cost grows with the text, or ten times the cost of the
submission's own forward, prefill and decode_step in the same process; the least of several readings; and only where it comes
back when it is measured again. Anything less passes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from grader.checks.step8_cache import GREEDY, VOCABULARY, fields_of
from grader.measure.clock import Spent, cost_of_an_empty_call, forget, spent
from harness.check import Fail, check, fail_of
from harness.checks.step8_cache import DECODE, FORWARD, GENERATE, PREFILL
from harness.checks.step8_decoder import keep_model
from harness.expect import spell
from harness.subject import Call, Outcome, Subject
from harness.values import Handle
from reference import decoder

CLEARLY = 10  # times more than it should be
SHORT = 128  # tokens of a prompt
SLOW = 0.4  # CPU seconds of a pass over it, beyond which nothing is measured


class Decoding:
    """A decoder in the worker, and what the submission's functions cost on texts that no call has seen before."""

    def __init__(self, subject: Subject, rng: np.random.Generator) -> None:
        self.subject, self.rng = subject, rng
        self.right = decoder.random_model(rng, n_layers=1, d_head=16, vocab=VOCABULARY, positions="none")
        self.model = keep_model(subject, fields_of(self.right))
        self.empty = cost_of_an_empty_call(subject)

    def text(self, n: int) -> list[int]:
        return [int(token) for token in self.rng.integers(0, VOCABULARY, n)]

    def spent(self, name: str, *args: Any, **kwargs: Any) -> tuple[Outcome, Spent]:
        """One call's outcome and cost. Raises Fail where it gives no value."""
        call = Call(name, args, kwargs, keep=True)
        outcome, cost = spent(self.subject, call)
        if not outcome.ok:
            raise fail_of(outcome, spell(call), {}, "kv_cache")
        return outcome, Spent(max(cost.cpu - self.empty, 0.0), cost.asleep)

    def generate(self, n: int, new: int, use_cache: bool) -> Spent:
        return self.spent(GENERATE, self.model, self.text(n), new, use_cache=use_cache)[1]

    def forward(self, n: int) -> float:
        return self.spent(FORWARD, self.model, self.text(n))[1].cpu

    def prefill(self, n: int) -> tuple[float, Handle | None]:
        """What it cost, and the cache."""
        outcome, cost = self.spent(PREFILL, self.model, self.text(n))
        value = outcome.value
        found = value[1] if isinstance(value, tuple | list) and len(value) == 2 else None
        return cost.cpu, found if isinstance(found, Handle) else None

    def token(self, n: int, rounds: int, first: float) -> float:
        """What one more token from generate costs after a prompt of n, and after a first that costs `first` at most."""
        costs: dict[int, list[float]] = {1: [], 1 + NEW: []}
        for _ in range(rounds):  # in turn, since what else the machine does comes and goes
            for new, found in costs.items():
                found.append(self.generate(n, new, True).cpu)
        return (min(costs[1 + NEW]) - min(*costs[1], first)) / NEW

    def right_pass(self, n: int) -> float:
        """What a pass over such a text costs where it is right, in this process."""
        tokens = self.text(n)
        began = time.thread_time()
        decoder.forward(self.right, tokens)
        return time.thread_time() - began

    def steps(self, cache: Handle, n: int) -> list[float]:
        """What each of n decode steps cost."""
        return [self.spent(DECODE, self.model, token, cache)[1].cpu for token in self.text(n)]

    def token_by_token(self, n: int) -> float:
        """What a text costs whose tokens are decoded one at a time, as a slow but honest recompute may do."""
        return self.generate(1, n, True).cpu


# -- with the cache --------------------------------------------------------------------------------------------------


NEW = 4  # tokens after the first
TOPS = (1024, 512, 256)  # tokens of the longer prompt, the first that takes no more than AFFORDED
AFFORDED = 0.6  # CPU seconds of a call of generate over it, as the square of its length would have it
ROUNDS = 3  # calls of a kind, of which the least counts
SQUARE = 6.5  # times what a token costs after a prompt of a quarter the length: 4 where it grows as the length, 16 as its square


@dataclass(frozen=True)
class Growth:
    """CPU seconds: of one more token from generate after a prompt and after one of four times the length, of one decode_step
    after the longer, and of a right pass over it."""

    short: float
    long: float
    step: float
    right_pass: float

    @property
    def recomputes(self) -> bool:
        """Whether a token costs about what a pass over the text does, and either far more than a step, or grows as a pass does:
        a step grows as the length at most, however slow it is."""
        return self.long > max(self.right_pass / 3, min(CLEARLY * self.step, SQUARE * self.short))


def growth(decoding: Decoding, rounds: int) -> Growth | None:
    """The costs of generate with the cache; None where it takes too long to be measured, or nothing is to be compared."""
    decoding.generate(SHORT, 1, True)  # what is imported or made once is no part of a cost
    gauge = decoding.generate(SHORT, 1, True).cpu
    top = next((n for n in TOPS if gauge * (n / SHORT) ** 2 < AFFORDED), None)
    if top is None:
        return None
    filling, cache = decoding.prefill(top)
    if cache is None:
        return None
    step = min(decoding.steps(cache, 5))  # still more than one in the midst of others, which finds its data at hand
    forget(decoding.subject, cache)
    # the most that a first token can honestly cost, so that a slow one hides nothing
    first = 3 * max(filling, top * step, decoding.forward(top))
    short, long = (decoding.token(n, rounds, first * n / top) for n in (top // 4, top))
    return Growth(short, long, step, min(decoding.right_pass(top) for _ in range(rounds)))


@check(
    "step8.growth.cached",
    functions=(GENERATE, FORWARD, PREFILL, DECODE),
    families=("cache",),
    needs="kv",
    stands_on=(GREEDY, "step8.decode.uses-the-cache"),
    about=("cache-unused",),
)
def cached(subject: Subject, rng: np.random.Generator) -> None:
    """With the cache, a further token from generate costs about what a decode_step costs, and not another pass over the text."""
    decoding = Decoding(subject, rng)
    for rounds in (ROUNDS, 2 * ROUNDS):
        found = growth(decoding, rounds)
        if found is None or not found.recomputes:
            return
    seen = "a further token takes about the CPU time of another pass over the text"
    call = f"generate(model, tokens, {1 + NEW})"
    raise Fail(seen, "about what a decode_step takes", code="cache-unused", call=call)


# -- without the cache -----------------------------------------------------------------------------------------------

UNCACHED = ((4, 8), (192, 2))  # tokens of a prompt, and new ones
NOTHING = 0.02  # seconds that are lost to anything


@check(
    "step8.growth.recomputed",
    functions=(GENERATE, FORWARD, PREFILL, DECODE),
    families=("cache",),
    needs="kv",
    stands_on=("step8.generate.without-the-cache", "step8.decode.uses-the-cache"),
    about=("speedup-faked",),
)
def recomputed(subject: Subject, rng: np.random.Generator) -> None:
    """Without the cache, generate costs what recomputing costs: it does not wait, and does nothing else."""
    decoding = Decoding(subject, rng)
    for n, new in UNCACHED:
        call = f"generate(model, {n} tokens, {new}, use_cache=False)"
        decoding.generate(n, new, False)
        if waits(decoding, n, new, 2) and waits(decoding, n, new, 4):
            raise Fail(
                f"it is asleep for more than {CLEARLY} times as long as it works",
                "work alone",
                code="speedup-faked",
                call=call,
            )
        if works_more(decoding, n, new, 2) and works_more(decoding, n, new, 4):
            seen = f"it takes more than {CLEARLY} times the CPU time of {new + 1} passes of forward"
            raise Fail(seen, f"about {new} passes over the text", code="speedup-faked", call=call)


def waits(decoding: Decoding, n: int, new: int, repeats: int) -> bool:
    """Whether generate sleeps without the cache for far longer than it works, and than it is kept from working with it."""
    without = [decoding.generate(n, new, False) for _ in range(repeats)]
    asleep = [cost.asleep for cost in without if cost.asleep is not None]
    if len(asleep) < repeats or min(asleep) < CLEARLY * max(cost.cpu for cost in without) + NOTHING:
        return False
    other = [decoding.generate(n, new, True).asleep for _ in range(repeats)]
    return min(asleep) > CLEARLY * max(seconds or 0.0 for seconds in other) + NOTHING


def works_more(decoding: Decoding, n: int, new: int, repeats: int) -> bool:
    """Whether generate works far longer than any honest way to pass over the text as often as it has to."""
    least = min(decoding.generate(n, new, False).cpu for _ in range(repeats))
    length, passes = n + new, new + 1
    one = max(decoding.forward(length) for _ in range(repeats))
    if least < CLEARLY * passes * one + NOTHING:
        return False
    one = max(one, decoding.prefill(length)[0], decoding.token_by_token(length))
    return least > CLEARLY * passes * one + NOTHING
