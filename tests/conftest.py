"""What several tests need: the bundled correct submission, and a way to lay files over it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BASE = ROOT / "examples" / "base"


@pytest.fixture
def submission(tmp_path: Path) -> Callable[..., Path]:
    """Makes a submission: the bundled correct one with files laid over it (name without .py = text; None takes a file away)."""

    def make(**files: str | None) -> Path:
        folder = tmp_path / "submission"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(BASE, folder)
        for name, text in files.items():
            path = folder / f"{name}.py"
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        return folder

    return make


def pytest_configure() -> None:
    """What is started in the background ignores Ctrl-C, and so would all that tests start and stop by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes is slow as well. What needs containers comes first: it takes longest, and shares images that one worker
    then makes once."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("docker") is None)
