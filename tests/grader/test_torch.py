"""The optional attention_torch.py and a kv_cache.py of tensors: held to the lab's checks in three dtypes, on the CPU here."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from grader.families import FAMILIES
from grader.grade import grade
from grader.rubric import load_rubric
from grader.sandbox import Sandbox
from harness import draws
from harness.check import CHECKS, CheckResult, ordered, run
from harness.subject import LocalSubject
from reference import narrow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "torch"
FIXTURES = ROOT / "tests" / "submissions" / "torch"
RUBRIC = load_rubric()
OURS = ordered(c for c in CHECKS.values() if c.step == 10 and c.weight)
RIGHT = sorted(p.name for p in FIXTURES.iterdir() if p.name.startswith("correct"))

# A submission under tests/submissions/torch, and checks that must fail on it.
FAILS = {
    "scale-missing": "step10.step1.attention.scale step10.dtype.attention-in-float16",
    "softmax-overflow": "step10.step1.softmax.large-scores step10.dtype.softmax-in-float32",
    "softmax-overflow--in-half": "step10.dtype.softmax-in-float16 step10.dtype.large-scores-in-float16",
    "mask-inverted": "step10.step1.mask.true-shows-false-hides step10.dtype.attention-in-bfloat16",
    "mask-finite-fill": "step10.step1.mask.hides-whatever-the-scores",
    "softmax-wrong-axis": "step10.step1.attention.weights-sum-to-one step10.dtype.large-scores-in-bfloat16",
    "values-swapped": "step10.step1.self.projects-then-attends step10.dtype.self-in-float16",
    "causal-mask-upper-left": "step10.step7.mask.more-keys-than-queries",
    "input-mutated": "step10.step1.softmax.input-unchanged",
    "name-missing": "step10.step7.mask.square",
    "wrong-dtype": "step10.step1.softmax.agrees step10.dtype.softmax-in-float32 step10.dtype.softmax-in-bfloat16",
    "raised--only-wide": "step10.dtype.attention-in-float16 step10.dtype.self-in-bfloat16",
    "unrecognised--sums-in-half": "step10.dtype.long-rows-in-bfloat16",
    "cache--raised--positions-in-float32": "step10.cache.logits-in-float16 step10.cache.logits-in-bfloat16",
    "cache--wrong-dtype": "step10.cache.logits-in-bfloat16",
}
# and checks that must not: the fault does not show in them
PASSES = {
    "raised--only-wide": "step10.step1.attention.agrees step10.dtype.attention-in-float32",
    "unrecognised--sums-in-half": "step10.step1.softmax.agrees step10.dtype.long-rows-in-float32 step10.dtype.softmax-in-bfloat16",
    "mask-finite-fill": "step10.step1.mask.true-shows-false-hides",
    "cache--raised--positions-in-float32": "step10.cache.logits-in-float32",
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small tensors on a busy machine: more threads would wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def laid(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / "submission"
    shutil.copytree(EXAMPLE, folder)
    shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)
    return folder


def judged(folder: Path, ids: list[str]) -> dict[str, CheckResult]:
    subject = LocalSubject(folder)
    return {id: run(CHECKS[id], subject, draws.seed_of(b"a test", id)) for id in ids}


def step_10(folder: Path):
    """The report, and its tenth step."""
    report = grade(folder, rubric=RUBRIC, steps={10})
    return report, next((s for s in report.steps if s.number == 10), None)


@pytest.mark.parametrize("name", FAILS)
def test_a_wrong_one_fails_the_checks_that_are_there_for_it(tmp_path, name):
    """Each fault fails the checks that it shows in, and none that it does not."""
    wanted = dict.fromkeys(FAILS[name].split(), "failed") | dict.fromkeys(PASSES.get(name, "").split(), "passed")
    found = judged(laid(tmp_path, name), list(wanted))
    assert {id: result.status for id, result in found.items()} == wanted


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_passes_however_it_is_written(tmp_path, name):
    """Wide inside, fused, by einsum, in tiles, with another fill: every check passes."""
    found = judged(laid(tmp_path, name), [c.id for c in OURS])
    assert {id: r.failure or r.reason for id, r in found.items() if r.status != "passed"} == {}


def test_every_fixture_is_tried():
    """No fixture lies there without a test."""
    assert {p.name for p in FIXTURES.iterdir()} == {*FAILS, *RIGHT}


def test_a_wider_dtype_out_than_in_is_a_note(tmp_path):
    """float32 weights for float16 inputs: told, and no fault."""
    id = "step10.dtype.attention-in-float16"
    result = judged(laid(tmp_path, "correct--wide"), [id])[id]
    assert result.status == "passed"
    assert [code for code, _ in result.notes] == ["wrong-dtype"]


@pytest.mark.parametrize(
    ("name", "family", "code"),
    [
        ("scale-missing", "sdpa", "scale-missing"),
        ("mask-inverted", "sdpa", "mask-inverted"),
        ("softmax-overflow", "softmax", "softmax-overflow"),
        ("softmax-overflow--in-half", "softmax", "softmax-overflow"),
        ("causal-mask-upper-left", "causal_mask", "causal-mask-upper-left"),
        ("values-swapped", "self_attention", "values-swapped"),
        ("mask-finite-fill", "sdpa", "mask-finite-fill"),
    ],
)
def test_a_fault_on_tensors_is_named_as_in_attention(tmp_path, name, family, code):
    """The search for a fault asks attention_torch.py what it asks attention.py."""
    found = FAMILIES[f"{family} on tensors"].explain(LocalSubject(laid(tmp_path, name)))
    assert found.codes == (code,)


def test_the_example_gets_full_marks():
    """100 of 100 with attention_torch.py and a cache of tensors; step 10 is all there, and worth nothing."""
    report = grade(EXAMPLE, rubric=RUBRIC)
    tenth = next(s for s in report.steps if s.number == 10)
    assert (report.score, report.max_score, report.provisional) == (100.0, 100.0, ())
    assert (tenth.status, tenth.max_score, len(tenth.checks)) == ("passed", 0.0, len(OURS))
    assert [d for s in report.steps for c in s.checks for d in c.diagnoses if not d.note] == []


def test_a_fault_in_the_companion_costs_nothing_and_is_named(tmp_path):
    """attention_torch.py without a scale: named, in a step that is worth 0."""
    report, tenth = step_10(laid(tmp_path, "scale-missing"))
    assert (tenth.status, tenth.score, tenth.max_score) == ("failed", 0.0, 0.0)
    assert report.max_score == 100.0
    named = {d.code for c in tenth.checks for d in c.diagnoses if not d.note}
    assert named - {"blocked-by"} == {"scale-missing"}


def test_what_shows_in_half_precision_alone_is_told_with_its_line(tmp_path):
    """A float32 tensor of their own meets the dtype of the inputs: raised, in those two dtypes."""
    _, tenth = step_10(laid(tmp_path, "raised--only-wide"))
    failed = {c.id: {d.code for d in c.diagnoses if not d.note} for c in tenth.checks if c.status == "failed"}
    assert set().union(*failed.values()) == {"raised"}
    assert all(id.endswith("float16") for id in failed)  # float16 and bfloat16


def test_a_submission_without_the_companion_has_no_tenth_step(submission):
    """Nothing is asked, nothing is shown, and nothing is missing."""
    _, tenth = step_10(submission())
    assert tenth is None


def test_a_rubric_may_give_the_companion_points(submission, tmp_path):
    """Where it is worth something, not having it is file-missing."""
    text = (ROOT / "rubrics" / "lab.yaml").read_text()
    file = tmp_path / "rubric.yaml"
    file.write_text(text.replace("step9: 6", "step9: 6\n  step10: 5"))
    report = grade(submission(), rubric=load_rubric(file), steps={10})
    tenth = next(s for s in report.steps if s.number == 10)
    assert (tenth.score, tenth.max_score) == (0.0, 5.0)
    assert {d.code for c in tenth.checks for d in c.diagnoses} <= {"file-missing", "blocked-by"}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("append(seconds)", "append(seconds)", None),
        ("append(seconds)", "append(seconds + (0 if decode_s else prefill_s))", "decode-prefill-mixed"),
        ("        synchronize()\n    return", "        pass\n    return", "timing-not-synchronised"),
    ],
)
def test_a_decoder_of_tensors_is_lent_to_what_works_on_tensors(tmp_path, old, new, code):
    """decode_latencies over a kv_cache.py of the judge whose arrays are tensors: times to the digit, and faults by name."""
    folder = tmp_path / "submission"
    shutil.copytree(EXAMPLE, folder)
    file = folder / "experiments.py"
    token = "    token = int(logits[-1].argmax())"
    text = file.read_text().replace(token, f"    assert isinstance(logits, torch.Tensor)\n{token}")
    assert old in text
    file.write_text("import torch\n" + text.replace(old, new))
    with Sandbox(folder, trust=True) as sandbox, sandbox.group("torch", backend="torch") as subject:
        statuses = {run(CHECKS[id], subject, 5).status for id in CHECKS if id.startswith("step8.latencies.")}
        found = FAMILIES["decode_latencies"].explain(subject)
    assert ("failed" in statuses) == (code is not None)
    assert found.codes == ((code,) if code else ())


@pytest.mark.parametrize("dtype", narrow.DTYPES)
def test_rounding_is_torchs(dtype):
    """Values of a dtype are those that torch rounds to, the largest and the smallest too."""
    import torch

    x = np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.random.default_rng(1).integers(-9, 9, 5000)
    x = np.append(x, [0.0, 65519.0, 65520.0, 1e-8, np.inf, -np.inf, 3.3e38]).astype(np.float32)
    theirs = torch.from_numpy(x).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(narrow.rounded(x, dtype), theirs)
