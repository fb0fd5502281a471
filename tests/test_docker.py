"""The image built from the Dockerfile grades: as root, in a default container, without a network."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.docker, pytest.mark.slow]


def engine() -> bool:
    return bool(shutil.which("docker")) and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def image() -> str:
    if not engine():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")
    extra = shlex.split(os.environ.get("DOCKER_BUILD_ARGS", ""))
    network = ["--network=host"] if extra else []
    build = subprocess.run(
        ["docker", "build", *network, *extra, "-t", "attnlab-test", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert build.returncode == 0, build.stderr[-2000:]
    return "attnlab-test"


def run(image: str, *arguments: str, mounts: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    volumes = [part for mount in mounts for part in ("-v", mount)]
    command = ["docker", "run", "--rm", "--network", "none", *volumes, image, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_image_grades_the_bundled_submission(image, tmp_path):
    """Full marks and a final report, with the fence that a default container allows."""
    tmp_path.chmod(0o777)
    mounts = (f"{ROOT / 'examples' / 'base'}:/submission:ro", f"{tmp_path}:/out")
    done = run(image, "grade", "/submission", "--json", "/out/report.json", mounts=mounts)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["score"], report["final"]) == (100.0, True)


def test_the_image_says_what_it_gives(image):
    """Another user, Landlock or seccomp: enough for work that is not trusted."""
    done = run(image, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
