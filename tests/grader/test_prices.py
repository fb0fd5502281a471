"""What known faults cost: the table of `attnlab rubric prices`, and that small faults cost little."""

import pytest
from click.testing import CliRunner

from grader import rubric_cli
from grader.rubric import load_rubric
from tests.labs.attention import prices

ROWS = [
    ("masks", "mask-ignored", {1: 4.0, 7: 3.5}),
    ("masks", "mask-inverted", {1: 5.0, 7: 3.5}),
    ("size", "tail", {1: 1}),
]


def fixture(name):
    (found,) = (f for f in prices.fixtures(name) if f.name == name)
    return found


def test_a_page_has_a_table_for_each_group_with_the_dearest_first():
    lines = rubric_cli.page(ROWS, "Ours", [1, 7]).splitlines()
    assert [line for line in lines if line.startswith(("#", "|"))] == [
        "# What each known fault costs",
        "## masks",
        "| fault | 1 | 7 | in all |",
        "|---|--:|--:|--:|",
        "| mask-inverted | 5.00 | 3.50 | 8.50 |",
        "| mask-ignored | 4.00 | 3.50 | 7.50 |",
        "## size",
        "| fault | 1 | in all |",
        "|---|--:|--:|",
        "| tail | 1.00 | 1.00 |",
    ]


def test_a_table_has_the_steps_that_cost_something():
    shown = rubric_cli.table(ROWS, [1, 2, 7])
    assert [str(column.header) for column in shown.columns] == ["fault", "1", "7", "in all"]


def test_prices_are_refused_where_there_are_no_faulty_submissions(monkeypatch, tmp_path):
    monkeypatch.setattr(rubric_cli, "CHECKOUT", tmp_path)
    done = CliRunner().invoke(rubric_cli.rubric, ["prices"])
    assert (done.exit_code, "checkout" in done.output) == (2, True)


def test_a_word_in_no_name_is_refused():
    done = CliRunner().invoke(rubric_cli.rubric, ["prices", "--match", "no-such-fault"])
    assert (done.exit_code, "no-such-fault" in done.output) == (2, True)


def test_a_rubric_that_cannot_be_used_is_told_before_anything_is_judged(tmp_path):
    (tmp_path / "mine.yaml").write_text("schema: 1\n")
    done = CliRunner().invoke(rubric_cli.rubric, ["prices", "--rubric", str(tmp_path / "mine.yaml")])
    assert (done.exit_code, "mine.yaml" in done.output) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax-epsilon", "float32-root", "float32-attention", "positions-through-float32"])
def test_what_is_off_by_less_than_a_millionth_costs_a_tenth_of_a_step_at_most(name):
    lost = prices.price(fixture(name), None)
    points = load_rubric().points
    assert lost
    assert {step: lost[step] <= points[step] / 10 for step in lost} == dict.fromkeys(lost, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["returned-weights-are-scores", "weights-missing"])
def test_a_wrong_second_value_does_not_cost_what_is_right_of_the_first(name):
    assert sum(prices.price(fixture(name), None).values()) < 5
