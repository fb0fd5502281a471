"""A code stands beside a failed check only where it explains that check's failure."""

import warnings

import numpy as np
import pytest

from grader import blame
from grader.diagnosis import Explanation
from grader.grade import CHECKS
from harness import draws
from harness.check import run
from reference.variants import cache, sdpa
from reference.variants.softmax import SPACE as SOFTMAX
from reference.variants.space import Variant

SECRET = b"blame"
SERVED = [c for c in CHECKS.values() if c.needs in ("numpy", "kv") and c.weight]


def option(space, decision, name):
    found = next(o for d in space if d.name == decision for o in d.options if o.name == name)
    return found.at(found.examples[0]) if found.examples else found


def failing(check, served):
    """The case on which a check fails over these faults, and the seed."""
    seed = draws.seed_of(SECRET, check.id)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = run(check, blame.subject_of(served), seed)
    assert result.status == "failed", (check.id, result.reason)
    return result.case, seed


def named(check_id, **variants):
    check = CHECKS[check_id]
    found = {family: Explanation(tuple(o.code for o in v.values()), (), (), True, v) for family, v in variants.items()}
    case, seed = failing(check, variants)
    return set(blame.explaining(check, case, seed, found))


@pytest.mark.parametrize("check", SERVED, ids=lambda c: c.id)
def test_every_check_that_can_be_served_passes_over_the_judges_own_submission(check):
    """A right submission of the judge's own fails nothing: what fails over a variant fails because of its faults."""
    result = run(check, blame.subject_of({}), draws.seed_of(SECRET, check.id))
    assert (result.status, result.reason, result.failure) == ("passed", "", None)


SCALE = option(sdpa.SPACE, "default scale", "1/d_k")
IGNORED = option(sdpa.SPACE, "mask", "ignored")


def test_of_two_faults_only_the_one_that_breaks_a_check_stands_beside_it():
    both = Variant({"default scale": SCALE, "mask": IGNORED})
    assert named("step1.attention.scale", sdpa=both) == {"scale-by-dk"}
    assert named("step1.mask.true-shows-false-hides", sdpa=both) == {"mask-ignored"}


def test_two_faults_that_each_break_a_check_both_stand_beside_it():
    both = Variant({"default scale": SCALE, "mask": IGNORED})
    assert named("step1.attention.agrees-with-everything-at-once", sdpa=both) <= {"scale-by-dk", "mask-ignored"}
    assert named("step1.attention.agrees", sdpa=both) & {"scale-by-dk", "mask-ignored"}


def test_a_fault_of_another_function_explains_nothing():
    """softmax(x) over the wrong axis by default is no reason for a wrong scale, which is what attention's check sees."""
    axis = Variant({"axis by default": option(SOFTMAX, "axis by default", "0")})
    check = CHECKS["step1.attention.scale"]
    case, seed = failing(check, {"sdpa": Variant({"default scale": SCALE})})
    found = {"softmax": Explanation(("softmax-wrong-axis",), (), (), True, axis)}
    assert blame.explaining(check, case, seed, found) == {}


@pytest.mark.slow
def test_bytes_that_do_not_add_up_explain_no_wrong_logits():
    """A decode position that is always 0, and bytes of the whole capacity: each beside its own checks."""
    both = Variant(
        {"start": option(cache.SPACE, "start", "0 in decode"), "nbytes": option(cache.SPACE, "nbytes", "capacity")}
    )
    ids = [c.id for c in SERVED if c.step == 8 and "cache" in c.families]
    told = {}
    for check_id in ids:
        try:
            told[check_id] = named(check_id, cache=both)
        except AssertionError:
            continue  # it passes: neither fault is what it looks at
    of_bytes = {check_id for check_id, codes in told.items() if "cache-bytes-formula" in codes}
    of_positions = {check_id for check_id, codes in told.items() if "cache-position-reset" in codes}
    assert of_positions and of_bytes == {"step8.bytes.held"} and not of_positions & of_bytes
    assert all(told.values())


def test_a_sign_is_held_against_the_failing_case_too():
    """The scale can be wrong in a way that breaks the check of the scale; no mask can."""
    check = CHECKS["step1.attention.scale"]
    case, seed = failing(check, {"sdpa": Variant({"default scale": SCALE})})
    assert blame.breaks(check, case, seed, "scale-missing", ("sdpa",))
    assert not blame.breaks(check, case, seed, "mask-inverted", ("sdpa",))
    assert blame.breaks(check, case, seed, "not-deterministic", ("sdpa",))  # no option computes that: the sign stands
