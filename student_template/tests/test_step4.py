"""Step 4: permutation equivariance (attention.py: sinusoidal_positions; experiments.py: equivariance_gap)."""

from harness.plugin import checks_of_step

test_step4 = checks_of_step(4)
