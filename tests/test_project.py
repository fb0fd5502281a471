"""What surrounds the code: the licence, the hooks and the workflow say what the project says elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("half", [".", "harness"])
def test_both_halves_are_under_the_licence_that_they_bring(half):
    project = tomllib.loads((ROOT / half / "pyproject.toml").read_text())["project"]
    assert project["license"] == "BSD-3-Clause"
    assert (ROOT / half / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_by_githubs_own_schema(workflow):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(workflow)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_tries_every_python_that_the_project_takes():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    takes = tomllib.loads((ROOT / "harness" / "pyproject.toml").read_text())["project"]["requires-python"]
    tried = jobs["student"]["strategy"]["matrix"]["python"]
    least, beyond = (int(minor) for minor in re.fullmatch(r">=3\.(\d+),<3\.(\d+)", takes).groups())
    assert tried == [f"3.{minor}" for minor in range(least, beyond)]


def test_the_hooks_lint_with_the_version_that_the_tests_lint_with():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    ruff = next(repo["rev"] for repo in hooks if repo["repo"].endswith("ruff-pre-commit"))
    assert f"ruff=={ruff.removeprefix('v')}" in (ROOT / "constraints.txt").read_text().split()
