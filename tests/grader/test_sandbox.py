"""A worker ends as a named outcome, whatever the submission does, and leaves nothing behind."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grader.sandbox import Limits, Sandbox
from harness.values import Callback

QUICK = Limits(cpu_seconds=0.5, idle_seconds=0.6, memory_mib=256, output_mib=1)


def softmax(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import os, sys, time, threading\nimport numpy as np\n\ndef softmax(x, axis=-1):\n{lines}\ndef causal_mask(n_queries, n_keys=None):\n    return 'still here'\n"


ENDINGS = {
    "while True: pass": "timeout",
    "time.sleep(60)": "timeout",
    "lock = threading.Lock(); lock.acquire(); lock.acquire()": "timeout",
    "return input()": "raised",
    "return bytearray(2 ** 30)": "out-of-memory",
    "return np.ones(2 ** 27)": "out-of-memory",
    "os._exit(0)": "crashed",
    "os.kill(os.getpid(), 9)": "crashed",
    "os.abort()": "crashed",
    "sys.exit(0)": "raised",
    "raise KeyboardInterrupt": "crashed",
    "while True: print('x' * 1000)": "output-flood",
    "os.write(2, b'noise' * 10); return 1": "value",
    "return softmax(x)": "raised",
}


@pytest.mark.parametrize("body", ENDINGS)
def test_a_call_ends_as_what_ended_it(submission, body):
    """Loops, sleeps, locks, memory, exits, signals and floods each have their name, and the next call works."""
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", np.ones(2)).kind == ENDINGS[body]
        assert subject.call("attention.causal_mask", 2).value == "still here"


def test_children_count_for_the_call_that_waits_for_them(submission):
    """Three busy children of a call that waits reach its limit of CPU before any waiting has an end."""
    body = "children = [os.fork() for _ in range(3)]\nwhile 0 in children: pass\nfor i in range(999): time.sleep(0.05); i * i\n"
    limits = Limits(cpu_seconds=1, idle_seconds=60, memory_mib=256)
    with Sandbox(submission(attention=softmax(body)), limits) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.softmax", 1)
    assert (outcome.kind, outcome.text.startswith("more than 1 s of CPU in ")) == ("timeout", True)


def test_after_two_limits_a_function_is_not_called_again(submission):
    """The third call ends like the second without being made; other functions still are."""
    with (
        Sandbox(submission(attention=softmax("while True: pass")), QUICK) as sandbox,
        sandbox.group("numpy") as subject,
    ):
        kinds = [subject.call("attention.softmax", 1).kind for _ in range(2)]
        cpu = time.process_time()
        kinds += [subject.call("attention.softmax", 1).kind for _ in range(50)]
        assert set(kinds) == {"timeout"}
        assert sandbox.strikes["attention.softmax"] == 2
        assert time.process_time() - cpu < 1
        assert subject.call("attention.causal_mask", 2).value == "still here"


def test_an_endless_import_is_a_timeout_of_the_module(submission):
    """A module whose import never ends is not imported for every function."""
    limits = replace(QUICK, import_seconds=QUICK.cpu_seconds)
    with Sandbox(submission(attention="while True: pass\n"), limits) as sandbox, sandbox.group("numpy") as subject:
        names = ("softmax", "project", "causal_mask", "self_attention")
        assert {subject.call(f"attention.{name}", 1).kind for name in names} == {"timeout"}
        assert sandbox.strikes["attention"] == 1


def test_prints_are_kept_up_to_a_cap(submission):
    """What a submission prints is heard, and is never taken for an answer."""
    body = "for i in range(5000): print('a line of the student', i)\nreturn 7"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", 1).value == 7
        subject.call("attention.causal_mask", 1)
        assert subject.printed.startswith("a line of the student 0")
        assert len(subject.printed) <= 65_536


def test_bytes_written_on_the_wire_are_noticed(submission):
    """A submission that speaks in the worker's place is told to staff; its call counts as crashed."""
    body = (
        "for fd in range(3, 64):\n    try: os.write(fd, b'\\x02\\x00\\x00\\x00hi')\n    except OSError: pass\nreturn 1"
    )
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", 1).kind == "crashed"
        assert len(sandbox.integrity) == 1


def test_the_worker_has_no_torch_and_none_of_the_judges_packages(submission):
    """torch, reference and grader cannot be imported in the worker of the NumPy steps."""
    body = "found = []\nfor name in ('torch', 'reference', 'grader', 'scipy'):\n    try: __import__(name); found.append(name)\n    except ImportError: pass\nreturn found"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", 1).value == []


def test_no_argument_or_variable_of_the_worker_names_a_secret(submission, monkeypatch):
    """The judge's environment does not reach the worker."""
    monkeypatch.setenv("COURSE_SECRET", "hunter2")
    body = (
        "text = ''\n"
        "for path in ('/proc/self/environ', '/proc/self/cmdline', f'/proc/{os.getppid()}/environ', f'/proc/{os.getppid()}/cmdline'):\n"
        "    try: text += open(path).read()\n"
        "    except OSError: pass\n"
        "return text + repr(dict(os.environ))"
    )
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert "hunter2" not in subject.call("attention.softmax", 1).value


def test_nothing_is_left_of_a_group(submission):
    """A child that was put in the background with a double fork is gone when its group is."""
    body = (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "return 1"
    )
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox:
        with sandbox.group("numpy") as subject:
            assert subject.call("attention.softmax", 1).value == 1
        worker = sandbox.worker("numpy").pid
        assert Path(f"/proc/{worker}/task/{worker}/children").read_text().split() == []
        scratch = sandbox._scratch
    assert not scratch.exists()
    assert not Path(f"/proc/{worker}").exists()


def test_one_group_does_not_see_what_another_did(submission):
    """Module state, files apart, begins anew in every group."""
    body = "globals()['n'] = globals().get('n', 0) + 1\nreturn n"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox:
        for _ in range(2):
            with sandbox.group("numpy") as subject:
                assert [subject.call("attention.softmax", 1).value for _ in range(2)] == [1, 2]


def test_a_callback_that_raises_memory_error_is_not_the_submissions_memory(submission):
    """The judge's own MemoryError, let through by a submission, is an exception and no limit."""
    code = "def largest_n(fits, start=128, limit=2**24):\n    return fits(start)\n"

    def fits(n):
        raise MemoryError("does not fit")

    with Sandbox(submission(experiments=code), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("experiments.largest_n", Callback(fits)).kind == "raised"


def test_a_group_has_no_open_file_but_its_own(submission):
    """The wire, the null device and the pipe for what it prints: no descriptor of the judge is there."""
    body = (
        "found = []\n"
        "for fd in range(256):\n"
        "    try: found.append(os.readlink(f'/proc/self/fd/{fd}').split(':')[0])\n"
        "    except OSError: pass\n"
        "return found"
    )
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert sorted(subject.call("attention.softmax", 1).value) == [os.devnull, "pipe", "pipe", "socket", "socket"]


def test_children_of_a_thread_count_too(submission):
    """The kernel lists a process's children by the thread that forked them."""
    body = (
        "def fork():\n    if os.fork() == 0:\n        while True: pass\n"
        "threads = [threading.Thread(target=fork) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for i in range(999): time.sleep(0.05); i * i\n"
    )
    limits = Limits(cpu_seconds=1, idle_seconds=60, memory_mib=256)
    with Sandbox(submission(attention=softmax(body)), limits) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.softmax", 1)
    assert (outcome.kind, outcome.text.startswith("more than 1 s of CPU in ")) == ("timeout", True)


def test_what_a_child_computes_is_the_processs_own_cost(submission):
    """A child that has ended and been waited for shows in the clocks as much as the same work in the process itself."""
    work = "until = time.process_time() + 0.3\nwhile time.process_time() < until: pass\n"
    body = "if os.fork() == 0:\n    until = time.process_time() + 0.3\n    while time.process_time() < until: pass\n    os._exit(0)\nos.wait()\n"
    for code in (body, work):
        with Sandbox(submission(attention=softmax(code))) as sandbox, sandbox.group("numpy") as subject:
            subject.call("attention.causal_mask", 1)
            before = subject.clocks().cpu
            assert subject.call("attention.softmax", 1).ok
            assert subject.clocks().cpu - before > 0.25


def test_shared_memory_of_many_processes_counts(submission):
    """Memory that a process shares with nobody but could is its own: two children with 200 MiB each are past 256."""
    body = (
        "import mmap\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        held = mmap.mmap(-1, 200 * 2**20)\n"
        "        for i in range(0, len(held), 4096): held[i] = 1\n"
        "        time.sleep(60)\n"
        "for i in range(999): time.sleep(0.05); i * i\n"
    )
    limits = Limits(cpu_seconds=9, idle_seconds=60, memory_mib=256)
    with Sandbox(submission(attention=softmax(body)), limits) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.softmax", 1)
    assert (outcome.kind, outcome.text.startswith("more than 256 MiB")) == ("out-of-memory", True)


def test_memory_that_processes_share_counts_once(submission):
    """Three children that look at the same 150 MiB are within 256."""
    body = (
        "import mmap\n"
        "held = mmap.mmap(-1, 150 * 2**20)\n"
        "for i in range(0, len(held), 4096): held[i] = 1\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        sum(held[i] for i in range(0, len(held), 4096))\n"
        "        time.sleep(1)\n"
        "        os._exit(0)\n"
        "for _ in range(3): os.wait()\n"
        "return 7\n"
    )
    limits = Limits(cpu_seconds=9, idle_seconds=60, memory_mib=256)
    with Sandbox(submission(attention=softmax(body)), limits) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", 1).value == 7


def test_sleep_counts_against_all_calls_of_a_function_and_of_the_submission(submission):
    """A call that sleeps reaches no limit of its own; many of them together do, and nothing is asked any more."""
    limits = Limits(cpu_seconds=0.1, idle_seconds=9, memory_mib=256, calls=3, whole=5)
    with (
        Sandbox(submission(attention=softmax("time.sleep(0.2)\nreturn 1")), limits) as sandbox,
        sandbox.group("numpy") as subject,
    ):
        found = [subject.call("attention.softmax", 1) for _ in range(4)]
        assert [outcome.kind for outcome in found] == ["value", "value", "timeout", "timeout"]
        with sandbox.uncounted():
            sandbox.spent.clear()
            assert subject.call("attention.softmax", 1).value == 1
        sandbox.forget_strikes()
        assert subject.call("attention.softmax", 1).value == 1
        last = subject.call("attention.causal_mask", 1)
        assert (last.kind, last.text) == ("timeout", "more than 0.5 s in all calls of this submission together")
