"""Hints on experiments.py name what known errors, times and memory prove; correct measurements of any form get none."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from harness import signs_experiments
from harness.hints import FAMILIES, Hints
from harness.local import Held, public_checks, run_check

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
BASE = TESTS.parent / "examples" / "base"
SUBMISSIONS = TESTS / "submissions" / "experiments"
VARIATIONS = tomllib.loads((TESTS / "grader" / "variations_of_experiments.toml").read_text())["variation"]

# Not seen by the first failing check: peak memory that the process had before hides it.
ELSEWHERE = {"memory-not-peak"}
FAULTS = sorted(folder.name for folder in SUBMISSIONS.iterdir() if not folder.name.startswith("correct"))
CORRECT = sorted(folder.name for folder in SUBMISSIONS.iterdir() if folder.name.startswith("correct"))

# (family, code, what stands in examples/base, what is put there)
MORE: list[tuple[str, str | None, str, str]] = [
    ("compare_with_sdpa", "sdpa-wrong-statistic", "np.abs(own.astype(\"float64\") - torchs.double().numpy()).max()",
     "np.sqrt(((own.astype(\"float64\") - torchs.double().numpy()) ** 2).mean())"),
    ("compare_with_sdpa", "sdpa-wrong-statistic", "np.abs(own.astype(\"float64\") - torchs.double().numpy()).max()",
     "(own.astype(\"float64\") - torchs.double().numpy()).max()"),
    ("compare_with_sdpa", "sdpa-mask-inverted", "visible = None if mask is None else torch.from_numpy(mask)",
     "visible = None if mask is None else torch.from_numpy(mask.T.copy())"),
    ("compare_with_sdpa", None, "mask = causal_mask(shape[2]) if causal else None", "mask = None"),
    ("compare_with_sdpa", "sdpa-self-comparison", "float(gap)", "1e-7"),
    ("equivariance_gap", "gap-constant", "    return float(np.abs(shuffled[back] - straight).max())", "    return 0.0"),
    ("equivariance_gap", "equivariance-mask-travels", "    shuffled = outputs(X[permutation])",
     "    mask = None if mask is None else mask[permutation]\n    shuffled = outputs(X[permutation])"),
    ("append_invariance_gap", "invariance-not-causal", "mask=causal_mask(n + 1))", "mask=None)"),
    ("append_invariance_gap", "gap-constant", "    return float(np.abs(long[:n] - short).max())", "    return 0.0"),
    ("time_attention", "timing-no-warmup", "        for _ in range(warmup):", "        for _ in range(1):"),
    ("time_attention", "timing-not-median", "median(timed(", "min(timed("),
    ("time_attention", "timing-not-median", "median(timed(", "sum(timed("),
    ("time_attention", None, "median(timed(", "(lambda times: sum(times) / 6)(timed("),
    ("time_attention", "timing-not-synchronised", "    begin = clock()\n    result = work()\n    if synchronize is not None:\n"
     "        synchronize()\n    return result, clock() - begin",
     "    begin = clock()\n    result = work()\n    end = clock()\n    if synchronize is not None:\n        synchronize()\n"
     "    return result, end - begin"),
    ("time_attention", "wrong-unit", "clock() - begin", "1000 * (clock() - begin)"),
    ("decode_latencies", "wrong-unit", "clock() - begin", "1000 * (clock() - begin)"),
    ("decode_latencies", "decode-prefill-mixed", "        decode_s.append(seconds)",
     "        decode_s.append(seconds + (0 if decode_s else prefill_s))"),
    ("decode_latencies", "decode-prefill-mixed", "\"prefill_s\": prefill_s", "\"prefill_s\": prefill_s + decode_s[0]"),
    ("decode_latencies", "decode-cumulative", "        decode_s.append(seconds)", "        decode_s.append(seconds + sum(decode_s[-1:]))"),
    ("fit_exponent", "fit-wrong-output", "    return float((x * y).sum() / (x * x).sum())",
     "    slopes = local_slopes(ns, seconds)\n    return float(sum(slopes) / len(slopes))"),
    ("fit_exponent", "fit-wrong-output", "    x, y = np.log(ns), np.log(seconds)", "    x, y = np.log(ns), np.log10(seconds)"),
    ("fit_exponent", "fit-wrong-output", "    return float((x * y).sum() / (x * x).sum())",
     "    return float((y[-1] - y[0]) / (x[-1] - x[0]))"),
    ("fit_exponent", "fit-not-loglog", "    x, y = np.log(ns), np.log(seconds)", "    x, y = np.array(ns), np.array(seconds)"),
    ("local_slopes", "fit-not-loglog", "    x, y = np.log2(ns), np.log2(seconds)", "    x, y = ns, np.log2(seconds) * np.log(2)"),
    ("score_bytes", "wrong-unit", "    return n * n * itemsize * heads", "    return n * n * itemsize * heads / 1024"),
    ("largest_n", "search-off-by-one", "    return good\n", "    return good - 1 if good < limit else good\n"),
]  # fmt: skip


def laid_over_base(folder: Path, over: Path) -> Path:
    shutil.copytree(BASE, folder, ignore=shutil.ignore_patterns("report"))
    for file in over.glob("*.py"):
        shutil.copy(file, folder)
    return folder


def first_hint(folder: Path) -> tuple[str, str | None]:
    """The first public check that fails, and the code of its hint: what `pytest -x` shows."""
    subject = Held(folder)
    hints = Hints(subject)
    done: dict = {}
    for check in public_checks():
        result = run_check(check, subject, done)
        if result.status == "failed":
            with subject.held():
                hint = hints.on(result)
            return check.id, hint.code if hint else None
    return "", None


def all_hints(folder: Path) -> dict[str, list[str | None]]:
    subject = Held(folder)
    hints = Hints(subject)
    with subject.held():
        return {family: [hint.code for hint in hints.of(family)] for family in FAMILIES}


@pytest.mark.parametrize("name", [name for name in FAULTS if name.split("--")[0] not in ELSEWHERE])
def test_the_first_failure_names_the_fault(tmp_path: Path, name: str) -> None:
    """A submission with one fault sees it by its name at the first test that fails."""
    check, code = first_hint(laid_over_base(tmp_path / "lab", SUBMISSIONS / name))
    assert (bool(check), code) == (True, name.split("--")[0])


@pytest.mark.parametrize(("family", "code", "old", "new"), MORE, ids=[f"{m[0]}-{m[1]}-{i}" for i, m in enumerate(MORE)])
def test_a_fault_is_named(tmp_path: Path, family: str, code: str | None, old: str, new: str) -> None:
    """The faulty function's family gives one code, the right one."""
    folder = laid_over_base(tmp_path / "lab", BASE)
    source = (folder / "experiments.py").read_text()
    assert source.count(old) >= 1
    (folder / "experiments.py").write_text(source.replace(old, new))
    assert set(all_hints(folder)[family]) == {code}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_form_gets_no_hint(tmp_path: Path, name: str) -> None:
    """Correct measurements in other styles fail nothing and get no hint of any family."""
    folder = laid_over_base(tmp_path / "lab", SUBMISSIONS / name)
    assert first_hint(folder) == ("", None)
    assert all_hints(folder) == {family: [] for family in FAMILIES}


def variation_of(variation: dict, folder: Path) -> Path:
    laid_over_base(folder, SUBMISSIONS / variation["base"])
    source = (folder / "experiments.py").read_text()
    for text in variation["functions"]:
        name = text.split("(")[0].removeprefix("def ")
        source = re.sub(
            rf"^def {name}\(.*?(?=^(?:def|class) |\Z)", lambda _, t=text: t + "\n\n", source, flags=re.S | re.M
        )
    (folder / "experiments.py").write_text(source)
    return folder


@pytest.mark.parametrize("variation", VARIATIONS, ids=[v["name"] for v in VARIATIONS])
def test_what_is_named_is_right(tmp_path: Path, variation: dict) -> None:
    """However a fault is written, a hint names it and nothing else; a correct variation gets none."""
    found = all_hints(variation_of(variation, tmp_path / "lab"))
    named = {code for family in signs_experiments.FAMILIES for code in found[family] if code is not None}
    assert named <= set(variation.get("codes", []))
