"""A submission is asked in the same words, and answers in the same way, in this process and behind the wire."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from grader.sandbox import Sandbox
from harness.subject import Call, LocalSubject, Subject
from harness.values import Blank, Callback, Dtype, Handle, Laid, Opaque, Proxy


@contextmanager
def local(root: Path) -> Iterator[Subject]:
    yield LocalSubject(root)


@contextmanager
def worker(root: Path) -> Iterator[Subject]:
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject:
        yield subject


@pytest.fixture(params=[local, worker], ids=["local", "worker"])
def opened(request, submission):
    """Opens a submission made of the bundled one and some files."""
    stack = []

    def open_(**files):
        context = request.param(submission(**files))
        stack.append(context)
        return context.__enter__()

    yield open_
    for context in stack:
        context.__exit__(None, None, None)


def attention(body: str) -> str:
    return "import numpy as np\n\ndef softmax(x, axis=-1):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def test_a_value_comes_back_as_data(opened):
    """An array of the right dtype and shape."""
    outcome = opened().call("attention.softmax", np.zeros((2, 4), np.float32))
    assert (outcome.kind, outcome.value.dtype, outcome.value.tolist()) == ("value", np.float32, [[0.25] * 4] * 2)


def test_an_exception_comes_back_with_the_students_own_line(opened):
    """Type, message and frame; the harness's own frames are not shown."""
    outcome = opened(attention=attention("y = x * 2\nreturn y + undefined")).call("attention.softmax", np.ones(2))
    assert (outcome.kind, outcome.type) == ("raised", "NameError")
    assert [(f.file, f.line, f.text) for f in outcome.frames] == [("attention.py", 5, "return y + undefined")]


def test_missing_names_files_and_signatures_are_told_apart(opened):
    """Each says what is missing."""
    subject = opened(attention="def softmax(x):\n    return x\nproject = 3\n", experiments=None)
    names = ("attention.softmax", "attention.project", "attention.causal_mask", "experiments.score_bytes")
    assert [subject.call(n, 1).code for n in names] == [
        "signature-mismatch",
        "name-missing",
        "name-missing",
        "file-missing",
    ]


def test_a_failed_import_is_told_with_file_and_line(opened):
    """A helper that raises is named, not the module that imported it."""
    subject = opened(attention="import helper\n", helper="x = 1\nraise RuntimeError('no')\n")
    outcome = subject.call("attention.softmax", np.ones(2))
    assert (outcome.code, outcome.text) == ("import-failed", "helper.py, line 2: RuntimeError: no")


@pytest.mark.parametrize("name", ["harness", "reference", "grader", "msgspec", "utils"])
def test_a_helper_may_have_any_name(opened, name):
    """A student's own reference.py is what their import finds, and nothing of the judge's."""
    subject = opened(
        attention=f"import {name}\nsoftmax = {name}.f\n", **{name: "def f(x, axis=-1):\n    return 'mine'\n"}
    )
    assert subject.call("attention.softmax", np.ones(2)).value == "mine"


def test_arguments_are_copies_and_echo_shows_what_became_of_them(opened):
    """The judge's array stays as it was; the echo has the change."""
    x = np.zeros(3)
    (outcome,) = opened(attention=attention("x += 1\nreturn x")).ask(Call("attention.softmax", (x,), echo=True))
    assert (x.tolist(), outcome.echo[0].tolist()) == ([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize("order", ["C", "F", "strided", "reversed"])
def test_arrays_are_laid_out_as_said(opened, order):
    """Same values whatever the layout; read-only where that is said."""
    body = "return [x, x.flags.writeable, x.flags.c_contiguous]"
    x = np.arange(6.0).reshape(2, 3)
    got, writeable, contiguous = (
        opened(attention=attention(body)).call("attention.softmax", Laid(x, order, False)).value
    )
    assert (got.tolist(), writeable, contiguous) == (x.tolist(), False, order == "C")


def test_objects_stay_on_the_students_side_as_handles(opened):
    """A cache is made, asked and measured through its handle; without `keep` it is opaque."""
    subject = opened()
    args = (2, 1, 4, 8, Dtype("float32"))
    assert type(subject.call("kv_cache.KVCache", *args).value) is Opaque
    cache = subject.keep("kv_cache.KVCache", *args).value
    assert type(cache) is Handle
    for layer in (0, 1):
        assert subject.method(cache, "append", layer, np.ones((3, 1, 4)), np.zeros((3, 1, 4))).ok
    assert subject.method(cache, "keys", 0).value.shape == (3, 1, 4)
    assert (subject.call("@len", cache).value, subject.call("@attr", cache, "nbytes").value) == (3, 2 * 2 * 3 * 4 * 4)


@pytest.mark.parametrize("base", ["list", "dict", "tuple"])
@pytest.mark.parametrize("pair", ["(1.5, cache)", "[1.5, cache]", "namedtuple('Prefill', 'logits cache')(1.5, cache)"])
def test_a_cache_may_build_on_a_container(opened, base, pair):
    """A class that inherits from list, dict or tuple is an object and not its items, by itself and beside the logits."""
    text = f"from collections import namedtuple\nclass KVCache({base}):\n    def __new__(cls, *size): return {base}.__new__(cls)\n"
    text += "    def __init__(self, *size): pass\n    nbytes = 7\n"
    subject = opened(
        kv_cache=f"{text}def prefill(model, tokens, cache=None):\n    cache = KVCache()\n    return {pair}\n"
    )
    alone = subject.keep("kv_cache.KVCache", 2, 1, 4, 8).value
    logits, beside = subject.keep("kv_cache.prefill", None, [1]).value
    assert (type(alone), type(beside), logits) == (Handle, Handle, 1.5)
    assert (subject.call("@attr", alone, "nbytes").value, subject.call("@attr", beside, "nbytes").value) == (7, 7)


def test_what_is_kept_can_be_forgotten(opened):
    """A handle of what was forgotten is told as gone."""
    subject = opened()
    x = subject.keep("@array", np.zeros(2)).value
    assert subject.call("@forget").value is True
    assert "is gone" in subject.call("attention.softmax", x).text


def test_kept_arrays_can_be_written_anew(opened):
    """New values in the same memory, seen by the next call."""
    subject = opened()
    x = subject.keep("@array", np.zeros(2)).value
    subject.call("@set", x, np.array([0.0, 1000.0]))
    assert subject.call("attention.softmax", x).value.tolist() == [0.0, 1.0]


def test_functions_of_the_judge_can_be_called(opened):
    """`fits` runs on the judge's side, and may raise MemoryError there."""
    asked = []

    def fits(n):
        asked.append(n)
        if n > 1000:
            raise MemoryError("too large")
        return True

    assert opened().call("experiments.largest_n", Callback(fits), start=1).value == 1000
    assert max(asked) > 1000


def test_by_handle_arrays_do_not_cross(opened):
    """A lent `attend` sees shapes; its blank result is made where it is used."""
    seen = []

    def attend(q, k, v):
        seen.append(q.shape)
        return Blank(q.shape), Blank((q.shape[0], k.shape[0]))

    ticks = iter(range(1000))
    outcome = opened().call(
        "experiments.time_attention",
        Callback(attend, by_handle=True),
        [8, 16],
        clock=Callback(lambda: float(next(ticks))),
    )
    assert outcome.value == [1.0, 1.0]
    assert set(seen) == {(8, 64), (16, 64)}


def test_modules_can_be_lent(opened):
    """kv_cache.py over an attention.py of the judge; a lent class makes objects of the judge's."""
    subject = opened(
        attention="raise RuntimeError('broken')\n",
        kv_cache="from attention import softmax\ndef forward(model, tokens):\n    return softmax(tokens)\n",
    )
    assert subject.call("kv_cache.forward", 0, 1).code == "import-failed"
    with subject.lend({"attention": {"softmax": Callback(lambda x: x + 1)}}) as lent:
        assert lent.call("kv_cache.forward", 0, 41).value == 42


def test_objects_of_the_judge_can_be_held(opened):
    """Attributes, methods and len() of a lent object are asked of the judge; annotations with its class work."""

    def answer(name, args, kwargs):
        return {"nbytes": 12, "__len__": 3, "keys": [*args, "k"]}[name]

    code = (
        "from kv_cache import KVCache\n"
        "def score_bytes(n, itemsize=2, heads=1, cache: KVCache | None = None):\n"
        "    c = KVCache(1)\n"
        "    return [c.nbytes, len(c), c.keys(0)]\n"
    )
    with opened(experiments=code).lend({"kv_cache": {"KVCache": Callback(lambda n: Proxy(answer))}}) as lent:
        assert lent.call("experiments.score_bytes", 1).value == [12, 3, [0, "k"]]


def test_asking_leaves_nothing_loaded(submission):
    """After the in-process form has been asked, this process has none of the submission's modules or folders."""
    before = (set(sys.modules), list(sys.path))
    LocalSubject(submission()).call("experiments.score_bytes", 4)
    assert not {"attention", "experiments", "kv_cache", "model"} & (set(sys.modules) - before[0])
    assert sys.path == before[1]


def test_two_submissions_side_by_side_do_not_mix(submission, tmp_path):
    """Each in-process subject keeps its own modules."""
    first = LocalSubject(submission())
    other = tmp_path / "other"
    other.mkdir()
    (other / "attention.py").write_text("def softmax(x, axis=-1):\n    return 'other'\n")
    second = LocalSubject(other)
    for _ in range(2):
        assert second.call("attention.softmax", 1).value == "other"
        assert first.call("attention.softmax", np.zeros(1)).value.tolist() == [1.0]


def test_a_result_stays_whole_where_it_was_made_until_it_is_dropped(opened):
    """keep="whole" gives one handle for arrays too; what was dropped is gone."""
    subject = opened()
    q, k, v = subject.call("@random", [[4, 2], [3, 2], [3, 5]], "float32", 7).value
    assert [(q.shape, q.dtype), v.shape] == [((4, 2), "float32"), (3, 5)]
    call = Call("attention.scaled_dot_product_attention", (q, k, v), keep="whole")
    whole = subject.ask(call)[0].value
    assert (type(whole), whole.kind) == (Handle, "tuple")
    output = subject.ask(Call("@method", (whole, "__getitem__", 0), keep="whole"))[0].value
    assert output.shape == (4, 5)
    row = subject.call("@fetch", output, [2]).value
    queries, keys, values_ = (subject.call("@fetch", handle).value for handle in (q, k, v))
    scores = queries[2] @ keys.T / np.sqrt(2)
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(row, (weights @ values_)[None], rtol=1e-5)
    assert subject.call("@drop", [whole.id, output.id]).value is True
    assert subject.call("@fetch", output).kind == "missing"


def test_the_clock_of_the_process_runs_while_it_computes(opened):
    """CPU seconds grow by what a call computes."""
    body = "n = 0\nfor i in range(300_000):\n    n += i\nreturn x"
    subject = opened(attention=attention(body))
    subject.call("attention.softmax", np.ones(2))
    before = subject.clocks().cpu
    subject.call("attention.softmax", np.ones(2))
    assert subject.clocks().cpu - before > 1e-4


def test_the_lines_of_python_that_a_call_runs_are_counted(opened):
    """A loop of n rounds counts n times what is in it, the base's matrix products none."""
    looped = opened(attention=attention("total = 0\nfor i in range(len(x)):\n    total += x[i]\nreturn total"))
    few, many = (looped.call("@lines", "attention.softmax", np.ones(n)).value for n in (5, 25))
    assert many - few == 40
    assert len({opened().call("@lines", "attention.softmax", np.ones(n)).value for n in (5, 25)}) == 1
