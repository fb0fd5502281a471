"""Faults of attention.py: one family a function, each asked its probes in a worker without torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from grader import diagnosis
from grader.families import Family, register
from harness.subject import Call, Outcome, Subject
from harness.values import Opaque
from reference.variants.space import Answer, Failed

FUNCTIONS = {
    "softmax": "attention.softmax",
    "project": "attention.project",
    "sdpa": "attention.scaled_dot_product_attention",
    "self_attention": "attention.self_attention",
    "causal_mask": "attention.causal_mask",
    "positions": "attention.sinusoidal_positions",
}


def explain(name: str, subject: Subject) -> diagnosis.Explanation:
    """Asks a family's probes, all of them, and explains the answers; a limit reached on the way explains itself elsewhere."""
    family: Any = diagnosis.families()[name]
    observations: dict[str, Answer] = {}
    for probe in family.PROBES:
        outcome = subject.ask(Call(probe.function, tuple(probe.args), dict(probe.kwargs)))[0]
        if outcome.kind in ("value", "raised"):
            observations[probe.name] = answer(outcome)
    return diagnosis.explain(family, observations)


def answer(outcome: Outcome) -> Answer:
    """An outcome as the space of variants has it: its parts, or that the call raised."""
    if not outcome.ok:
        return Failed(outcome.type)
    value = outcome.value
    if isinstance(value, tuple | list):
        return tuple(value)
    return (str(value.type_name),) if isinstance(value, Opaque) else (value,)


for _name, _function in FUNCTIONS.items():
    register(Family(_name, (_function,), "numpy", partial(explain, _name)))
