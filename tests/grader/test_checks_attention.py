"""The checks of attention.py: each fails on a fault that it is there for, and none on a right answer, however written."""

import importlib
import shutil
from pathlib import Path

import pytest

from grader.sandbox import Sandbox
from harness import draws
from harness.check import CHECKS, CheckResult, ordered, run
from harness.subject import LocalSubject, Subject
from tests.labs.attention.edits import entries, text_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]  # what NumPy prints for faulty code

RIGHT = Path(__file__).parents[2] / "examples" / "base" / "attention.py"
FILES = ("step1_attention", "step2_chapter", "step4_equivariance", "step7_causal")
MODULES = {f"{package}.checks.{name}" for package in ("harness", "grader") for name in FILES}
for module in sorted(MODULES):
    importlib.import_module(module)
OURS = {id: check for id, check in CHECKS.items() if check.run.__module__ in MODULES}
NUMPY = [check for check in OURS.values() if check.needs == "numpy"]

# Faults without a code of their own, as functions written over a right attention.py, and the checks that must fail.
COPIED_NUMBERS = """
_WEIGHTS = [[0.6961, 0.1791, 0.1249], [0.1750, 0.6804, 0.1446], [0.4230, 0.5012, 0.0759]]
_OUTPUTS = [[0.7444, 0.3433], [0.3256, 0.7443], [0.5308, 0.6009]]

_computed = self_attention


def self_attention(X, W_Q, W_K, W_V, mask=None):
    if X.shape == (3, 4) and mask is None:
        return np.array(_OUTPUTS), np.array(_WEIGHTS)
    return _computed(X, W_Q, W_K, W_V, mask=mask)
"""
OVERRIDES = {
    "numbers copied from the chapter by their shape": (
        COPIED_NUMBERS,
        "step2.another-order step2.full-precision step2.nearby-numbers step2.swapped-matrices",
    ),
    "numbers rounded to four decimals": (
        "_a = self_attention\n\n\ndef self_attention(X, W_Q, W_K, W_V, mask=None):\n"
        "    return tuple(np.round(part, 4) for part in _a(X, W_Q, W_K, W_V, mask=mask))\n",
        "step2.full-precision",
    ),
    "single precision inside, double outside": (
        "_b = scaled_dot_product_attention\n\n\ndef scaled_dot_product_attention(Q, K, V, mask=None, scale=None):\n"
        "    Q32, K32, V32 = (a.astype(np.float32) for a in (Q, K, V))\n"
        "    return tuple(p.astype(Q.dtype) for p in _b(Q32, K32, V32, mask=mask, scale=scale))\n",
        "step1.attention.precision",
    ),
    "single precision for double": (
        "_c = softmax\n\n\ndef softmax(x, axis=-1):\n    return _c(x, axis=axis).astype(np.float32)\n",
        "step1.softmax.agrees",
    ),
    "positions slipped into self_attention": (
        "_d = self_attention\n\n\ndef self_attention(X, W_Q, W_K, W_V, mask=None):\n"
        "    return _d(X + np.arange(X.shape[-2])[:, None] / 10, W_Q, W_K, W_V, mask=mask)\n",
        "step4.equivariance.shuffle",
    ),
    "the same position for every slot": (
        "_e = sinusoidal_positions\n\n\ndef sinusoidal_positions(n, d):\n    return np.repeat(_e(1, d), n, axis=0)\n",
        "step4.equivariance.positions-break-it",
    ),
    "angles that grow with the square of the position": (
        "def sinusoidal_positions(n, d):\n"
        "    angle = np.arange(n)[:, None] ** 2 / 10000.0 ** (np.arange(0, d, 2) / d)\n"
        "    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d)\n",
        "step4.positions.offsets",
    ),
    "integers for positions": (
        "def sinusoidal_positions(n, d):\n    return np.tile(np.arange(d) % 2, (n, 1))\n",
        "step4.positions.agrees",
    ),
    "n_keys of None not understood": (
        "_f = causal_mask\n\n\ndef causal_mask(n_queries, n_keys=0):\n"
        "    return _f(n_queries, n_keys=n_keys + 0 or n_queries)\n",
        "step7.mask.default-n-keys",
    ),
    "a causal mask of zeros and ones": (
        "_g = causal_mask\n\n\ndef causal_mask(n_queries, n_keys=None):\n"
        "    return _g(n_queries, n_keys=n_keys).astype(int)\n",
        "step7.mask.boolean",
    ),
}

# Answers that earn nothing, as functions of the shapes they should have.
EMPTY = """import numpy as np


def softmax(x, axis=-1):
    return np.{fill}(x.shape, x.dtype)


def project(X, W_Q, W_K, W_V):
    return tuple(np.{fill}((*X.shape[:-1], W.shape[-1])) for W in (W_Q, W_K, W_V))


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    return np.{fill}((*Q.shape[:-1], V.shape[-1])), np.{fill}((*Q.shape[:-1], K.shape[-2]))


def self_attention(X, W_Q, W_K, W_V, mask=None):
    return np.{fill}((*X.shape[:-1], W_V.shape[-1])), np.{fill}((*X.shape[:-1], X.shape[-2]))


def causal_mask(n_queries, n_keys=None):
    return np.{fill}((n_queries, n_keys or n_queries), bool)


def sinusoidal_positions(n, d):
    return np.{fill}((n, d))
"""
SIGNATURES = {
    "softmax(x, axis=-1)": "x",
    "project(X, W_Q, W_K, W_V)": "X",
    "scaled_dot_product_attention(Q, K, V, mask=None, scale=None)": "Q",
    "self_attention(X, W_Q, W_K, W_V, mask=None)": "X",
    "causal_mask(n_queries, n_keys=None)": "n_queries",
    "sinusoidal_positions(n, d)": "n",
}
WORTHLESS = {
    "zeros": EMPTY.format(fill="zeros"),
    "ones": EMPTY.format(fill="ones"),
    "the first argument": "\n\n".join(f"def {s}:\n    return {first}\n" for s, first in SIGNATURES.items()),
    "the first argument, where two are due": "\n\n".join(
        f"def {s}:\n    return {first}, {first}\n" if "attention" in s else f"def {s}:\n    return {first}\n"
        for s, first in SIGNATURES.items()
    ),
    "nothing yet": "\n\n".join(f"def {s}:\n    raise NotImplementedError\n" for s in SIGNATURES),
}


def judge(subject: Subject, id: str, secret: bytes = b"tests") -> CheckResult:
    return run(CHECKS[id], subject, draws.seed_of(secret, id))


def judge_all(subject: Subject) -> dict[str, CheckResult]:
    """Every check that is not blocked by one it stands on."""
    results: dict[str, CheckResult] = {}
    for check in ordered(NUMPY):
        if all(id in results and results[id].status == "passed" for id in check.stands_on):
            results[check.id] = judge(subject, check.id)
    return results


def not_passed(results: dict[str, CheckResult]) -> dict[str, str]:
    return {
        id: r.reason or (r.failure.seen if r.failure else r.status) for id, r in results.items() if r.status != "passed"
    }


def fixture(folder: Path, name: str) -> LocalSubject:
    return written(folder, text_of(name, "attention.py"))


def written(folder: Path, text: str) -> LocalSubject:
    (folder / "attention.py").write_text(text)
    return LocalSubject(folder)


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_fault_without_a_code_fails_the_checks_that_are_there_for_it(name, tmp_path):
    text, ids = OVERRIDES[name]
    subject = written(tmp_path, f"{RIGHT.read_text()}\n\n{text}")
    assert {id: judge(subject, id).status for id in ids.split()} == dict.fromkeys(ids.split(), "failed")


def test_every_check_has_a_fault_that_fails_it():
    failing = {id for _, ids in OVERRIDES.values() for id in ids.split()}
    failing |= {id for entry in entries() for id in entry.checks}
    assert {check.id for check in NUMPY} - failing == set()


@pytest.mark.parametrize("name", WORTHLESS)
def test_a_worthless_answer_passes_nothing(name, tmp_path):
    results = judge_all(written(tmp_path, WORTHLESS[name]))
    assert [id for id, result in results.items() if result.status != "failed"] == []


def test_the_example_passes_every_check_in_its_own_process(tmp_path):
    shutil.copy(RIGHT, tmp_path)
    with Sandbox(tmp_path) as sandbox, sandbox.group("numpy") as subject:
        assert not_passed(judge_all(subject)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status"), [("attention-tiles", "passed"), ("mask-inverted", "failed"), ("scale-missing", "failed")]
)
def test_torch_agrees_with_right_attention_alone(name, status, tmp_path):
    assert judge(fixture(tmp_path, name), "step1.attention.agrees-with-torch").status == status


@pytest.mark.parametrize(
    ("name", "id", "code"),
    [
        ("input-mutated", "step1.softmax.input-unchanged", "input-mutated"),
        ("input-mutated", "step1.softmax.memory-layout", "input-mutated"),
        ("input-mutated--queries", "step1.attention.fresh-each-time", "input-mutated"),
        ("stale-result", "step1.softmax.fresh-each-time", "stale-result"),
        ("stale-result--address", "step1.attention.fresh-each-time", "stale-result"),
        ("stale-result--corners", "step1.softmax.fresh-each-time", "stale-result"),
        ("not-deterministic", "step1.attention.fresh-each-time", "not-deterministic"),
        ("not-deterministic--dropout", "step1.attention.fresh-each-time", "not-deterministic"),
        ("output-order", "step1.attention.weights-sum-to-one", "output-order"),
        ("weights-missing", "step1.attention.weights-sum-to-one", "weights-missing"),
        ("softmax-overflow", "step1.softmax.large-scores", "not-finite"),
        ("batch-unsupported", "step1.attention.batch", "raised"),
    ],
)
def test_what_a_check_sees_directly_is_named_by_its_code(name, id, code, tmp_path):
    failure = judge(fixture(tmp_path, name), id).failure
    assert failure is not None
    assert failure.code == code


@pytest.mark.parametrize("name", ["softmax-argmax", "softmax-wrong-axis", "softmax-not-applied", "scale-missing"])
def test_what_does_not_remember_is_not_said_to(name, tmp_path):
    for id in ("step1.softmax.fresh-each-time", "step1.attention.fresh-each-time"):
        failure = judge(fixture(tmp_path, name), id).failure
        assert failure is None or failure.code is None


def test_a_wider_dtype_and_a_scale_of_zero_are_notes(tmp_path):
    scale_or = RIGHT.read_text() + (
        "\n\n_h = scaled_dot_product_attention\n\n\n"
        "def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):\n"
        "    return _h(Q, K, V, mask=mask, scale=scale or None)\n"
    )
    zero = judge(written(tmp_path, scale_or), "step1.attention.scale-argument")
    assert (zero.status, [code for code, _ in zero.notes]) == ("passed", ["scale-ignored"])
    wide = judge(fixture(tmp_path, "attention-wide"), "step1.attention.agrees")
    assert (wide.status, [code for code, _ in wide.notes]) == ("passed", ["wrong-dtype"])


@pytest.mark.parametrize("name", ["softmax-epsilon", "not-deterministic--dropout"])
def test_weights_that_are_wrong_at_every_scale_are_not_said_to_ignore_zero(name, tmp_path):
    """The note is for who takes 0.0 for no scale: weights of scale=0.0 that are those of no scale given."""
    assert judge(fixture(tmp_path, name), "step1.attention.scale-argument").notes == ()


def test_a_failing_case_is_shrunk_to_a_small_one(tmp_path):
    failure = judge(fixture(tmp_path, "softmax-unnormalised"), "step1.softmax.rows-sum-to-one").failure
    assert failure is not None
    assert [array.shape for array in failure.inputs.values()] == [(2, 2)]


@pytest.mark.parametrize("id", sorted(id for id in OURS if OURS[id].run.__module__.startswith("grader")))
def test_a_check_that_knows_the_answer_is_not_for_students(id):
    assert not OURS[id].public


@pytest.mark.parametrize("id", sorted(OURS))
def test_a_check_names_what_it_asks_and_where_to_look(id):
    check = OURS[id]
    assert check.functions
    assert check.families
    assert set(check.families) <= {"softmax", "project", "sdpa", "self_attention", "causal_mask", "positions"}
    assert set(check.stands_on) <= set(OURS)
