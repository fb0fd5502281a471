"""Every code has words, and the words keep their form."""

import ast
import re
from pathlib import Path

import pytest

from harness.messages import MESSAGES

ROOT = Path(__file__).resolve().parents[2]
CODES = {
    "softmax": 16,
    "scale": 7,
    "mask": 8,
    "causal": 4,
    "positions": 6,
    "cache": 23,
    "decode": 6,
    "generate": 3,
    "sdpa": 7,
    "timing": 5,
    "search": 4,
}


def test_every_family_of_codes_is_whole():
    found = {name: sum(code.startswith(f"{name}-") for code in MESSAGES) for name in CODES}
    assert found == CODES
    assert len(MESSAGES) == 139


def test_every_code_that_a_check_names_has_words():
    named = set()
    for folder in ("harness", "grader"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                    named.add(node.value.value)
    named -= {None, ""}
    assert named <= set(MESSAGES)


def test_every_known_wrong_option_has_words():
    spaces = pytest.importorskip("reference.variants.space")
    import importlib
    import pkgutil

    import reference.variants as package

    codes = set()
    for module in pkgutil.iter_modules(package.__path__):
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(value, spaces.Decision):
                codes |= {option.code for option in value.options}
            elif isinstance(value, tuple):
                codes |= {o.code for d in value if isinstance(d, spaces.Decision) for o in d.options}
    assert codes - {None} <= set(MESSAGES)


@pytest.mark.parametrize("code", sorted(MESSAGES))
def test_words_are_sentences_without_loose_ends(code):
    message = MESSAGES[code]
    for text in (message.says, message.look):
        assert text.endswith((".", "?"))
        assert text == text.strip()
        assert "  " not in text
    assert message.short
    assert not message.short.endswith(".")
    assert re.fullmatch(r"7\.\d+(, step \d)?", message.chapter)


@pytest.mark.parametrize("code", sorted(MESSAGES))
def test_words_are_for_students(code):
    message = MESSAGES[code]
    assert not re.search(r"\b(judge|probe|variant|reference|grader|oracle)s?\b", f"{message.says} {message.look}")


def test_no_two_codes_read_the_same():
    assert len({m.says for m in MESSAGES.values()}) == len(MESSAGES)
    assert len({m.short for m in MESSAGES.values()}) == len(MESSAGES)
