"""Public checks in this process: what is run, what is blocked, what is left out for want of torch; and how it reads."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.check import STEPS, Check, CheckResult, Fail
from harness.course import Course
from harness.local import Held, not_written, public_checks, run_check
from harness.plugin import Lab
from harness.signs import Hint
from harness.subject import Frame
from harness.table import Told, beside, case_text, failure_text, render, state_of, told

Make = Callable[..., Path]

ROOT = Path(__file__).parents[2]
BASE = ROOT / "examples" / "base"


def check(id: str, status: str = "passed", **options: tuple[str, ...]) -> Check:
    """A check that ends so."""

    def body(subject: object) -> None:
        if status == "failed":
            raise Fail("it came out wrong", "right")
        if status == "not-run":
            raise RuntimeError("the check broke")

    return Check(id, 1, f"The title of {id}.", body, **options)


def stub_failure() -> Fail:
    frames = (Frame("attention.py", 7, "raise NotImplementedError("),)
    seen = "NotImplementedError: Write softmax: one at a time. at attention.py, line 7: raise NotImplementedError("
    return Fail(seen, "a result", code="raised", frames=frames)


@pytest.mark.parametrize(("below", "status", "reason"), [
    ("passed", "passed", ""),
    ("failed", "blocked", "The title of step1.below."),
    ("not-run", "blocked", "The title of step1.below."),
])  # fmt: skip
def test_what_stands_on_a_check_waits_for_it(below: str, status: str, reason: str) -> None:
    """A check is blocked by one below it that failed, or broke on what the submission said, and else is run."""
    done: dict[str, CheckResult] = {}
    subject = Held(BASE)
    run_check(check("step1.below", below), subject, done)
    above = run_check(check("step1.above", stands_on=("step1.below", "step1.hidden")), subject, done)
    assert (above.status, above.reason) == (status, reason)


def test_a_check_on_files_gets_the_folder() -> None:
    """A check that needs files is handed the submission's folder."""
    seen: list[object] = []
    run_check(Check("step9.files", 9, "Title.", lambda folder: seen.append(folder), needs="files"), Held(BASE), {})
    assert seen == [BASE]


def test_public_checks_of_a_step_are_of_that_step() -> None:
    """Only the steps asked for come, all of them public, each after what it stands on."""
    found = public_checks({1, 2})
    assert {c.step for c in found} == {1, 2}
    assert all(c.public for c in found)
    place = {c.id: i for i, c in enumerate(found)}
    assert all(place[below] < place[c.id] for c in found for below in c.stands_on if below in place)


def test_without_torch_only_what_wants_it_is_left_out() -> None:
    """Where torch is not installed, step 3 is not run and says why; the measurements of step 5 are."""
    script = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
from pathlib import Path
from harness.local import check_folder
for result in check_folder(Path(sys.argv[1]), {3, 5}):
    print(result.check.step, result.status, result.reason)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(BASE)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.splitlines()) == {"3 not-run torch is not installed: pip install torch", "5 passed "}


def test_a_stubs_sentence_is_read_from_its_failure() -> None:
    """What a stub says comes out without the exception's name and the line; other failures are no stubs."""
    assert not_written(CheckResult(check("step1.a"), "failed", stub_failure())) == "Write softmax: one at a time."
    assert not_written(CheckResult(check("step1.a"), "failed", Fail("KeyError: x", code="raised"))) is None
    assert not_written(CheckResult(check("step1.a"), "passed")) is None


def test_a_bare_not_implemented_error_is_a_stub_too() -> None:
    """A student's own `raise NotImplementedError` reads as not written."""
    bare = Fail("NotImplementedError:  at attention.py, line 3: raise NotImplementedError", code="raised")
    assert not_written(CheckResult(check("step1.a"), "failed", bare)) == "This function is not written yet."


@pytest.mark.parametrize(("results", "state"), [
    ([], "not run"),
    ([("passed", None)] * 3, "passed (3)"),
    ([("passed", None), ("failed", Fail("wrong")), ("blocked", None)], "1 of 3 failed"),
    ([("failed", stub_failure()), ("blocked", None)], "not written"),
    ([("not-run", None)], "not run"),
    ([("passed", None), ("not-run", None)], "passed (1)"),
    ([("passed", None), ("failed", stub_failure())], "1 of 2 passed"),
    ([("passed", None), ("failed", Fail("wrong")), ("failed", stub_failure())], "1 of 3 failed"),
    ([("passed", None), ("blocked", None)], "1 of 2 passed"),
])  # fmt: skip
def test_a_step_comes_to_a_few_words(results: list[tuple[str, Fail | None]], state: str) -> None:
    """The state of a step counts what failed as pytest does, and what is still to write as no failure."""
    found = [told(CheckResult(check(f"step1.{i}"), status, failure)) for i, (status, failure) in enumerate(results)]
    assert state_of(found)[0] == state


def printed(table: object, width: int = 80) -> str:
    heard = io.StringIO()
    Console(file=heard, width=width).print(table)
    return heard.getvalue()


def test_the_table_shows_the_first_failure_and_its_hint() -> None:
    """Under a failed step stand its first failing check, its smallest input, the mistake by its name, and where to read."""
    public_checks()
    failure = Fail("wrong", call="softmax(…)", inputs={"argument 1": np.array([[1.0, 2.0]])})
    hint = Hint("scale-missing", "Scores are not divided.")
    results = [
        told(CheckResult(check("step1.a"), "passed")),
        told(CheckResult(check("step1.b"), "failed", failure), hint),
    ]
    text = printed(render(results))
    assert "1 of 2 failed" in text
    assert "The title of step1.b." in text
    assert "x = [[1. 2.]]" in text
    assert "Hint: Scores are not scaled. Scores are not divided." in text
    assert "Read: section 7.2, step 3" in text
    assert [line.split()[0] for line in text.splitlines() if line[:2].strip()] == [str(n) for n in sorted(STEPS)]


def test_a_hint_given_before_is_not_given_again() -> None:
    """A second step that fails by the same mistake says which step told it."""
    hint = Hint("scale-missing", "Scores are not divided.")
    found = [told(CheckResult(replace(check("s.a"), step=n), "failed", Fail("wrong")), hint) for n in (1, 2)]
    assert printed(render(found)).count("Scores are not divided.") == 1
    assert "Hint: as in step 1." in printed(render(found))


def test_points_are_told_where_the_course_names_them() -> None:
    """A step's points are those of the tests that were run; without a course's points there is no such column."""
    course = Course(points={"step1.a": 2.5, "step1.b": 1.0})
    results = [CheckResult(check("step1.a"), "passed"), CheckResult(check("step1.b"), "failed", Fail("wrong"))]
    assert "2.5 of 3.5" in printed(render([told(r, of=course) for r in results]))
    assert "of 3.5" not in printed(render([told(r) for r in results]))


def test_a_section_has_its_address_where_the_course_has_one() -> None:
    """{section} in the course's link becomes the section's number."""
    assert Course().section("7.2, step 4") == "section 7.2, step 4"
    linked = Course(chapter_link="https://book.example/7#{section}")
    assert linked.section("7.2, step 4") == "section 7.2, step 4: https://book.example/7#7.2"


def test_arrays_stand_beside_each_other_as_far_as_there_is_room() -> None:
    """Two small arrays share their lines; the third, for which there is no room, comes below."""
    blocks = [["a = [1", "     2]"], ["b = [3]"], ["c = [4]"]]
    assert beside(blocks, 20) == ["a = [1    b = [3]", "     2]", "c = [4]"]


def test_the_table_fits_a_narrow_terminal() -> None:
    """No line is longer than the terminal is wide."""
    public_checks()
    failed = CheckResult(check("step1.b"), "failed", Fail("wrong"))
    text = printed(render([told(failed, Hint(None, "words " * 40))], 50), width=50)
    assert max(len(line) for line in text.splitlines()) <= 50


def test_a_failure_reads_like_pytests_own() -> None:
    """The call, what came, what should be, the input under its parameter's name, and what came back, marked as pytest does."""
    x = np.array([[1.0, 2.0]])
    failure = Fail("a row sums to 2", "1", call="softmax(float64 array (1, 2))", inputs={"argument 1": x}, got=x * 2)
    lines = failure_text(CheckResult(check("step1.a"), "failed", failure)).splitlines()
    assert lines == [
        ">   softmax(float64 array (1, 2))",
        "E   The title of step1.a.",
        "E     came:    a row sums to 2",
        "E     should:  1",
        "E     again:   attnlab check --case step1.a",
        "E",
        "E   x = float64 (1, 2)",
        "E       [[1. 2.]]",
        "E",
        "E   came back = float64 (1, 2)",
        "E       [[2. 4.]]",
    ]


def test_a_large_array_is_drawn_by_its_corners() -> None:
    """A failing input of any size takes a few lines."""
    failure = Fail("wrong", call="softmax(…)", inputs={"argument 1": np.ones((300, 300))})
    assert len(failure_text(CheckResult(check("step1.a"), "failed", failure)).splitlines()) < 20


def test_the_way_through_the_students_own_files_is_shown() -> None:
    """An exception raised two calls deep shows both lines."""
    frames = (Frame("attention.py", 3, "return f(x)"), Frame("helper.py", 9, "return x[5]"))
    text = failure_text(CheckResult(check("step1.a"), "failed", Fail("IndexError: 5", frames=frames)))
    assert "E   attention.py:3: return f(x)\nE   helper.py:9: return x[5]" in text


def test_a_failing_case_can_be_pasted(tmp_path: Path) -> None:
    """It is Python: the arrays in full precision, NaN and dtype included, under the names that the call has."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 400)).astype("float32")
    x[0, 0], x[0, 1] = np.nan, -np.inf
    mask = np.array([[True, False]])
    text = "scaled_dot_product_attention(float32 array (3, 400), float32 array (3, 400), 2, mask=bool array (1, 2))"
    failure = Fail("", call=text, inputs={"Q": x, "argument 2": x + 1, "mask": mask})
    spelled = case_text(failure)
    assert spelled.splitlines()[1] == "from attention import scaled_dot_product_attention"
    names: dict[str, Any] = {}
    heard: list[Any] = []
    exec(
        spelled.replace("from attention import scaled_dot_product_attention", ""),
        {"scaled_dot_product_attention": lambda *a, **k: heard.append((a, k))},
        names,
    )
    (q, k, v), given = heard[0]
    np.testing.assert_array_equal(q, x)
    np.testing.assert_array_equal(k, x + 1)
    assert (q.dtype, v, given["mask"].tolist()) == (np.float32, 2, [[True, False]])


def test_the_table_shows_every_mistake_of_a_step() -> None:
    """The first check of each, what is still to write too; "as in step 1" only of the same mistake."""
    shape = {"status": "failed", "code": "wrong-shape", "hint": "Wrong shape. It has another shape."}
    found = [
        Told("step1.a", 1, "A.", call="softmax(x)", **shape),
        Told("step4.b", 4, "B.", call="sinusoidal_positions(2, 4)", **shape),
        Told("step4.c", 4, "C.", call="sinusoidal_positions(3, 4)", **shape),
        Told("step4.d", 4, "D.", status="failed", code="raised", unwritten="Write equivariance_gap."),
        Told("step4.e", 4, "E.", status="failed", call="self_attention(X)", seen="0.3 came back"),
        Told("step7.f", 7, "F.", call="softmax(x)", **shape),
    ]
    text = printed(render(found))
    assert [line.strip() for line in text.splitlines() if line.startswith("   ")] == [
        "A.",
        "Hint: Wrong shape. It has another shape.",
        "B.",
        "Hint: Wrong shape. It has another shape.",
        "Write equivariance_gap.",
        "E.",
        "Seen: 0.3 came back",
        "F.",
        "Hint: as in step 1.",
    ]


def test_what_a_submission_prints_is_shown_once(submission: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """However often it is asked; of many lines the first ones."""
    text = (BASE / "attention.py").read_text() + "\n\ndef causal_mask(n_queries, n_keys=None):\n    print('again')\n"
    lab = Lab(Held(submission(attention=text + "    for i in range(99): print(i)\n")))
    for check in public_checks({7})[:3]:
        lab.run(check)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("again") == 1
    assert lines[-1] == "… and 80 more lines that your code printed"
    assert len(lines) == 21
