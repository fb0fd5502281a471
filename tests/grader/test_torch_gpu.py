"""On a GPU: the example's full marks, faults by name, and a broken CUDA context that costs its own group alone."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from grader.checks.step10_narrow import SDPA
from grader.device import why_no_cuda
from grader.grade import grade
from grader.measure.device import attention_at, ceilings
from grader.rubric import load_rubric
from grader.sandbox import Sandbox
from harness.subject import Call

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "torch"
FIXTURES = ROOT / "tests" / "submissions" / "torch"
OUT_OF_BOUNDS = """
def softmax(x, axis=-1):
    return x.flatten()[torch.full((4,), 10**9, device=x.device)]
"""


@pytest.fixture(autouse=True, scope="module")
def gpu():
    why = why_no_cuda()
    if why:
        pytest.skip(why.partition(":")[0])


def laid(tmp_path: Path, name: str = "", more: str = "") -> Path:
    folder = tmp_path / "submission"
    shutil.copytree(EXAMPLE, folder)
    if name:
        shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)
    with (folder / "attention_torch.py").open("a") as file:
        file.write(more)
    return folder


def test_the_example_gets_full_marks():
    """100 of 100, every check on tensors passed on the GPU, which the report names, behind the same fence as elsewhere."""
    report = grade(EXAMPLE, rubric=load_rubric(), device="cuda")
    tenth = next(s for s in report.steps if s.number == 10)
    assert (report.score, report.provisional, tenth.status) == (100.0, (), "passed")
    assert report.environment["gpu"]


@pytest.mark.parametrize("name", ["scale-missing", "mask-inverted", "softmax-overflow"])
def test_a_fault_is_named(tmp_path, name):
    """By its code, and no other."""
    report = grade(laid(tmp_path, name), rubric=load_rubric(), steps={10}, device="cuda")
    named = {d.code for s in report.steps for c in s.checks for d in c.diagnoses if not d.note}
    assert named - {"blocked-by"} == {name}


def test_a_fault_of_cuda_costs_its_own_call(tmp_path):
    """An index out of bounds ends its process; the next call has a new one, in which all works."""
    with Sandbox(laid(tmp_path, more=OUT_OF_BOUNDS), trust=True) as sandbox:
        with sandbox.group("torch", backend="torch", device="cuda") as subject:
            assert subject.call("attention_torch.softmax", np.ones((2, 3))).kind == "crashed"
            assert subject.call("attention_torch.causal_mask", 3).ok


def test_the_fence_stands_around_a_gpu_as_elsewhere(tmp_path):
    """Every layer that a group on the CPU has."""
    layers = {}
    with Sandbox(laid(tmp_path), trust=True) as sandbox:
        for device in ("cpu", "cuda"):
            with sandbox.group("torch", backend="torch", device=device) as subject:
                assert subject.ask(Call("attention_torch.causal_mask", (2,)))[0].ok
            layers[device] = sandbox.layers
    assert layers["cuda"] == layers["cpu"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_work_is_timed_by_events_and_its_memory_is_known(tmp_path, dtype):
    """Bytes at the peak, at least the weights; a part of the ceilings that is no more than all."""
    with Sandbox(laid(tmp_path), trust=True) as sandbox:
        with sandbox.group("torch", backend="torch", device="cuda") as subject:
            most = ceilings(subject, dtype, gpu=True)
            taken = attention_at(subject, SDPA, 1024, 64, dtype)
    assert not taken.contradicted
    assert taken.allocated is not None and taken.allocated >= 1024 * 1024 * 2
    assert taken.reserved is not None
    assert most.share(1024 * 1024 * 2, 4 * 64 * 1024**2, taken.seconds)[1] < 1.1
