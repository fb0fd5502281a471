"""`attnlab profile` times a submission's own functions, draws them into a folder of its own, and says what it saw."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import harness.cli
from harness.profiling import figures, measure, page
from harness.profiling.limited import Largest, largest
from harness.profiling.measure import Attention, Decoding, Profile

BASE = Path(__file__).parents[2] / "examples" / "base"
NS = (8, 16, 32, 64)


@pytest.fixture(autouse=True)
def short_texts(monkeypatch):
    """The largest n is looked for among few."""
    monkeypatch.setattr(measure, "MOST", 32)


@pytest.fixture
def short(monkeypatch):
    """Lengths that take no time."""
    whole = measure.profile
    monkeypatch.setattr(measure, "profile", lambda root, tick: whole(root, tick, ns=NS, tokens=20))
    monkeypatch.setattr(measure, "BUDGET", 0.01)


def run(*words):
    return CliRunner().invoke(harness.cli.main, ["profile", *map(str, words)], catch_exceptions=False)


def quietly(what, done):
    pass


@pytest.mark.slow
def test_the_deliverable_is_drawn_into_the_folder_that_was_named(short, submission, tmp_path):
    """Three figures and a page that holds them, and nothing else anywhere."""
    pytest.importorskip("matplotlib")
    root, out = submission(), tmp_path / "out"
    before = sorted(path for path in root.rglob("*") if "__pycache__" not in path.parts)
    result = run(root, "--out", out)
    assert (result.exit_code, sorted(p.name for p in out.iterdir())) == (
        0,
        ["latency.png", "latency.svg", "loglog.png", "loglog.svg", "memory.png", "memory.svg", "profile.html"],
    )
    html = (out / "profile.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 3
    assert "prefers-color-scheme:dark" in html and 'name="viewport"' in html
    drawn = html.partition("</style>")[2]
    assert not [colour for colour in (figures.INK, figures.OTHER, figures.QUIET, figures.TEXT) if colour in drawn]
    assert sorted(path for path in root.rglob("*") if "__pycache__" not in path.parts) == before


def test_report_is_never_written(short, submission):
    """The deliverable is made by the student's own functions."""
    root = submission()
    result = run(root, "--out", root / "report")
    assert (result.exit_code, "make_report.py" in result.output) == (2, True)


def test_without_matplotlib_nothing_is_measured(monkeypatch, submission, tmp_path):
    """What is missing is said first."""
    monkeypatch.setattr(harness.cli.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(measure, "profile", lambda root, tick: pytest.fail("measured all the same"))
    result = run(submission(), "--out", tmp_path / "out")
    assert (result.exit_code, "pip install matplotlib" in result.output) == (2, True)


def test_every_length_and_every_token_is_measured(submission):
    """Prefill apart from decode; a decode step for every token after the prompt, and a recompute beside it."""
    found = measure.profile(submission(), quietly, ns=NS, tokens=20)
    assert found.problems == ()
    assert (found.attention.ns, all(p >= 4 * n * n for n, p in zip(NS, found.attention.peaks, strict=True))) == (
        NS,
        True,
    )
    assert (list(found.decoding.cached), list(found.decoding.recomputed)) == ([17, 18, 19, 20], [17, 18, 19, 20])
    assert list(found.decoding.prefill) == [20]
    assert found.largest == (Largest(measure.UNDER, 32, None, "") if sys.platform == "linux" else None)


def test_what_does_not_work_is_told_and_the_rest_is_measured(submission):
    """A cache that is not written yet leaves attention's own figure."""
    stub = "def prefill(model, tokens, cache=None):\n    raise NotImplementedError('Write prefill.')\n"
    found = measure.profile(submission(kv_cache=stub), quietly, ns=NS, tokens=20)
    assert (found.attention.ns, found.decoding) == (NS, None)
    assert ["NotImplementedError: Write prefill." in problem for problem in found.problems] == [True]


def profile_of(problems=(), **parts) -> Profile:
    whole = {"attention": None, "decoding": None, "largest": None} | parts
    return Profile("a machine", 2**30, problems=problems, **whole)


def test_the_sentences_give_speed_up_prefill_and_the_longest_text():
    """From the last tokens, and from the peak by its square."""
    attention = Attention((512, 1024), (0.1, 0.4), (3 * 2**20, 12 * 2**20), None)
    decoding = Decoding({64: 0.05}, {63: 0.001, 64: 0.001}, {63: 0.02, 64: 0.02})
    memory, speed = page.sentences(profile_of(attention=attention, decoding=decoding))
    assert "3.0 tables" in memory
    assert "n = 9459" in memory
    assert "20 times as long" in speed
    assert "prefill of 64 tokens takes 50 ms" in speed


def test_text_of_a_submission_is_text_on_the_page(tmp_path):
    """A message with markup in it stays a message."""
    page.write(profile_of(problems=("<b>bold</b>",)), [], tmp_path / "page.html")
    assert "&lt;b&gt;bold&lt;/b&gt;" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_drawn_of_nothing(tmp_path):
    """A figure needs something to draw."""
    assert figures.draw(profile_of(), tmp_path) == []


HOLDS = """
import os
import numpy as np

def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    n = len(Q)
    held = np.ones((2, n, n), np.float32)
    {more}
    return V, held
"""


def ends_at(submission, more, most=1024, mib=256):
    found = largest(submission(attention=HOLDS.format(more=more)), mib * 2**20, most, lambda done: None)
    if sys.platform != "linux":
        pytest.skip("memory of a process is limited on Linux alone")
    return found


@pytest.mark.slow
def test_the_largest_n_is_where_its_arrays_fill_the_limit(submission):
    """Two tables of four bytes a number in 16 MiB: n = 1448, but for what else a process takes."""
    found = ends_at(submission, "pass", most=4096, mib=16)
    assert 1200 < found.n < 1449
    assert (found.beyond, found.resource) == (found.n + 16, "memory")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("if n > 200: os.kill(os.getpid(), 9)", Largest(2**28, 192, 208, "memory")),
        ("while n > 30: pass", Largest(2**28, 16, 32, "time")),
        ("assert n < 200", None),
        ("pass", Largest(2**28, 256, None, "")),
    ],
)
def test_how_a_process_ends_says_what_ran_out(more, found, monkeypatch, submission):
    """Killed: memory. Not done: time. Any other failure: nothing is said of memory."""
    monkeypatch.setattr("harness.profiling.limited.SECONDS", 2.0)
    assert ends_at(submission, more, most=256) == found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Largest(128 * 2**20, 3280, 3296, "memory"), "at n = 3296 memory runs out. 3.1 tables"),
        (Largest(128 * 2**20, 608, 624, "time"), "more than 5 s, and memory has not run out"),
        (Largest(128 * 2**20, 16_384, None, ""), "16384 or more"),
    ],
)
def test_the_sentence_names_what_ran_out(found, words):
    """Memory, time or nothing."""
    assert words in page.sentences(profile_of(largest=found))[0]


def test_numbers_are_told_in_the_unit_that_keeps_them_short() -> None:
    """Never with an exponent, and in binary units."""
    assert [page.seconds_told(s) for s in (2090.0, 2.09, 0.9999, 0.0123, 4e-7)] == [
        "2090 s",
        "2.09 s",
        "1 s",
        "12.3 ms",
        "0.4 µs",
    ]
    assert [page.bytes_told(b) for b in (3, 2048, 1010 * 2**20, 1.5 * 2**30)] == [
        "3 bytes",
        "2 KiB",
        "1010 MiB",
        "1.5 GiB",
    ]


def test_the_median_of_steady_times_is_sure_and_of_few_or_scattered_ones_is_not() -> None:
    """By the ranks between which a median lies with 95% confidence."""
    assert measure.spread([1.0] * 31) == 1
    assert measure.spread([1.0, 1.0, 1.0]) == 1.5
    assert measure.spread([1.0, 2.0] * 15) > 1.3


def test_a_series_has_one_colour_wherever_it_is_drawn() -> None:
    """In the profile, in the report that a student makes, and on the grader's page."""
    root = Path(__file__).parents[2]
    report = (root / "student_template" / "make_report.py").read_text()
    grader = (root / "grader" / "render" / "report.html.j2").read_text()
    assert f'OWN, OTHER = "{figures.INK}", "{figures.OTHER}"' in report
    assert f"--link: {figures.INK}" in grader and f"--warm: {figures.OTHER}" in grader
