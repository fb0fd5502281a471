"""Hints on experiments.py name what known errors, times and memory prove; correct measurements of any form get none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.hints import FAMILIES, Hints
from harness.local import Held, public_checks, run_check
from tests.labs.attention.edits import named, write

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
BASE = TESTS.parent / "examples" / "base"
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
    ("time_attention", None, "median(timed(", "(lambda times: 1.5 * median(times))(timed("),
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

# Right, and unlike the example: functions that take the place of those in examples/base.
ODDITIES: dict[str, str] = {
    "head by head, in threads": """
def compare_with_sdpa(shapes, dtype="float32", causal=False, seed=0):
    import torch
    from concurrent.futures import ThreadPoolExecutor

    table = []
    for batch, heads, n, d in shapes:
        generator = torch.Generator().manual_seed(seed)
        q, k, v = (torch.randn(batch * heads, n, d, generator=generator, dtype=torch.float64) for _ in range(3))
        q, k, v = (t.to(getattr(torch, dtype)) for t in (q, k, v))
        mask = causal_mask(n) if causal else None
        with ThreadPoolExecutor(3) as pool:
            def own(i):
                return scaled_dot_product_attention(q[i].numpy(), k[i].numpy(), v[i].numpy(), mask)[0]
            mine = np.stack(list(pool.map(own, range(batch * heads))))
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).numpy()
        gap = np.max(np.abs(mine.astype(float) - theirs.astype(float)))
        table.append({"shape": [batch, heads, n, d], "max_abs_diff": gap, "backend": "whatever torch took"})
    return table
""",
    "untimed work first, and a cache made by hand": """
def decode_latencies(model, prompt, max_new_tokens, use_cache, clock=time.perf_counter, synchronize=None):
    from kv_cache import KVCache, kv_cache_bytes

    wait = synchronize or (lambda: None)
    prompt = [int(t) for t in prompt]
    layers, d_head = len(model.layers), model.layers[0].W_K.shape[1] // model.n_kv_heads
    logits, warm = prefill(model, prompt)
    decode_step(model, int(np.argmax(logits[-1])), warm)
    forward(model, prompt)
    clock()
    readings = []
    tokens = list(prompt)
    wait()
    readings.append(clock())
    if use_cache:
        cache = KVCache(layers, model.n_kv_heads, d_head, len(prompt) + max_new_tokens, "float64")
        logits, cache = prefill(model, tokens, cache=cache)
    else:
        logits = forward(model, tokens)
    wait()
    readings.append(clock())
    for _ in range(max_new_tokens):
        token = int(np.asarray(logits).reshape(-1, model.embedding.shape[0])[-1].argmax())
        tokens.append(token)
        logits = decode_step(model, token, cache) if use_cache else forward(model, tokens)
        wait()
        readings.append(clock())
    times = np.diff(readings)
    held = kv_cache_bytes(layers, model.n_kv_heads, d_head, len(tokens), 8) if use_cache else 0
    return {"decode_s": times[1:], "prefill_s": times[0], "cache_bytes": held}
""",
    "gaps by the inverse order and by parts": """
def equivariance_gap(X, W_Q, W_K, W_V, permutation, positions=None, mask=None):
    from attention import project

    order = [int(i) for i in permutation]
    inverse = [order.index(i) for i in range(len(order))]
    if positions is None:
        positions = np.zeros_like(X)
    mask = np.ones((len(X), len(X)), bool) if mask is None else mask
    both = np.stack([X + positions, X[order] + positions])
    Q, K, V = project(both, W_Q, W_K, W_V)
    straight, shuffled = scaled_dot_product_attention(Q, K, V, mask=mask)[0]
    return np.max(np.abs(straight - shuffled[inverse]))


def append_invariance_gap(X, x_new, W_Q, W_K, W_V):
    everything = np.concatenate([X, x_new])
    outputs = {n: self_attention(everything[:n], W_Q, W_K, W_V, causal_mask(n, n))[0] for n in (len(X) + 1, len(X))}
    return np.linalg.norm((outputs[len(X) + 1][:-1] - outputs[len(X)]).ravel(), ord=np.inf)
""",
    "one list of readings for all lengths": """
def time_attention(attend, ns, d=64, warmup=3, repeats=5, clock=time.perf_counter, synchronize=None):
    inputs = {n: [np.ones((n, d)) for _ in range(3)] for n in ns}
    ready = synchronize if synchronize is not None else lambda: None
    found = []
    for n, arrays in inputs.items():
        for _ in range(warmup):
            ready()
            clock()
            attend(*arrays)
        ready()
        marks = [clock()]
        for _ in range(repeats):
            attend(*arrays)
            ready()
            marks.append(clock())
        found.append(sorted(b - a for a, b in zip(marks, marks[1:]))[repeats // 2])
    return np.array(found)


def fit_exponent(ns, seconds):
    A = np.stack([np.log10(ns), np.ones(len(ns))], axis=1)
    return np.linalg.lstsq(A, np.log10(seconds), rcond=None)[0][0]


def local_slopes(ns, seconds):
    pairs = list(zip(ns, seconds))
    return tuple(np.log(t1 / t0) / np.log(n1 / n0) for (n0, t0), (n1, t1) in zip(pairs, pairs[1:]))
""",
}


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


def all_hints(folder: Path, families: Iterable[str] = FAMILIES) -> dict[str, list[str | None]]:
    subject = Held(folder)
    hints = Hints(subject)
    with subject.held():
        return {family: [hint.code for hint in hints.of(family)] for family in families}


@pytest.mark.parametrize(("family", "code", "old", "new"), MORE, ids=[f"{m[0]}-{m[1]}-{i}" for i, m in enumerate(MORE)])
def test_a_fault_is_named(tmp_path: Path, family: str, code: str | None, old: str, new: str) -> None:
    """The faulty function's family gives one code, the right one."""
    folder = laid_over_base(tmp_path / "lab", BASE)
    source = (folder / "experiments.py").read_text()
    assert source.count(old) >= 1
    (folder / "experiments.py").write_text(source.replace(old, new))
    assert set(all_hints(folder, [family])[family]) == {code}


@pytest.mark.parametrize("name", ["experiments-loops", "experiments-torch-on-top", "experiments-head-by-head"])
def test_a_correct_form_gets_no_hint(tmp_path: Path, name: str) -> None:
    """Correct measurements in other styles get no hint of any family."""
    assert all_hints(write(named()[name], tmp_path / "lab")) == {family: [] for family in FAMILIES}


def replace(folder: Path, functions: list[str]) -> Path:
    """experiments.py with these functions in the place of its own."""
    source = (folder / "experiments.py").read_text()
    for text in functions:
        name = text.split("(")[0].removeprefix("def ")
        pattern = rf"^def {name}\(.*?(?=^(?:def|class) |\Z)"
        source = re.sub(pattern, lambda _, t=text: t + "\n\n", source, flags=re.DOTALL | re.MULTILINE)
    (folder / "experiments.py").write_text(source)
    return folder


@pytest.mark.parametrize("name", ODDITIES)
def test_an_unusual_correct_form_gets_no_hint(tmp_path: Path, name: str) -> None:
    """Correct measurements that nobody would have thought of fail nothing and get no hint."""
    functions = re.split(r"^(?=def )", ODDITIES[name].strip(), flags=re.MULTILINE)[1:]
    folder = replace(laid_over_base(tmp_path / "lab", BASE), functions)
    assert first_hint(folder) == ("", None)
    assert all_hints(folder) == {family: [] for family in FAMILIES}


def test_times_that_are_not_numbers_are_no_sign_of_another_clock(tmp_path: Path) -> None:
    """NaN, asked for again, is the same answer."""
    folder = laid_over_base(tmp_path / "lab", BASE)
    times = 'def time_attention(attend, ns, **_):\n    return np.full(len(ns), float("nan"))\n'
    assert "timing-wrong-clock" not in all_hints(replace(folder, [times]), ["time_attention"])["time_attention"]
