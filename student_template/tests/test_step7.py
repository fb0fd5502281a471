"""Step 7: the causal mask (attention.py: causal_mask; experiments.py: append_invariance_gap)."""

from harness.plugin import checks_of_step

test_step7 = checks_of_step(7)
