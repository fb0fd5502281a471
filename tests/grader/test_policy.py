"""What a platform keeps of several submissions: lateness, the best, how many; metadata that is odd decides nothing."""

import json

import pytest

from grader.policy import Metadata, Standing, metadata_of, read_metadata, refusal, standing
from grader.render.gradescope import to_refusal, to_results
from grader.render.json_file import to_data
from grader.rubric import Attempts, Late, Submissions
from tests.grader.lab_of_two import report_of
from tests.grader.test_render_gradescope import SCHEMA

NOON = "2026-03-05T12:00:00.000000-08:00"
RESULTS = {"score": 70, "tests": [{"name": "row", "score": 70}], "extra_data": {"final": True}}


def page(created=NOON, due=NOON, previous=(), **more):
    """What the platform writes, as its documentation shows it."""
    return {
        "id": 123456,
        "created_at": created,
        "assignment": {"due_date": due, "late_due_date": None, "total_points": "100.0"},
        "submission_method": "upload",
        "users": [{"email": "ann@example.edu", "id": 1234, "name": "Ann Example"}],
        "previous_submissions": list(previous),
        **more,
    }


def earlier(time, score, **more):
    return {"submission_time": time, "score": score, "autograder_error": False, "results": RESULTS, **more}


def test_the_documented_page_is_read_whole():
    about = metadata_of(page(previous=[earlier("2026-03-05T10:00:00-08:00", "70.0")]))
    assert about.students == ("ann@example.edu", "1234", "Ann Example")
    assert about.odd == () and about.created == about.due
    assert (about.previous[0].score, about.previous[0].judged) == (70.0, True)


@pytest.mark.parametrize(
    "odd",
    [
        None, [], "words", 7, {"users": {}}, {"users": [3]}, {"users": [{"email": None}]}, {"created_at": 5}, {"created_at": "soon"},
        {"assignment": []}, {"assignment": {"due_date": "never"}}, {"previous_submissions": {}}, {"previous_submissions": [None, 3, {}]},
        {"previous_submissions": [{"score": "NaN", "submission_time": [], "results": [1]}]}, {"previous_submissions": [{"results": {"extra_data": 3}}]},
    ],
)  # fmt: skip
def test_any_other_page_costs_nobody_anything(odd):
    """No refusal, no lateness, the score as it is."""
    about = metadata_of(odd)
    policy = Submissions(Attempts(1, 24), "best", Late(50))
    assert refusal(policy, about) is None
    assert standing(policy, about, 80.0) == standing(Submissions(), Metadata(), 80.0)


def test_a_file_that_is_absent_or_no_json_is_told_to_staff_alone(tmp_path):
    broken = tmp_path / "submission_metadata.json"
    absent = read_metadata(broken)
    broken.write_bytes(b"\xff{")
    for about in (absent, read_metadata(broken)):
        found = to_results(report_of(tmp_path), about=about)
        assert found["extra_data"]["metadata"] == list(about.odd) != []
        assert "metadata" not in found["output"]
    broken.write_text("[" * 100_000)
    assert read_metadata(broken).odd


@pytest.mark.parametrize(
    ("created", "score", "days"),
    [
        ("2026-03-05T11:59:00-08:00", 80.0, None),
        ("2026-03-05T12:15:00-08:00", 80.0, None),  # within the grace
        ("2026-03-05T20:16:00+00:00", 72.0, "1 day late"),  # another zone
        ("2026-03-06T12:15:00-08:00", 72.0, "1 day late"),
        ("2026-03-06T12:16:00-08:00", 64.0, "2 days late"),
        ("2026-05-05T12:00:00-08:00", 40.0, "50 percent less"),
    ],
)
def test_each_begun_day_after_the_grace_takes_its_percent(created, score, days):
    kept = standing(Submissions(late=Late(10, 50, 15)), metadata_of(page(created)), 80.0)
    assert kept.score == score
    assert (days in kept.lines[0]) if days else kept.lines == ()


def test_an_extension_of_one_member_is_the_groups():
    users = [
        {"id": 1, "assignment": {"due_date": NOON}},
        {"id": 2, "assignment": {"due_date": "2026-03-09T12:00:00-08:00"}},
    ]
    about = metadata_of(page("2026-03-08T12:00:00-08:00", users=users))
    assert standing(Submissions(late=Late(10)), about, 80.0).score == 80.0


def test_the_best_counts_and_says_which(tmp_path):
    """One that the autograder broke on, and one that was refused, count for nothing."""
    previous = [
        earlier("2026-03-04T10:00:00-08:00", 91.5),
        earlier("2026-03-04T11:00:00-08:00", 99, autograder_error=True),
        earlier("2026-03-04T12:00:00-08:00", 98, results={"extra_data": {"refused": True}}),
    ]
    about = metadata_of(page(previous=previous))
    assert standing(Submissions(counts="latest"), about, 80.0).score == 80.0
    assert standing(Submissions(counts="best"), about, 95.0) == standing(Submissions(), about, 95.0)
    found = to_results(
        report_of(tmp_path), policy=Submissions(counts="best"), about=metadata_of(page(previous=[earlier(NOON, 101)]))
    )
    assert found["score"] == 101 and "The best submission counts" in found["output"]
    kept = standing(Submissions(counts="best"), about, 80.0)
    assert kept.score == 91.5 and "2026-03-04 10:00" in kept.lines[0] and "80" in kept.lines[0]


def test_the_best_is_of_scores_with_their_lateness_each_its_own():
    """This one's is taken off before it is compared; an earlier one's stands in the score that the platform has kept."""
    previous = [earlier("2026-03-05T10:00:00-08:00", 60)]
    about = metadata_of(page("2026-03-06T10:00:00-08:00", previous=previous))
    policy = Submissions(counts="best", late=Late(10))
    assert standing(policy, about, 70.0) == Standing(63.0, standing(Submissions(late=Late(10)), about, 70.0).lines)
    kept = standing(policy, about, 65.0)
    assert kept.score == 60.0 and "makes 65 points 58.5" in kept.lines[0] and "This one has 58.5" in kept.lines[1]


def test_what_counts_changes_gradescopes_total_and_nothing_else(tmp_path):
    """The rows are of this submission, and report.json has its score as it was judged."""
    report = report_of(tmp_path)
    about = metadata_of(page("2026-03-06T10:00:00-08:00", previous=[earlier(NOON, 95)]))
    alone, found = to_results(report), to_results(report, policy=Submissions(counts="best", late=Late(10)), about=about)
    assert (alone["score"], found["score"], to_data(report)["score"]) == (100, 95, 100)
    assert found["tests"] == alone["tests"]


def test_attempts_are_counted_back_from_the_submission_and_not_from_its_regrade():
    """However long ago that was: a rerun of an old one that was graded grades it again."""
    about = metadata_of(page("2020-03-05T12:00:00-08:00", previous=[earlier("2020-03-04T11:59:00-08:00", 1)]))
    assert refusal(Submissions(Attempts(1, 24)), about) is None
    about = metadata_of(page("2020-03-05T12:00:00-08:00", previous=[earlier("2020-03-04T12:01:00-08:00", 1)]))
    refused = refusal(Submissions(Attempts(1, 24)), about)
    assert (
        "1 is graded in 24 hours, and it has been used" in refused.lines[0]
        and "from 2020-03-05 12:01" in refused.lines[1]
    )


def test_one_submission_too_many_is_not_graded_and_keeps_the_score():
    """Two in 24 hours: the third says when the next is graded, and shows the last results again."""
    import jsonschema

    times = ["2026-03-04T11:00:00-08:00", "2026-03-04T13:00:00-08:00", "2026-03-05T10:00:00-08:00"]
    previous = [earlier(t, s) for t, s in zip(times, (90, 60, 70), strict=True)]
    about = metadata_of(page(previous=previous))
    refused = refusal(Submissions(Attempts(2, 24)), about)
    assert refused.score == 70 and "from 2026-03-05 13:00" in refused.lines[1]
    found = to_refusal(refused)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert found["tests"] == RESULTS["tests"] and found["extra_data"] == {"refused": True}
    assert refusal(Submissions(Attempts(3, 24)), about) is None
    assert refusal(Submissions(Attempts(2, 24), "best"), about).score == 90


def test_refused_submissions_and_broken_gradings_are_not_counted():
    previous = [
        earlier("2026-03-05T10:00:00-08:00", 70),
        earlier("2026-03-05T10:30:00-08:00", 70, results={"extra_data": {"refused": True}}),
        earlier("2026-03-05T11:00:00-08:00", 0, autograder_error=True),
    ]
    assert refusal(Submissions(Attempts(2, 24)), metadata_of(page(previous=previous))) is None


def test_old_results_that_are_odd_can_still_be_shown_again():
    for results in ({}, {"tests": 3}, {"tests": ["x", {"name": "row"}]}):
        about = metadata_of(page(previous=[earlier(NOON, 50, results=results)]))
        json.dumps(to_refusal(refusal(Submissions(Attempts(1, 1)), about)))
