"""The table that a student's run looks up is what the judge's own faults make of the public checks."""

from grader import hint_table
from harness.breaks import BREAKS
from harness.hints import explains
from harness.local import public_checks
from harness.messages import MESSAGES

CHECKS = {check.id: check for check in public_checks({1, 2, 4, 7})}


def test_the_table_is_of_public_checks_and_known_codes():
    assert set(BREAKS) <= set(CHECKS)
    assert {code for codes in BREAKS.values() for code in codes} <= set(MESSAGES)


def test_the_table_has_what_faults_of_positions_fail():
    found = {id: codes for id, codes in hint_table.table(("positions",)).items() if codes}
    assert "positions-halves" in found["step4.positions.pairs-of-length-one"]
    assert {id: [code for code in codes if code not in BREAKS[id]] for id, codes in found.items()} == {
        id: [] for id in found
    }


def test_a_fault_explains_the_checks_that_it_can_fail_and_no_other():
    assert explains(CHECKS["step1.attention.scale"], "scale-missing")
    assert not explains(CHECKS["step1.mask.broadcasts"], "scale-missing")
    assert not explains(CHECKS["step7.mask.boolean"], "causal-mask-upper-left")


def test_what_the_table_does_not_know_is_not_held_against_a_hint():
    assert explains(CHECKS["step1.attention.scale"], "stale-result")
    assert explains(CHECKS["step4.gap.own-attention"], "scale-missing")


def test_the_module_is_spelled_as_it_stands():
    text = hint_table.FILE.read_text()
    assert hint_table.spelled({id: list(codes) for id, codes in BREAKS.items()}) == text
