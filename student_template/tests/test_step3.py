"""Step 3: against torch's SDPA (experiments.py: compare_with_sdpa)."""

from harness.plugin import checks_of_step

test_step3 = checks_of_step(3)
