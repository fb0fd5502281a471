"""Step 2: the chapter's numbers (attention.py: nothing new to write)."""

from harness.plugin import tests_of_step

test_step2 = tests_of_step(2)
