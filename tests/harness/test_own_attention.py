"""A submission's own attention under its experiments: watched, wrong on purpose, and never a way to blame the submission."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.checks.step4_gaps import GAP, gap_inputs, one_slot_off
from harness.own_attention import over_own_attention
from harness.subject import Call, LocalSubject, Outcome

BASE = Path(__file__).parents[2] / "examples" / "base"
ORDER = np.roll(np.arange(5), 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """examples/base with an experiments.py of gaps alone, which needs no torch."""
    shutil.copy(BASE / "attention.py", tmp_path)
    source = (BASE / "experiments.py").read_text()
    start, end = source.index("def equivariance_gap"), source.index("def append_invariance_gap")
    (tmp_path / "experiments.py").write_text(
        "import numpy as np\n\nfrom attention import self_attention\n\n\n" + source[start:end]
    )
    return tmp_path


def test_outputs_are_its_own_until_they_are_spoilt(folder: Path) -> None:
    """What the experiment gets is what attention.py gives; an error that is added shows in the gap."""
    subject = LocalSubject(folder)
    alone = subject.call(GAP, *gap_inputs(5), ORDER).value
    with over_own_attention(subject) as (borrower, attention):
        same = borrower.call(GAP, *gap_inputs(5), ORDER).value
        attention.spoil = one_slot_off
        spoilt = borrower.call(GAP, *gap_inputs(5), ORDER).value
    assert same == alone
    assert spoilt == pytest.approx(1, abs=1e-9)


def test_calls_are_noted_with_their_mask(folder: Path) -> None:
    """Each call's arrays and mask are there to be looked at, however the mask was passed."""
    causal = np.tri(5, dtype=bool)
    with over_own_attention(LocalSubject(folder)) as (borrower, attention):
        borrower.call(GAP, *gap_inputs(5), ORDER, mask=causal)
    assert [len(call.arrays) for call in attention.calls] == [4, 4]
    assert all(np.array_equal(call.mask, causal) for call in attention.calls)


def test_what_attention_raises_is_raised_in_the_experiment(folder: Path) -> None:
    """An attention that raises is the submission's matter: the experiment fails with its words."""
    (folder / "attention.py").write_text(
        "def self_attention(X, W_Q, W_K, W_V, mask=None):\n    raise KeyError('lost')\n"
    )
    with over_own_attention(LocalSubject(folder)) as (borrower, _):
        outcome = borrower.call(GAP, *gap_inputs(5), ORDER)
    assert (outcome.kind, outcome.type) == ("raised", "ValueError")
    assert "lost" in outcome.text


def test_what_keeps_attention_from_being_asked_is_no_fault_of_the_submission(folder: Path) -> None:
    """Where the asker itself is stopped, that comes out of the check, though the experiment saw an exception of its own."""

    class Stopped(LocalSubject):
        def ask(self, *calls: Call) -> list[Outcome]:
            raise TimeoutError("the whole grading has come to its end")

    subject = Stopped(folder)
    with pytest.raises(TimeoutError, match="whole grading"), over_own_attention(subject) as (borrower, _):
        outcome = borrower.call(GAP, *gap_inputs(5), ORDER)
        assert outcome.kind == "raised"
