"""Checks that need no oracle: what must hold whatever the right answer is. Students have them.

All steps are told here, so that a table can name those whose checks were not run.
"""

from harness.steps import step

step(1, "Scaled dot-product attention", "7.9, step 1")
step(2, "The chapter's numbers", "7.9, step 2")
step(3, "Verify against a reference", "7.9, step 3")
step(4, "Permutation equivariance", "7.9, step 4")
step(5, "Measure the exponent", "7.9, step 5")
step(6, "Measure the memory", "7.9, step 6")
step(7, "Causal mask", "7.9, step 7")
step(8, "KV cache: prefill, decode, generate", "7.9, step 8")
