"""Heat maps on a terminal: the submission's own weights, with the sums that do not come to 1."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from harness import heat
from harness.local import Held

ROOT = Path(__file__).resolve().parents[2]


def drawn(folder: Path, colours: bool = False) -> str:
    heard = io.StringIO()
    console = Console(file=heard, width=80, force_terminal=colours, color_system="truecolor" if colours else None)
    for picture in heat.pictures(Held(folder)):
        console.print(picture)
    return heard.getvalue()


def test_a_right_submission_shows_the_chapters_weights() -> None:
    """The rows of kedi, sütü and içti hold the chapter's numbers, none is said to miss 1, and the mask hides what is later."""
    text = drawn(ROOT / "examples" / "base")
    rows = [line.split() for line in text.splitlines() if line.split()[:1] == ["içti"]]
    assert rows[0] == ["içti", "0.423", "0.501", "0.076"]
    assert [line.split() for line in text.splitlines() if line.split()[:1] == ["kedi"]][-1] == [
        "kedi",
        "1.000",
        "0.000",
        "0.000",
    ]
    assert "sums to" not in text


def test_rows_that_do_not_sum_to_1_are_told() -> None:
    """A softmax over the wrong axis shows what its rows sum to."""
    assert "sums to 0.795" in drawn(ROOT / "examples" / "one_mistake")


def test_cells_are_shaded_by_their_weight() -> None:
    """With colours the cell of a large weight is deeper than that of a small one."""
    assert heat._shade(1.0) == "white on rgb(21,79,160)"
    assert heat._shade(0.0) == "black on rgb(238,240,245)"
    assert "\x1b[" in drawn(ROOT / "examples" / "base", colours=True)


def test_nothing_is_drawn_of_what_is_not_written() -> None:
    """The bare template has no attention to draw, and that is no error."""
    assert drawn(ROOT / "student_template") == ""
