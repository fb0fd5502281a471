"""Folders of judges that were killed go; those of living ones stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from grader import scratch

OWNER = (
    "import sys\nfrom grader.scratch import Scratch\nprint(Scratch(sys.argv[1]).path, flush=True)\nsys.stdin.read()\n"
)


def test_a_folder_without_a_living_owner_goes_when_the_next_begins(tmp_path: Path, monkeypatch) -> None:
    """A living owner's stays, and so do folders of other names and links."""
    monkeypatch.setattr(scratch, "_YOUNG", 0)
    (tmp_path / "kept").mkdir()
    (tmp_path / "attnlab-scratch-link").symlink_to(tmp_path / "kept")
    owners = [
        subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    folders = [Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout]
    (folders[0] / "deep" / "er").mkdir(parents=True)
    owners[0].send_signal(signal.SIGKILL)
    owners[0].wait()
    with scratch.Scratch(str(tmp_path)) as mine:
        left = sorted(os.listdir(tmp_path))
    owners[1].communicate()
    owners[0].communicate()
    assert left == sorted(["attnlab-scratch-link", "kept", folders[1].name, mine.name])


def test_a_folder_that_was_just_made_is_let_be(tmp_path: Path) -> None:
    """Its owner may be about to lock it."""
    folder = tmp_path / f"{scratch.PREFIX}new"
    folder.mkdir()
    scratch.sweep(tmp_path)
    assert folder.exists()
