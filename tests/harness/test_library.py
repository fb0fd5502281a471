"""What a worker may import is linked from wherever this Python finds it."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

from harness.hosting.library import link_library


def test_a_torch_that_an_image_brings_is_found_outside_of_our_environment(tmp_path, monkeypatch):
    """With what lies beside it; and for the worker without torch nothing of that place is linked."""
    for name in ("torch", "its_companion"):
        (tmp_path / "conda" / name).mkdir(parents=True)
        (tmp_path / "conda" / name / "__init__.py").write_text("")
    found = SimpleNamespace(origin=str(tmp_path / "conda" / "torch" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    linked = link_library(tmp_path / "with", torch=True)
    assert (linked / "its_companion").resolve() == tmp_path / "conda" / "its_companion"
    assert (linked / "numpy").exists() and (linked / "torch").exists()
    assert not (link_library(tmp_path / "without", torch=False) / "its_companion").exists()
