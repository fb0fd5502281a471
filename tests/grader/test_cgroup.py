"""The kernel holds a whole family to its memory and its processes, where the judge may make control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.sandbox import Limits, Sandbox, cgroup
from grader.sandbox.cgroup import Enclosure, homes

MIB = 2**20
needs_groups = pytest.mark.skipif(not cgroup._homes(), reason="this machine lets the judge make no control group")


def left() -> set[Path]:
    return {path for home, _ in cgroup._homes().values() for path in home.glob(f"attnlab-{os.getpid()}-*")}


@pytest.mark.parametrize("enabled, found", [("cpu memory pids", {"memory", "pids"}), ("cpu", set())])
def test_one_tree_gives_what_it_passes_on(tmp_path, enabled, found):
    """Version 2: only controllers that a group hands to those below it."""
    home = tmp_path / "scope"
    home.mkdir()
    (home / "cgroup.subtree_control").write_text(enabled)
    expected = {"memory": (home, "memory.max"), "pids": (home, "pids.max")}
    assert homes(tmp_path, "0::/scope\n") == {name: expected[name] for name in found}


def test_a_tree_each_gives_each_controller(tmp_path):
    """Version 1: a folder a controller; one that may not be written gives nothing."""
    (tmp_path / "memory" / "judge").mkdir(parents=True)
    own = "9:pids:/nowhere\n4:memory:/judge\n3:cpu:/\n0::/\n"
    assert homes(tmp_path, own) == {"memory": (tmp_path / "memory" / "judge", "memory.limit_in_bytes")}


@needs_groups
def test_a_family_is_ended_by_the_kernel():
    """Eight processes of 32 MiB each do not fit into 128 MiB; each alone would."""
    family = (
        "import os, sys; sys.stdin.readline(); [os.fork() for _ in range(3)]; b = bytearray(32 << 20); print(len(b))"
    )
    process = subprocess.Popen([sys.executable, "-c", family], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    enclosure = Enclosure(process.pid, 128 * MIB, 64)
    assert enclosure.layers == ["cgroup"]
    assert not enclosure.ended_for_memory()
    out, _ = process.communicate(b"go\n")
    assert len(out.split()) < 8
    assert enclosure.ended_for_memory()
    enclosure.remove()
    assert left() == set()


@needs_groups
def test_a_group_of_checks_is_enclosed_and_leaves_none(submission):
    """The limits are the rubric's; folders are gone with the group."""
    before = left()
    with Sandbox(submission(), Limits(memory_mib=300, folder_mib=20, processes=7)) as sandbox:
        with sandbox.group("numpy") as subject:
            assert subject.call("attention.causal_mask", 2).ok
            read = {f.name: int(f.read_text()) for folder in left() - before for f in folder.iterdir()
                    if f.name in ("memory.max", "memory.limit_in_bytes", "pids.max")}  # fmt: skip
            assert set(read.values()) == {(300 + 20 + 256) * MIB, 7}
            assert "cgroup" in sandbox.layers
        assert left() == before
