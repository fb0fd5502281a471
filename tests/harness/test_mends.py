"""A file that does not import says what lies behind it, by a look at the text and by a run alike."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import loader, mends, pack
from harness.subject import LocalSubject
from tests.conftest import BASE

Make = Callable[..., Path]
TEXT = (BASE / "experiments.py").read_text()
NOTEBOOK = "this is a notebook's command"

# (text of experiments.py, what is said, whether a look at the text says it too)
CASES = {
    "magic": ("%matplotlib inline\n" + TEXT, NOTEBOOK, True),
    "shell": (TEXT + "\n!pip install pandas\n", NOTEBOOK, True),
    "get_ipython": (TEXT + "\nget_ipython().run_line_magic('matplotlib', 'inline')\n", NOTEBOOK, False),
    "notebook": ('{"cells": [null]}', "this is a notebook and no Python file", False),
    "merge": (TEXT + "\n<<<<<<< HEAD\n", "left over from a merge", True),
    "utf-16": (TEXT.encode("utf-16"), "it is saved as UTF-16", True),
    "latin-1": ('X = "caf\xe9"\n'.encode("latin-1"), "it is not saved as UTF-8", True),
    "package": ("import pandas as pd\n" + TEXT, "pandas is not installed where this is graded; NumPy, torch and Matplotlib are", False),
    "helper": ("import utls\n" + TEXT, "utls.py is not there; utils.py is", False),
    "dot": (TEXT.replace("from attention", "from .attention"), "write the name without the dot", False),
    "name": (TEXT.replace("import decode_step", "import decode_stepp"), "; decode_step is there, and looks like it", False),
    "misspelt": (TEXT + "\nprint(fit_exponentt)\n", "; fit_exponent is there, and looks like it", False),
    "input": (TEXT + "\nn = int(input())\n", "input() gets no answer", False),
    "exit": (TEXT + "\nraise SystemExit\n", "below if __name__ == '__main__':", False),
    "file": (TEXT + "\nopen('data/x.csv')\n", "only files that are handed in are there", False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_lies_behind_it_is_said(submission: Make, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception with file and line first, then what the student left there."""
    text, said, at_a_look = CASES[name]
    root = submission()
    (root / "utils.py").write_text("")
    (root / "experiments.py").write_bytes(text.encode() if isinstance(text, str) else text)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))
    outcome = LocalSubject(root).call("experiments.fit_exponent", [1.0, 2.0], [1.0, 2.0])
    assert (outcome.code, said in outcome.text) == ("import-failed", True)
    assert outcome.text.startswith("experiments.py")
    found = [f.text for f in loader.inspect(root).findings if f.code == "import-failed"]
    assert [said in text for text in found] == [True] * at_a_look


def test_two_files_that_import_each_other_are_told(submission: Make) -> None:
    """By their names."""
    text = "from experiments import fit_exponent\n" + (BASE / "attention.py").read_text()
    outcome = LocalSubject(submission(attention=text)).call("experiments.fit_exponent", [1.0, 2.0], [1.0, 2.0])
    assert "import each other" in outcome.text


@pytest.mark.parametrize("text", ["1 / 0", "import numpy.nothing", "raise ValueError('x')", "(("])
def test_where_nothing_is_known_nothing_is_said(submission: Make, text: str) -> None:
    """An exception of the student's own stands by itself."""
    outcome = LocalSubject(submission(experiments=text)).call("experiments.fit_exponent", [1.0], [1.0])
    assert ";" not in outcome.text


def test_packing_warns_of_packages_that_are_not_there(submission: Make) -> None:
    """Of every file, helpers too; Python's own, the lab's libraries and the submission's own modules are none."""
    root = submission(helpers="import pandas\nimport json, numpy.random, token\n")
    (root / "token.py").write_text("from helpers import X\nimport matplotlib.pyplot, torch.nn\n")
    assert [text for text in pack.choose(root).missing if "installed" in text] == [
        f"helpers.py: {mends.not_there('pandas')}."
    ]
    assert mends.foreign(ast.parse("from . import x\nfrom sklearn import y"), []) == ["sklearn"]


def test_tensors_without_the_backend_are_told(submission: Make) -> None:
    """A kv_cache.py that imports torch and is given arrays; one that says BACKEND, or has no torch, is told nothing."""
    fault = "def kv_cache_bytes(*sizes):\n    raise TypeError('linear(): argument must be Tensor, not numpy.ndarray')\n"
    found = []
    for top in ("import torch\n", "import torch\nBACKEND = 'torch'\n", ""):
        outcome = LocalSubject(submission(kv_cache=top + fault)).call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1)
        found.append('write BACKEND = "torch"' in outcome.text)
    assert found == [True, False, False]
