"""A submission's worker in a container, the judge outside: one container a submission, with nothing of the judge's in it.

The container has no network, a root that cannot be written, no capabilities and no way to new ones, and limits on memory, CPU
and processes; the submission is mounted to be read. The judge speaks to `harness.hosting.bridge` in it over its standard input
and output. Inside, groups are divided as an ordinary user's are: by Landlock, seccomp and limits.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness import wire
from harness.hosting.bridge import SUBMISSION
from harness.hosting.host import Forked, SandboxError
from harness.hosting.mux import Mux

COMMAND = ["python", "-P", "-s", "-B", "-c", "from harness.hosting.bridge import main; main()"]
_LAUNCH = 180.0  # seconds for a container to start and answer
_TAIL = 2000
_PASSED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_SCRATCH_MIB = 256


@dataclass(frozen=True)
class Image:
    """Which container: an image of Docker's, or a file of Apptainer's (.sif), and the GPUs it may use ("all", "0,1")."""

    name: str
    gpus: str = ""
    memory_mib: int = 4096
    cpus: float = 2.0
    processes: int = 256


class Stream(Protocol):
    """A running container's standard input and output."""

    source: int
    sink: int

    def read(self) -> bytes | None: ...
    def complaint(self) -> str: ...
    def close(self) -> None: ...


class Container:
    """One running container for one submission. Raises SandboxError, with the mend, where none can be had."""

    def __init__(self, image: Image, submission: Path) -> None:
        self.image = image
        start: Callable[[Image, Path], Stream] = _Apptainer if image.name.endswith(".sif") else _Docker
        _open_to_all(submission)
        self._stream = start(image, submission)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_LAUNCH)
        self._mux = Mux(self._stream.source, self._stream.sink, self._stream.read, theirs.detach())
        self._channels = itertools.count(1)

    def ask(self, do: str, kind: str, *args: Any) -> Any:
        """One request to the bridge. Raises SandboxError where it fails or nobody answers."""
        try:
            wire.send(self._control, json.dumps({"do": do, "kind": kind, "args": args}).encode())
            reply = json.loads(wire.receive(self._control))
        except (OSError, ValueError, wire.Closed, wire.BadFrame) as error:
            said = self._stream.complaint()
            raise SandboxError(
                f"{self.image.name} does not run a worker ({said or repr(error)}): build it with "
                f"docker build --target worker-cpu -t {self.image.name} ."
            ) from None
        if "error" in reply:
            raise SandboxError(str(reply["error"]))
        return reply["value"]

    def channel(self) -> tuple[int, socket.socket]:
        """A new channel, and the judge's end of it."""
        number = next(self._channels)
        ours, theirs = socket.socketpair()
        self._mux.attach(number, theirs.detach())
        return number, ours

    def worker(self, kind: str) -> ContainerWorker:
        return ContainerWorker(self, kind)

    def close(self) -> None:
        """Ends the container and everything in it."""
        self._control.close()
        self._stream.close()
        self._mux.join(10)


class ContainerWorker:
    """A worker in a container, with the face of harness.hosting.host.Worker."""

    def __init__(self, container: Container, kind: str) -> None:
        self._container, self._kind = container, kind
        self.pid = int(self._ask("prepare"))
        self.about: dict[str, Any] = {}

    def _ask(self, do: str, *args: Any) -> Any:
        return self._container.ask(do, self._kind, *args)

    def greet(self) -> None:
        if not self.about:
            self.about = self._ask("greet")

    def alive(self) -> bool:
        return not self._ask("has_ended", self.pid)

    def fork(self, source: Path, plan: dict[str, Any], stand_ins: bool) -> Forked:
        """`source` is what the container has had mounted from the start."""
        (wired, link), (spoken, heard) = self._container.channel(), self._container.channel()
        pid = int(self._ask("fork", wired, spoken, plan, stand_ins))
        descriptor = heard.detach()
        os.set_blocking(descriptor, False)
        return Forked(pid, link, descriptor)

    def keep_spare(self, pid: int) -> int:
        return int(self._ask("keep_spare", pid))

    def resume(self, spare: int) -> tuple[Forked, int] | None:
        (wired, link), (spoken, heard) = self._container.channel(), self._container.channel()
        following = self._ask("resume", wired, spoken, spare)
        if following is None:
            link.close()
            heard.close()
            return None
        descriptor = heard.detach()
        os.set_blocking(descriptor, False)
        return Forked(spare, link, descriptor), int(following)

    def end(self, pid: int, uid: int | None) -> int:
        with contextlib.suppress(SandboxError):
            return int(self._ask("end", pid, uid))
        return 0

    def where(self, pid: int) -> None:
        with contextlib.suppress(SandboxError):
            self._ask("where", pid)

    def clean(self, pid: int) -> None:
        with contextlib.suppress(SandboxError):
            self._ask("clean", pid)

    def leave(self) -> None:
        """The container's end is its workers'."""

    def close(self) -> None:
        with contextlib.suppress(SandboxError):
            self._ask("close")

    def cpu(self, pid: int) -> float:
        return float(self._ask("cpu", pid))

    def delay(self, pid: int) -> float:
        return float(self._ask("delay", pid))

    def peak_memory(self, pid: int) -> int | None:
        found = self._ask("peak_memory", pid)
        return None if found is None else int(found)

    def has_ended(self, pid: int) -> bool:
        return bool(self._ask("has_ended", pid))

    def family(self, pid: int, others: list[int], enough: int) -> tuple[int, int, float]:
        count, held, cpu = self._ask("family", pid, others, enough)
        return int(count), int(held), float(cpu)

    def family_cpu(self, others: list[int]) -> float:
        return float(self._ask("family_cpu", others))

    def outgrown(self, pid: int, bytes_: int, files: int) -> bool:
        return bool(self._ask("outgrown", pid, bytes_, files))


# -- engines -----------------------------------------------------------------------------------------------------------


class _Docker:
    """A container of a Docker engine, attached by its API."""

    def __init__(self, image: Image, submission: Path) -> None:
        try:
            import docker
            from docker.errors import APIError, DockerException, ImageNotFound
        except ImportError:
            raise SandboxError(
                "the package docker is missing: python -m pip install 'attnlab-grader[docker]'"
            ) from None
        try:
            self._client = docker.from_env()
            self._client.ping()
        except DockerException as error:
            raise SandboxError(
                f"no Docker engine answers ({str(error)[:200]}): start one (sudo systemctl start docker), or set DOCKER_HOST"
            ) from None
        self._container: Any = None
        try:
            self._container = self._client.containers.create(image.name, COMMAND, **_options(image, submission))
            attached = self._client.api.attach_socket(
                self._container.id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self._socket = getattr(attached, "_sock", attached)
            self._socket.settimeout(None)
            self._container.start()
        except ImageNotFound:
            raise SandboxError(
                f"there is no image {image.name} here: docker build --target worker-cpu -t {image.name} ., or docker pull {image.name}"
            ) from None
        except APIError as error:
            self._remove()
            raise SandboxError(_refused(image, str(error.explanation or error))) from None
        self.source = self.sink = self._socket.fileno()
        self._raw, self._complaint = bytearray(), bytearray()

    def read(self) -> bytes | None:
        """What has come on standard output; the engine puts eight bytes before each part, which say of which stream it is."""
        part = os.read(self.source, 2**18)
        if not part:
            return None
        self._raw += part
        found = bytearray()
        while len(self._raw) >= 8:
            which, length = self._raw[0], struct.unpack(">I", self._raw[4:8])[0]
            if len(self._raw) < 8 + length:
                break
            (found if which == 1 else self._complaint).extend(self._raw[8 : 8 + length])
            del self._raw[: 8 + length]
        del self._complaint[:-_TAIL]
        return bytes(found)

    def complaint(self) -> str:
        return self._complaint.decode(errors="replace").strip()[-300:]

    def close(self) -> None:
        self._remove()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _remove(self) -> None:
        from docker.errors import DockerException

        with contextlib.suppress(DockerException):
            if self._container is not None:
                self._container.remove(force=True)
        self._client.close()


def _options(image: Image, submission: Path) -> dict[str, Any]:
    """How a container is locked down."""
    from docker.types import DeviceRequest, Mount

    user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else "65534:65534"
    options: dict[str, Any] = {
        "entrypoint": [],
        "stdin_open": True,
        "tty": False,
        "init": True,
        "user": user,
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": f"{image.memory_mib}m",
        "memswap_limit": f"{image.memory_mib}m",
        "nano_cpus": int(image.cpus * 1e9),
        "pids_limit": image.processes,
        "tmpfs": {"/tmp": f"rw,nosuid,nodev,noexec,mode=1777,size={_SCRATCH_MIB}m"},
        "mounts": [Mount(str(SUBMISSION), str(submission), type="bind", read_only=True)],
        "environment": {name: os.environ[name] for name in _PASSED if name in os.environ} | {"HOME": "/tmp"},
        "working_dir": "/tmp",
        "labels": {"attnlab": "worker"},
    }
    if image.gpus:
        chosen = {"count": -1} if image.gpus == "all" else {"device_ids": image.gpus.split(",")}
        options["device_requests"] = [DeviceRequest(**chosen, capabilities=[["gpu"]])]
    return options


def _refused(image: Image, text: str) -> str:
    """What an engine says, with the mend."""
    if "could not select device driver" in text or "nvidia-container" in text:
        return (
            "Docker reaches no GPU: install the NVIDIA container toolkit (sudo apt-get install nvidia-container-toolkit; "
            f"sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker), or leave --gpus out ({text[:200]})"
        )
    if "executable file not found" in text:
        return f"{image.name} holds no python: build it with docker build --target worker-cpu -t {image.name} . ({text[:200]})"
    return f"Docker refused to start {image.name}: {text[:300]}"


class _Apptainer:
    """A container of Apptainer's, as clusters with GPUs have it: a process of the judge's own user."""

    def __init__(self, image: Image, submission: Path) -> None:
        program = shutil.which("apptainer") or shutil.which("singularity")
        if program is None:
            raise SandboxError(
                f"{image.name} needs Apptainer, which is not here: load its module, or name a Docker image"
            )
        if not Path(image.name).is_file():
            raise SandboxError(
                f"there is no file {image.name}: apptainer build {image.name} docker-daemon://attnlab-worker:latest"
            )
        command = [program, "exec", "--containall", "--no-home", "--no-privs", "--writable-tmpfs", "--pwd", "/tmp"]
        command += ["--bind", f"{submission}:{SUBMISSION}:ro", *(["--nv"] if image.gpus else [])]
        if os.geteuid() == 0:
            command += ["--net", "--network", "none"]
        environment = dict(os.environ)
        if image.gpus and image.gpus != "all":
            environment["APPTAINERENV_CUDA_VISIBLE_DEVICES"] = image.gpus
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*command, image.name, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self.source, self.sink = self._process.stdout.fileno(), self._process.stdin.fileno()

    def read(self) -> bytes | None:
        return os.read(self.source, 2**18) or None

    def complaint(self) -> str:
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL))
        return self._errors.read().decode(errors="replace").strip()[-300:]

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _open_to_all(folder: Path) -> None:
    """The container's user is another where the judge is root: the clean copy of the submission is made readable."""
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(stat.S_IMODE(mode) | (0o555 if path.is_dir() else 0o444))
