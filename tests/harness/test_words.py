"""A student reads of their own values, never of what the judge makes of them."""

from __future__ import annotations

import pytest

import harness.checks
from harness import draws
from harness.check import CHECKS, discover, run
from harness.local import PUBLIC_SECRET
from harness.subject import LocalSubject

discover(harness.checks)


@pytest.mark.parametrize(
    ("returned", "words"),
    [("{1: 2.0}.values()", "a dict_values"), ("{1: 2.0}", "a dict"), ("2.0", "2.0"), ("None", "None")],
)
def test_what_is_no_list_is_named_as_what_it_is(submission, returned, words):
    """The type that came back, and the function that was passed as a function."""
    folder = submission(experiments=f"def time_attention(attend, ns, **more):\n    return {returned}\n")
    check = CHECKS["step5.time.real-clock"]
    failure = run(check, LocalSubject(folder), draws.seed_of(PUBLIC_SECRET, check.id)).failure
    assert failure is not None
    assert failure.seen == f"the result is {words}"
    assert failure.call.startswith("time_attention(a function, [")
