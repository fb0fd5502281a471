"""Step 8's public checks each catch a fault that they are for, and let right caches of other styles pass."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness import check as checking
from harness import counted, draws
from harness.check import CheckResult
from harness.checks import step8_generate
from harness.local import Held, public_checks
from tests.labs.attention.edits import text_of

ROOT = Path(__file__).parents[2]
BASE = ROOT / "examples" / "base"

MEAN, READS, LONG = "step8.forward.mean-of-values", "step8.decode.reads-the-cache", "step8.decode.long-memory"
GOES_ON, REFUSES = "step8.prefill.goes-on-from-a-cache", "step8.prefill.refuses-a-long-chunk"
FOLLOWS, TIES = "step8.generate.follows-own-forward", "step8.generate.lowest-id-on-ties"
ENDS, CACHED = "step8.generate.no-id-ends-it", "step8.generate.rows-with-the-cache"
RECOMPUTED = "step8.generate.rows-without-the-cache"
CHECKS = {c.id: c for c in public_checks({8})}

CAUGHT = [
    (MEAN, "cache-head-order"),
    (MEAN, "positions-misplaced"),
    (MEAN, "decode-residual-missing--embedding"),
    (READS, "cache-keys-values-swapped"),
    (READS, "decode-self-twice"),
    (READS, "cache-unused--in-decode"),
    (LONG, "cache-truncated--window"),
    (GOES_ON, "cache-given-ignored"),
    (GOES_ON, "cache-chunk-misaligned--positions"),
    (FOLLOWS, "cache-shared-state--between-calls"),
    (FOLLOWS, "generate-off-by-one--fed-twice"),
    (TIES, "generate-not-greedy"),
    (ENDS, "generate-not-greedy--stop"),
    (CACHED, "cache-unused"),
    (CACHED, "cache-unused--own-attention"),
    (CACHED, "cache-unused--remembers"),
    (RECOMPUTED, "use-cache-ignored"),
]
NEW = sorted({id for id, _ in CAUGHT} | {REFUSES})
RIGHT = [
    "cache-chunks",
    "cache-two-paths",
    "cache-a-list-of-layers",
    "cache-token-by-token",
]


def kv_cache(name: str, folder: Path) -> Path:
    file = folder / "given.py"
    file.write_text(text_of(name, "kv_cache.py"))
    return file


def run(id: str, kv_cache: Path, folder: Path) -> CheckResult:
    shutil.copytree(BASE, folder, ignore=shutil.ignore_patterns("report"))
    shutil.copy(kv_cache, folder / "kv_cache.py")
    subject = Held(folder)
    with subject.held():
        return checking.run(CHECKS[id], subject, draws.seed_of(b"public", id))


@pytest.mark.parametrize(("id", "case"), CAUGHT, ids=[f"{id}-{case}" for id, case in CAUGHT])
def test_a_fault_is_caught(id: str, case: str, tmp_path: Path) -> None:
    """Each check fails on the faults that it is for."""
    result = run(id, kv_cache(case, tmp_path), tmp_path / "lab")
    assert result.status == "failed", result.reason


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("id", NEW)
def test_a_right_cache_of_another_style_passes(id: str, case: str, tmp_path: Path) -> None:
    """Lists of chunks, one path for the prompt and one for new tokens, a list that is a cache, one token at a time."""
    result = run(id, kv_cache(case, tmp_path), tmp_path / "lab")
    assert (result.status, result.failure) == ("passed", None)


@pytest.mark.slow
@pytest.mark.parametrize("id", NEW)
def test_a_right_cache_of_tensors_passes(id: str, tmp_path: Path) -> None:
    """With BACKEND = "torch" the same holds of tensors."""
    result = run(id, kv_cache("cache-tensors", tmp_path), tmp_path / "lab")
    assert (result.status, result.failure) == ("passed", None)


def test_a_chunk_that_is_stored_in_part_is_caught(tmp_path: Path) -> None:
    """Without the look at the capacity before any layer is changed, the first layer takes what the second refuses to."""
    text = (BASE / "kv_cache.py").read_text()
    refusal = "    if before + n > cache.capacity:\n        raise ValueError("
    assert refusal in text
    piecewise = "    if before + n > cache.capacity:\n        run(model, tokens[: cache.capacity - before], cache)\n        raise ValueError("
    file = tmp_path / "changed.py"
    file.write_text(text.replace(refusal, piecewise))
    result = run(REFUSES, file, tmp_path / "lab")
    assert result.failure is not None
    assert "before the refused chunk" in result.failure.seen


def test_the_checks_that_a_student_sees_first_say_what_was_seen(tmp_path: Path) -> None:
    """A cache that is given and comes back as another is named by the check itself."""
    result = run(GOES_ON, kv_cache("cache-given-ignored", tmp_path), tmp_path / "lab")
    assert result.failure is not None
    assert result.failure.code == "cache-given-ignored"


TABLES = """

TABLES = {}


def table(model):
    if id(model) not in TABLES:
        TABLES[id(model)] = model, model.embedding @ model.layers[0].W_K
    return TABLES[id(model)][1]
"""


@pytest.mark.parametrize("keys", ["(model.embedding @ layer.W_K)", "table(model)"])
@pytest.mark.parametrize("id", [CACHED, RECOMPUTED])
def test_keys_looked_up_in_a_table_of_all_ids_are_no_recompute(tmp_path: Path, id: str, keys: str) -> None:
    """The first layer's keys hang on the id alone where there are no positions: a table of them is right."""
    direct = "heads(x @ layer.W_K, model.n_kv_heads)"
    looked_up = f"{keys}[np.asarray(tokens)] if index == 0 and model.positions == 'none' else x @ layer.W_K"
    source = (BASE / "kv_cache.py").read_text()
    assert direct in source
    file = tmp_path / "kv_cache.py"
    file.write_text(source.replace(direct, f"heads({looked_up}, model.n_kv_heads)") + TABLES)
    assert run(id, file, tmp_path / "lab").status == "passed"


# -- rows that are counted ---------------------------------------------------------------------------------------------


def test_rows_are_counted_however_they_are_multiplied() -> None:
    """By @, dot, einsum, transposed, sliced by columns; sums and copies as plain arrays count nothing."""
    x, w = np.ones((5, 4)), np.ones((4, 6))
    products = {
        "@": lambda m: x @ m,
        "dot": lambda m: np.dot(x, m),
        "einsum": lambda m: np.einsum("nd,de->ne", x, m),
        "transposed": lambda m: (m.T @ x.T).T,
        "columns": lambda m: x @ m[:, :3],
    }
    for name, product in products.items():
        count = counted.Count(4)
        result = product(counted.array(w, count))
        assert (count.rows, type(result)) == (5, np.ndarray), name
    for idle in (lambda m: m + m, lambda m: x @ np.asarray(m), lambda m: m.sum(axis=0)):
        count = counted.Count(4)
        idle(counted.array(w, count))
        assert count.rows == 0


@pytest.mark.slow
def test_rows_of_tensors_are_counted_too() -> None:
    """By @, linear and einsum."""
    torch = pytest.importorskip("torch")
    x, w = torch.ones(5, 4), torch.ones(4, 6)
    products = (
        lambda m: x @ m,
        lambda m: torch.nn.functional.linear(x, m.T),
        lambda m: torch.einsum("nd,de->ne", x, m),
    )
    for product in products:
        count = counted.Count(4)
        result = product(counted.tensor(w, count))
        assert (count.rows, type(result)) == (5, torch.Tensor)


class Rows:
    """A subject whose generate multiplies as many rows as said."""

    def __init__(self, *rows: float | None) -> None:
        self.rows = list(rows)

    def call(self, name: str, *args: object, **kwargs: object) -> object:
        return type("Outcome", (), {"value": self.rows.pop(0)})


@pytest.mark.parametrize(
    ("rows", "grown"),
    [
        ((24.0, 33.0), 0.375),
        ((24.0, 285.0), 10.875),
        ((48.0, 66.0), 0.375),
        ((0.0, 0.0), None),
        ((None, 33.0), None),
        ((23.0, 230.0), None),
        ((23.0, 23.0), None),
    ],
)
def test_what_new_tokens_cost_is_told_by_what_the_prompt_costs(
    rows: tuple[float | None, ...], grown: float | None
) -> None:
    """Where nothing is counted, nothing is said."""
    case = step8_generate.Sizes(1, 2, 1, 4, "none", "float64", 24, 1)
    assert step8_generate.growth(Rows(*rows), case, True) == grown  # type: ignore[arg-type]
