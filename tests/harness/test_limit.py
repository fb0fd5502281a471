"""An endless loop in a student's own run ends with the limit that holds where it is graded, and says where."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from harness import limit, mistakes
from harness.course import Limits
from harness.hints import Hints
from harness.local import Held, public_checks, run_check
from harness.subject import Call, LocalSubject
from harness.table import told
from harness.values import Callback
from tests.conftest import BASE

QUICK = Limits(cpu_seconds=0.2, import_seconds=0.2)
STUBBORN = """
def causal_mask(n_queries, n_keys=None):
    while True:
        try:
            while True:
                pass
        except Exception:
            pass
"""


def limited(folder: Path) -> Held:
    subject = Held(folder)
    subject.limits = QUICK
    return subject


def test_an_endless_call_is_a_timeout_with_its_line(submission) -> None:
    """The function is not called again, and the next one is."""
    subject = limited(submission(attention=(BASE / "attention.py").read_text() + STUBBORN))
    outcome = subject.call("attention.causal_mask", 3)
    assert (outcome.kind, outcome.text) == ("timeout", "more than 0.2 s of CPU in one call")
    assert outcome.frames[-1].line >= 5
    assert subject.call("attention.causal_mask", 4) is outcome
    assert subject.call("attention.sinusoidal_positions", 3, 4).ok


def test_a_call_that_waits_ends_too(submission) -> None:
    """Whatever it waits for: after six times as long, by the clock on the wall."""
    subject = limited(
        submission(attention="import time\ndef causal_mask(n_queries, n_keys=None):\n    time.sleep(99)\n")
    )
    assert subject.call("attention.causal_mask", 3).text == "more than 1.2 s of time in one call"


def test_an_endless_import_says_so_once(submission) -> None:
    """With the file and the line, for every function of the file; it is not imported again."""
    subject = limited(submission(attention="while True:\n    pass\n"))
    outcomes = [subject.call(f"attention.{name}", 3) for name in ("causal_mask", "softmax")]
    for outcome in outcomes:
        assert outcome.code == "import-failed"
        assert outcome.text.endswith(": more than 0.2 s of CPU while it is imported")
        assert outcome.text.startswith("attention.py, line ")


def test_a_loop_around_what_is_lent_is_the_borrowers(submission) -> None:
    """A call within a call ends with the outer one: what was called is not blamed, and is called again."""
    text = "from attention import causal_mask\ndef kv_cache_bytes(*sizes):\n    while True:\n        causal_mask(2)\n"
    own = limited(submission(kv_cache=text))
    with own.lend(
        {"attention": {"causal_mask": Callback(lambda n: own.call("attention.causal_mask", n).value)}}
    ) as borrower:
        assert borrower.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).kind == "timeout"
    assert list(own.over) == ["kv_cache.kv_cache_bytes"]
    assert own.call("attention.causal_mask", 2).ok


def test_without_limits_nothing_is_set(submission) -> None:
    """And what was set before a call is there again after it."""
    before = signal.getsignal(signal.SIGPROF)
    assert LocalSubject(submission()).call("attention.causal_mask", 2).ok
    assert limited(submission()).call("attention.causal_mask", 2).ok
    assert signal.getsignal(signal.SIGPROF) is before
    assert not limit.running()


def test_a_watching_thread_ends_a_loop_where_there_are_no_signals() -> None:
    """As on Windows."""
    with pytest.raises(limit.TimeLimit, match=r"more than 0\.1 s of CPU"), limit._by_watching(0.1):
        while True:
            pass


def test_the_limit_is_one_mistake_of_its_function(submission) -> None:
    """Named with the line, however many checks fail for it."""
    subject = limited(submission(attention=(BASE / "attention.py").read_text() + STUBBORN))
    done: dict = {}
    results = [
        run_check(check, subject, done)
        for check in public_checks({7})
        if {*check.functions} == {"attention.causal_mask"}
    ]
    hints = Hints(subject)
    found = mistakes.mistakes(told(r, hints.on(r) if r.status == "failed" else None) for r in results)
    assert [mistake.name for mistake in found] == ["causal_mask: Too slow"]
    assert "attention.py:" in found[0].text


def test_an_import_may_take_longer_than_a_call(submission) -> None:
    """It has a limit of its own, as where it is graded."""
    slow = "import time\n_until = time.process_time() + 0.3\nwhile time.process_time() < _until: pass\n"
    subject = Held(submission(attention=slow + (BASE / "attention.py").read_text()))
    subject.limits = Limits(cpu_seconds=0.2, import_seconds=20)
    assert subject.ask(Call("attention.causal_mask", (2,)))[0].ok


@pytest.mark.slow
def test_correct_code_knows_no_limit(tmp_path: Path) -> None:
    """Every public check of a step passes under the contract's limits."""
    shutil.copytree(BASE, tmp_path / "lab")
    subject = Held(tmp_path / "lab")
    subject.limits = Limits()
    done: dict = {}
    assert {run_check(check, subject, done).status for check in public_checks({7})} == {"passed"}
