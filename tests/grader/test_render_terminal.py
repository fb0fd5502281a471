"""The terminal's lines: a step each, the first fault below, the total."""

import io

from rich.console import Console

from grader.render.terminal import print_report
from harness.check import Fail
from tests.grader.lab_of_two import (
    AGREES,
    BYTES,
    GREEDY,
    ROWS,
    SHIFT,
    blocked,
    broken,
    failed,
    report_of,
    stub,
    wrong_rows,
)


def printed(report, **options) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=80, highlight=False, **options))
    return out.getvalue()


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_a_line_a_step_and_the_total(tmp_path):
    lines = [line.rstrip() for line in printed(report_of(tmp_path)).splitlines()]
    assert [line[:4] for line in lines if line.startswith("✓")] == ["✓  1", "✓  2"]
    assert lines[-1] == "100 of 100 points"
    assert len(lines) == 6  # the title, two steps, the total, and two empty lines


def test_every_mistake_stands_once_at_the_top_with_its_cost_and_a_step_refers_to_it(tmp_path):
    """The costliest first: two checks of 20 points fail for the missing scale, one for the axis."""
    axis, scale = ("softmax-wrong-axis", ""), ("scale-missing", "")
    wrong = [failed(ROWS, wrong_rows(), axis), failed(AGREES, wrong_rows(), scale), failed(SHIFT, wrong_rows(), scale)]
    text = squeezed(printed(report_of(tmp_path, *wrong)))
    assert "1. Scores are not scaled −40 points" in text
    assert "2. Softmax over the queries −20 points" in text
    assert "Seen first in step 1: A shift changes nothing (2 checks fail for it)." in text
    assert text.index("2. Softmax") < text.index("0 of 60")
    assert "3 failed (mistakes 1, 2)" in text


def test_what_waits_for_a_failed_check_is_a_part_of_its_mistake(tmp_path):
    wrong = [failed(ROWS, wrong_rows(), ("softmax-wrong-axis", "")), blocked(SHIFT, ROWS)]
    text = squeezed(printed(report_of(tmp_path, *wrong)))
    assert "1. Softmax over the queries −40 points" in text
    assert "(1 more waits for it)" in text


def test_an_unnamed_fault_shows_what_was_seen(tmp_path):
    text = squeezed(printed(report_of(tmp_path, failed(ROWS, wrong_rows("hidden"), shown=wrong_rows("a row of 2")))))
    assert "1. softmax: no known mistake fits" in text
    assert "Every row sums to 1. Seen: a row of 2" in text


def test_stubs_are_named(tmp_path):
    text = squeezed(printed(report_of(tmp_path, failed(GREEDY, stub("generate")), blocked(BYTES, GREEDY))))
    assert "generate(model, prompt, max_new_tokens, use_cache=…) is not written yet." in text
    assert "Not written yet: generate, kv_cache_bytes" in text


def test_a_provisional_report_says_so_and_why(tmp_path):
    text = squeezed(printed(report_of(tmp_path, broken(ROWS), failed(SHIFT, wrong_rows()))))
    assert "No final score. 1 check could not be judged" in text
    assert "60 points in what was judged." in text


def test_piped_it_is_plain_and_no_wider_than_asked(tmp_path):
    text = printed(report_of(tmp_path, failed(ROWS, Fail("x" * 500), shown=Fail("x" * 500))))
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_terminal_gets_colours_unless_it_asks_for_none(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[32m" in printed(report_of(tmp_path), force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in printed(report_of(tmp_path), force_terminal=True)


def test_a_students_text_is_never_markup(tmp_path):
    fail = Fail("[red]x[/red] [/nothing]")
    assert "[red]x[/red] [/nothing]" in squeezed(printed(report_of(tmp_path, failed(ROWS, fail, shown=fail))))


def test_a_bar_is_full_only_where_nothing_is_lost(tmp_path):
    extra = "checks:\n  step2.bytes: {weight: 0.01}\n"
    text = printed(report_of(tmp_path, failed(BYTES, wrong_rows()), extra=extra))
    assert "━" * 10 in next(line for line in text.splitlines() if line.startswith("✓  1"))
    assert "━" * 9 + "─" in next(line for line in text.splitlines() if line.startswith("✗  2"))
