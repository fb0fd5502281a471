"""What a call costs is read from the kernel's clock of the submission's process, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from grader.measure import clock
from grader.measure.clock import EMPTY, Estimate
from grader.sandbox import Sandbox
from harness.check import Fail
from harness.subject import Call, Clocks, LocalSubject, Outcome
from harness.values import Handle

WORK = Call("attention.softmax", ([1.0],))


class Scripted:
    """A subject whose calls cost what a script says, on top of what any call costs."""

    def __init__(self, costs: Iterator[float], empty: float = 0.25, kind: str = "value") -> None:
        self.costs, self.empty, self.kind = costs, empty, kind
        self.cpu = 100.0
        self.asked: list[Call] = []

    def clocks(self) -> Clocks:
        return Clocks(self.cpu)

    def ask(self, *calls: Call) -> list[Outcome]:
        self.asked += calls
        for call in calls:
            self.cpu += self.empty + (0 if call.name == "@drop" else next(self.costs))
        return [Outcome(self.kind if call.name != "@drop" else "value", value=Handle(5)) for call in calls]

    def call(self, name: str, *args: object) -> Outcome:
        return self.ask(Call(name, args))[0]


def test_the_cost_of_being_asked_is_taken_off():
    """Whatever an empty call costs is no part of the estimate."""
    found = clock.cpu_seconds(Scripted(iter([2.0, 2.0, 2.0])), lambda i: WORK, budget=0.1)
    assert found.readings == (2.0, 2.0, 2.0)


def test_repeats_end_once_the_interval_is_narrow():
    """Five equal readings are enough, and four are not."""
    assert len(clock.cpu_seconds(Scripted(iter([2.0] * 9)), lambda i: WORK, budget=100).readings) == 5


def test_repeats_end_once_the_budget_is_spent():
    """Readings that stay apart cost no more than what was set aside for them, and `least` readings are made anyway."""
    costs = [1.0, 8.0, 1.0, 8.0, 1.0, 8.0, 1.0]
    assert len(clock.cpu_seconds(Scripted(iter(costs)), lambda i: WORK, budget=17).readings) == 4
    assert len(clock.cpu_seconds(Scripted(iter(costs)), lambda i: WORK, budget=0).readings) == 3


def test_results_stay_in_the_worker_and_are_dropped():
    """A timed call is asked to keep its whole result, which is then freed."""
    subject = Scripted(iter([2.0] * 3))
    clock.cpu_seconds(subject, lambda i: WORK, budget=0)
    timed = [call.keep for call in subject.asked if call.name == WORK.name]
    dropped = [call for call in subject.asked if call.name == "@drop" and call != EMPTY]
    assert (timed, [call.args for call in dropped]) == (["whole"] * 3, [([5],)] * 3)


def test_each_repeat_may_have_inputs_of_its_own():
    """`calls` gets the number of the repeat."""
    subject = Scripted(iter([2.0] * 3))
    clock.cpu_seconds(subject, lambda i: Call("attention.softmax", (i,)), budget=0)
    assert [call.args for call in subject.asked if call.name == "attention.softmax"] == [(0,), (1,), (2,)]


def test_a_call_that_fails_is_a_failure_and_no_time():
    """There is nothing to estimate where a call gives no value."""
    with pytest.raises(Fail):
        clock.cpu_seconds(Scripted(iter([2.0]), kind="timeout"), lambda i: WORK)


def test_the_interval_leaves_out_extremes_once_there_are_enough_readings():
    """Five readings: all of them. Nine: all but one at either end. Fifteen: all but three."""
    ends = {n: Estimate(tuple(range(n))).interval for n in (5, 9, 15)}
    assert ends == {5: (0, 4), 9: (1, 7), 15: (3, 11)}


SLEEPS = """
import time
def softmax(x, axis=-1):
    if axis == 0:
        time.sleep(0.2)
    else:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
"""


def test_waiting_is_told_from_working(submission):
    """A call that sleeps has no CPU seconds and is asleep; one that computes has them, and is not."""
    with Sandbox(submission(attention=SLEEPS)) as sandbox, sandbox.group("numpy") as subject:
        subject.call("@import", "attention")
        _, slept = clock.spent(subject, Call("attention.softmax", (1,), {"axis": 0}))
        _, worked = clock.spent(subject, Call("attention.softmax", (1,), {"axis": 1}))
    if slept.asleep is None or worked.asleep is None:
        pytest.skip("this kernel does not say how long a process waited for a core")
    assert slept.cpu < slept.asleep
    assert worked.asleep < worked.cpu


def may_be_moved(process: int) -> bool:
    """Whether the system allows it: a container's root may not, as a rule, where the submission runs as another user."""
    try:
        os.sched_setaffinity(process, os.sched_getaffinity(process))
    except OSError:
        return False
    return True


def test_judge_and_submission_have_a_core_each_while_timing(submission):
    """Disjoint ones, and all of them afterwards, whatever is raised."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    with Sandbox(submission()) as sandbox, sandbox.group("numpy") as subject:
        with pytest.raises(Fail), clock.apart(subject):
            process = subject.clocks().process
            if not may_be_moved(process):
                pytest.skip("this system lets nobody move another user's process: it takes CAP_SYS_NICE")
            ours, theirs = os.sched_getaffinity(0), os.sched_getaffinity(process)
            raise Fail("in the midst of it")
        assert (len(theirs), ours & theirs, ours | theirs) == (1, set(), cores)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(process) == cores


def test_a_submission_in_this_process_stays_with_the_judge(submission):
    """There is nothing to be moved apart."""
    cores = os.sched_getaffinity(0)
    with clock.apart(LocalSubject(submission())):
        assert os.sched_getaffinity(0) == cores
