"""The page stands on its own, holds what a student may see, and escapes everything."""

import re
from html.parser import HTMLParser

from grader.pictures import Rows, Strip, Token, time_plot
from grader.render.html import _contrast, palette, to_html, write_html
from grader.render.plot import _decades, _powers_of_two, _round_numbers, _spelled
from harness.check import Fail
from harness.loader import Finding
from tests.grader.lab_of_two import (
    AGREES,
    BYTES,
    GREEDY,
    ROWS,
    SHIFT,
    blocked,
    broken,
    failed,
    passed,
    report_of,
    stub,
    wrong_rows,
)

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags with attributes, the text outside style, and whether every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def everything(tmp_path):
    """A report with every status, evidence, a note and a finding."""
    noted = passed(GREEDY, followed=True)
    noted.result.notes = (("wrong-dtype", "wider than it needs to be"),)
    wrong = failed(ROWS, wrong_rows(), ("softmax-wrong-axis", "seen so"), shown=wrong_rows())
    return report_of(
        tmp_path,
        wrong,
        blocked(SHIFT, ROWS),
        broken(BYTES),
        noted,
        findings=[Finding("file-missing", "kv_cache", "kv_cache.py is missing.")],
        integrity=["staff alone read this"],
        extra="manual:\n  - {step: 2, title: the words, points: 3}\n",
    )


def test_page_is_well_formed_and_every_part_is_there(tmp_path):
    page = Page(to_html(everything(tmp_path)))
    assert page.open == []
    for text in (
        "Softmax over the queries",
        "How it was seen. Seen so.",
        "it stands on “Every row sums to 1”",
        "This could not be judged",
        "This report is provisional",
        "wider than it needs to be",
        "Judged over a right attention.py",
        "kv_cache.py is missing.",
        "A person reads this: the words (3 points beside the score)",
    ):
        assert text in page.text


def test_page_needs_no_network_and_runs_no_script(tmp_path):
    text = to_html(everything(tmp_path))
    page = Page(text)
    assert not page.named("script")
    assert not page.named("link")
    assert not page.named("img")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    policy = [m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_students_text_is_escaped(tmp_path):
    fail = Fail("<script>alert(1)</script>", "<b>", call="f('<img onerror=x>')", inputs={"<i>": 1})
    text = to_html(report_of(tmp_path, failed(ROWS, fail, ("softmax-wrong-axis", "<u>"), shown=fail)))
    page = Page(text)
    assert not page.named("script")
    assert not page.named("u")
    assert "<script>alert(1)</script>" in page.text


def test_what_is_for_staff_stays_out(tmp_path):
    text = to_html(everything(tmp_path))
    assert "staff alone read this" not in text
    assert "TypeError: oops" not in text


def test_a_check_that_is_not_visible_is_counted_and_not_shown(tmp_path):
    extra = "checks:\n  step1.sdpa.agrees: {visibility: after_due_date}\n"
    text = to_html(report_of(tmp_path, failed(AGREES, wrong_rows(), ("scale-missing", "")), extra=extra))
    assert "scale-missing" not in text
    assert "step1.sdpa.agrees" not in text
    assert "1 check of this step is not shown here." in Page(text).text


def test_landmarks_headings_and_links_are_in_place(tmp_path):
    page = Page(to_html(everything(tmp_path)))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {a["href"].removeprefix("#") for a in page.named("a")} <= set(ids)
    assert {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a} <= set(ids)
    assert [len(page.named(tag)) for tag in ("main", "nav", "h1", "footer")] == [1, 1, 1, 1]
    assert page.named("html") == [{"lang": "en"}]


def test_a_fault_seen_by_two_checks_is_told_once(tmp_path):
    both = [failed(c, wrong_rows(), ("scale-missing", "")) for c in (ROWS, AGREES)]
    text = Page(to_html(report_of(tmp_path, *both))).text
    assert text.count("Where to look.") == 1
    assert "Seen first in step 1: Every row sums to 1 (2 checks fail for it)." in text
    assert "1 more check fails for the same reason ✗Attention agrees. Scores are not scaled." in text


def test_two_failures_without_a_name_are_never_called_the_same(tmp_path):
    text = Page(to_html(report_of(tmp_path, *[failed(c, wrong_rows()) for c in (ROWS, AGREES)]))).text
    assert "for the same reason" not in text
    assert "2 mistakes" in text


def test_arrays_are_tables_with_shaded_cells(tmp_path):
    page = Page(to_html(everything(tmp_path)))
    cells = [a["class"] for a in page.named("td")]
    assert cells[:4] == ["plus", "minus", "odd", "odd"]  # 1, -0.5, nan, inf


def test_a_stub_says_what_to_write_and_shows_no_exception(tmp_path):
    text = Page(to_html(report_of(tmp_path, failed(ROWS, stub(), shown=stub())))).text
    assert "softmax(x, axis=…) is not written yet." in text
    assert "NotImplementedError" not in text


def test_page_is_written_in_one_step(tmp_path):
    write_html(report_of(tmp_path), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == to_html(report_of(tmp_path))


ROWS_PICTURE = Rows(
    "Attention's weights",
    "Two queries.",
    ("q0", "q1"),
    ("k0", "k1"),
    ((0.9, None), (0.5, 0.5)),
    ((0.25, 0.75), (0.5, 0.5)),
)
STRIP_PICTURE = Strip(
    "The cache's first wrong token",
    "Token 2 of 2.",
    (Token(5, "prefill", 0.0, False), Token(9, "decode", None, True)),
    1,
)


def with_pictures(tmp_path, status="failed"):
    wrong = failed(ROWS, wrong_rows(), ("softmax-wrong-axis", ""), shown=wrong_rows())
    curve = time_plot("Your report: time of one call", [64, 128, 256], [1e-4, 4e-4, 16e-4])
    drawn = {1: (ROWS_PICTURE, STRIP_PICTURE, curve), 2: (curve,)}
    return report_of(tmp_path, *([wrong] if status == "failed" else []), pictures=drawn)


def test_weights_stand_beside_the_right_ones(tmp_path):
    """A heat map names its rows and columns, marks what is furthest off in a row, and says what a row sums to."""
    page = Page(to_html(with_pictures(tmp_path)))
    assert page.open == []
    cells = [a["class"] for a in page.named("td") if "class" in a and a["class"].startswith("h")]
    assert cells == ["h9", "h0 off", "h5", "h5", "h2", "h8", "h5", "h5"]
    assert {a["scope"] for a in page.named("th")} == {"row", "col"}
    for text in ("yours", "right", ".900", "none", "1.00"):
        assert text in page.text


def test_the_first_wrong_token_stands_out(tmp_path):
    page = Page(to_html(with_pictures(tmp_path)))
    assert [a["class"] for a in page.named("li") if a.get("class", "").startswith(("prefill", "decode"))] == [
        "prefill",
        "decode wrong first",
    ]


def test_a_plot_says_in_words_what_it_shows(tmp_path):
    """Each plot is an image with a label, for a phone and for a desk, and no two parts of the page share an id."""
    page = Page(to_html(with_pictures(tmp_path)))
    labels = [a["aria-label"] for a in page.named("svg") if a.get("role") == "img"]
    assert labels == ["Your report: time of one call. The fit is n to the 2.00 (95% interval 2.00 to 2.00)."] * 4
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_a_step_that_passed_shows_curves_alone(tmp_path):
    """Rows and tokens explain a failure; where none is shown they are left out."""
    page = Page(to_html(with_pictures(tmp_path, status="passed")))
    assert "The cache's first wrong token" not in page.text
    assert page.text.count("Your report: time of one call") == 2


def test_every_depth_of_a_heat_map_can_be_read():
    """The ink on each shade has a contrast of 4.5 or more, on a light page and on a dark one."""
    pairs = re.findall(r"background: rgb\((\d+) (\d+) (\d+)\); color: rgb\((\d+) (\d+) (\d+)\)", palette())
    assert len(pairs) == 22
    for pair in pairs:
        numbers = [int(n) for n in pair]
        assert _contrast(numbers[:3], numbers[3:]) >= 4.5


def test_axes_have_a_few_round_ticks():
    """Decades in y, powers of two in x, and in units that keep them short."""
    assert _decades(2e-4, 2.0) == [1e-3, 1e-2, 1e-1, 1.0]
    assert _decades(2.1, 2.9) == []
    assert [_spelled(v, "s") for v in (1e-3, 0.1, 1.0)] == ["1 ms", "100 ms", "1 s"]
    assert [_spelled(v, "B") for v in (2.0**20, 10 * 2.0**30)] == ["1 MiB", "10 GiB"]
    assert _powers_of_two(128, 4096) == [128, 256, 512, 1024, 2048, 4096]
    assert len(_powers_of_two(1, 2**30)) <= 6
    assert _round_numbers(1, 512) == [100, 200, 300, 400, 500]
