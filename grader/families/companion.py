"""Faults of attention_torch.py: those of attention.py, asked of the companion on tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from grader.companion import OnTensors, companion
from grader.diagnosis import Explanation
from grader.families import FAMILIES, Family, register
from grader.families.attention import FUNCTIONS
from harness.subject import Subject


def explain(family: Family, subject: Subject) -> Explanation:
    return family.explain(OnTensors(subject))


for _family in [FAMILIES[name] for name in FUNCTIONS]:
    register(
        replace(
            _family,
            name=f"{_family.name} on tensors",
            functions=tuple(map(companion, _family.functions)),
            needs="companion",
            explain=partial(explain, _family),
        )
    )
