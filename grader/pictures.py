"""What a report shows where people would rather see than read: rows of weights, the cache's first wrong token, curves.

Everything here is found on inputs that are public: the chapter's sentence, and arrays and decoders of the public seed. So the
right answer may stand beside the submission's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from grader.checks.step9_report import Results, read_results
from harness.attend import CAUSAL, SDPA, SELF, SOFTMAX
from harness.check import Fail
from harness.checks.step2_chapter import TOKENS, W_K, W_Q, W_V, E
from harness.checks.step8_cache import DECODE, PREFILL
from harness.checks.step8_decoder import keep_model
from harness.growth import growth
from harness.subject import Call, Subject
from harness.values import Array, Handle
from reference import attention as right
from reference import decoder

if TYPE_CHECKING:
    from grader.report import Judged

SEED = 79
MOST_POINTS = 96  # of a curve: more are not to be told apart on a page
OFF = 5e-4  # a weight this far from the right one is shown as wrong: beyond what rounding does, below what four digits show


@dataclass(frozen=True)
class Rows:
    """The submission's weights beside the right ones, row a query, column a key; None where there is no number."""

    title: str
    about: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    got: tuple[tuple[float | None, ...], ...]
    right: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Token:
    """A token that went into the cache: its id, how it went in, and how far its logits are from the recomputed ones."""

    id: int
    how: str
    off: float | None
    wrong: bool


@dataclass(frozen=True)
class Strip:
    """A text as it goes through prefill and decode; `first` is the place of the first token whose logits are wrong."""

    title: str
    about: str
    tokens: tuple[Token, ...]
    first: int


@dataclass(frozen=True)
class Line:
    """A series of a plot: `kind` is "dots", "line", "dotted" or "mark" (a point that stands out)."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Plot:
    """Series on axes, logarithmic where said; `band` is the fit's interval as (x, low, high)."""

    title: str
    about: str
    x: str
    y: str
    unit: str
    log_x: bool
    lines: tuple[Line, ...]
    band: tuple[tuple[float, float, float], ...] = ()


Picture = Rows | Strip | Plot


# -- rows of weights -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Probe:
    """A question whose answer is a table of weights, and the right table."""

    title: str
    about: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    call: Call
    read: Callable[[Any], Any]
    right: Array


def rows(subject: Subject, step: int) -> Rows | None:
    """The first public probe of a step on which the submission's weights are not the right ones."""
    probes = list(_PROBES[step]()) if step in _PROBES else []
    for probe, outcome in zip(probes, subject.ask(*(p.call for p in probes)), strict=True):
        got = _table(probe.read(outcome.value) if outcome.ok else None, probe.right.shape)
        if got is None or _near(got, probe.right):
            continue
        numbers = tuple(tuple(_number(v) for v in row) for row in got)
        wanted = tuple(tuple(_number(v) for v in row) for row in probe.right)
        return Rows(probe.title, probe.about, probe.queries, probe.keys, numbers, wanted)
    return None


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) and len(value) == 2 else None


def _second(value: Any) -> Any:
    return value[1] if isinstance(value, tuple | list) and len(value) == 2 else None


def _whole(value: Any) -> Any:
    return value


def _step1() -> Iterator[_Probe]:
    rng = np.random.default_rng(SEED)
    Q, K, V = rng.standard_normal((4, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    mask = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 0], [0, 1, 1, 0, 1]], dtype=bool)
    queries, keys = tuple(f"q{i}" for i in range(4)), tuple(f"k{i}" for i in range(5))
    scores = np.array([[0.0, 1.0, 2.0, -1.0], [3.0, 0.0, 0.0, 1.0], [-2.0, -1.0, 0.5, 0.0]])
    of = "Four queries, five keys, d_k = 3"
    yield _Probe(
        "softmax of a table of scores",
        "Each row of scores becomes weights that sum to 1.",
        tuple(f"row {i}" for i in range(3)),
        tuple("abcd"),
        Call(SOFTMAX, (scores,)),
        _whole,
        right.softmax(scores),
    )
    for title, about, args, named in (
        ("Attention's weights", f"{of}.", (Q, K, V), {}),
        (
            "Attention's weights under a mask",
            f"{of}; the mask hides the keys whose right weight is 0.",
            (Q, K, V),
            {"mask": mask},
        ),
        ("Attention's weights with scale=0.2", f"{of}.", (Q, K, V), {"scale": 0.2}),
        ("Attention's weights on large scores", f"{of}; the queries 1000 times as large.", (1000 * Q, K, V), {}),
    ):
        wanted = right.scaled_dot_product_attention(*args, **named)[1]
        yield _Probe(title, about, queries, keys, Call(SDPA, args, named), _second, wanted)
    Q5, K5, unit = rng.standard_normal((4, 5)), rng.standard_normal((5, 5)), np.eye(5)
    of = "Four queries, five keys, d_k = 5. With the unit matrix as V, the output is the weights themselves"
    made_of = "What attention's output is made of"
    wanted = right.scaled_dot_product_attention(Q5, K5, unit)[0]
    yield _Probe(made_of, f"{of}.", queries, keys, Call(SDPA, (Q5, K5, unit)), _first, wanted)
    items = tuple(np.stack(pair) for pair in ((Q5, Q5[::-1]), (K5, K5[::-1] + 0.5), (unit, np.roll(unit, 1, axis=0))))
    outputs, weights = right.scaled_dot_product_attention(items[0], items[1], items[2])
    for part, read, whole in (("Attention's weights", _second, weights), (made_of, _first, outputs)):
        yield _Probe(
            f"{part}, second item of a batch",
            f"{of}, two items at once; the second item's V has its rows moved on by one.",
            queries,
            keys,
            Call(SDPA, items),
            partial(_item_of, read),
            whole[1],
        )


def _item_of(read: Callable[[Any], Any], value: Any) -> Any:
    found = read(value)
    return found[1] if isinstance(found, np.ndarray) and found.ndim == 3 and len(found) == 2 else None


def _step2() -> Iterator[_Probe]:
    weights = right.self_attention(E, W_Q, W_K, W_V)[1]
    call = Call(SELF, (E, W_Q, W_K, W_V))
    yield _Probe("What each word looks at", "The chapter's sentence.", TOKENS, TOKENS, call, _second, weights)


def _step7() -> Iterator[_Probe]:
    n, m = 3, 5
    later = right.causal_mask(n, m)
    yield _Probe(
        "causal_mask(3, n_keys=5)",
        "1 where a query may look: three queries, the last of five positions.",
        ("3rd", "4th", "5th"),
        ("1st", "2nd", "3rd", "4th", "5th"),
        Call(CAUSAL, (n,), {"n_keys": m}),
        _whole,
        later.astype(np.float64),
    )
    mask = right.causal_mask(len(TOKENS))
    weights = right.self_attention(E, W_Q, W_K, W_V, mask=mask)[1]
    call = Call(SELF, (E, W_Q, W_K, W_V), {"mask": mask})
    yield _Probe(
        "What each word looks at, under the causal mask",
        "The chapter's sentence.",
        TOKENS,
        TOKENS,
        call,
        _second,
        weights,
    )


_PROBES: dict[int, Callable[[], Iterator[_Probe]]] = {1: _step1, 2: _step2, 7: _step7}


def _table(value: Any, shape: tuple[int, ...]) -> Array | None:
    """A value as a table of that shape, else None."""
    good = isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in "bf"
    return value.astype(np.float64) if good else None


def _near(got: Array, wanted: Array) -> bool:
    return bool(np.isfinite(got).all() and np.abs(got - wanted).max() < OFF)


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


# -- the cache's first wrong token -----------------------------------------------------------------------------------------


def strip(subject: Subject) -> Strip | None:
    """A public text, its prompt through prefill and the rest token by token, up to the end or the first limit.

    The next token is always given, so a wrong one does not hide those after it. None where every token is right, or where
    nothing that could be compared came back.
    """
    rng = np.random.default_rng(SEED)
    model = decoder.random_model(rng, n_layers=2, n_heads=4, n_kv_heads=2, d_head=4, vocab=31)
    text = [int(t) for t in rng.integers(0, 31, 12)]
    prompt = 5
    wanted = decoder.forward(model, text)
    layers = [{"W_Q": x.W_Q, "W_K": x.W_K, "W_V": x.W_V, "W_O": x.W_O} for x in model.layers]
    names = ("embedding", "n_heads", "n_kv_heads", "positions")
    kept = keep_model(subject, {**{name: getattr(model, name) for name in names}, "layers": layers})
    started = subject.ask(Call(PREFILL, (kept, text[:prompt]), keep=True))[0]
    if not started.ok or not isinstance(started.value, tuple | list) or len(started.value) != 2:
        return None
    logits, cache = started.value
    first = _table(logits, wanted[:prompt].shape)
    if first is None or not isinstance(cache, Handle):
        return None
    found = [_token(text[i], "prefill", first[i], wanted[i]) for i in range(prompt)]
    for i in range(prompt, len(text)):
        stepped = subject.call(DECODE, kept, text[i], cache)
        got = _table(stepped.value if stepped.ok else None, wanted[i].shape)
        found.append(Token(text[i], "decode", None, True) if got is None else _token(text[i], "decode", got, wanted[i]))
        if got is None:
            break
    at = next((i for i, token in enumerate(found) if token.wrong), None)
    if at is None:
        return None
    token = found[at]
    where = "in the prompt" if at < prompt else f"decode step {at - prompt + 1}"
    how = "no logits came back" if token.off is None else f"its logits are off by {token.off:.3g}"
    return Strip(
        "The cache's first wrong token",
        f"Token {at + 1} of {len(text)}, {where}: {how}. A public decoder of two layers; every next token is given.",
        tuple(found),
        at,
    )


def _token(id: int, how: str, got: Array, wanted: Array) -> Token:
    off = float(np.abs(got - wanted).max())
    return Token(id, how, off if math.isfinite(off) else None, not off < 1e-3)


# -- curves ----------------------------------------------------------------------------------------------------------------


def curves(folder: Path, judged: Iterable[Judged]) -> dict[int, tuple[Picture, ...]]:
    """By step: the curves that the report files hold, and those that were measured while grading."""
    measured = {name: points for j in judged for name, points in j.result.curves}
    try:
        results: Results | None = Results(read_results(folder))
    except Fail:
        results = None
    found: dict[int, list[Picture]] = {5: [], 6: [], 8: []}
    if results is not None:
        for step, draw in ((5, _time_of), (6, _memory_of), (8, _latency_of)):
            try:
                found[step].append(draw(results))
            except (Fail, ArithmeticError, ValueError):
                continue  # what is wrong with the file is for its own checks to say
    if "seconds" in measured:
        points = measured["seconds"]
        found[5].append(time_plot("Measured while grading: CPU time of one call", list(points), list(points.values())))
    if "peak" in measured:
        found[6].append(_measured_memory(measured["peak"]))
    found = {step: [p for p in drawn if isinstance(p, Plot) and _drawable(p)] for step, drawn in found.items()}
    return {step: tuple(drawn) for step, drawn in found.items() if drawn}


def _drawable(picture: Plot) -> bool:
    """Whether its numbers are of a size that seconds, bytes and lengths can have."""
    return all(1e-12 < value < 1e18 for line in picture.lines for point in line.points for value in point)


def _time_of(results: Results) -> Picture:
    ns, seconds = results.numbers("ns", above=0), results.numbers("seconds", above=0)
    if len(ns) != len(seconds) or len(set(ns)) != len(ns) or not 3 <= len(ns) <= MOST_POINTS:
        raise Fail("too few points to draw")
    return time_plot("Your report: time of one call", ns, seconds)


def time_plot(title: str, ns: Sequence[float], seconds: Sequence[float]) -> Plot:
    """Seconds against n on log-log axes, the least-squares line, and the interval that its slope lies in."""
    fit = growth([int(n) for n in ns], seconds)
    at, of = (math.exp(sum(map(math.log, values)) / len(values)) for values in (ns, seconds))
    low, high = max(fit.low, -9.0), min(fit.high, 9.0)
    band = tuple((float(n), *sorted((of * (n / at) ** low, of * (n / at) ** high))) for n in ns)
    square = tuple((float(n), seconds[-1] * (n / ns[-1]) ** 2) for n in ns)
    return Plot(
        title,
        f"The fit is n to the {fit.exponent:.2f} (95% interval {fit.low:.2f} to {fit.high:.2f}).",
        "n (queries and keys)",
        "seconds",
        "s",
        True,
        (
            Line("n² through the last point", "dotted", square),
            Line(f"fit: n^{fit.exponent:.2f}", "line", tuple((float(n), of * (n / at) ** fit.exponent) for n in ns)),
            Line("median of one call", "dots", tuple((float(n), float(s)) for n, s in zip(ns, seconds, strict=True))),
        ),
        band,
    )


def _memory_of(results: Results) -> Picture:
    n, itemsize = (results.number(name, above=0, whole=True) for name in ("memory_n", "itemsize"))
    peak, most = results.number("peak_allocated", above=0), results.number("largest_n", above=0)
    ns = _doublings(min(n, most) / 4, max(n, most))
    lines = [
        Line("one n × n table of scores", "dotted", tuple((m, itemsize * m * m) for m in ns)),
        Line("growing from the peak as n²", "line", tuple((m, peak * (m / n) ** 2) for m in ns)),
        Line(f"the peak, at n = {n:g}", "dots", ((n, peak),)),
        Line(f"largest n: {most:g}", "mark", ((most, peak * (most / n) ** 2),)),
    ]
    tables = peak / (itemsize * n * n)
    about = f"At n = {n:g} the peak is as much as {tables:.1f} tables of n × n scores. The largest n of this machine was {most:g}."
    return Plot("Your report: memory of one call", about, "n (queries and keys)", "bytes", "B", True, tuple(lines))


def _measured_memory(peaks: Mapping[int, float]) -> Plot:
    ns = sorted(peaks)
    lines = (
        Line("one n × n table of float32 scores", "dotted", tuple((n, 4 * n * n) for n in ns)),
        Line("peak of one call", "line", tuple((n, peaks[n]) for n in ns)),
        Line("", "dots", tuple((n, peaks[n]) for n in ns)),
    )
    about = f"At n = {ns[-1]:g} the peak is as much as {peaks[ns[-1]] / (4 * ns[-1] ** 2):.1f} tables of n × n scores."
    return Plot("Measured while grading: memory of one call", about, "n (queries and keys)", "bytes", "B", True, lines)


def _latency_of(results: Results) -> Picture:
    cached, recomputed = (results.numbers(f"decode_{name}_s", above=0) for name in ("cached", "recomputed"))
    if min(len(cached), len(recomputed)) < 4:
        raise Fail("too few steps to draw")
    last = min(len(cached), len(recomputed))
    ends = [median(curve[max(last - 8, 0) : last]) for curve in (cached, recomputed)]
    return Plot(
        "Your report: seconds for each new token",
        f"At new token {last} a step takes {_seconds(ends[0])} with the cache and {_seconds(ends[1])} without it: "
        f"{ends[1] / ends[0]:.3g} times as long.",
        "new tokens so far",
        "seconds for one",
        "s",
        False,
        (Line("recomputed", "other", _thinned(recomputed)), Line("with the cache", "line", _thinned(cached))),
    )


def _thinned(values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """A curve of few points, each the median of its neighbours: single steps wait for the machine now and then."""
    every = max(1, len(values) // MOST_POINTS)
    half = max(every, 2)
    return tuple((float(i + 1), median(values[max(i - half, 0) : i + half + 1])) for i in range(0, len(values), every))


def _doublings(low: float, high: float) -> list[float]:
    steps = max(2, min(16, round(math.log2(max(high / low, 2)))))
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms" if value >= 1e-3 else f"{1e6 * value:.3g} µs"
