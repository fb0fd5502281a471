"""What is measured of tensors: by the process's own account, held against the judge's clock and against the formula."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.checks.step10_cost import SDPA
from grader.device import explained, why_no_cuda
from grader.measure.device import Ceilings, Taken, attention_at, ceilings, inputs, work
from grader.sandbox import Sandbox, SandboxError
from grader.sandbox.supervisor import broken_device
from harness.check import CHECKS, Fail, run
from harness.subject import Call, LocalSubject, Outcome

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch"
REPLAYS = """
_before = {}
_right = scaled_dot_product_attention
def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    if Q.shape not in _before:
        _before[Q.shape] = _right(Q, K, V, mask, scale)
    return _before[Q.shape]
"""


def with_more(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "submission"
    shutil.copytree(EXAMPLE, folder)
    with (folder / "attention_torch.py").open("a") as file:
        file.write(text)
    return folder


def test_the_judge_makes_the_inputs_of_a_timed_call_anew():
    """What the judge computes from a seed is what lies on the submission's side."""
    import numpy as np

    subject = LocalSubject(EXAMPLE)
    for dtype in ("float32", "float16", "bfloat16"):
        made = subject.call("@normal", [[3, 4]] * 3, dtype, 7).value
        theirs = [subject.call("@fetch", handle).value for handle in made]
        for mine, other in zip(inputs(3, 4, dtype, 7), theirs, strict=True):
            np.testing.assert_array_equal(mine, other.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_is_timed_and_its_results_are_right(dtype):
    """Seconds inside and outside; no bytes of a GPU on a CPU."""
    taken = attention_at(LocalSubject(EXAMPLE), SDPA, 32, 8, dtype)
    assert taken.seconds > 0
    assert (taken.allocated, taken.reserved) == (None, None)


def test_a_result_of_earlier_inputs_is_seen_while_timing(tmp_path):
    """Every repeat has other inputs in other memory: what is remembered for a shape is not their result."""
    with pytest.raises(Fail, match="timed call"):
        attention_at(LocalSubject(with_more(tmp_path, REPLAYS)), SDPA, 32, 8, "float32")


def test_times_that_the_outside_contradicts_are_not_trusted():
    """A second outside for a millisecond of events; a busy machine's delay contradicts nothing."""
    assert Taken(1e-3, 1.0, None, None).contradicted
    assert not Taken(1e-3, 0.02, None, None).contradicted


def test_a_share_of_the_ceilings_is_work_over_time_over_what_there_is():
    """Half of both: (4nd + n²) values and 4n²d operations in twice the least time."""
    moved, computed = work(100, 10, "float16")
    assert (moved, computed) == (2 * (4 * 100 * 10 + 100 * 100), 4 * 100 * 100 * 10)
    assert Ceilings(moved, computed).share(moved, computed, 2.0) == (0.5, 0.5)


@pytest.mark.slow
def test_the_ceilings_are_measured_here():
    """Bytes and operations a second, in every dtype."""
    found = ceilings(LocalSubject(EXAMPLE), "float32", gpu=False)
    assert found.bytes > 1e6
    assert found.operations > 1e6


@pytest.mark.slow
@pytest.mark.parametrize("id", ["step10.cost.attention-in-float32", "step10.cost.decode"])
def test_what_is_measured_is_told_behind_the_fence_too(tmp_path, id):
    """In a worker, with a clock that the submission has stopped: the times are those of the worker's own."""
    stopped = "\nimport time\ntime.perf_counter = time.monotonic = time.time = lambda: 0.0\n"
    with Sandbox(with_more(tmp_path, stopped), trust=True) as sandbox:
        with sandbox.group("torch", backend="torch") as subject:
            result = run(CHECKS[id], subject, 1)
    assert result.status == "passed", result
    assert "ms" in result.told[0]
    assert " 0 ms" not in result.told[0]


@pytest.mark.slow
def test_a_length_that_memory_does_not_hold_is_named_and_the_others_are_told(tmp_path):
    """Attention that asks for a TiB from n = 600 on."""
    greedy = """
_right = scaled_dot_product_attention
def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    if Q.shape[-2] > 600:
        torch.empty(2**40)
    return _right(Q, K, V, mask, scale)
"""
    with Sandbox(with_more(tmp_path, greedy), trust=True) as sandbox:
        with sandbox.group("torch", backend="torch") as subject:
            result = run(CHECKS["step10.cost.attention-in-float32"], subject, 1)
    assert result.status == "passed"
    assert "at 512" in result.told[0]
    assert "n = 1024 does not fit" in result.told[0]


# -- a GPU that is not there, or that broke ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([], "does not load"),
        (["none"], "not installed"),
        (["2.13.0+cpu", "none", "False"], "built without CUDA"),
        (["2.13.0", "13.0", "False"], "no CUDA device"),
    ],
)
def test_what_keeps_a_machine_from_cuda_is_said_with_its_mend(answer, says):
    """No torch, torch for CPUs, no device."""
    assert says in explained(answer)
    assert "leave --device out" in explained(answer)


def test_a_machine_with_cuda_has_nothing_to_mend():
    """The empty text."""
    assert explained(["2.13.0", "13.0", "True"]) == ""


def test_a_fault_of_cuda_ends_the_process_it_broke():
    """An illegal access does; running out of memory does not, nor an error of the student's own."""

    def raised(type: str, text: str) -> Outcome:
        return Outcome("raised", type=type, text=text)

    assert broken_device(raised("torch.AcceleratorError", "an illegal memory access was encountered"))
    assert broken_device(raised("RuntimeError", "CUDA error: device-side assert triggered"))
    assert not broken_device(raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not broken_device(raised("RuntimeError", "The size of tensor a (3) must match"))


@pytest.mark.slow
def test_a_group_for_a_gpu_that_is_not_there_is_the_graders_fault():
    """Nothing of the submission has run: SandboxError, and no verdict."""
    if not why_no_cuda():
        pytest.skip("this machine has a CUDA device")
    with Sandbox(EXAMPLE, trust=True) as sandbox:
        with pytest.raises(SandboxError):
            with sandbox.group("torch", backend="torch", device="cuda") as subject:
                subject.ask(Call("@len", ([],)))


@pytest.mark.slow
def test_a_group_on_a_gpu_has_no_limit_of_addresses_and_may_open_more_files():
    """CUDA reserves far more addresses than it uses; on a CPU the limit stands."""
    ask = (
        "import resource; from harness import fence; "
        "plan = {'uid': 1, 'processes': 64, 'file_bytes': 1, 'cpu_seconds': 60, 'memory': MEMORY, 'open_files': FILES}; "
        "assert fence._limit(plan); "
        "print(*(resource.getrlimit(r)[0] for r in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)))"
    )
    found = {}
    for device, memory, files in (("cpu", 2**31, 128), ("cuda", 0, 1024)):
        text = ask.replace("MEMORY", str(memory)).replace("FILES", str(files))
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        found[device] = [int(word) for word in run.stdout.split()]
    assert found["cuda"] == [resource.getrlimit(resource.RLIMIT_AS)[0], 1024]
    assert found["cpu"][0] > 2**31
    assert found["cpu"][1] == 128
