"""What a file does while it loads counts for nothing, and its helpers may have any name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.contract import functions_of
from harness.own_attention import over_own_attention
from harness.subject import LocalSubject
from harness.values import Callback
from tests.conftest import BASE

Make = Callable[..., Path]
EXPERIMENTS = (BASE / "experiments.py").read_text()
TRIES = "\n\nTRIED = scaled_dot_product_attention(np.ones((3, 4)), np.ones((3, 4)), np.ones((3, 4)))\n"
TELLS = "\n\ndef tell():\n    return TRIED[0]\n\n\ndef ask():\n    return scaled_dot_product_attention(1, 2, 3)\n"


def lent(answer: str) -> dict[str, dict[str, Callback]]:
    names = [function.name for function in functions_of("attention")]
    return {"attention": {name: Callback(lambda *a, **k: [answer, answer]) for name in names}}


def test_a_try_out_while_loading_asks_the_submissions_own(submission: Make) -> None:
    """While experiments.py loads its own attention.py answers; afterwards what is lent does."""
    subject = LocalSubject(submission(experiments=EXPERIMENTS + TRIES + TELLS), lent("the judge's"))
    np.testing.assert_array_equal(subject.call("experiments.tell").value, np.ones((3, 4)))
    assert subject.call("experiments.ask").value == ["the judge's"] * 2


def test_an_own_one_that_raises_is_replaced_while_loading(submission: Make) -> None:
    """A file loads over what is lent even where its own attention.py would not let it."""
    broken = "def scaled_dot_product_attention(Q, K, V):\n    raise NotImplementedError\n"
    subject = LocalSubject(submission(attention=broken, experiments=EXPERIMENTS + TRIES + TELLS), lent("the judge's"))
    assert subject.call("experiments.tell").value == "the judge's"


def test_whoever_counts_calls_begins_after_loading(submission: Make) -> None:
    """The calls of a try-out are in no account of what an experiment asks of attention."""
    broken = (BASE / "attention.py").read_text() + "\n\nimport sys\nif 'experiments' in sys.modules: raise ValueError\n"
    for attention in ((BASE / "attention.py").read_text(), broken):
        subject = LocalSubject(submission(attention=attention, experiments=EXPERIMENTS + TRIES + TELLS))
        subject.load("attention")
        with over_own_attention(subject) as (borrower, noted):
            assert noted.calls == []
            borrower.call("experiments.ask")
            assert len(noted.calls) == 1


def test_a_helper_named_as_a_library_module_is_the_submissions_own(submission: Make) -> None:
    """Its own files find it, Python's library finds its own, and nothing is left of it afterwards."""
    root = submission(
        kv_cache="import tokenize\nfrom token import OWN\n\ndef generate():\n    return OWN, tokenize.NAME\n"
    )
    (root / "token.py").write_text("OWN = 'own'\n")
    assert LocalSubject(root).call("kv_cache.generate").code == "signature-mismatch"
    subject = LocalSubject(root)
    subject.load("kv_cache")
    with subject._executor.active():
        assert sys.modules["kv_cache"].generate() == ("own", 1)
    assert not hasattr(sys.modules["token"], "OWN")


def test_a_left_over_of_such_a_name_stands_in_nobodys_way(submission: Make) -> None:
    """What random.py does not define is taken from Python's own random; what it raises is told."""
    root = submission(kv_cache="import random\nfrom random import shuffle\n\nBACKEND = random.choice(['torch'])\n")
    (root / "random.py").write_text("def coin():\n    return 1\n")
    assert LocalSubject(root).backend == "torch"
    (root / "random.py").write_text("1 / 0\n")
    assert "random.py, line 1: ZeroDivisionError" in LocalSubject(root).call("kv_cache.forward", 1, 2).text


def test_attention_finds_no_torch_in_a_students_run(submission: Make) -> None:
    """At its top, in a function, in a helper that it loads: as where it is graded. What is guarded stands; kv_cache.py may use it."""
    base = (BASE / "attention.py").read_text()
    text = "attention.py is NumPy only, and finds no torch where it is graded"
    at_top = LocalSubject(submission(attention=f"import torch\n{base}")).call("attention.softmax", np.ones(2))
    assert (at_top.code, at_top.text) == ("forbidden-library", f"attention.py, line 1: ModuleNotFoundError: {text}")
    inside = LocalSubject(submission(attention=f"{base}\n\ndef softmax(x, axis=-1):\n    import torch.nn\n"))
    assert inside.call("attention.softmax", np.ones(2)).type == "ModuleNotFoundError"
    helped = submission(attention=f"import helper\n{base}")
    (helped / "helper.py").write_text("import torch\n")
    assert LocalSubject(helped).call("attention.softmax", np.ones(2)).code == "forbidden-library"
    guarded = f"try:\n    import torch\nexcept ImportError:\n    torch = None\n{base}"
    assert LocalSubject(submission(attention=guarded)).call("attention.softmax", np.ones(2)).ok
    other = "import sys\ntry:\n    import scipy\nexcept ImportError as error:\n    SAID = str(error)\nelse:\n    SAID = 'there'\n"
    subject = LocalSubject(submission(kv_cache=other))
    subject.load("kv_cache")
    with subject._executor.active():
        assert "NumPy only" not in sys.modules["kv_cache"].SAID
