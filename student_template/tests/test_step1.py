"""Step 1: scaled dot-product attention (attention.py: all but the mask and the positions)."""

from harness.plugin import checks_of_step

test_step1 = checks_of_step(1)
