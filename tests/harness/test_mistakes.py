"""The list of mistakes: each once, what fails most first, and with the words that help."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from harness.mends import NO_BACKEND
from harness.messages import MESSAGES
from harness.mistakes import mistakes, render
from harness.table import Told

SCALE, MASK = "scale-missing", "mask-ignored"


def failed(name: str, code: str = "", **options: Any) -> Told:
    """One failed check of step 1, called as softmax(x)."""
    told = {
        "id": f"step1.{name}",
        "step": 1,
        "title": f"The {name} is right.",
        "status": "failed",
        "call": "softmax(x)",
    }
    return Told(**{**told, "code": code, **options})


def hinted(name: str, code: str, **options: Any) -> Told:
    return failed(name, code, hint=f"{MESSAGES[code].short}. Seen in {name}.", **options)


def text(found: list[Told]) -> str:
    heard = io.StringIO()
    Console(file=heard, width=100).print(render(found))
    return heard.getvalue()


def test_a_mistake_stands_once_with_its_checks_and_where_it_was_seen_first() -> None:
    """Three checks of one code are one mistake, told as the first of them saw it."""
    found = mistakes([hinted("a", SCALE), hinted("b", SCALE), hinted("c", SCALE)])
    assert [(m.name, m.text, len(m.told), m.told[0].id) for m in found] == [
        ("Scores are not scaled", "Seen in a.", 3, "step1.a")
    ]


def test_what_loses_most_comes_first() -> None:
    """Points decide; without points, the number of checks."""
    assert [m.name for m in mistakes([hinted("a", MASK), hinted("b", SCALE), hinted("c", SCALE)])] == [
        "Scores are not scaled",
        "The mask has no effect",
    ]
    dear = [hinted("a", MASK, worth=5.0, earned=0.0), *(hinted(name, SCALE, worth=1.0) for name in "bc")]
    assert [m.name for m in mistakes(dear)] == ["The mask has no effect", "Scores are not scaled"]


def test_what_is_not_written_yet_is_no_mistake() -> None:
    """Neither is what passed, or was not run."""
    found = [failed("a", "raised", unwritten="Write softmax."), Told("step1.b", 1, "B.", "passed")]
    assert mistakes(found) == []
    assert text(found).strip() == ""


def test_a_file_that_does_not_import_is_shown_with_its_line_and_how_to_see_it() -> None:
    """The place is written as editors and terminals link it, and the command is that of the file in which the error is."""
    seen = "kv_cache.py, line 3: SyntaxError: expected ':'"
    said = text([failed("a", "import-failed", seen=seen, hint="The file does not import. …")])
    assert "1. The file does not import   1 check" in said
    assert "kv_cache.py:3: SyntaxError: expected ':'" in said
    assert "python -c 'import kv_cache'" in said


def test_two_missing_functions_are_two_mistakes() -> None:
    """Each has its own name to look at."""
    found = [failed(n, "name-missing", seen=f"attention.py has no {n}(x); {n}2 is there.", hint="…") for n in "ab"]
    assert [m.text for m in mistakes(found)] == [one.seen for one in found]


def test_an_exception_is_named_by_itself_and_its_line() -> None:
    """The same one of two checks is one mistake, another is another."""
    seen = "ValueError: no at attention.py, line 3: raise ValueError('no')"
    found = mistakes([failed("a", "raised", seen=seen), failed("b", "raised", seen=seen)])
    assert [(m.name, m.text, len(m.told)) for m in found] == [
        ("softmax: ValueError: no", "attention.py:3: raise ValueError('no')", 2)
    ]
    other = "TypeError: other at attention.py, line 9: x.y"
    assert len(mistakes([failed("a", "raised", seen=seen), failed("b", "raised", seen=other)])) == 2


def test_what_no_code_names_is_told_by_what_was_seen() -> None:
    """A description stands for its checks; without one, the function and its first failure."""
    described = mistakes([failed(n, hint="The weights do not follow Q·Kᵀ.") for n in "ab"])
    assert [(m.name, m.text, len(m.told)) for m in described] == [
        ("softmax: no known mistake fits", "The weights do not follow Q·Kᵀ.", 2)
    ]
    bare = mistakes([failed("rows", seen="a row sums to 0.9")])
    assert bare[0].text == "The rows is right. Seen: a row sums to 0.9."


def test_a_backend_forgotten_is_one_mistake() -> None:
    """However torch and NumPy word it, call by call."""
    words = ("zeros(): dtype must be torch.dtype", "expected Tensor")
    found = [
        Told(f"step8.{i}", 8, "A.", "failed", code="raised", seen=f"TypeError: {w} ({NO_BACKEND})")
        for i, w in enumerate(words)
    ]
    assert [(m.name, len(m.told)) for m in mistakes(found)] == [
        ("kv_cache.py works with tensors and does not say so", 2)
    ]
