"""Memory is read from outside the submission's process, and its end by a limit is a result."""

from __future__ import annotations

import importlib

import pytest

from grader.checks import step6_cost
from grader.checks.step6_cost import alive, inputs, ran_out, told
from grader.measure import memory
from grader.measure.memory import Reached, taken_by
from grader.sandbox import Sandbox, SandboxError
from harness.attend import SDPA
from harness.check import CHECKS, Fail, run

importlib.import_module("grader.checks.step6_cost")
MIB = 2**20
TABLES = """
import os
import numpy as np

def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    n = len(Q)
    held = [np.ones((n, n), np.float32) for _ in range({tables})]
    {more}
    return V, held[0]
"""


def of_tables(submission, tables, more="pass"):
    """A submission that holds so many n × n arrays of float32 at once."""
    return submission(attention=TABLES.format(tables=tables, more=more))


def largest_under(root, mib, seconds, most):
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject:
        found = memory.largest_under(subject, mib, seconds, inputs, SDPA, most)
        assert (sandbox.strikes.total(), sandbox.timeouts) == (0, 0)
    return found


@pytest.mark.parametrize(
    ("limit", "taken", "stat", "left"),
    [
        ("1000", "400", "anon 100\ninactive_file 250\n", 850),
        ("1000", "400", None, 600),
        ("1000", "1200", "inactive_file 0", 0),
        ("max", "400", None, None),
        (None, None, None, None),
    ],
)
def test_what_a_container_has_left(tmp_path, limit, taken, stat, left):
    """Its limit without what is taken, but for files it would give back; nothing known where there is no limit."""
    files = [tmp_path / name for name in ("limit", "taken", "stat")]
    for path, text in zip(files, (limit, taken, stat), strict=True):
        if text is not None:
            path.write_text(text)
    assert memory._of_the_container(*map(str, files), "inactive_file") == left


@pytest.mark.parametrize("tables", [1, 3, 5])
def test_a_peak_counts_the_arrays_that_were_alive_at_once(tables, submission):
    """Within a quarter of an array, of 4 MiB each."""
    with Sandbox(of_tables(submission, tables)) as sandbox, sandbox.group("numpy") as subject:
        taken = taken_by(subject, inputs, SDPA, 1024)
    if taken is None:
        pytest.skip("this kernel does not say what a process has had in memory")
    assert abs(taken.bytes / (4 * MIB) - tables) < 0.25


def test_what_was_taken_before_is_no_part_of_a_peak(submission):
    """Work at import, and at a first call, is over when the measured one begins."""
    more = "if 'kept' not in globals(): globals()['kept'] = np.ones(40 * 2**20, np.uint8)"
    with Sandbox(of_tables(submission, 1, more)) as sandbox, sandbox.group("numpy") as subject:
        taken = taken_by(subject, inputs, SDPA, 1024)
    assert taken is None or taken.bytes < 8 * MIB


def test_a_call_that_fails_has_no_peak(submission):
    """Fail, as for any other call."""
    root = submission(attention="def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):\n    return 1 / 0\n")
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject, pytest.raises(Fail):
        taken_by(subject, inputs, SDPA, 64)


@pytest.mark.slow
@pytest.mark.parametrize(("tables", "mib"), [(2, 64), (4, 64)])
def test_the_largest_n_is_where_its_arrays_fill_the_limit(tables, mib, submission):
    """And memory is what runs out."""
    found = largest_under(of_tables(submission, tables), mib, 5.0, 8192)
    fill = (mib * MIB / (4 * tables)) ** 0.5
    assert 0.85 * fill < found.n < fill
    assert (found.beyond, found.resource) == (found.n + memory.GRID, "memory")


def test_a_process_that_is_killed_is_a_result(submission):
    """Where the system ends it in place of an exception, the largest n is the one before."""
    root = of_tables(submission, 1, "if n > 500: os.kill(os.getpid(), 9)")
    assert largest_under(root, 256, 5.0, 1024) == Reached(496, 512, "memory")


def test_time_that_runs_out_first_is_named(submission):
    """A call that computes for too long is no matter of memory."""
    root = of_tables(submission, 1, "while n > 200: pass")
    assert largest_under(root, 256, 0.2, 512) == Reached(192, 208, "time")


def test_nothing_runs_out_where_everything_fits(submission):
    """The last length is the answer, and none beyond it was tried."""
    assert largest_under(of_tables(submission, 1), 256, 5.0, 256) == Reached(256, None, "")


def test_a_length_that_memory_cannot_hold_is_named_and_not_tried(monkeypatch, submission):
    """Told before a process would have been ended for it."""
    monkeypatch.setattr(memory, "available", lambda: 20 * MIB)
    with Sandbox(of_tables(submission, 3)) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step6.cost.memory"], subject, 1)
        assert run(CHECKS["step6.cost.largest"], subject, 1).told == (
            "The largest n is not looked for: 256 MiB of memory are not free here.",
        )
    assert result.status == "passed"
    assert "Longer texts do not fit into memory: n = 2048 would take about" in result.told[0]
    assert " at 2048" not in result.told[0]


def test_a_machine_without_a_fence_measures_no_largest_n(monkeypatch, submission):
    """It is told, and is no failure of anybody."""

    def refuses(*args, **kwargs):
        raise SandboxError("no fence")

    monkeypatch.setattr(memory, "largest_under", refuses)
    with Sandbox(submission()) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step6.cost.largest"], subject, 1)
    assert (result.status, result.told) == ("passed", ("The largest n is not looked for: no fence.",))


def test_limits_reached_while_measuring_count_against_nothing(submission):
    """A function that was stopped there is asked again afterwards."""
    root = submission(attention="def softmax(x, axis=-1):\n    while axis:\n        pass\n    return x\n")
    with Sandbox(root, step6_cost.memory.Limits(cpu_seconds=0.2)) as sandbox, sandbox.group("numpy") as subject:
        with sandbox.uncounted():
            assert [subject.call("attention.softmax", 1, axis=1).kind for _ in range(3)] == ["timeout"] * 3
        assert (sandbox.timeouts, subject.call("attention.softmax", 1, axis=0).kind) == (0, "value")


@pytest.mark.parametrize(
    ("tables", "words"),
    [(0.2, "less than one"), (1.1, "about one n × n array"), (3.0, "about 3.0 n × n arrays"), (64.0, "as much as 64")],
)
def test_how_many_arrays_were_alive_is_said_in_words(tables, words):
    """Blocks, one, some, and an array of more dimensions."""
    assert words in alive(tables)


def test_the_score_tensors_bytes_stand_beside_the_peak():
    """2048² numbers of four bytes."""
    assert "the score tensor takes 16.0 MiB by the formula, so about 3.0 n × n arrays" in told({2048: 48 * MIB})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Reached(3280, 3296, "memory"), "the largest n is 3280; at n = 3296 memory runs out"),
        (Reached(620, 624, "time"), "a call takes more than 1 s, and memory has not run out"),
        (Reached(16_384, None, ""), "16384 or more"),
    ],
)
def test_the_resource_that_ran_out_is_named(found, words):
    """Memory, time or nothing."""
    assert words in ran_out(found)
