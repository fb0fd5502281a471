"""Faults of experiments.py: one family a function, each asked its scenarios through the judge's instruments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from grader import diagnosis
from grader.checks.step3_sdpa import split
from grader.checks.step6_memory import MOST_ALLOCATED, MOST_RESERVED, near
from grader.diagnosis import UNRECOGNISED, Explanation
from grader.families import Family, register
from grader.instruments import MANY_CALLS, largest_n, measure_peak, over_attention, plans
from harness.checks.step3_sdpa import spoil
from harness.checks.step6_memory import MIB
from harness.signs import experiments as signs
from harness.subject import Call, Outcome, Subject
from harness.virtual_decoder import Decoded, Decoding, decode_latencies
from harness.virtual_time import time_attention
from reference.variants.experiments import MEASUREMENTS, UNREAD, Compared, mask_kind
from reference.variants.space import Answer, Decision, Failed, Option, Probe, Variant

Observe = Callable[[Subject], dict[str, Answer]]
NOTHING = Explanation((UNRECOGNISED,), (), (), matched=False)


MOST_NUMBERS = 10_000


def _number(value: Any) -> Any:
    """A plain number as a float; anything else as it is."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or (isinstance(value, int) and abs(value) >= 2**1000)
    ):
        return value
    return float(value)


def _numbers(value: Any) -> Any:
    """A list of numbers as an array; anything else as it is."""
    if isinstance(value, np.ndarray):
        plain = value.ndim == 1 and len(value) <= MOST_NUMBERS and value.dtype.kind in "fiu"
        return value.astype(float) if plain else value
    if not isinstance(value, list | tuple) or len(value) > MOST_NUMBERS:
        return value
    items = [_number(v) for v in value]
    return np.array(items) if all(isinstance(v, float) for v in items) else value


def _judged(outcome: Outcome, read: Callable[[Any], Answer]) -> dict[str, Answer]:
    """{"": the answer}, or nothing where a limit or a missing name leaves none."""
    if outcome.kind == "raised":
        return {"": Failed(outcome.type)}
    return {"": read(outcome.value)} if outcome.ok else {}


def _explain(
    name: str, subject: Subject, observations: Mapping[str, Answer], probes: tuple[Probe, ...] | None = None
) -> Explanation:
    """The fewest faults that give these answers; where no few do, any number of those that signs tell one by one."""
    measurement = MEASUREMENTS[name]
    if not observations:
        return NOTHING
    found = diagnosis.explain(measurement, observations, probes)
    if found.matched or name not in signs.FAMILIES:
        return found
    with np.errstate(all="ignore"):
        seen = {hint.code for hint in signs.FAMILIES[name](subject)} - {None}  # type: ignore[arg-type]
    if len(seen) < diagnosis.MOST_WRONG:
        return found
    space = tuple(Decision(d.name, tuple(o for o in d.options if o.code in seen | {None})) for d in measurement.SPACE)
    return diagnosis.explain(replace(measurement, SPACE=space), observations, probes, most=len(seen) + 1)


def _asked(name: str, subject: Subject) -> Explanation:
    """Functions of plain numbers: the probe's arguments are the call's."""
    measurement = MEASUREMENTS[name]
    observations: dict[str, Answer] = {}
    for probe in measurement.PROBES:
        args, options = probe.args, {}
        if name == "score_bytes":
            args, options = probe.args[:1], {"itemsize": probe.args[1], "heads": probe.args[2]}
        else:
            args = tuple(list(a) for a in args)
        outcome = subject.ask(Call(probe.function, args, options))[0]
        reading = _numbers if name == "local_slopes" else _number
        for answer in _judged(outcome, lambda value, reading=reading: (reading(value),)).values():  # type: ignore[misc]
            observations[probe.name] = answer
    return _explain(name, subject, observations)


def _timed(subject: Subject) -> Explanation:
    measurement = MEASUREMENTS["time_attention"]
    observations: dict[str, Answer] = {}
    for probe in measurement.PROBES:
        scenario = probe.args[0]
        timed = time_attention(subject, scenario)
        for answer in _judged(timed.outcome, lambda value: (_numbers(value),)).values():
            if not timed.readings and not isinstance(answer, Failed):
                answer = (*UNREAD, np.array([timed.calls[n] for n in scenario.ns]))
            observations[probe.name] = answer
    return _explain("time_attention", subject, observations)


def _searched(subject: Subject) -> Explanation:
    measurement = MEASUREMENTS["largest_n"]
    observations: dict[str, Answer] = {}
    for probe in measurement.PROBES:
        scenario = probe.args[0]
        searched = largest_n(subject, scenario)
        if scenario.far:
            observations[probe.name] = ("many calls" if len(searched.asked) > MANY_CALLS else "few calls",)
            continue
        past = scenario.threshold > scenario.limit and max(searched.asked, default=0) > scenario.limit
        for answer in _judged(searched.outcome, lambda value, past=past: (_number(value), past)).values():  # type: ignore[misc]
            if isinstance(answer, Failed) and not (scenario.raises and answer.kind.endswith("MemoryError")):
                answer = ("raised", answer.kind)  # not the exception that `fits` raised
            observations[probe.name] = answer
    return _explain("largest_n", subject, observations)


def _decoded(subject: Subject) -> Explanation:
    measurement = MEASUREMENTS["decode_latencies"]
    observations: dict[str, Answer] = {}
    probes = []
    found = decode_latencies(subject, [probe.args[0] for probe in measurement.PROBES])
    for probe, decoded in zip(measurement.PROBES, found, strict=True):
        scenario = _without_warm_up(probe.args[0], decoded)
        probes.append(probe if scenario is probe.args[0] else replace(probe, args=(scenario,)))

        def read(value: Any, path: str = decoded.path) -> Answer:
            if not isinstance(value, dict):
                return (value, path)
            prefill_s = value.get("prefill_s")
            return (0.0 if prefill_s is None else _number(prefill_s), _numbers(value.get("decode_s")), path)

        for answer in _judged(decoded.outcome, read).values():
            if not decoded.readings and not isinstance(answer, Failed):
                answer = (*UNREAD, decoded.path)
            observations[probe.name] = answer
    return _explain("decode_latencies", subject, observations, tuple(probes))


def _without_warm_up(scenario: Decoding, decoded: Decoded) -> Decoding:
    """The scenario as it went after untimed work, where there was any before the prefill and its steps."""
    last = decoded.work[-scenario.new - 1 :]
    if len(decoded.work) == len(last):
        return scenario
    passes, steps = (tuple(seconds for kind, seconds in last if kind == which) for which in ("pass", "step"))
    return replace(scenario, passes=passes + scenario.passes, steps=steps + scenario.steps)


def _gaps(name: str, subject: Subject) -> Explanation:
    """Gaps over an attention of the judge's, a different one in turn."""
    measurement = MEASUREMENTS[name]
    observations: dict[str, Answer] = {}
    with over_attention(subject) as (borrower, attention):
        for probe in measurement.PROBES:
            case = probe.args[0]
            attention.name = case.attention
            args = (case.X, case.x_new) if name == "append_invariance_gap" else (case.X,)
            args += (case.W_Q, case.W_K, case.W_V)
            options = {}
            if name == "equivariance_gap":
                args += (case.permutation,)
                options = {n: v for n in ("positions", "mask") if (v := getattr(case, n)) is not None}
            outcome = borrower.ask(Call(probe.function, args, options))[0]
            for answer in _judged(outcome, lambda value: (_number(value),)).values():
                observations[probe.name] = answer
    return _explain(name, subject, observations)


# -- compare_with_sdpa: the probes are what the judge's attention was given ------------------------------------------------

SDPA_SHAPES = [(2, 2, 5, 4), (1, 3, 6, 16)]
SDPA_CALLS = ((False, 0.0), (False, 1.0), (True, -1.0))  # causal, factor of the errors
_ROUNDING_OF = {"float64": 10.0, "float32": 5e7, "float16": 1e11}  # probe sizes that leave room for a dtype's rounding


def _compared(subject: Subject) -> Explanation:
    rows: list[tuple[str, bool, list[Compared], Answer]] = []
    direct: set[str] = set()
    widths = {"float64"}
    called = False
    with over_attention(subject) as (borrower, attention):
        for causal, factor in SDPA_CALLS:
            attention.calls, attention.spoil = [], partial(spoil, factor=factor) if factor else None
            options = {"dtype": "float64", "causal": causal}
            outcome = borrower.ask(Call("experiments.compare_with_sdpa", (SDPA_SHAPES,), options))[0]
            if not outcome.ok:
                continue
            differences = _differences(outcome.value)
            if differences is None:
                continue
            called = called or bool(attention.calls)
            parts = split(attention.calls, SDPA_SHAPES)
            if parts is None and attention.calls:
                direct.add("sdpa-wrong-inputs")
                parts = [[call] for call in attention.calls] if len(attention.calls) == len(SDPA_SHAPES) else None
            for shape, difference, part in zip(SDPA_SHAPES, differences, parts or ([], []), strict=True):
                widths |= {array.dtype.name for call in part for array in (call.q, call.k, call.v)}
                kinds = {mask_kind(call.mask, call.q.shape[-2]) for call in part}
                seen = kinds.pop() if len(kinds) == 1 else "other"
                name = f"{shape}{', causal' if causal else ''}{', spoiled' if factor else ''}"
                rows.append((name, causal, part, (difference, seen)))
    if not called:
        zero = rows and all(answer[0] == 0 for *_, answer in rows if not isinstance(answer, Failed))
        return _with(NOTHING, {"sdpa-self-comparison"}) if zero else NOTHING
    if widths != {"float64"}:
        direct.add("sdpa-wrong-dtype")
    usable = [row for row in rows if row[2]]
    explained = NOTHING
    for width, size in _ROUNDING_OF.items():
        if width == "float64" and "sdpa-wrong-dtype" in direct:
            continue
        probes = tuple(
            Probe(n, "experiments.compare_with_sdpa", (part, causal), size=size) for n, causal, part, _ in usable
        )
        observed = {n: answer for n, _, _, answer in usable}
        if observed:
            explained = diagnosis.explain(MEASUREMENTS["compare_with_sdpa"], observed, probes)
        if explained.matched:
            if width != "float64":
                direct.add("sdpa-wrong-dtype")
            break
    return _with(explained, direct)


def _differences(value: Any) -> list[float] | None:
    """max_abs_diff of every row."""
    if (
        not isinstance(value, list | tuple)
        or len(value) != len(SDPA_SHAPES)
        or not all(isinstance(v, dict) for v in value)
    ):
        return None
    found = [_number(row.get("max_abs_diff")) for row in value]
    return found if all(isinstance(v, float) for v in found) else None


DIRECT = {
    "sdpa-self-comparison": ("comparison", "with itself"),
    "sdpa-wrong-dtype": ("dtype", "float32"),
    "sdpa-wrong-inputs": ("inputs", "axes exchanged"),
}
"""What is seen in the calls themselves, and a decision that does the same."""


def _with(explained: Explanation, direct: set[str]) -> Explanation:
    """With codes that were seen directly, beside which `unrecognised` says nothing."""
    named = direct | (set(explained.codes) - ({UNRECOGNISED} if direct else set()))
    variant = explained.variant or Variant()
    for code in sorted(direct):
        decision, name = DIRECT[code]
        variant = variant.but(decision, Option(name, code))
    return Explanation(
        tuple(sorted(named)), explained.options, explained.proof, explained.matched or bool(direct), variant
    )


# -- measure_peak_memory: sizes, within generous factors ---------------------------------------------------------------------

_UNITS = {
    "bytes": 1.0,
    "bits": 8.0,
    "KiB": 2.0**-10,
    "MiB": 2.0**-20,
    "GiB": 2.0**-30,
}  # kB, MB and GB lie within the room left


PLANS_SEED = 23


def _peaked(subject: Subject) -> Explanation:
    asked = plans(np.random.default_rng(PLANS_SEED))
    outcomes = [measure_peak(subject, pieces)[0].outcome for pieces, _ in asked]
    if not all(outcome.ok and isinstance(outcome.value, dict) for outcome in outcomes):
        return NOTHING
    peaks = [float(peak) for _, peak in asked]
    codes: set[str] = set()
    for name in ("allocated", "reserved"):
        values = [_number(outcome.value.get(name)) for outcome in outcomes]
        if not all(isinstance(value, float) for value in values):
            return NOTHING
        found = peak_faults(values, peaks, MOST_ALLOCATED if name == "allocated" else MOST_RESERVED)
        if found is None:
            return NOTHING
        codes |= found
    return Explanation(tuple(sorted(codes)), (), (), matched=True)


def peak_faults(values: list[float], peaks: list[float], most: float) -> set[str] | None:
    """Which faults give these numbers for memory with these peaks; None where no known one does.

    A unit is told by its factor, what was held before by one amount above every peak, the end by nothing above the start.
    """
    for name, unit in _UNITS.items():
        wrong = set() if name == "bytes" else {"wrong-unit"}
        found = [value / unit for value in values]
        if all(near(value, peak, most) for value, peak in zip(found, peaks, strict=True)):
            return wrong
        before = [value - peak for value, peak in zip(found, peaks, strict=True)]
        if min(before) > 24 * MIB and max(before) - min(before) < 10 * MIB and max(before) < 64 * 1024 * MIB:
            return wrong | {"memory-not-peak"}
    # far less than the peak, and in bytes: a peak in a coarser unit was told above
    less = all(abs(value) < peak / 2 for value, peak in zip(values, peaks, strict=True))
    return {"memory-not-peak"} if less else None


_EXPLAIN: dict[str, Callable[[Subject], Explanation]] = {
    "compare_with_sdpa": _compared,
    "equivariance_gap": partial(_gaps, "equivariance_gap"),
    "append_invariance_gap": partial(_gaps, "append_invariance_gap"),
    "time_attention": _timed,
    "local_slopes": partial(_asked, "local_slopes"),
    "fit_exponent": partial(_asked, "fit_exponent"),
    "score_bytes": partial(_asked, "score_bytes"),
    "measure_peak_memory": _peaked,
    "largest_n": _searched,
    "decode_latencies": _decoded,
}
for _name, _function in _EXPLAIN.items():
    register(Family(_name, (f"experiments.{_name}",), "torch", _function))
