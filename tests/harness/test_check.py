"""A check passes, fails with its smallest case, or is the grader's own fault, and the seed alone decides what it draws."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st

import harness.checks
from harness import check as checking
from harness import draws, steps
from harness.check import Check, Fail

NUMBERS = st.integers(0, 10_000)


def make(run, **options) -> Check:
    return Check("step1.test.made", 1, "A test's own.", run, **options)


def test_a_property_that_holds_passes_on_every_example():
    """The number of examples is the check's."""
    seen = []
    result = checking.run(make(lambda subject, case: seen.append(case), cases=NUMBERS, examples=20), None, 1)
    assert (result.status, result.examples, len(seen)) == ("passed", 20, 20)


def test_the_smallest_failing_case_is_kept():
    """Of all numbers above 100, the evidence is 101."""

    def run(subject, case):
        if case > 100:
            raise Fail(f"{case} is too large")

    assert checking.run(make(run, cases=NUMBERS), None, 1).failure.seen == "101 is too large"


def test_draws_depend_on_the_seed_alone():
    """Same seed, same cases, in the same order; another seed, other cases."""

    def cases(seed):
        seen = []
        checking.run(make(lambda subject, case: seen.append(case), cases=NUMBERS), None, seed)
        return seen

    assert cases(1) == cases(1) != cases(2)


def test_constants_of_loaded_modules_are_not_drawn(monkeypatch):
    """A module that happens to be loaded changes no draw."""
    from hypothesis.internal.conjecture import providers

    monkeypatch.setattr(providers, "_get_local_constants", lambda: pytest.fail("constants were mined"))
    assert checking.run(make(lambda subject, case: None, cases=NUMBERS), None, 1).status == "passed"


def test_shrinking_is_bounded_by_calls():
    """A failure is called at most SHRINK_CALLS times more, however much there is to shrink."""
    calls = itertools.count()

    def run(subject, case):
        next(calls)
        raise Fail("always")

    checking.run(make(run, cases=st.lists(st.integers(), min_size=20, max_size=200)), None, 1)
    assert next(calls) <= 25 + 1 + draws.SHRINK_CALLS


def test_a_limit_is_not_shrunk():
    """A call that timed out is not repeated to find a smaller one."""
    calls = itertools.count()

    def run(subject, case):
        next(calls)
        raise Fail("slow", code="timeout")

    assert checking.run(make(run, cases=NUMBERS), None, 1).failure.code == "timeout"
    assert next(calls) == 1


def test_a_failure_that_comes_and_goes_still_fails():
    """A property that fails once and never again has failed."""
    calls = itertools.count()

    def run(subject, case):
        if next(calls) == 3:
            raise Fail("once")

    assert checking.run(make(run, cases=NUMBERS), None, 1).status == "failed"


def test_the_checks_own_fault_is_not_the_students():
    """An exception other than Fail makes the check not-run, with what it was."""

    def run(subject, case):
        raise ZeroDivisionError("judge's bug")

    result = checking.run(make(run, cases=NUMBERS), None, 1)
    assert (result.status, result.reason) == ("not-run", "ZeroDivisionError: judge's bug")


def test_seeds_of_checks_are_apart():
    """Each check has its own seed, from the secret and its id."""
    assert len({draws.seed_of(s, i) for s in (b"a", b"b") for i in ("step1.a", "step1.b")}) == 4


def test_a_check_comes_after_those_it_stands_on():
    """Whatever the order of registration."""
    first = Check("step1.a", 1, "t", print, stands_on=("step1.b",))
    second = Check("step1.b", 1, "t", print)
    assert checking.ordered([first, second]) == [second, first]
    with pytest.raises(ValueError, match="circle"):
        checking.ordered([first, Check("step1.b", 1, "t", print, stands_on=("step1.a",))])


def test_a_check_without_a_sentence_is_refused():
    """The docstring is what a student reads."""
    with pytest.raises(ValueError, match="docstring"):
        checking.check("step1.test.mute")(lambda subject: None)


def test_a_later_lab_adds_files_and_edits_none(tmp_path, monkeypatch):
    """A module dropped into a package of checks registers its step and its checks by being there."""
    package = tmp_path / "labchecks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "step77_rope.py").write_text(
        "from harness.check import check, step\n"
        "step(77, 'Rotary positions', '7.4')\n"
        "@check('step77.rope.norm')\n"
        "def norm(subject):\n"
        "    'A rotation keeps the norm.'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(checking, "CHECKS", {})
    monkeypatch.setattr(steps, "STEPS", {})
    labchecks = __import__("labchecks")
    checking.discover(labchecks, {7})
    assert (checking.CHECKS, steps.steps_in(labchecks)) == ({}, {77})
    checking.discover(labchecks)
    assert (list(checking.CHECKS), steps.STEPS[77].title) == (["step77.rope.norm"], "Rotary positions")


def test_a_module_of_checks_is_named_after_its_step():
    """Every check lies in a module whose name begins with the check's step: so one step's are found without the others."""
    checking.discover(harness.checks)
    found = [check for check in checking.CHECKS.values() if check.run.__module__.startswith("harness.checks.")]
    assert {
        check.id for check in found if not check.run.__module__.startswith(f"harness.checks.step{check.step}_")
    } == set()
    assert {check.step for check in found} == steps.steps_in(harness.checks) == set(range(1, 9))
