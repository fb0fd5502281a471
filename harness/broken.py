"""A check that broke on what a submission said: it failed, in words that say what came back.

Whose fault it is that a check breaks is found by asking the same, with the same draws, of a right submission: the grader does
that (grader.right). For public checks with the public seed the tests of this repository have done it.
"""

from __future__ import annotations

from dataclasses import replace

from harness.check import CheckResult, Fail, fail_of
from harness.expect import spell, spell_value


def failed(result: CheckResult) -> CheckResult:
    """The result of a check that broke on a submission's answer, as the failure that it is."""
    return replace(result, status="failed", reason="", failure=_failure(result))


def _failure(result: CheckResult) -> Fail:
    if result.heard is None:
        return Fail("what came back could not be read", "what the contract describes")
    call, outcome = result.heard
    if outcome.kind != "value":
        return fail_of(outcome, spell(call), {}, call.name.partition(".")[0])
    came = spell_value(outcome.value)[:300]
    return Fail(f"what came back could not be read: {came}", "what the contract describes", call=spell(call))
