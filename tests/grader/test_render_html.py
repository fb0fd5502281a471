"""The page stands on its own, holds what a student may see, and escapes everything."""

from html.parser import HTMLParser

from grader.render.html import to_html, write_html
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
    assert "1 more check fails by the same ✗Attention agrees. Scores are not scaled." in text


def test_two_failures_without_a_name_are_never_called_the_same(tmp_path):
    text = Page(to_html(report_of(tmp_path, *[failed(c, wrong_rows()) for c in (ROWS, AGREES)]))).text
    assert "fails by the same" not in text
    assert text.count("fits none of the known mistakes") == 2


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
