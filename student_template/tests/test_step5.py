"""Step 5: the exponent (experiments.py: time_attention, local_slopes, fit_exponent)."""

from harness.plugin import checks_of_step

test_step5 = checks_of_step(5)
