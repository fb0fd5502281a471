"""The images built from the Dockerfile: they grade as root in a default container without a network, Gradescope's as that platform
runs it, and the worker's holds nothing of what is right."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.docker, pytest.mark.slow]


def engine() -> bool:
    return bool(shutil.which("docker")) and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def build(target: str, *more: str, name: str = "", context: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A build of a target of the Dockerfile, as attnlab-test-TARGET or under another name."""
    if not engine():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")
    extra = shlex.split(os.environ.get("DOCKER_BUILD_ARGS", ""))
    network = ["--network=host"] if extra else []
    command = [
        "docker",
        "build",
        *network,
        *extra,
        *more,
        "--target",
        target,
        "-t",
        name or f"attnlab-test-{target}",
        ".",
    ]
    return subprocess.run(command, cwd=context, capture_output=True, text=True)


def built(target: str, *more: str) -> str:
    """An image of a target of the Dockerfile, by its name."""
    done = build(target, *more)
    assert done.returncode == 0, done.stderr[-2000:]
    return f"attnlab-test-{target}"


@pytest.fixture(scope="module")
def image() -> str:
    return built("grader")


def run(
    image: str, *arguments: str, mounts: tuple[str, ...] = (), limits: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    volumes = [part for mount in mounts for part in ("-v", mount)]
    command = ["docker", "run", "--rm", "--network", "none", *limits, *volumes, image, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_image_grades_the_bundled_submission(image, tmp_path):
    """Full marks and a final report, with the fence that a default container allows."""
    tmp_path.chmod(0o777)
    mounts = (f"{ROOT / 'examples' / 'base'}:/submission:ro", f"{tmp_path}:/out")
    done = run(image, "grade", "/submission", "--json", "/out/report.json", mounts=mounts)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["score"], report["final"]) == (100.0, True)


@pytest.mark.parametrize(("memory", "left_out"), [("768m", False), ("420m", True)])
def test_half_a_core_and_little_memory_give_the_same_score(image, tmp_path, memory, left_out):
    """Full marks, final; of what is measured beside it, lengths that the memory does not hold are named before they are tried."""
    tmp_path.chmod(0o777)
    mounts = (f"{ROOT / 'examples' / 'base'}:/submission:ro", f"{tmp_path}:/out")
    limits = ("--memory", memory, "--cpus", "0.5")
    done = run(image, "grade", "/submission", "--measure", "--json", "/out/report.json", mounts=mounts, limits=limits)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["score"], report["final"], report["faults"]) == (100.0, True, {})
    told = {c["id"]: c["output"] for step in report["steps"] for c in step["checks"] if ".cost." in c["id"]}
    assert ("do not fit into memory: n = " in told["step6.cost.memory"]) == left_out
    assert ("are not free here" in told["step6.cost.largest"]) == left_out


def test_the_image_says_what_it_gives(image):
    """Another user, Landlock or seccomp: enough for work that is not trusted."""
    done = run(image, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr


def test_images_are_small_enough_to_be_handed_around(image):
    """Less than 1.6 GB, PyTorch's CPU build included."""
    for name in (image, built("gradescope"), built("worker-cpu")):
        asked = subprocess.run(["docker", "image", "inspect", "-f", "{{.Size}}", name], capture_output=True, text=True)
        assert int(asked.stdout) < 1.6e9, name


@pytest.mark.parametrize("target", ["worker-cpu", "worker-gpu"])
def test_a_workers_image_holds_no_reference_and_no_grader(target):
    look = (
        "import importlib.util as u, pathlib, harness, torch; assert not any(map(u.find_spec, ('reference', 'grader', 'rubrics')));"
        "own = pathlib.Path(torch.__file__).parent;"  # torch has folders of that name too
        "print(*[p for r in ('/opt', '/autograder', '/work') for p in pathlib.Path(r).rglob('*') if p.name in ('reference', 'grader', 'rubrics', 'lab.yaml') and own not in p.parents])"
    )
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python", built(target), "-P", "-c", look]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_gradescopes_image_is_rehearsed_as_the_platform_runs_it(tmp_path):
    """768 MB, half a CPU: the base in full, the template with nothing, a fault by its name, and this host says the same of each."""
    from click.testing import CliRunner

    from grader.course.cli import rehearse_command

    cases = {
        "base": ("examples/base", ""),
        "fault": ("examples/one_mistake", "codes = ['softmax-wrong-axis']\nsteps = [1]\n"),
    }
    cases["template"] = ("student_template", "score = 0\nsteps = [1]\nalone = true\ncodes = ['file-missing']\n")
    for name, (source, page) in cases.items():
        shutil.copytree(ROOT / source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        if page:
            (tmp_path / name / "case.toml").write_text(page)
    done = CliRunner().invoke(rehearse_command, [built("gradescope"), str(tmp_path), "--time-limit", "240", "--host"])
    assert (done.exit_code, done.output.count("✓")) == (0, 3), done.output
    assert "100 of 100, host 100 " in done.output and re.search(r"✓ fault +([\d.]+) of 100, host \1 ", done.output)


def test_gradescopes_image_takes_a_courses_own_tests_and_says_where_one_is_missing(tmp_path):
    """A rubric's own tests go in beside it; without them the build ends, and names the line."""
    for name in ("harness", "reference", "grader", "rubrics", "student_template", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("Dockerfile", ".dockerignore", "constraints.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    rubric = (ROOT / "rubrics" / "lab.yaml").read_text() + "\ntests: [test_ours.py]\n"
    (tmp_path / "ours.yaml").write_text(rubric)
    (tmp_path / "test_ours.py").write_text("import unittest\n\n\nclass Ours(unittest.TestCase):\n    pass\n")
    without = build("gradescope", "--build-arg", "RUBRIC=ours.yaml", context=tmp_path)
    assert without.returncode != 0
    assert "test_ours.py cannot be read" in without.stdout + without.stderr
    own = ("--build-arg", "RUBRIC=ours.yaml", "--build-arg", "OWN_TESTS=test_ours.py")
    done = build("gradescope", *own, name="attnlab-test-own-tests", context=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = run("attnlab-test-own-tests", "sh", "-c", "cd source && ls *.yaml test_*")
    assert shown.stdout.split() == ["rubric.yaml", "test_ours.py"]


def test_a_python_is_brought_along_where_an_image_has_none(image):
    """A base without any Python gets an environment with one that the grader runs on."""
    script = ROOT / "grader" / "release" / "image" / "python.sh"
    shell = "/python.sh /opt/attnlab >/dev/null 2>&1; /opt/attnlab/bin/python -c 'import sys; print(sys.version_info[:2] >= (3, 11))'"
    command = [
        "docker",
        "run",
        "--rm",
        "--network",
        "host",
        "-v",
        f"{script}:/python.sh:ro",
        "debian:bookworm-slim",
        "bash",
        "-c",
        shell,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
