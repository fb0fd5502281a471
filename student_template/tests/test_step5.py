"""Step 5: the exponent (experiments.py: time_attention, local_slopes, fit_exponent)."""

from harness.plugin import tests_of_step

test_step5 = tests_of_step(5)
