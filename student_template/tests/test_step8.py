"""Step 8: the KV cache (kv_cache.py; experiments.py: decode_latencies)."""

from harness.plugin import checks_of_step

test_step8 = checks_of_step(8)
