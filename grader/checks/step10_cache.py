"""A kv_cache.py of tensors in float32, float16 and bfloat16: logits against float64, within what a run in that dtype may be off by."""

from __future__ import annotations

from typing import Any

from grader.checks.step8_cache import VOCABULARY, compare, fields_of, model_of
from grader.checks.step10_narrow import in_each_dtype
from harness.check import Fail
from harness.checks.step8_cache import DECODE, FORWARD, KV_CACHE, PREFILL
from harness.checks.step8_decoder import Sizes, sizes
from harness.expect import Asked, ask
from harness.rounding import looseness
from harness.subject import Call, Outcome, Subject
from harness.values import Dtype, Handle
from reference import narrow
from reference.decoder import Decoder

PIECES = ((0, 1), (1, 3))  # of a prompt, from token to token


@in_each_dtype(
    "step10.cache.logits",
    cases=sizes(layers=(2,), heads=((2, 2), (4, 2)), positions=("sinusoidal",)),
    examples=3,
    functions=(KV_CACHE, FORWARD, PREFILL, DECODE),
    families="cache",
    needs="tensors",
)
def logits(dtype: str, subject: Subject, case: Sizes) -> None:
    """forward, a prompt in pieces and decoding give the right logits, and the cache holds this dtype."""
    if subject.call("@backend").value != "torch":
        return  # it works on NumPy's arrays: step 8 has judged it
    model, tokens = model_of(case)
    model = narrow.representable(model, dtype)
    right, near = narrow.logits(model, tokens, dtype, looseness())
    kept = subject.ask(Call("@model", (fields_of(model), dtype), keep=True))[0].value
    n = len(tokens)

    def hold(asked: Asked, value: Any, first: int, last: int, row: bool = False) -> None:
        shape = (VOCABULARY,) if row else (last - first, VOCABULARY)
        got = Asked(asked.call, Outcome("value", value), asked.text).array(shape)
        compare(got.reshape(last - first, VOCABULARY), right[first:last], near, "the logits", asked.text)

    asked = ask(subject, FORWARD, kept, tokens, shown=f"forward(model of {dtype}, {n} tokens)")
    hold(asked, asked.value, 0, n)
    cache = _cache(subject, model, n, dtype)
    for first, last in PIECES:
        text = f"prefill(model of {dtype}, tokens {first} to {last}, cache=cache)"
        asked = ask(subject, PREFILL, kept, tokens[first:last], cache=cache, keep=True, shown=text)
        if not isinstance(asked.value, tuple | list) or len(asked.value) != 2:
            raise asked.fail("no pair came back", "(logits, cache)", "wrong-shape")
        hold(asked, asked.value[0], first, last)
    for i in range(PIECES[-1][1], n):
        asked = ask(subject, DECODE, kept, tokens[i], cache, shown=f"decode_step(model of {dtype}, token {i}, cache)")
        hold(asked, asked.value, i, i + 1, row=True)
    for name in ("keys", "values"):
        given = subject.ask(Call("@method", (cache, name, 0), keep="whole"))[0].value
        if isinstance(given, Handle) and given.dtype != dtype:
            seen = f"cache.{name}(0) has dtype {given.dtype}"
            raise Fail(seen, dtype, code="cache-wrong-dtype", call=f"KVCache(…, torch.{dtype})")


def _cache(subject: Subject, model: Decoder, capacity: int, dtype: str) -> Handle:
    width = model.layers[0].W_K.shape[1] // model.n_kv_heads
    shown = f"KVCache({len(model.layers)}, {model.n_kv_heads}, {width}, {capacity}, torch.{dtype})"
    args = (len(model.layers), model.n_kv_heads, width, capacity, Dtype(dtype))
    made = ask(subject, KV_CACHE, *args, keep=True, shown=shown)
    if not isinstance(made.value, Handle):
        raise made.fail("no cache came back", "a cache", "not-an-array")
    return made.value
