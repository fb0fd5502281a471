"""Step 2: the chapter's numbers (attention.py: nothing new to write)."""

from harness.plugin import checks_of_step

test_step2 = checks_of_step(2)
