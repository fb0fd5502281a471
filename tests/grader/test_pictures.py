"""Pictures show the submission beside what is right, on public inputs, and only where the two differ."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from grader import pictures
from grader.grade import grade
from grader.pictures import Plot
from grader.report import Judged
from grader.rubric import load_rubric
from harness.check import CHECKS, CheckResult
from harness.local import Held
from tests.labs.attention.edits import text_of

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "examples" / "base"


def of(submission, **files):
    """A submission in this process."""
    return Held(submission(**files))


def attention(name: str) -> str:
    return text_of(name, "attention.py")


def cache(name: str) -> str:
    return text_of(name, "kv_cache.py")


def test_a_right_submission_has_no_picture_of_a_mistake(submission):
    """Nothing differs, so nothing is drawn of steps 1, 2, 7 and 8."""
    subject = of(submission)
    with subject.held():
        assert [pictures.rows(subject, step) for step in (1, 2, 7)] == [None] * 3
        assert pictures.strip(subject) is None


@pytest.mark.parametrize(
    "name", ["attention-renormalised", "attention-tiles", "attention-added-fill", "attention-python-loops"]
)
def test_right_attention_of_every_style_has_none(submission, name):
    """Rounding is not drawn as a mistake."""
    subject = of(submission, attention=attention(name))
    with subject.held():
        assert [pictures.rows(subject, step) for step in (1, 2, 7)] == [None] * 3


@pytest.mark.parametrize(
    ("name", "step", "title"),
    [
        ("softmax-wrong-axis", 1, "Attention's weights"),
        ("softmax-wrong-axis", 2, "What each word looks at"),
        ("scale-missing", 2, "What each word looks at"),
        ("softmax-unnormalised", 1, "softmax of a table of scores"),
        ("softmax-overflow", 1, "Attention's weights on large scores"),
        ("mask-inverted", 1, "Attention's weights under a mask"),
        ("mask-inverted", 7, "What each word looks at, under the causal mask"),
        ("scale-ignored", 1, "Attention's weights with scale=0.2"),
        ("values-swapped", 1, "What attention's output is made of"),
        ("batch-mixed", 1, "What attention's output is made of, second item of a batch"),
        ("causal-mask-strict", 7, "causal_mask(3, n_keys=5)"),
        ("causal-mask-upper-left", 7, "causal_mask(3, n_keys=5)"),
    ],
)
def test_the_first_probe_that_shows_a_fault_is_drawn(submission, name, step, title):
    """Each fault is drawn on the simplest question that shows it; the right rows sum to 1."""
    subject = of(submission, attention=attention(name))
    with subject.held():
        found = pictures.rows(subject, step)
    assert found is not None
    assert found.title == title
    assert found.got != found.right
    if not title.startswith("causal_mask"):
        assert [round(sum(row), 9) for row in found.right] == [1.0] * len(found.right)


def test_what_is_no_table_is_not_drawn(submission):
    """Where no table of weights comes back there is no picture, and no error."""
    subject = of(submission, attention="def softmax(x, axis=-1):\n    return 'weights'\n")
    with subject.held():
        assert [pictures.rows(subject, step) for step in (1, 2, 7)] == [None] * 3


def test_a_weight_that_is_no_number_is_none(submission):
    """NaN stands as None, so that it is told and not computed with."""
    subject = of(submission, attention=attention("softmax-overflow"))
    with subject.held():
        found = pictures.rows(subject, 1)
    assert found is not None
    assert None in sum(found.got, ())


@pytest.mark.parametrize(
    ("name", "first", "how"),
    [
        ("cache-position-reset", 5, "decode step 1"),
        ("cache-not-appended", 6, "decode step 2"),
        ("cache-prefill-unmasked", 0, "in the prompt"),
    ],
)
def test_the_first_wrong_token_is_found(submission, name, first, how):
    """Tokens before the first wrong one are right, and the picture says where it is."""
    subject = of(submission, kv_cache=cache(name))
    with subject.held():
        found = pictures.strip(subject)
    assert found is not None
    assert [token.wrong for token in found.tokens[: first + 1]] == [False] * first + [True]
    assert (found.first, how in found.about) == (first, True)


def test_a_decode_step_that_raises_ends_the_text_there(submission):
    """What comes back of a step that raises is no logits: its token is the last one shown."""
    text = (BASE / "kv_cache.py").read_text() + "\n\ndef decode_step(model, token, cache):\n    raise IndexError('5')\n"
    subject = of(submission, kv_cache=text)
    with subject.held():
        found = pictures.strip(subject)
    assert found is not None
    assert (len(found.tokens), found.tokens[-1].off, found.first) == (6, None, 5)


def test_curves_of_the_report_files_are_drawn():
    """The bundled report gives a fit with its interval, the memory and the two latencies."""
    found = pictures.curves(BASE, [])
    (time,), (memory,), (latency,) = (found[step] for step in (5, 6, 8))
    assert isinstance(time, Plot) and "The fit is n to the 2.30 (95% interval 1.96 to 2.63)." in time.about
    assert len(time.band) == 6 and all(low <= high for _, low, high in time.band)
    assert isinstance(memory, Plot) and "3.0 tables of n × n scores" in memory.about
    assert isinstance(latency, Plot) and "times as long" in latency.about
    assert all(len(line.points) <= 2 * pictures.MOST_POINTS for line in latency.lines)


@pytest.mark.parametrize(
    "changed",
    [
        {"ns": [], "seconds": []},
        {"ns": [64, 64, 64], "seconds": [1.0, 1.0, 1.0]},
        {"ns": [10**400, 2, 3], "seconds": [1.0, 2.0, 3.0]},
        {"seconds": [1e-300, 1e300, 1.0, 1.0, 1.0, 1.0]},
        {"memory_n": 1e300},
        {"decode_cached_s": "fast"},
        {"decode_cached_s": [1e-320] * 9},
    ],
)
def test_odd_numbers_cost_a_curve_and_nothing_else(tmp_path, changed):
    """Whatever results.json holds, drawing it raises nothing."""
    folder = tmp_path / "submission"
    shutil.copytree(BASE, folder)
    results = json.loads((folder / "report" / "results.json").read_text())
    (folder / "report" / "results.json").write_text(json.dumps(results | changed))
    from grader.render.plot import plot

    for drawn in pictures.curves(folder, []).values():
        for picture in drawn:
            assert "nan" not in plot(picture)


def test_what_was_measured_while_grading_is_drawn_beside_the_report():
    """The numbers that a measuring check tells become a curve of the same kind."""
    check = next(iter(CHECKS.values()))
    seconds = CheckResult(check, "passed", curves=(("seconds", {64: 1e-4, 128: 4e-4, 256: 16e-4}),))
    peak = CheckResult(check, "passed", curves=(("peak", {256: 2**20, 512: 2**22}),))
    found = pictures.curves(BASE, [Judged(check, seconds), Judged(check, peak)])
    assert [p.title for p in found[5]] == [
        "Your report: time of one call",
        "Measured while grading: CPU time of one call",
    ]
    assert "n to the 2.00" in found[5][1].about
    assert found[6][1].title == "Measured while grading: memory of one call"


@pytest.mark.slow
def test_a_grading_draws_what_failed_and_counts_nothing_against_it(submission):
    """A graded mistake has its rows of weights in steps 1, 2 and 7; those that passed have curves alone."""
    report = grade(submission(attention=attention("softmax-wrong-axis")), rubric=load_rubric(), steps={1, 2, 5, 7})
    kinds = {step.number: [type(p).__name__ for p in step.pictures] for step in report.steps}
    assert kinds == {1: ["Rows"], 2: ["Rows"], 5: ["Plot"], 7: ["Rows"]}
    assert report.faults == {}


@pytest.mark.slow
def test_hidden_inputs_that_are_not_shown_are_not_drawn_either(submission, tmp_path):
    """Where a rubric keeps hidden checks' inputs back, a step that fails by hidden checks alone has no picture."""
    text = (ROOT / "rubrics" / "lab.yaml").read_text().replace("show_hidden_inputs: true", "show_hidden_inputs: false")
    (tmp_path / "rubric.yaml").write_text(text)
    source = attention("scale-by-wrong-width--first-size")
    report = grade(submission(attention=source), rubric=load_rubric(tmp_path / "rubric.yaml"), steps={1})
    public = [c for c in report.steps[0].checks if c.public and c.status == "failed"]
    assert bool(report.steps[0].pictures) == bool(public)
