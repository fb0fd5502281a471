"""A course's own unittest files: decorated as gradescope-utils does it, asked through `subject`, and no result is lost."""

from __future__ import annotations

import contextlib
import json
import textwrap

import pytest

from grader.own_tests import run
from grader.render.gradescope import to_results
from grader.report import build_report
from grader.rubric import RubricError, load_rubric
from grader.sandbox import OutOfTime, SandboxError
from harness.subject import LocalSubject
from tests.conftest import BASE
from tests.grader.lab_of_two import RUBRIC, all_passed, rubric

HEAD = """
import unittest
import numpy as np
from gradescope_utils.autograder_utils.decorators import hide_errors, leaderboard, number, partial_credit, tags, visibility, weight

X = np.array([[1.0, 2.0], [3.0, 5.0]])
"""


@pytest.fixture
def ran(tmp_path):
    """Runs a test file on a submission in this process, and gives the tests by their methods' names."""

    def go(body: str, root=BASE, subject=None, waived=None):
        file = tmp_path / "test_ours.py"
        file.write_text(HEAD + textwrap.dedent(body))
        opened = subject or LocalSubject(root)
        found = run([file], lambda module: contextlib.nullcontext(opened), waived=waived)
        return {test.id.rpartition(".")[2]: test for test in found.tests}, found

    return go


def a_case(*lines: str, before: str = "") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"{before}\nclass Ours(unittest.TestCase):\n{body}\n"


def test_a_test_asks_the_submission_and_earns_its_weight(ran):
    """The value comes back as an array; the title is the docstring's first line, behind its number."""
    tests, _ = ran('''
class Ours(unittest.TestCase):
    @weight(3)
    @number("2.1")
    @visibility("after_due_date")
    def test_rows(self):
        """Rows sum to 1."""
        self.assertTrue(np.allclose(subject.attention.softmax(X).sum(axis=-1), 1))
''')
    rows = tests["test_rows"]
    assert (rows.status, rows.score, rows.max_score, rows.visibility) == ("passed", 3.0, 3.0, "after_due_date")
    assert rows.title == "2.1 Rows sum to 1."


def test_a_failed_assertion_costs_the_points_and_tells_its_message(ran):
    tests, _ = ran(
        a_case(
            "@weight(2)",
            "def test_it(self):",
            "    self.assertEqual(subject.attention.softmax(X).shape, (9,), 'too short')",
        )
    )
    assert (tests["test_it"].status, tests["test_it"].score) == ("failed", 0.0)
    assert "too short" in tests["test_it"].output


def test_a_hidden_reason_stays_hidden(ran):
    tests, _ = ran(
        a_case(
            "@weight(2)", "@hide_errors('See chapter 7.')", "def test_it(self):", "    self.fail('the answer is 42')"
        )
    )
    assert tests["test_it"].output == "See chapter 7."


def test_part_of_the_points_and_a_leaderboard(ran):
    tests, found = ran(a_case(
        "@partial_credit(10)", "def test_part(self, set_score=None):", "    set_score(4.5)",
        "@leaderboard('rows', 'asc')", "def test_board(self, set_leaderboard_value=None):", "    set_leaderboard_value(7)",
        "@leaderboard('never')", "def test_empty(self, set_leaderboard_value=None):", "    subject.attention.softmax(X)", "    self.fail('first')",
    ))  # fmt: skip
    assert (tests["test_part"].status, tests["test_part"].score, tests["test_part"].max_score) == ("failed", 4.5, 10.0)
    assert found.leaderboard == (("rows", 7.0, "asc"),)


def test_what_the_submission_raises_is_raised_here_and_costs_it_the_test(ran, tmp_path):
    """With Python's own type where it has one, so that assertRaises works, and with the student's line."""
    root = tmp_path / "submission"
    root.mkdir()
    (root / "attention.py").write_text("def softmax(x, axis=-1):\n    raise ValueError('no')\n")
    tests, _ = ran(a_case(
        "@weight(1)", "def test_wanted(self):", "    self.assertRaises(ValueError, subject.attention.softmax, X)",
        "@weight(1)", "def test_unwanted(self):", "    subject.attention.softmax(X)",
        "@weight(1)", "def test_missing(self):", "    subject.attention.causal_mask(3)",
    ), root)  # fmt: skip
    assert tests["test_wanted"].status == "passed"
    assert tests["test_unwanted"].status == tests["test_missing"].status == "failed"
    assert "ValueError: no at attention.py, line 2" in tests["test_unwanted"].output


def test_every_failing_part_of_a_test_is_told_and_the_test_is_not_lost(ran):
    tests, _ = ran(a_case(
        "@weight(2)", "def test_parts(self):", "    for n in (1, 2, 3):", "        with self.subTest(n=n):", "            self.assertEqual(n, 2)",
        "@weight(2)", "def test_good_parts(self):", "    for n in (1, 2):", "        with self.subTest(n=n):", "            pass",
    ))  # fmt: skip
    assert (tests["test_parts"].status, tests["test_parts"].score, tests["test_parts"].max_score) == (
        "failed",
        0.0,
        2.0,
    )
    assert "(n=1)" in tests["test_parts"].output and "(n=3)" in tests["test_parts"].output
    assert (tests["test_good_parts"].status, tests["test_good_parts"].score) == ("passed", 2.0)


def test_a_skipped_test_costs_nothing(ran):
    """A method's, a class's, and one that is skipped as it runs."""
    tests, _ = ran(
        a_case("@weight(1)", "@unittest.skip('no GPU')", "def test_one(self):", "    pass", "@weight(1)", "def test_two(self):", "    self.skipTest('later')")
        + "@unittest.skip('all')\nclass Others(unittest.TestCase):\n    @weight(1)\n    def test_three(self):\n        pass\n"
        + "class Late(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        raise unittest.SkipTest('none')\n    @weight(1)\n    def test_four(self):\n        pass\n"
    )  # fmt: skip
    assert {t.status for t in tests.values()} == {"passed"} and {t.score for t in tests.values()} == {1.0}
    assert "no GPU" in tests["test_one"].output and "none" in tests["test_four"].output


CLASS = "class Ours(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        {}\n    @weight(2)\n    def test_it(self):\n        pass\n"


def test_a_raising_set_up_keeps_its_tests_as_not_judged(ran):
    """The tests' own fault lowers no score, and staff are told what it was."""
    for body in (CLASS.format("open('/none')"), "def setUpModule():\n    raise OSError('x')\n" + CLASS.format("pass")):
        tests, _ = ran(body)
        assert (tests["test_it"].status, tests["test_it"].max_score) == ("not-run", 2.0)
        assert "Error" in tests["test_it"].reason


def test_a_set_up_that_the_submission_breaks_costs_its_tests(ran, tmp_path):
    (tmp_path / "attention.py").write_text("def softmax(x, axis=-1):\n    return 1 / 0\n")
    tests, _ = ran(CLASS.format("subject.attention.softmax(X)"), tmp_path)
    assert tests["test_it"].status == "failed" and "ZeroDivisionError" in tests["test_it"].output


def test_a_mistake_in_a_test_is_not_the_students(ran):
    """A name that nobody defined, and whatever breaks before the submission was asked anything."""
    tests, _ = ran(a_case("@weight(1)", "def test_name(self):", "    subject.attention.softmax(X)", "    undefined"))
    assert tests["test_name"].status == "not-run"
    tests, _ = ran(a_case("@weight(1)", "def test_early(self):", "    {}['x']"))
    assert tests["test_early"].status == "not-run"


def test_a_result_that_breaks_the_test_is_the_submissions_fault(ran, tmp_path):
    (tmp_path / "attention.py").write_text("def softmax(x, axis=-1):\n    return None\n")
    tests, _ = ran(a_case("@weight(1)", "def test_it(self):", "    subject.attention.softmax(X)[0]"), tmp_path)
    assert tests["test_it"].status == "failed" and "TypeError" in tests["test_it"].output


@pytest.mark.parametrize("fault", [OutOfTime(), SandboxError("no worker")])
def test_the_graders_own_fault_costs_nothing(ran, fault):
    class Broken:
        def keep(self, *_, **__):
            raise fault

    tests, _ = ran(a_case("@weight(1)", "def test_it(self):", "    subject.attention.softmax(X)"), subject=Broken())
    assert tests["test_it"].status == "not-run"


def test_expected_failures_are_kept_too(ran):
    tests, _ = ran(a_case(
        "@weight(1)", "@unittest.expectedFailure", "def test_known(self):", "    self.fail()",
        "@weight(1)", "@unittest.expectedFailure", "def test_surprise(self):", "    pass",
    ))  # fmt: skip
    assert (tests["test_known"].status, tests["test_surprise"].status) == ("passed", "failed")


def test_a_file_that_ends_the_process_is_a_fault_of_its_own(ran):
    _, found = ran("raise SystemExit(3)\n")
    assert len(found.tests) == 1 and found.tests[0].status == "not-run" and "SystemExit" in found.tests[0].reason


def test_tests_are_ordered_by_their_numbers(ran):
    lines = [
        part
        for n in ("1.10", "1.9", "1.2")
        for part in (f"@number('{n}')", f"def test_{n.replace('.', '_')}(self):", "    pass")
    ]
    tests, _ = ran(a_case("def test_a(self):", "    pass", *lines))
    assert list(tests) == ["test_1_2", "test_1_9", "test_1_10", "test_a"]


def test_a_value_that_stays_with_the_submission_can_be_used(ran, tmp_path):
    (tmp_path / "kv_cache.py").write_text(
        "class Cache:\n    def size(self):\n        return 7\n\ndef prefill(model, tokens, cache=None):\n    return Cache()\n\ndef decode_step(model, token, cache):\n    return cache.size() + 1\n"
    )
    body = a_case(
        "def test_it(self):",
        "    cache = subject.kv_cache.prefill(0, [1])",
        "    self.assertEqual(cache.size(), 7)",
        "    self.assertEqual(subject.kv_cache.decode_step(0, 1, cache), 8)",
    )
    tests, _ = ran(body, tmp_path)
    assert tests["test_it"].status == "passed", tests["test_it"]


def test_they_are_a_step_of_their_own_in_every_report(ran, tmp_path):
    """Points beside the rubric's; one that could not be judged makes the report provisional; the leaderboard goes along."""
    body = a_case(
        "@weight(5)", "def test_good(self):", "    pass",
        "@weight(5)", "@visibility('hidden')", "def test_bad(self):", "    self.fail('the answer is 42')",
        "@leaderboard('rows')", "def test_board(self, set_leaderboard_value=None):", "    set_leaderboard_value(7)",
    )  # fmt: skip
    _, own = ran(body)
    report = build_report(all_passed(), rubric(tmp_path), own=own)
    assert (report.score, report.max_score, report.steps[-1].title) == (105.0, 110.0, "The course's own tests")
    found = to_results(report)
    assert found["leaderboard"] == [{"name": "rows", "value": 7.0, "order": "desc"}]
    assert "42" not in json.dumps(found) and found["score"] == 105.0
    _, own = ran(a_case("@weight(5)", "def test_broken(self):", "    {}['x']"))
    report = build_report(all_passed(), rubric(tmp_path), own=own)
    assert report.score is None and report.faults == {"own.test_ours.Ours.test_broken": "KeyError: 'x'"}


def test_a_test_has_the_number_that_the_course_gave_it_and_no_second_one(ran, tmp_path):
    """Gradescope puts a row's number before its name, which begins with the test's own."""
    _, own = ran(a_case("@weight(5)", "@number('2.1')", "def test_it(self):", "    'Rows sum to 1.'"))
    row = to_results(build_report(all_passed(), rubric(tmp_path), own=own))["tests"][-1]
    assert (row["name"], "number" in row) == ("2.1 Rows sum to 1.", False)


@pytest.mark.slow
def test_a_grading_runs_them_through_the_worker(submission, tmp_path):
    """The file beside a rubric that names it."""
    from grader.grade import grade

    course = tmp_path / "course"
    course.mkdir()
    (course / "test_ours.py").write_text(
        HEAD
        + a_case(
            "@weight(4)", "def test_it(self):", "    self.assertAlmostEqual(subject.attention.softmax(X)[0].sum(), 1.0)"
        )
    )
    (course / "rubric.yaml").write_text("schema: 1\ntitle: x\npoints: {step2: 6}\ntests: [test_ours.py]\n")
    report = grade(submission(), rubric=load_rubric(course / "rubric.yaml"), steps={2})
    assert (report.score, report.max_score) == (10.0, 10.0)
    waived = "waived: {own.test_ours.Ours.test_it: not this year}\n"
    (course / "rubric.yaml").write_text(f"schema: 1\ntitle: x\npoints: {{step2: 6}}\ntests: [test_ours.py]\n{waived}")
    report = grade(submission(attention="x = 1\n"), rubric=load_rubric(course / "rubric.yaml"), steps={2})
    assert report.steps[-1].score == 4.0 and "not this year" in report.steps[-1].checks[0].output


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.py", None, "cannot be read"),
        ("../x.py", "", "leads out"),
        ("test.py", "def (", "is no Python"),
        ("test.py", "x = '\0'", "is no Python"),
    ],
)
def test_a_rubric_that_names_no_test_file_is_told_with_its_line(tmp_path, name, text, said):
    folder = tmp_path / "course"
    folder.mkdir()
    if text is not None:
        (folder / name).write_text(text)
    (folder / "rubric.yaml").write_text(RUBRIC + f"tests:\n  - {name}\n")
    with pytest.raises(RubricError, match=said) as told:
        load_rubric(folder / "rubric.yaml")
    assert told.value.line == 7


def test_another_test_file_is_another_fingerprint(tmp_path):
    found = []
    for text in ("x = 1\n", "x = 2\n"):
        (tmp_path / "ours.py").write_text(text)
        found.append(rubric(tmp_path, "tests: [ours.py]\n").fingerprint)
    assert len(set(found)) == 2


# -- what staff decide about them --------------------------------------------------------------------------------------

TWO = a_case(
    "@classmethod", "def setUpClass(cls):", "    open('/none')",
    "@weight(4)", "def test_left(self):", "    {}['x']", "@weight(1)", "def test_right(self):", "    self.fail('no')",
)  # fmt: skip


def test_a_waived_test_is_not_run_and_pays_everybody(ran, tmp_path):
    """Nor is the setUpClass of a class whose tests are all waived; the others of its file run."""
    body = f"""
class Ours(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        open({str(tmp_path / "begun")!r}, "w")
    @weight(4)
    def test_left(self):
        open({str(tmp_path / "ran")!r}, "w")
        self.fail("no")

class Others(unittest.TestCase):
    @weight(1)
    def test_other(self):
        self.fail("no")
"""
    tests, _ = ran(body, waived={"own.test_ours.Ours.test_left": "The handout did not speak of it."})
    left = tests["test_left"]
    assert (left.status, left.score, left.output) == ("passed", 4.0, "Waived for all: The handout did not speak of it.")
    assert not (tmp_path / "begun").exists() and not (tmp_path / "ran").exists()
    assert (tests["test_other"].status, tests["test_other"].max_score) == ("failed", 1.0)


def set_by_hand(check: str, **more) -> str:
    told = "".join(f", {k}: {v}" for k, v in more.items())
    return f"tests: [test_ours.py]\noverrides:\n  - {{student: ann, reason: shown in office hours, check: {check}{told}}}\n"


def test_staff_set_a_students_result_of_a_test_and_its_reason_is_told(ran, tmp_path):
    """One that could not be judged as well, which no longer withholds that student's score; nobody else's changes."""
    _, own = ran(TWO.replace("open('/none')", "pass"))
    extra = set_by_hand("own.test_ours.Ours.test_left")
    mine = build_report(all_passed(), rubric(tmp_path, extra), own=own, students=["ann"])
    check = {c.id: c for c in mine.steps[-1].checks}["own.test_ours.Ours.test_left"]
    assert (check.status, check.score, mine.score) == ("passed", 4.0, 104.0)
    assert "4 of 4 points by hand: shown in office hours" in check.diagnoses[0].message
    assert "shown in office hours" in json.dumps(to_results(mine))
    assert build_report(all_passed(), rubric(tmp_path, extra), own=own, students=["bob"]).score is None
    part = set_by_hand("own.test_ours.Ours.test_left", points=1.5)
    assert build_report(all_passed(), rubric(tmp_path, part), own=own, students=["ann"]).score == 101.5


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("tests: [test_ours.py]\nwaived: {own.test_ours.Ours.test_lft: x}\n", "write own.test_ours.Ours.test_left, if that is meant"),
        ("waived: {own.test_ours.Ours.test_left: x}\n", "of a file that is named under tests"),
        (set_by_hand("own.test_ours.Ours.test_lft"), "own.test_ours.Ours.test_lft is no test of this course"),
        (set_by_hand("own.test_ours.Ours.test_left", points=5), "which is worth 4"),
        ("tests: [test_ours.py, more/test_ours.py]\n", "two files of tests are called test_ours.py"),
    ],
)  # fmt: skip
def test_a_name_that_no_test_has_is_told_before_anything_is_graded(tmp_path, extra, said):
    (tmp_path / "more").mkdir()
    for place in (tmp_path, tmp_path / "more"):
        (place / "test_ours.py").write_text(HEAD + TWO)
    with pytest.raises(RubricError, match=r"rubric\.yaml, line") as told:
        rubric(tmp_path, extra)
    assert said in str(told.value)


@pytest.mark.parametrize(
    "body",
    [
        a_case("def test_it(self):", "    pass").replace("Ours", "Base")
        + "class Ours(Base):\n    pass\n",  # inherited here
        "from elsewhere import Base\nclass Ours(Base):\n    pass\n",
        "from elsewhere import *\n",
        "class Ours(unittest.TestCase):\n    test_it = make()\n",
        "class Ours(unittest.TestCase):\n    @cases(1, 2)\n    def test_i(self):\n        pass\n",
        "@many\nclass Ours(unittest.TestCase):\n    pass\n",
        "def load_tests(loader, tests, pattern):\n    return tests\n",
        "if True:\n" + textwrap.indent(a_case("def test_it(self):", "    pass"), "    "),
    ],
)
def test_a_test_that_may_be_made_as_the_file_runs_is_taken_at_its_word(tmp_path, body):
    (tmp_path / "test_ours.py").write_text(HEAD + body)
    found = rubric(tmp_path, "tests: [test_ours.py]\nwaived: {own.test_ours.Ours.test_it: x}\n")
    assert list(found.waived) == ["own.test_ours.Ours.test_it"]


def test_one_that_was_not_made_after_all_is_told_to_staff(ran, tmp_path):
    _, own = ran("class Ours(unittest.TestCase):\n    test_made = lambda self: None\n")
    read = rubric(tmp_path, "tests: [test_ours.py]\nwaived: {own.test_ours.Ours.test_it: x}\n")
    report = build_report(all_passed(), read, own=own)
    assert report.final and list(report.faults) == ["own.test_ours.Ours.test_it"]
