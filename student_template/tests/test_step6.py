"""Step 6: memory (experiments.py: score_bytes, measure_peak_memory, largest_n)."""

from harness.plugin import tests_of_step

test_step6 = tests_of_step(6)
