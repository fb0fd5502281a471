"""attention_torch.py is held to the checks of attention.py: each of them once more, on tensors. Worth what a rubric says."""

from __future__ import annotations

from grader.checks import step1_attention, step2_chapter, step4_equivariance, step7_causal
from grader.companion import asks_attention_alone, on_tensors
from harness.check import CHECKS, step
from harness.checks import step1_attention as public_1
from harness.checks import step2_chapter as public_2
from harness.checks import step4_equivariance as public_4
from harness.checks import step7_causal as public_7

STEP = step(10, "On torch tensors (optional)", "7.9")

_HELD_TO = {
    module.__name__
    for module in (
        public_1, public_2, public_4, public_7, step1_attention, step2_chapter, step4_equivariance, step7_causal
    )
}  # fmt: skip

for _check in [c for c in CHECKS.values() if c.run.__module__ in _HELD_TO and c.needs == "numpy"]:
    if asks_attention_alone(_check):
        _moved = on_tensors(_check, STEP.number)
        CHECKS[_moved.id] = _moved
