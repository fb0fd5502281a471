"""A worker in a container answers as one on this machine does, over one stream, and cannot stop the judge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from grader.cli import grade_command
from grader.sandbox import Image, Limits, Sandbox, SandboxError, container
from harness.values import Callback
from tests.test_docker import built

QUICK = Limits(cpu_seconds=2, idle_seconds=1.5, memory_mib=256, output_mib=1, calls=3)


class Piped:
    """The bridge as a process of this machine: what a container adds is its walls."""

    def __init__(self, image: Image, submission: Path) -> None:
        boot = f"from pathlib import Path; import harness.hosting.bridge as b; b.SUBMISSION = Path({str(submission)!r}); b.main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin and self.process.stdout
        self.source, self.sink = self.process.stdout.fileno(), self.process.stdin.fileno()

    def read(self) -> bytes | None:
        return os.read(self.source, 2**18) or None

    def complaint(self) -> str:
        return ""

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def opened(monkeypatch, submission):
    """A sandbox over the piped bridge, of a submission whose softmax is this."""
    monkeypatch.setattr(container, "_Docker", Piped)

    def open_(body: str) -> Sandbox:
        text = "import os, sys, time\nimport numpy as np\n\ndef softmax(x, axis=-1):\n    " + body.replace(
            "\n", "\n    "
        )
        text += "\n\ndef causal_mask(n_queries, n_keys=None):\n    return 'still here'\n"
        return Sandbox(submission(attention=text), QUICK, trust=True, image=Image("piped"))

    return open_


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return x", "value"),
        ("raise ValueError('no')", "raised"),
        ("os._exit(3)", "crashed"),
        ("while True: pass", "timeout"),
        ("time.sleep(60)", "timeout"),
        ("while True: print('x' * 1000)", "output-flood"),
        ("return np.ones((2**20, 60))", "out-of-memory"),
        ("os.close(3)", "crashed"),
        ("while True: os.write(3, b'\\xff' * 4096)", "crashed"),
    ],
)
def test_a_call_ends_as_it_does_on_this_machine(opened, body, kind):
    """Whatever one call does, the next group is answered."""
    with opened(body) as sandbox:
        with sandbox.group("numpy") as subject:
            assert subject.call("attention.softmax", np.ones(2)).kind == kind
        with sandbox.group("numpy") as subject:
            assert subject.call("attention.causal_mask", 2).value == "still here"


def test_values_of_any_size_and_functions_of_the_judge_cross(opened):
    """Twenty megabytes there and back, and a call back to the judge from within."""
    x = np.arange(2_500_000, dtype=np.float64)
    asked: list[float] = []
    with opened("return x(2.0) if callable(x) else x") as sandbox, sandbox.group("numpy") as subject:
        assert np.array_equal(subject.call("attention.softmax", x).value, x)
        assert subject.call("attention.softmax", Callback(lambda v: asked.append(v) or 7.0)).value == 7.0
        assert asked == [2.0]
        assert "container" in sandbox.layers


def test_a_flood_between_calls_is_dropped_and_stops_nobody(opened):
    """A thread that goes on writing after its call is answered fills no memory of the judge and delays no end."""
    body = (
        "import threading\nflood = lambda: [os.write(3, b'\\x00' * 65536) for _ in range(10**6)]\n"
        "threading.Thread(target=flood, daemon=True).start()\nreturn 1"
    )
    with opened(body) as sandbox:
        with sandbox.group("numpy") as subject:
            subject.call("attention.softmax", 1)
        with sandbox.group("numpy") as subject:
            assert subject.call("attention.causal_mask", 2).value == "still here"


def test_a_bridge_that_ends_is_the_graders_own_fault(opened):
    """A container that dies is no fault of the submission's: the sandbox says which image, and how to build it."""
    with opened("return x") as sandbox:
        assert sandbox.container is not None
        sandbox.container._stream.process.kill()  # type: ignore[attr-defined]
        with pytest.raises(SandboxError, match="docker build --target worker-cpu"), sandbox.group("numpy") as subject:
            subject.call("attention.softmax", 1)


def test_what_is_no_bridge_is_said_at_once(monkeypatch, submission):
    """An image that prints something of its own is told by name; what it prints is never waited for, or kept, as a frame."""

    class Prints(Piped):
        def __init__(self, image: Image, submission: Path) -> None:
            self.process = subprocess.Popen(["yes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self.process.stdin and self.process.stdout
            self.source, self.sink = self.process.stdout.fileno(), self.process.stdin.fileno()

    monkeypatch.setattr(container, "_Docker", Prints)
    with Sandbox(submission(), QUICK, image=Image("yes")) as sandbox:
        with pytest.raises(SandboxError, match="yes does not run a worker"), sandbox.group("numpy") as subject:
            subject.call("attention.softmax", 1)


def test_a_worker_that_dies_between_checks_loses_no_verdict(opened):
    """Letting go of what is kept raises nothing: the check before it has been judged."""
    with opened("return x") as sandbox, sandbox.group("numpy") as subject:
        assert subject.call("attention.softmax", 1.5).value == 1.5
        assert sandbox.container is not None
        sandbox.container._stream.process.kill()  # type: ignore[attr-defined]
        subject.forget()


@pytest.mark.parametrize(
    ("image", "host", "words"),
    [
        ("attnlab-worker", "unix:///nowhere.sock", "no Docker engine answers"),
        ("worker.sif", None, "needs Apptainer" if not shutil.which("apptainer") else "there is no file worker.sif"),
    ],
)
def test_what_is_missing_is_said_with_its_mend(submission, monkeypatch, image, host, words):
    """No engine, no program: one sentence, before anything of the submission runs."""
    if host:
        monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxError, match=words), Sandbox(submission(), image=Image(image)):
        pass


def test_a_missing_package_is_said_with_its_mend(submission, monkeypatch):
    """The grader is installed without Docker's package by default."""
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxError, match=r"attnlab-grader\[docker\]"), Sandbox(submission(), image=Image("x")):
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpus", "all"], "name one with --container"),
        (["--container", "x", "--device", "cuda"], "say --gpus all"),
    ],
)
def test_options_that_say_half_are_refused(submission, options, words):
    """Exit 2, with what is missing."""
    done = CliRunner().invoke(grade_command, [str(submission()), *options])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split()).replace("│ ", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "nvidia-container-toolkit"),
        ('exec: "python": executable file not found in $PATH', "holds no python"),
        ("something else", "Docker refused to start x: something else"),
    ],
)
def test_what_an_engine_says_comes_with_the_mend(text, words):
    """The engine's own words stay, behind what to do about them."""
    assert words in container._refused(Image("x"), text)


# -- a real engine ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker_image() -> str:
    return built("worker-cpu")


@pytest.mark.docker
@pytest.mark.slow
def test_the_bundled_submission_gets_all_points_in_a_container(worker_image, tmp_path):
    """The same grade as on this machine; the report says where it ran."""
    from grader.grade import grade
    from grader.rubric import load_rubric

    report = grade(Path("examples/base"), rubric=load_rubric(), image=Image(worker_image))
    assert report.score == 100.0
    assert report.environment["container"] == worker_image
    assert {"landlock", "seccomp", "limits", "container"} <= set(report.environment["fence"].split(", "))


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    "tried",
    [
        "open('/x', 'w')",
        "open('/tmp/x', 'w')",
        "open('/submission/x', 'w')",
        "os.listdir('/proc/1')",
        "__import__('reference')",
        "__import__('grader')",
        "__import__('socket').socket()",
        "os.setuid(0)",
    ],
)
def test_nothing_is_reached_from_within(worker_image, submission, tried):
    """Files, the judge, the network, another user: each is refused."""
    text = f"import os\n\ndef softmax(x, axis=-1):\n    {tried}\n"
    with Sandbox(submission(attention=text), image=Image(worker_image)) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.softmax", 1)
        assert outcome.kind == "raised"
        assert outcome.type in ("OSError", "PermissionError", "ModuleNotFoundError")


@pytest.mark.docker
@pytest.mark.slow
def test_an_image_that_is_not_there_is_said(worker_image, submission):
    """With the command that builds it."""
    with pytest.raises(SandboxError, match="docker build --target worker-cpu -t no-such-image"):
        with Sandbox(submission(), image=Image("no-such-image")):
            pass
