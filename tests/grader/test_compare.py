"""The report's numbers stand beside what was measured while grading, for staff; note.md is there for a person to read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grader.compare import at, compared, words
from grader.pictures import time_plot
from grader.render.html import to_html
from grader.render.json_file import to_data
from grader.render.terminal import render
from grader.report import Judged
from harness.check import Check, CheckResult
from tests.grader.lab_of_two import ROWS, passed, report_of


def measured(id: str, **curves: dict[int, float]) -> Judged:
    check = Check(id, int(id[4]), "Measured.", lambda subject: None, weight=0)
    return Judged(check, CheckResult(check, "passed", curves=tuple(curves.items())))


NS = (128, 256, 512, 1024)
TIME = measured("step5.cost.attention", seconds={n: 1e-9 * n**2 for n in NS})
PEAK = measured("step6.cost.memory", peak={n: 12 * n**2 for n in NS})
DECODE = measured("step8.cost.decode", cached={32: 1e-4, 512: 1e-4}, recomputed={32: 4e-4, 512: 64e-4})
NUMBERS = {
    "ns": [64, 256, 512],
    "seconds": [5.0, 3e-9 * 256**2, 3e-9 * 512**2],
    "memory_n": 2048,
    "itemsize": 2,
    "peak_allocated": 6 * 2048**2,
    "speedup_at_last_token": 32.0,
    "decoder": {"n_tokens": 128},
    "hardware": "an old laptop",
}


@pytest.fixture
def folder(tmp_path):
    def make(**changes):
        (tmp_path / "report").mkdir(exist_ok=True)
        (tmp_path / "report" / "results.json").write_text(json.dumps(NUMBERS | changes))
        return tmp_path

    return make


def test_time_is_compared_where_both_were_measured(folder):
    """The median over the lengths in range, 64 not among them."""
    told, machines = compared(folder(), [TIME])
    assert told == "results.json has 3 times the seconds of one call of attention that were measured here."
    assert machines.startswith("Measured there: an old laptop. Here: ")


def test_memory_is_compared_in_score_tensors(folder):
    """Three of two bytes a number are as many as three of four."""
    assert compared(folder(), [PEAK])[0] == (
        "results.json has 3 score tensors at the peak, 3 of them measured here: 1 times as much."
    )


def test_the_speed_up_is_compared_at_the_reports_number_of_tokens(folder):
    """Between 4 times at 32 and 64 times at 512: 16 at 128."""
    assert compared(folder(), [DECODE])[0] == (
        "results.json has a speed-up of 32 by the cache, 16 measured here on a small decoder: 2 times as much."
    )


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"seconds": [1.0, 3e-6 * 256**2, 3e-6 * 512**2]}, TIME),
        ({"peak_allocated": 0.2 * 2048**2}, PEAK),
        ({"speedup_at_last_token": 500.0}, DECODE),
    ],
)
def test_what_is_more_than_an_order_of_magnitude_apart_stands_out(changes, evidence, folder):
    """And what is not does not."""
    assert "more than 10 times apart" in compared(folder(**changes), [evidence])[0]
    assert "apart" not in compared(folder(), [evidence])[0]


def test_nothing_is_said_of_what_was_not_measured_or_does_not_read(folder):
    """A report that is wrong has checks of its own."""
    assert compared(folder(), [passed(ROWS)]) == ()
    assert compared(folder(ns="many", memory_n=0, decoder=[]), [TIME, PEAK, DECODE]) == ()
    assert compared(folder(ns=[8, 16]), [TIME]) == ()
    assert compared(folder() / "elsewhere", [TIME]) == ()


def test_a_value_between_two_is_on_their_line():
    """On log-log axes, and beyond them on the same line."""
    assert [round(at({2: 4.0, 8: 64.0}, n), 6) for n in (2, 4, 8, 16)] == [4, 16, 64, 256]


def test_the_note_is_read_from_either_place_and_never_through_a_link(tmp_path):
    """In report/ or flattened; what is no text is shown as far as it goes."""
    assert words(tmp_path) == ""
    (tmp_path / "note.md").write_bytes(b"\xef\xbb\xbfwhy \xff")
    assert words(tmp_path) == "why \ufffd"
    (tmp_path / "note.md").rename(tmp_path / "other.md")
    (tmp_path / "note.md").symlink_to(tmp_path / "other.md")
    assert words(tmp_path) == ""


def test_the_page_shows_the_note_beside_the_curves_and_nothing_for_staff(tmp_path):
    """As text, once, in step 9; what is for staff is in report.json and on the terminal."""
    plot = time_plot("Measured while grading", [128, 256, 512], [1.0, 4.0, 16.0])
    report = report_of(tmp_path, passed(ROWS))
    steps = (replace(report.steps[0], number=5, pictures=(plot,)), replace(report.steps[0], number=9))
    report = replace(report, steps=steps, note="It is <b>quadratic</b>.", compared=("4 times as much",))
    page = to_html(report)
    assert page.count("It is &lt;b&gt;quadratic&lt;/b&gt;.") == 1
    assert page.index("It is &lt;b&gt;") < page.rindex("Measured while grading")
    assert page.count("<svg") == 2 * to_html(replace(report, note="")).count("<svg")
    assert "4 times as much" not in page
    assert to_data(report)["compared"] == ["4 times as much"]
    lines = [str(part) for part in render(report).renderables]
    assert lines[-2:] == ["For staff, and for no points:", "4 times as much"]
