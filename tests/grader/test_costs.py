"""What code costs is noted and told, and is worth no points."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from grader.checks import step5_cost, step8_cost  # noqa: F401
from grader.grade import grade
from grader.measure import memory
from grader.rubric import load_rubric
from grader.sandbox import Sandbox
from harness.attend import SDPA
from harness.check import CHECKS, run
from harness.growth import LINEAR, MORE, QUADRATIC
from harness.subject import Call, Clocks, Outcome
from harness.values import Handle

FIXTURES = Path(__file__).parents[1] / "submissions" / "cost"
COSTS = ("step5.cost.attention", "step8.cost.append")
MIB = 2**20


def laid(submission, name):
    return submission(**{path.stem: path.read_text() for path in (FIXTURES / name).glob("*.py")})


def notes_of(root: Path, id: str) -> list[str]:
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS[id], subject, 1)
    assert (result.status, result.reason) == ("passed", "")
    return [code for code, _ in result.notes]


EXPECTED = {
    "cost-growing-copies": ([], ["cost-growing-copies"]),
    "cost-interpreted-loop": (["cost-interpreted-loop"], []),
    "cost-interpreted-loop--elements": (["cost-interpreted-loop"], []),
    "cost-none--blocks": ([], []),
    "cost-superquadratic": (["cost-interpreted-loop", "cost-superquadratic"], []),
}


def test_every_submission_of_this_kind_is_expected():
    """None is left out below."""
    assert sorted(path.name for path in FIXTURES.iterdir()) == sorted(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_cost_is_noted_and_nothing_else(name, submission):
    """Of attention, and of the cache's append. On a machine too busy to tell, a cost is left open, and another is never named."""
    root = laid(submission, name)
    for _ in range(3):
        found = tuple(notes_of(root, id) for id in COSTS)
        assert all(set(some) <= set(all_) for some, all_ in zip(found, EXPECTED[name], strict=True))
        if found == EXPECTED[name]:
            return
    pytest.fail(f"noted {found}")


@pytest.mark.slow
def test_a_costly_submission_keeps_its_points(submission):
    """Full marks, a note, and what was measured in words."""
    report = grade(laid(submission, "cost-interpreted-loop"), rubric=load_rubric(), steps={5}, measure=True)
    (step,) = report.steps
    (check,) = (c for c in step.checks if c.id == "step5.cost.attention")
    assert (step.score, check.max_score, [(d.code, d.note) for d in check.diagnoses]) == (
        step.max_score,
        0,
        [("cost-interpreted-loop", True)],
    )
    assert check.output.startswith("CPU time from n = ")


def test_attention_that_does_not_work_costs_nothing_here(submission):
    """That it works is for step 1 to say: nothing is told, and nothing fails."""
    root = submission(attention="def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):\n    return Q, K\n")
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step5.cost.attention"], subject, 1)
    assert (result.status, result.notes, result.told) == ("passed", (), ())


class Simulated:
    """A process in which attention on n queries takes cost(n) of its clock, a little more or less, and anything else next to nothing."""

    def __init__(self, cost, rng):
        self.cost, self.rng, self.cpu = cost, rng, 0.0

    def clocks(self):
        return Clocks(self.cpu)

    def ask(self, *calls):
        outcomes = []
        for call in calls:
            self.cpu += 1e-5
            value = None
            if call.name == "@random":
                value = [Handle(i, "array", tuple(shape)) for i, shape in enumerate(call.args[0])]
            elif call.name == SDPA:
                self.cpu += self.cost(call.args[0].shape[0]) * float(np.exp(self.rng.normal(0, 0.03)))
            outcomes.append(Outcome("value", value=value))
        return outcomes

    def call(self, name, *args):
        return self.ask(Call(name, args))[0]


COSTS_OF = {
    "n": (lambda n: 1e-5 * n, LINEAR),
    "n log n": (lambda n: 1e-6 * n * math.log(n), LINEAR),
    "n²": (lambda n: 2e-8 * n**2, QUADRATIC),
    "n² with a cache cliff": (lambda n: 2e-8 * n**2 * (3 if n > 1024 else 1), QUADRATIC),
    "n³": (lambda n: 1e-10 * n**3, MORE),
}


@pytest.mark.parametrize("name", COSTS_OF)
def test_a_known_cost_gets_its_kind_or_none(name, monkeypatch):
    """A hundred measurements on a simulated clock: always the right kind, or left open where the cliff hides it; never another."""
    cost, right = COSTS_OF[name]
    monkeypatch.setattr(step5_cost, "gives_attention", lambda subject, n: True)
    rng = np.random.default_rng(4)
    found = [step5_cost.measure(Simulated(cost, rng))[0].kind for _ in range(100)]
    assert set(found) <= {right, None}
    assert name == "n² with a cache cliff" or found.count(right) == 100


def test_a_length_that_memory_cannot_hold_is_named_and_not_tried(monkeypatch, submission):
    """The longest are left out where they would take more than there is."""
    monkeypatch.setattr(memory, "available", lambda: 20 * MIB)
    with Sandbox(submission()) as sandbox, sandbox.group("numpy") as subject:
        measured, left_out = step5_cost.measure(subject)
    assert measured is not None
    assert max(measured.ns) < 4096
    assert "do not fit into memory" in left_out


def test_the_rubric_gives_weight_and_the_check_where_it_says_nothing(tmp_path):
    """A check that only measures has weight 0 until a course says otherwise."""
    check = CHECKS["step5.cost.attention"]
    assert load_rubric().weight_of(check) == 0
    text = (Path(__file__).parents[2] / "rubrics" / "lab.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(f"{text}\n  step5.cost.attention: {{weight: 3}}\n  step8.cost.append: {{visibility: hidden}}\n")
    mine = load_rubric(path)
    assert (mine.weight_of(check), mine.weight_of(CHECKS["step8.cost.append"])) == (3, 0)


@pytest.mark.slow
def test_a_token_with_the_cache_is_told_beside_one_without(submission):
    """At some lengths, in words and as curves."""
    with Sandbox(submission()) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step8.cost.decode"], subject, 1)
    curves = dict(result.curves)
    assert (result.status, "One more token costs with the cache" in result.told[0]) == ("passed", True)
    assert list(curves["cached"]) == list(curves["recomputed"])
    assert curves["recomputed"][512] > 3 * curves["cached"][512]


def test_a_cache_that_does_not_work_is_not_timed(submission):
    """That it works is for other checks to say."""
    root = submission(kv_cache="def forward(model, tokens):\n    return 1 / 0\n")
    with Sandbox(root) as sandbox, sandbox.group("numpy") as subject:
        result = run(CHECKS["step8.cost.decode"], subject, 1)
    assert (result.status, result.told, result.notes) == ("passed", (), ())
