"""What of the students' tools gives a right answer when it is called as the lab's own functions are: a list, held to the page.

Every function, class and constant of the tools is tried on the arguments of every function of the contract. Whatever gives what
the reference gives must stand in KNOWN, and docs/student.md says what can be read there.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import harness
from grader.release.student import JUDGES_OWN, student_files
from grader.rubric import load_rubric
from harness import limit
from reference import attention, decoder, experiments

ROOT = Path(__file__).parents[2]
KNOWN = {
    "cache bytes": ["harness.virtual_decoder.bytes_of"],
    "fit": ["harness.growth.growth"],
    "local slopes": ["harness.growth.growth"],
}
ROOMY = {"harness.signs.numbers", "harness.device.normal", "harness.device.copy_rate", "harness.device.matrix_rate"}
"""Random numbers of the sizes that are asked for, and measured rates: they answer nothing, and would take gigabytes."""


def modules() -> list[ModuleType]:
    names = student_files(ROOT / "student_template", ROOT / "harness", load_rubric())
    found = []
    for name in names:
        parts = Path(name).with_suffix("").parts
        if parts[:2] == ("tools", "harness") and name.endswith(".py") and parts[2] not in JUDGES_OWN:
            dotted = ".".join(parts[1:]).removesuffix(".__init__")
            found.append(importlib.import_module(dotted))
    return found


def questions() -> Iterator[tuple[str, list[tuple[Any, ...]], Callable[[Any], bool]]]:
    """Every answer that the lab asks for: its name, the arguments in the orders that are tried, and what tells the right one."""
    rng = np.random.default_rng(11)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape)

    X = normal(5, 6)
    W = [normal(6, 4), normal(6, 4), normal(6, 3)]
    Q, K, V = normal(5, 4), normal(7, 4), normal(7, 3)
    batch = normal(2, 5, 4), normal(2, 7, 4), normal(2, 7, 3)
    mask = rng.random((5, 7)) < 0.7
    mask[:, 0] = True
    seen = attention.scaled_dot_product_attention(Q, K, V)
    yield "softmax", [(Q,), (Q, -1)], among(attention.softmax(Q))
    yield "softmax", [(batch[0],)], among(attention.softmax(batch[0]))
    yield "softmax", [(Q @ K.T / 2,)], among(seen[1])
    yield "attention", [*itertools.permutations((Q, K, V)), (Q, K, V, None), (Q, K)], among(*seen)
    yield "attention", [(Q, K, V, mask)], among(*attention.scaled_dot_product_attention(Q, K, V, mask))
    yield "attention", [batch], among(*attention.scaled_dot_product_attention(*batch))
    yield "self-attention", [(X, *W)], among(*attention.self_attention(X, *W))
    yield "causal mask", [(6,)], among(attention.causal_mask(6))
    yield "causal mask", [(4, 7)], among(attention.causal_mask(4, 7))
    yield "positions", [(7, 6)], among(attention.sinusoidal_positions(7, 6))
    ns = [64, 128, 256, 512]
    seconds = [0.1, 0.31, 1.13, 4.9]
    slope, local = experiments.fit_exponent(ns, seconds), experiments.local_slopes(ns, seconds)
    arrays = np.array(ns, float), np.array(seconds)
    yield "fit", [(ns, seconds), (seconds, ns), arrays, arrays[::-1]], among(slope)
    yield "local slopes", [(ns, seconds), arrays], among(np.array(local))
    yield "score bytes", [(731, 8, 3)], among(experiments.score_bytes(731, 8, 3))
    yield "cache bytes", [(3, 5, 7, 11, 8)], among(decoder.kv_cache_bytes(3, 5, 7, 11, 8))
    yield "largest n", [(lambda n: n <= 777,), (lambda n: n <= 777, 128, 2**14)], among(777)

    def holds() -> None:
        room = np.ones(3_000_000)
        del room

    yield "peak", [(holds,)], lambda value: isinstance(value, int | float) and 2.3e7 < float(value) < 3e7
    model = decoder.random_model(rng, vocab=9)
    tokens = [3, 1, 4, 1, 5]
    yield "logits", [(model, tokens)], among(decoder.forward(model, tokens), decoder.forward(model, tokens)[-1])
    yield "ids", [(model, tokens, 6)], among(np.array(decoder.generate(model, tokens, 6)))


def among(*answers: Any) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        for answer in map(np.asarray, answers):
            with contextlib.suppress(Exception):
                found = np.asarray(value)
                if (
                    found.shape == answer.shape
                    and found.dtype.kind in "fiub"
                    and np.allclose(found, answer, 1e-6, 1e-9)
                ):
                    return answer.dtype.kind != "b" or found.dtype.kind == "b"
        return False

    return right


def parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """A value, and what lies in it or is one of its attributes."""
    yield value
    if depth < 2 and isinstance(value, list | tuple) and len(value) < 20:
        for item in value:
            yield from parts(item, depth + 1)
    elif depth < 2 and isinstance(value, dict):
        for item in value.values():
            yield from parts(item, depth + 1)
    elif depth < 2 and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from parts(getattr(value, field.name, None), depth + 1)


def asked(tool: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    with limit.of(1.0), np.errstate(all="ignore"):
        result = tool(*given)
        return list(itertools.islice(result, 20)) if inspect.isgenerator(result) else result


def tools(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions and classes of a module's own, and the functions of its classes that take no self."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") == module.__name__ and isinstance(value, FunctionType | type):
            yield f"{module.__name__}.{name}", value
            for inner, method in vars(value).items() if isinstance(value, type) else ():
                if isinstance(method, staticmethod):
                    yield f"{module.__name__}.{name}.{inner}", method.__func__


def right_ones() -> dict[str, list[str]]:
    """What gives a right answer, by what it answers."""
    right: dict[str, set[str]] = {}
    every = list(questions())
    for name, tool in (found for module in modules() for found in tools(module)):
        if name in ROOMY:
            continue
        for answer, orders, is_right in every:
            for args in orders:
                try:
                    inspect.signature(tool).bind(*args)
                    value = asked(tool, args)
                except BaseException:
                    continue
                if any(is_right(part) for part in parts(value)):
                    right.setdefault(answer, set()).add(name)
    return {answer: sorted(names) for answer, names in sorted(right.items())}


@pytest.mark.slow
def test_no_tool_gives_a_right_answer_but_those_that_are_known(tmp_path: Path) -> None:
    """A new one is told by its name: write it so that it does not, or say on the page that it does.

    In a process of its own, which whatever is called so may do to as it likes.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.grader.test_zip_answers", str(tmp_path / "found.json")]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=300)
    assert json.loads((tmp_path / "found.json").read_text()) == KNOWN


def test_no_constant_is_a_right_answer() -> None:
    """No array of the tools is a causal mask or a table of positions of its shape."""
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[0] > 1:
                n, d = value.shape
                assert not (value.dtype == bool and np.array_equal(value, attention.causal_mask(n, d))), name
                if d % 2 == 0:
                    assert not np.allclose(value, attention.sinusoidal_positions(n, d)), name


def test_the_page_says_what_can_be_read() -> None:
    """docs/student.md names every tool that gives a right answer, and no other."""
    page = (ROOT / "docs" / "student.md").read_text()
    told = set(
        re.findall(r"`(harness\.[\w.]+)`", page.partition("## What can be read in the tools")[2].partition("\n## ")[0])
    )
    assert told == {name for names in KNOWN.values() for name in names}
    assert Path(harness.__file__).parent == ROOT / "harness"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(right_ones()))
    os._exit(0)  # what was called may have left anything behind
