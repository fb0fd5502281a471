"""Hypothesis, kept to one module: draws that depend on the seed alone, and shrinking bounded by calls.

Left to itself, Hypothesis stops by the wall clock in places, remembers failures in a database, and draws constants that it
finds in loaded modules; each would make a grade depend on something other than the submission. All three are off here.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine, providers
from hypothesis.strategies import SearchStrategy

SHRINK_CALLS = 60


class _Enough(BaseException):
    """Leaves Hypothesis once the budget for shrinking is spent; it must not be caught as a failure of the property."""


@dataclass(frozen=True)
class Falsified:
    """The smallest case found on which the property raised, and what it raised."""

    case: Any
    error: Exception


def seed_of(secret: bytes, check_id: str) -> int:
    """The check's own seed: an HMAC of the course's secret and the check's id, so that no other check changes its draws."""
    return int.from_bytes(hmac.new(secret, check_id.encode(), hashlib.sha256).digest()[:8], "big")


def falsify(
    prop: Callable[[Any], None],
    cases: SearchStrategy[Any],
    seed: int,
    examples: int,
    failures: type[Exception],
    final: Callable[[Exception], bool] = lambda error: False,
) -> Falsified | None:
    """Runs `prop` on up to `examples` draws; on a failure looks for a smaller one within SHRINK_CALLS further calls.

    Only `failures` count as failures of the property; any other exception passes through. A failure for which `final` says
    true (a limit was reached) is not shrunk.
    """
    found: list[Falsified] = []
    after = 0

    def attempt(case: Any) -> None:
        nonlocal after
        if found:
            after += 1
            if after > SHRINK_CALLS:
                raise _Enough
        try:
            prop(case)
        except failures as error:
            found.append(Falsified(case, error))
            if final(error):
                raise _Enough from None
            raise
        except Exception as error:  # the check's own fault must not be taken for a failure, nor shrunk
            raise _Foreign(error) from error

    test = hypothesis.seed(seed)(
        settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=False,
            report_multiple_bugs=False,
            print_blob=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )(hypothesis.given(cases)(attempt))
    )
    test._hypothesis_internal_database_key = b""  # type: ignore[attr-defined]  # or its source is read and hashed for one
    with _no_clock_no_constants():
        try:
            test()
        except _Enough:
            pass
        except _Foreign as foreign:
            raise foreign.error from None
        except failures:
            pass
        except Exception:
            if (
                not found
            ):  # Hypothesis calls a property flaky when it fails once and not again: the failure still stands
                raise
    return found[-1] if found else None


class _Foreign(BaseException):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _no_clock_no_constants:
    """While drawing: no stop by wall time, and no constants mined from the modules that happen to be loaded."""

    def __enter__(self) -> None:
        self._before = (engine.MAX_SHRINKING_SECONDS, providers._get_local_constants)
        engine.MAX_SHRINKING_SECONDS = float("inf")  # type: ignore[assignment]
        none = providers.Constants()  # type: ignore[attr-defined]
        providers._get_local_constants = lambda: none

    def __exit__(self, *_: object) -> None:
        engine.MAX_SHRINKING_SECONDS, providers._get_local_constants = self._before
