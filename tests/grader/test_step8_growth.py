"""A recompute that is dressed as a cache, and a slow side that is slowed down, are told by their cost; slow and right is not."""

from __future__ import annotations

import pytest

from grader.checks import step8_growth
from grader.checks.step8_growth import Growth, waits, works_more
from grader.measure.clock import Spent
from grader.sandbox import Sandbox
from harness.check import CHECKS, run


@pytest.mark.parametrize(
    ("short", "long", "step", "right_pass", "recomputes"),
    [
        (0.1, 0.1, 0.2, 60, False),  # a cache
        (20, 80, 80, 60, False),  # a slow one
        (15, 90, 80, 60, False),  # the same, measured badly
        (0.2, 3, 0.2, 60, False),  # a mask of the whole text is made for every token
        (4, 60, 0.2, 60, True),  # a pass for every token
        (4, 30, 0.2, 60, True),  # measured badly, and still one
        (4, 60, 60, 60, True),  # beside a step that is slow, too
        (54, 110, 0.2, 60, True),  # beside work that is always the same
        (-1, 2, 0.0, 60, False),  # nothing was measured
    ],
)
def test_a_recompute_costs_what_a_pass_costs_and_grows_as_one(short, long, step, right_pass, recomputes):
    """A third of a pass at least, and ten times a step or six and a half times what a quarter of the text costs."""
    assert Growth(short, long, step, right_pass).recomputes is recomputes


class Costs:
    """A decoding whose costs are said: seconds of CPU of generate without the cache, of one pass, and asleep both ways."""

    def __init__(self, without=0.0, one_pass=0.0, tokens=0.0, asleep=0.0, asleep_cached=0.0):
        self.without, self.one_pass, self.tokens = without, one_pass, tokens
        self.asleep = {False: asleep, True: asleep_cached}

    def generate(self, n, new, use_cache):
        return Spent(0.01 if use_cache else self.without, self.asleep[use_cache])

    def forward(self, n):
        return self.one_pass

    def prefill(self, n):
        return self.one_pass, None

    def token_by_token(self, n):
        return self.tokens


@pytest.mark.parametrize(
    ("costs", "faked"),
    [
        (Costs(without=0.09, one_pass=0.01), False),
        (Costs(without=0.8, one_pass=0.01), False),
        (Costs(without=1.0, one_pass=0.01), True),
        (Costs(without=1.0, one_pass=0.01, tokens=0.1), False),
        (Costs(without=0.01, one_pass=0.0), False),
    ],
)
def test_work_to_no_purpose_is_ten_times_the_slowest_honest_recompute(costs, faked):
    """Nine passes for eight tokens, by forward or by decode_step, and twenty milliseconds that may be lost to anything."""
    assert works_more(costs, 4, 8, 2) is faked


@pytest.mark.parametrize(
    ("costs", "faked"),
    [
        (Costs(without=0.01, asleep=0.1), False),
        (Costs(without=0.01, asleep=0.15), True),
        (Costs(without=0.01, asleep=0.15, asleep_cached=0.05), False),  # the machine, or both ways
        (Costs(without=0.01, asleep=None), False),
    ],
)
def test_waiting_is_ten_times_the_work_and_what_the_cached_way_waits(costs, faked):
    """A kernel that does not say how long a process had to wait for a core gives no verdict."""
    assert waits(costs, 4, 8, 2) is faked


def test_a_difference_that_does_not_come_back_is_none(monkeypatch, submission):
    """One reading beyond the limit, and none when it is measured again: the check passes."""
    found = iter([Growth(4, 60, 0.2, 60), Growth(20, 80, 80, 60)])
    monkeypatch.setattr(step8_growth, "growth", lambda decoding, rounds: next(found))
    with Sandbox(submission()) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step8.growth.cached"], subject, 1)
    assert (result.status, list(found)) == ("passed", [])
