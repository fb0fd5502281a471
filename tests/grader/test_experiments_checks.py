"""Measurements with a known fault fail, and are named by it alone; correct ones in other styles pass."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grader.checks.step6_memory import MOST_ALLOCATED, near
from grader.families import FAMILIES
from grader.instruments import MIB, over_attention, plans
from grader.sandbox import Sandbox
from harness import contract
from harness.check import CHECKS, Check, CheckResult, ordered, run
from harness.draws import seed_of
from harness.subject import Call, LocalSubject, Subject
from harness.virtual_time import lent
from tests.labs.attention.edits import text_of

pytestmark = pytest.mark.slow

_PUBLIC = (
    "step3_sdpa",
    "step4_gaps",
    "step5_exponent",
    "step5_setup",
    "step5_timing",
    "step6_memory",
    "step7_append",
    "step8_latencies",
)
for _module in (
    *(f"harness.checks.{name}" for name in _PUBLIC),
    "grader.families.experiments",
    "grader.families.attention",
):
    importlib.import_module(_module)
for _module in ("step3_sdpa", "step4_gaps", "step6_memory", "step7_append"):
    importlib.import_module(f"grader.checks.{_module}")

FUNCTIONS = [function.name for function in contract.functions_of("experiments")]
Submission = Callable[..., Path]


def function_text(source: str, name: str) -> str:
    found = re.search(rf"^def {name}\(.*?(?=^(?:def|class) |\Z)", source, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(0)


def checks_of(names: list[str]) -> list[Check]:
    wanted = {f"experiments.{name}" for name in names}

    def functions(check: Check) -> set[str]:
        return {check.functions} if isinstance(check.functions, str) else set(check.functions)

    return [c for c in ordered(CHECKS.values()) if c.needs != "files" and functions(c) & wanted]


def results(subject: Subject, names: list[str]) -> dict[str, CheckResult]:
    """What comes of the checks of these functions; blocked ones are left out."""
    found: dict[str, CheckResult] = {}
    for check in checks_of(names):
        if all(i not in CHECKS or i not in found or found[i].status == "passed" for i in check.stands_on):
            found[check.id] = run(check, subject, seed_of(b"a test's", check.id))
    return found


def judged(subject: Subject, names: list[str]) -> tuple[list[str], set[str]]:
    """Ids of the failed checks, and every code that is named: by a check, or by the family of a failed one."""
    found = results(subject, names)
    assert [(r.check.id, r.reason) for r in found.values() if r.status == "not-run"] == []
    failed = [r for r in found.values() if r.status == "failed"]
    named = {r.failure.code for r in failed if r.failure is not None and r.failure.code not in (None, "raised")}
    for family in {name for r in failed for name in r.check.families}:
        named |= set(FAMILIES[family].explain(subject).codes)
    return [r.check.id for r in failed], {str(code) for code in named}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experiments-loops", "experiments-torch-on-top", "experiments-head-by-head"])
def test_a_correct_oddity_passes_behind_the_wire(name: str, submission: Submission) -> None:
    """So they do in a process of their own, peak memory included."""
    with Sandbox(submission(experiments=text_of(name, "experiments.py"))) as sandbox:
        with sandbox.group("torch") as subject:
            assert judged(subject, FUNCTIONS) == ([], set())
        assert sandbox.integrity == []


def test_measurements_over_a_torch_cache_are_judged_by_the_clocks_ticks(submission: Submission) -> None:
    """Where kv_cache.py works on tensors, decode_latencies is judged over it, by the readings of a ticking clock."""
    tensors = (
        'import numpy as np\nimport torch\n\nimport plain_cache\nfrom plain_cache import kv_cache_bytes\n\nBACKEND = "torch"\n\n\n'
        "def arrays(model):\n"
        "    layers = tuple(type(x)(*(np.asarray(w) for w in (x.W_Q, x.W_K, x.W_V, x.W_O))) for x in model.layers)\n"
        "    return type(model)(np.asarray(model.embedding), layers, model.n_heads, model.n_kv_heads, model.positions)\n\n\n"
        "KVCache, generate = plain_cache.KVCache, plain_cache.generate\n\n\n"
        "def forward(model, tokens):\n    return torch.from_numpy(plain_cache.forward(arrays(model), tokens))\n\n\n"
        "def prefill(model, tokens, cache=None):\n"
        "    logits, cache = plain_cache.prefill(arrays(model), tokens, cache)\n    return torch.from_numpy(logits), cache\n\n\n"
        "def decode_step(model, token, cache):\n"
        "    return torch.from_numpy(plain_cache.decode_step(arrays(model), token, cache))\n"
    )
    asks_tensors = text_of("experiments-loops", "experiments.py").replace("int(last.argmax())", "last.argmax().item()")
    folder = submission()
    plain = (folder / "kv_cache.py").read_text()
    folder = submission(plain_cache=plain, kv_cache=tensors, experiments=asks_tensors)
    assert judged(LocalSubject(folder), ["decode_latencies"]) == ([], set())
    late = asks_tensors.replace("        return clock()\n", "        return 1000 * clock()\n")
    folder = submission(plain_cache=plain, kv_cache=tensors, experiments=late)
    assert "step8.latencies.steps" in judged(LocalSubject(folder), ["decode_latencies"])[0]


@pytest.mark.parametrize("result", ["0.0", "[0.0] * 9", "{}", "args[0]"])
def test_a_function_that_measures_nothing_earns_nothing(result: str, submission: Submission) -> None:
    """Zeros, ones, empty results and arguments handed back pass no check that does not stand on a failed one."""
    functions = "\n\n".join(
        f"def {f.name}({', '.join((*f.required, *(f'{name}=None' for name in f.optional)))}):\n"
        f"    args = ({f.required[0]},)\n    return {result}"
        for f in contract.functions_of("experiments")
    )
    found = results(LocalSubject(submission(experiments=functions)), FUNCTIONS)
    assert [r.check.id for r in found.values() if r.status == "passed"] == []


READS_THE_PLAN = """
import gc
def measure_peak_memory(fn):
    held = [value for value in vars(fn).values() if isinstance(value, list)]
    held += [thing for thing in gc.get_referents(*vars(fn).values()) if isinstance(thing, list) and thing]
    fn()
    held += [value for value in vars(fn).values() if isinstance(value, list)]
    return {"allocated": 2**60 * len(held), "reserved": 2**60 * len(held)}
"""


def test_what_fn_will_do_is_not_to_be_read_in_it(submission: Submission) -> None:
    """Neither before its call nor after it."""
    source = text_of("experiments-loops", "experiments.py")
    source = source.replace(function_text(source, "measure_peak_memory"), READS_THE_PLAN)
    subject = LocalSubject(submission(experiments=source))
    with over_attention(subject) as (borrower, _):
        pieces = iter([[("take", MIB)], [("drop", 0)], []])
        fn = borrower.ask(Call("@plan", (lent(lambda: next(pieces)),), keep=True))[0]
        found = borrower.call("experiments.measure_peak_memory", fn.value)
    assert found.value == {"allocated": 0, "reserved": 0}


@pytest.mark.parametrize("seed", range(40))
def test_no_other_number_of_a_plan_passes_for_its_peak(seed: int) -> None:
    """The first block, the largest, all together, what was held before and the end are each too far away, for any draw."""
    for pieces, peak in plans(np.random.default_rng(seed)):
        plan = [step for piece in pieces for step in piece]
        sizes = [number for what, number in plan if what == "take" and number > MIB]
        others = {sizes[0], max(size for size in sizes), plan[-1][1], 0}
        held = {sizes[0] + peak} if plan[1] == ("drop", 0) else set()
        assert [n for n in others | held if near(n, peak, MOST_ALLOCATED)] == []
        assert all(near(peak * part, peak, MOST_ALLOCATED) for part in (0.95, 1, 1.1))
