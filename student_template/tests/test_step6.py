"""Step 6: memory (experiments.py: score_bytes, measure_peak_memory, largest_n)."""

from harness.plugin import checks_of_step

test_step6 = checks_of_step(6)
