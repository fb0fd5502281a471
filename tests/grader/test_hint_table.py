"""The table that a student's run looks up is what the judge's own faults make of the public checks."""

from grader import hint_table
from harness.breaks import BREAKS
from harness.hints import explains
from harness.local import public_checks
from harness.messages import MESSAGES

CHECKS = {check.id: check for check in public_checks(hint_table.STEPS)}


def test_the_table_is_of_public_checks_and_known_codes():
    assert set(BREAKS) <= set(CHECKS)
    assert {code for codes in BREAKS.values() for code in codes} <= set(MESSAGES)


def test_the_table_has_what_faults_of_positions_fail():
    found = {id: codes for id, codes in hint_table.table(("positions",)).items() if codes}
    assert "positions-halves" in found["step4.positions.pairs-of-length-one"]
    assert {id: codes for id, codes in found.items() if not codes.items() <= BREAKS[id].items()} == {}


def test_what_fails_a_check_on_every_draw_has_the_share_1_and_what_fails_it_in_one_way_of_several_less():
    assert BREAKS["step7.causal.append-a-token"]["mask-ignored"] == 1
    assert BREAKS["step7.causal.append-a-token"]["softmax-overflow"] < 1


def test_a_fault_explains_the_checks_that_it_can_fail_and_no_other():
    assert explains(CHECKS["step1.attention.scale"], "scale-missing")
    assert not explains(CHECKS["step1.mask.broadcasts"], "scale-missing")
    assert not explains(CHECKS["step7.mask.boolean"], "causal-mask-upper-left")
    assert not explains(CHECKS["step7.append.own-attention"], "scale-ignored")
    assert not explains(CHECKS["step8.forward.mean-of-values"], "cache-position-reset")


def test_what_the_table_does_not_know_is_not_held_against_a_hint():
    assert explains(CHECKS["step1.attention.scale"], "stale-result")


def test_the_module_is_spelled_as_it_stands():
    text = hint_table.FILE.read_text()
    assert hint_table.spelled(BREAKS) == text
