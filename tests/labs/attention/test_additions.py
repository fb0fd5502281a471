"""What people leave at the end of their files (prints, try-outs, an experiment of their own, a plot) costs right code nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.grade import grade
from grader.rubric import load_rubric
from harness.local import check_folder
from tests.labs.attention.edits import Entry, write

ADDED = {
    "attention.py": """
print("softmax of three:", softmax(np.array([1.0, 2.0, 3.0])))
_x = np.random.default_rng(0).normal(size=(3, 4))
print(scaled_dot_product_attention(_x, _x, _x)[0].round(2))
print(causal_mask(4, 4), sinusoidal_positions(6, 4).shape)
""",
    "kv_cache.py": """
print("bytes of a cache:", kv_cache_bytes(2, 4, 8, 100, 2), KVCache(1, 1, 2, 8, np.float64).nbytes)
""",
    "experiments.py": """
import time as _time

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

print("difference from SDPA:", compare_with_sdpa([(2, 2, 16, 8)]))
_ns = [64, 128, 256]
_ts = time_attention(attention.scaled_dot_product_attention if "attention" in globals() else (lambda q, k, v: (q, k @ q.T)), _ns, repeats=3)
print("times", _ts, "exponent", fit_exponent([64, 128, 256], [1.0, 4.0, 16.0]))
_began = _time.process_time()
while _time.process_time() - _began < 1.0:
    np.random.default_rng(1).normal(size=(300, 300)) @ np.ones((300, 300))
plt.plot(_ns, _ts)
plt.savefig("report/own.png")
""",
}


@pytest.mark.long
@pytest.mark.parametrize("base", ["", "loops", "torch-on-top"])
def test_what_runs_at_import_costs_right_code_nothing(base: str, tmp_path: Path) -> None:
    folder = write(Entry(file="", kind="right", name=base, steps=(), base=base), tmp_path / "submission")
    for name, text in ADDED.items():
        with (folder / name).open("a") as file:
            file.write("\n\nimport numpy as np\n" + text)
    report = grade(folder, rubric=load_rubric())
    assert (report.score, report.final, report.faults) == (report.max_score, True, {})
    assert [c.id for step in report.steps for c in step.checks if c.status == "failed"] == []
    assert [result.check.id for result in check_folder(folder) if result.status != "passed"] == []


@pytest.mark.slow
def test_memory_that_a_process_keeps_free_hides_no_peak(tmp_path: Path) -> None:
    """A heap with a large free block, which stays resident: what fn takes of it counts all the same for one that looks at that."""
    folder = write(Entry(file="", kind="right", name="", steps=(), base="head-by-head"), tmp_path / "submission")
    blocks = [bytes(100_000) for _ in range(3_000)]
    last = bytes(100_000)  # above them all, so that the heap does not end with what is freed
    del blocks
    assert [result.check.id for result in check_folder(folder, {6}) if result.status != "passed"] == []
    del last
