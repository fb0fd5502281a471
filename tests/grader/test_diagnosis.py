"""The search: fewest wrong options first, common codes of tied explanations, nothing without evidence."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grader.diagnosis import explain, same
from reference.variants.space import Answer, Failed, Option, Probe, Variant, attempt, decision


def family(predict: Any, *decisions: Any, read: Any = None) -> Any:
    probes = tuple(Probe(f"at {x}", "f", (float(x),)) for x in (1, 2, 3))
    return SimpleNamespace(
        SPACE=decisions, PROBES=probes, predict=lambda v, probe: attempt(predict, v, *probe.args), read=read
    )


def line(v: Variant, x: float) -> float:
    """Right: x + 1. Wrong: the sign, the slope, or another constant."""
    slope = {"right": 1.0, "doubled": 2.0, "doubled too": 2.0, "lost": 0.0}[v.pick("slope")]
    sign = -1.0 if v.pick("sign") == "minus" else 1.0
    constant = 1.0 if v.pick("constant") == "right" else v.value("constant")
    return sign * (slope * x + constant)


def read(v: Variant, decision: str, observations: dict[str, Answer]) -> tuple[float, ...]:
    value = observations["at 1"]
    assert isinstance(value, tuple)
    sign = -1.0 if v.pick("sign") == "minus" else 1.0
    return (sign * value[0] - line(v.but("constant", Option("another", "c", value=0.0)), 1.0) * sign,)


LINE = family(
    line,
    decision(
        "slope", Option("doubled", "slope-doubled"), Option("doubled too", "slope-steep"), Option("lost", "slope-lost")
    ),
    decision("sign", Option("minus", "sign-minus")),
    decision("constant", Option("another", "constant-another", examples=(5.0,))),
    read=read,
)


def at(*values: Any) -> dict[str, Answer]:
    return {f"at {x}": v if isinstance(v, Failed) else (v,) for x, v in enumerate(values, 1)}


def test_right_answers_have_no_codes() -> None:
    assert explain(LINE, at(2.0, 3.0, 4.0)).codes == ()


def test_the_fewest_wrong_options_that_explain_everything_win() -> None:
    assert explain(LINE, at(1.0, 1.0, 1.0)).codes == ("slope-lost",)
    assert explain(LINE, at(-6.0, -7.0, -8.0)).codes == ("constant-another", "sign-minus")


def test_a_number_is_read_from_one_probe_and_confirmed_on_the_others() -> None:
    assert explain(LINE, at(8.5, 9.5, 10.5)).codes == ("constant-another",)
    assert explain(LINE, at(8.5, 9.5, 10.6)).codes == ("unrecognised",)


def test_of_tied_explanations_the_common_codes_are_named() -> None:
    """Two codes explain a doubled slope: neither is named, and beside another fault that one alone is."""
    assert explain(LINE, at(3.0, 5.0, 7.0)).codes == ("unrecognised",)
    assert explain(LINE, at(-3.0, -5.0, -7.0)).codes == ("sign-minus",)


def test_probes_that_were_not_answered_are_passed_over() -> None:
    assert explain(LINE, {"at 3": (-4.0,)}).codes != ("unrecognised",)
    assert explain(LINE, {}).codes == ("unrecognised",)


def test_failing_everywhere_is_not_explained() -> None:
    everywhere = family(
        lambda v, x: 1 / 0 if v.pick("fails") == "always" else x, decision("fails", Option("always", "fails"))
    )
    assert explain(everywhere, at(*[Failed("TypeError")] * 3)).codes == ("unrecognised",)


def test_a_style_is_no_fault() -> None:
    """An option without a code costs nothing, and is not named."""
    styles = family(lambda v, x: x + (0.5 if v.pick("style") == "other" else 0.0), decision("style", Option("other")))
    found = explain(styles, at(1.5, 2.5, 3.5))
    assert (found.codes, found.options, found.matched) == ((), (), True)


PROBE = Probe("p", "f", ())
ZEROS = Probe("p", "f", (), zeros=True)


@pytest.mark.parametrize(
    ("predicted", "observed", "probe", "expected"),
    [
        ((np.ones(3),), (np.ones(3) + 1e-14,), PROBE, True),
        ((np.ones(3),), (np.ones(3) + 1e-10,), PROBE, False),
        ((np.ones(3),), ((np.ones(3) + 1e-6).astype(np.float32),), PROBE, True),
        ((np.ones(3),), (np.ones((3, 1)),), PROBE, False),
        ((np.ones(3),), (np.ones(3), np.ones(3)), PROBE, False),
        ((np.array([np.nan, 1.0]),), (np.array([np.inf, 1.0]),), PROBE, True),
        ((np.array([np.nan, 1.0]),), (np.array([0.0, 1.0]),), PROBE, False),
        ((np.array([1.0, 0.0]),), (np.array([1.0, 1e-30]),), PROBE, True),
        ((np.array([1.0, 0.0]),), (np.array([1.0, 1e-30]),), ZEROS, False),
        ((np.array([1.0]),), (np.array(["1"]),), PROBE, False),
        ((1.0,), (None,), PROBE, False),
        (("full",), ("full",), PROBE, True),
        (([1, 2],), ((1, 2),), PROBE, True),
        (({"a": 1.0},), ({"a": 1.0},), PROBE, True),
        (({"a": 1.0},), ({"b": 1.0},), PROBE, False),
        (Failed("ValueError"), Failed("IndexError"), PROBE, True),
        (Failed("ValueError"), (1.0,), PROBE, False),
    ],
)
def test_answers_are_the_same_but_for_rounding(
    predicted: Answer, observed: Answer, probe: Probe, expected: bool
) -> None:
    assert same(predicted, observed, probe) == expected
