"""Step 8: the KV cache (kv_cache.py; experiments.py: decode_latencies)."""

from harness.plugin import tests_of_step

test_step8 = tests_of_step(8)
