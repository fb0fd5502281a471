"""What a group cannot do, layer by layer, and what becomes of it when the judge ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from grader.sandbox import Limits, Sandbox, SandboxError, fencing, probe
from harness.hosting.host import Worker
from harness.values import Callback
from tests.processes import all_end, family_of

pytestmark = pytest.mark.slow

QUICK = Limits(cpu_seconds=2, idle_seconds=1.5, memory_mib=256, output_mib=1, folder_mib=16, folder_files=500, calls=3)
HEAD = "import ctypes, errno, fcntl, os, signal, socket, sys, time\nimport numpy as np\nLIBC = ctypes.CDLL(None, use_errno=True)\n"


def softmax(body: str, before: str = "") -> str:
    return f"{HEAD}{before}\ndef softmax(x, axis=-1):\n{textwrap.indent(body, '    ')}\n\ndef causal_mask(n_queries, n_keys=None):\n    return 'still here'\n"


def answer(submission, body: str, *args: object):
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        return subject.call("attention.softmax", *(args or (1,))), sandbox


# What is tried, and the error that it must meet (None: it goes well, since honest code needs it).
TRIED = {
    "open('/etc/shadow')": "EACCES",
    "open('/tmp/x', 'w')": "EACCES",
    "open('/dev/shm/x', 'w')": "EACCES",
    "os.listdir('/tmp')": "EACCES",
    "os.listdir('/proc')": "EACCES",
    "os.listdir(f'/proc/{os.getppid()}')": "EACCES",
    "os.listdir(os.path.dirname(os.path.dirname(os.getcwd())))": "EACCES",
    "os.chmod('.', 0o777)": "EPERM",
    "os.utime('.')": "EPERM",
    "os.truncate('attention.py', 0)": "EPERM",
    "socket.socket()": "EPERM",
    "socket.socket(socket.AF_UNIX)": "EPERM",
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)": "EPERM",
    "os.execv('/bin/true', ['true'])": ("EPERM", "EACCES"),
    "os.memfd_create('x')": "EPERM",
    "os.setpriority(os.PRIO_PROCESS, os.getppid(), 1)": "EPERM",
    "os.sched_setaffinity(os.getppid(), {0})": "EPERM",
    "os.kill(12345678, 0)": "EPERM",
    "os.pidfd_open(os.getppid())": "EPERM",
    "os.setuid(0) if os.getuid() else os.setuid(1)": "EPERM",
    "fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())": "EPERM",
    "fcntl.fcntl(1, 15, b'12345678')": "EPERM",
    "fcntl.fcntl(1, fcntl.F_SETSIG, 9)": "EPERM",
    "fcntl.fcntl(os.open('attention.py', 0), fcntl.F_SETLEASE, fcntl.F_RDLCK)": "EPERM",
    "fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, 1)": "EPERM",
    "fcntl.ioctl(1, 0x8901, b'1234')": "EPERM",
    "fcntl.ioctl(1, 0x8902, b'1234')": "EPERM",
    "fcntl.fcntl(1, fcntl.F_GETFL)": None,
    "fcntl.fcntl(1, fcntl.F_DUPFD, 20)": None,
    "fcntl.lockf(open('written', 'w'), fcntl.LOCK_EX)": None,
    "socket.socketpair()": None,
    "os.listdir('/proc/self')": None,
    "open('written', 'w').write('x')": None,
    "open(os.environ['TMPDIR'] + '/written', 'w').write('x')": None,
    "os.sched_getaffinity(0)": None,
    "os.kill(os.getpid(), 0)": None,
    "__import__('threading').Thread(target=print).start()": None,
    "os._exit(0) if os.fork() == 0 else os.wait()": None,
}


@pytest.mark.parametrize("what", TRIED)
def test_a_system_call_is_let_through_or_refused(submission, what):
    """What honest code needs works; what reaches outside is refused, and the group goes on."""
    body = f"try:\n    {what}\nexcept OSError as error:\n    return errno.errorcode[error.errno]"
    wanted = TRIED[what]
    outcome, sandbox = answer(submission, body)
    assert outcome.kind == "value"
    assert outcome.value in (wanted if isinstance(wanted, tuple) else (wanted,))
    assert sandbox.integrity == []


@pytest.mark.parametrize(
    "call",
    [
        "LIBC.ptrace(16, os.getppid(), 0, 0)",
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "LIBC.process_vm_readv(1, 0, 0, 0, 0, 0)",
    ],
)
def test_reaching_for_another_process_ends_the_group_and_is_told_to_staff(submission, call):
    """No honest library does it."""
    outcome, sandbox = answer(submission, call)
    assert outcome.kind == "crashed"
    assert len(sandbox.integrity) == 1


def test_nothing_of_the_judge_can_be_read(submission):
    """Neither its packages, nor its rubrics and tests, nor the submission of another."""
    import grader
    import reference
    import rubrics

    paths = [str(Path(module.__path__[0])) for module in (grader, reference, rubrics)] + [
        str(Path(__file__).parents[1])
    ]
    body = f"found = []\nfor path in {paths!r}:\n    try: found.append(os.listdir(path))\n    except OSError: pass\nreturn found"
    assert answer(submission, body)[0].value == []


def test_torch_cannot_be_read_where_it_may_not_be_used(submission):
    """Its files are out of reach, however they are asked for."""
    torch = pytest.importorskip("torch")
    body = f"try: return os.listdir({str(Path(torch.__file__).parent)!r})\nexcept PermissionError: return 'refused'"
    assert answer(submission, body)[0].value == "refused"


def test_a_folder_has_a_size_and_a_number_of_files(submission):
    """Writing on is refused or ends the call; afterwards nothing of it is there."""
    for body in (
        "for i in range(40): open(f'{i}', 'wb').write(bytes(2**20))",
        "for i in range(2000): open(f'{i}', 'w').close()",
    ):
        outcome, sandbox = answer(submission, f"{body}\ntime.sleep(1)")
        assert outcome.kind in ("raised", "output-flood")
        assert not sandbox._scratch.exists()


def test_without_a_folder_in_memory_what_is_written_is_watched(submission, monkeypatch):
    """The judge looks at a folder on disk from time to time, and cleans it however deep it is."""
    greet = Worker.greet

    def without(self: object) -> None:
        greet(self)  # type: ignore[arg-type]
        self.about["layers"].remove("folder") if "folder" in self.about["layers"] else None  # type: ignore[attr-defined]

    monkeypatch.setattr(Worker, "greet", without)
    writes = "i = 0\nwhile True:\n    i += 1\n    open(f'{i}', 'w').close()"
    deep = "for i in range(1200):\n    os.mkdir('d'); os.chdir('d')\nreturn 1"
    assert answer(submission, writes)[0].kind == "output-flood"
    outcome, sandbox = answer(submission, f"try:\n{textwrap.indent(deep, '    ')}\nexcept OSError: return 2")
    assert outcome.kind in ("value", "output-flood")
    assert not sandbox._scratch.exists()


@pytest.mark.parametrize(
    "fate", ["time.sleep(600)", "while True: pass", "signal.pthread_sigmask(0, range(1, 65)); time.sleep(600)"]
)
def test_whatever_a_group_left_behind_is_gone_with_it(submission, fate):
    """Processes of a double fork, busy ones, and those that take no signal."""
    body = f"for _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            {fate}\n        os._exit(0)\n    os.wait()\nreturn 1"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox:
        with sandbox.group("numpy") as other:
            assert other.call("attention.causal_mask", 1).value == "still here"
            with sandbox.group("numpy") as subject:
                assert subject.call("attention.softmax", 1).value == 1
            worker = sandbox.worker("numpy").pid
            assert len(Path(f"/proc/{worker}/task/{worker}/children").read_text().split()) == 1
            assert other.call("attention.causal_mask", 1).value == "still here"


def test_a_group_that_closes_its_wire_is_not_waited_for(submission):
    """It is ended, and the worker serves on."""
    with (
        Sandbox(submission(attention=softmax("os.close(3)\ntime.sleep(600)")), QUICK) as sandbox,
        sandbox.group("numpy") as subject,
    ):
        assert subject.call("attention.softmax", 1).kind == "crashed"
        assert subject.call("attention.causal_mask", 1).value == "still here"
        assert sandbox.integrity == []


@pytest.mark.parametrize("size, kind", [(2**20, "value"), (5 * 2**20, "out-of-memory")])
def test_a_result_too_large_to_hand_over_is_out_of_memory(submission, size, kind):
    """8 MiB cross; 40 do not, and the process lives on."""
    with (
        Sandbox(submission(attention=softmax(f"return np.ones({size})")), QUICK) as sandbox,
        sandbox.group("numpy") as subject,
    ):
        assert subject.call("attention.softmax", 1).kind == kind
        assert subject.call("attention.causal_mask", 1).value == "still here"


def test_all_calls_of_a_function_together_have_a_limit(submission):
    """A call of a second each goes on until three times the CPU seconds of one are used."""
    body = "until = time.process_time() + 1\nwhile time.process_time() < until: pass\nreturn 1"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        kinds = [subject.call("attention.softmax", 1).kind for _ in range(9)]
        assert kinds[:5] == ["value"] * 5
        assert kinds[-1] == "timeout"
        assert subject.call("attention.causal_mask", 1).value == "still here"


@pytest.mark.parametrize(
    "body", ["while True:\n    try: x(1)\n    except Exception: pass", "while True: time.sleep(0.5); x(1)"]
)
def test_calling_back_without_end_is_a_timeout(submission, body):
    """Neither many calls of a lent function nor pauses between them keep a call alive."""
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", Callback(lambda n: n)).kind == "timeout"


@pytest.mark.parametrize("sent", ["2", "'text'", "None", "np.ones(3), np.ones(3)", "*range(50)"])
def test_a_lent_function_called_wrongly_raises_in_the_submission(submission, sent):
    """As it would in one process; nobody is accused, and the judge goes on."""
    body = f"try: x({sent})\nexcept Exception as error: return type(error).__name__"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.softmax", Callback(lambda a: a.shape[0] / 0))
        assert outcome.value in ("TypeError", "RuntimeError")
        assert sandbox.integrity == []


def test_a_lent_function_asked_for_too_much_raises_memory_error(submission):
    """What the judge does for a submission has a bound on its memory."""
    body = "try: x(60_000)\nexcept MemoryError: return 'refused'"
    with Sandbox(submission(attention=softmax(body)), QUICK) as sandbox, sandbox.group("numpy") as subject:
        asked = subject.call("attention.softmax", Callback(lambda n: np.ones((n, n))))
        assert asked.value == "refused"


def test_a_forged_code_is_no_finding(submission):
    """A submission cannot have the judge speak of what it has not found."""
    body = (
        "import msgspec, struct\n"
        "frame = msgspec.msgpack.encode({'is': 'outcome', 'kind': 'missing', 'value': None, 'echo': [], 'code': 'x', 'type': '', 'text': '', 'frames': []})\n"
        "os.write(3, struct.pack('<I', len(frame)) + frame)\ntime.sleep(5)"
    )
    outcome, sandbox = answer(submission, body)
    assert (outcome.kind, outcome.code) == ("crashed", "")
    assert len(sandbox.integrity) == 1


def test_a_temporary_file_is_a_submissions_to_make(submission):
    """An honest one may spill to disk, by the module that everybody uses for it."""
    body = "import tempfile\nwith tempfile.TemporaryFile() as f: return f.write(b'four')"
    assert answer(submission, body)[0].value == 4


_JUDGE = """
import sys, time
from pathlib import Path
from grader.sandbox import Sandbox

with Sandbox(Path(sys.argv[1])) as sandbox, sandbox.group(sys.argv[2]) as subject:
    print(sandbox.worker(sys.argv[2]).pid, flush=True)
    print(subject.call("attention.softmax", 1).kind, flush=True)
    time.sleep(float(sys.argv[3]))
"""
_LEAVES = "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\nos.wait()\n"


@pytest.mark.parametrize("when", ["starting", "asking", "between"])
def test_a_killed_judge_leaves_no_worker(submission, when):
    """At any moment: the worker, the group, and what the group left in the background are gone soon after."""
    folder = submission(attention=softmax(_LEAVES + ("time.sleep(600)" if when == "asking" else "return 1")))
    judge = subprocess.Popen(
        [sys.executable, "-c", _JUDGE, str(folder), "numpy", "600"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert judge.stdout is not None
    if when != "starting":
        judge.stdout.readline()
    if when == "between":
        assert judge.stdout.readline() == "value\n"
    family = family_of(judge.pid, at_least=1 if when == "starting" else 3)
    os.kill(judge.pid, signal.SIGKILL)
    judge.wait()
    judge.stdout.close()
    assert all_end(family, 10.0)


def test_too_few_layers_are_refused(submission, monkeypatch):
    """Without another user and without Landlock nothing is graded, unless the submission is trusted."""
    monkeypatch.setattr(fencing, "expected", lambda: ["seccomp", "limits"])
    with pytest.raises(SandboxError, match="--trust-submission"), Sandbox(submission(), QUICK):
        pass
    with Sandbox(submission(), QUICK, trust=True) as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.causal_mask", 2).ok


@pytest.mark.parametrize(
    "layers, enough",
    [
        (["landlock", "uid"], True),
        (["landlock", "seccomp"], True),
        (["landlock"], False),
        (["seccomp"], False),
        ([], False),
    ],
)
def test_which_layers_are_enough(layers, enough):
    """Landlock, and another user or a filter of system calls beside it."""
    assert (fencing.lacks(layers) == "") == enough


def test_without_landlock_file_modes_must_keep_the_judge_apart(monkeypatch):
    """Another user alone is enough only where it cannot read the judge's packages."""
    for readable in (True, False):
        monkeypatch.setattr(fencing, "open_to_all", lambda path, readable=readable: readable)
        assert (fencing.lacks(["uid"]) == "") == (not readable)


def test_a_probe_tells_every_layer():
    """By name, with whether they are enough."""
    found = probe()
    assert set(found["layers"]) == set(fencing.LAYERS)
    assert found["enough"] == (found["lacks"] == "")


def test_users_are_those_of_nobody():
    """Each is free, and two judges hardly ever choose the same."""
    one, other = fencing.free_users(), fencing.free_users()
    assert len(set(one)) == 100
    assert not set(one) & {entry.stat().st_uid for entry in os.scandir("/proc") if entry.name.isdigit()}
    assert one != other


def test_a_submission_that_hangs_everywhere_is_not_given_all_the_time_everywhere(submission):
    """After two timeouts a further call gets a fifth of the CPU seconds, and is told that number."""
    loop = "def {}(*a, **k):\n    while True: pass\n"
    code = "".join(loop.format(name) for name in ("softmax", "project", "self_attention"))
    limits = Limits(cpu_seconds=1, idle_seconds=5)
    with Sandbox(submission(attention=code), limits) as sandbox, sandbox.group("numpy") as subject:
        outcomes = [
            subject.call("attention.softmax", 1),
            subject.call("attention.project", 1, 1, 1, 1),
            subject.call("attention.self_attention", 1, 1, 1, 1),
        ]
    assert [o.kind for o in outcomes] == ["timeout"] * 3
    assert [o.text for o in outcomes] == [f"more than {n} s of CPU in one call" for n in ("1", "1", "0.2")]
