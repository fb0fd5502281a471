"""The page in headless Chromium: no network, nothing cut off at 375 and 1440 pixels, light and dark, and no serious finding of axe."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from grader.pictures import Rows, Strip, Token, curves, time_plot
from grader.render.html import write_html
from harness.check import Fail
from harness.loader import Finding
from tests.grader.lab_of_two import AGREES, BYTES, GREEDY, ROWS, SHIFT, blocked, broken, failed, passed, report_of

pytestmark = pytest.mark.slow
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe is not installed: pip install '.[dev]'"
)
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
if CHROMIUM is None:
    pytest.skip("no Chromium is here: apt-get install chromium", allow_module_level=True)

BASE = Path(__file__).resolve().parents[2] / "examples" / "base"
WIDTHS = (375, 1440)
SCHEMES = ("light", "dark")
LOOKS = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """A report that holds every kind of part a page can have, with long names and wide arrays."""
    folder = tmp_path_factory.mktemp("page")
    table = np.linspace(-3, 3, 96).reshape(8, 12)
    fail = Fail(
        "a row sums to 1.594605305, " + "and_a_very_long_name_without_any_space_in_it" * 3,
        "every row sums to 1",
        call="scaled_dot_product_attention(float64 array (2, 4), float64 array (3, 4), float64 array (3, 6))",
        inputs={"Q": table, "mask": table > 0},
        got=table,
    )
    noted = passed(GREEDY, followed=True)
    noted.result.notes = (("wrong-dtype", "wider than it needs to be"),)
    words = ("kedi", "sütü", "içti", "beşinci", "altıncı")
    numbers = tuple(tuple(float(v) for v in row) for row in np.random.default_rng(1).dirichlet(np.ones(5), 5))
    others = tuple(tuple(float(v) for v in row) for row in np.random.default_rng(2).dirichlet(np.ones(5), 5))
    tokens = tuple(Token(i + 3, "prefill" if i < 5 else "decode", 0.0 if i < 6 else 12.5, i >= 6) for i in range(12))
    drawn = curves(BASE, [])
    plots = (
        *drawn[5],
        *drawn[6],
        *drawn[8],
        time_plot("Measured while grading: CPU time", [64, 128, 256], [1e-4, 4e-4, 16e-4]),
    )
    whole = report_of(
        folder,
        failed(ROWS, fail, ("softmax-wrong-axis", "seen so"), shown=fail),
        failed(AGREES, fail, ("softmax-wrong-axis", "seen so"), shown=fail),
        blocked(SHIFT, ROWS),
        broken(BYTES),
        noted,
        findings=[Finding("file-missing", "kv_cache", "kv_cache.py is missing.")],
        extra="manual:\n  - {step: 2, title: the words, points: 3}\n",
        environment={"python": "3.11.7", "fence": "folder, limits, landlock, uid, seccomp, net"},
        pictures={
            1: (
                Rows("Attention's weights", "Five words.", words, words, others, numbers),
                Strip("First wrong token", "Token 7.", tokens, 6),
            ),
            2: plots,
        },
    )
    write_html(whole, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(params=LOOKS, ids=[f"{width}-{scheme}" for width, scheme in LOOKS])
def page(request, browser, report):
    width, scheme = request.param
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    opened.on("request", lambda r: asked.append(r.url))
    opened.on("console", lambda m: said.append(m.text))
    opened.goto(report.as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    opened.asked, opened.said = asked, said
    yield opened
    opened.close()


def test_nothing_is_fetched_and_nothing_complains(page, report) -> None:
    """The file itself is the only request, and the console stays empty."""
    assert page.asked == [report.as_uri()]
    assert page.said == []


def test_nothing_is_wider_than_the_screen(page) -> None:
    """The page does not scroll sideways, and what is wide scrolls in its own box."""
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """width => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('.skip')
            && !e.closest('svg') && e.getBoundingClientRect().right > width + 1).map(e => e.outerHTML.slice(0, 80))""",
        width,
    )
    assert cut == []


def test_text_is_large_enough_to_read(page) -> None:
    """No text is below 11 pixels on the screen, that of plots on a phone included down to 8."""
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()))
            .map(e => { const svg = e.closest('svg.plot'), size = parseFloat(getComputedStyle(e).fontSize);
                        const shown = svg ? svg.getBoundingClientRect().width : 1;
                        return [svg ? size * shown / svg.viewBox.baseVal.width : size, Boolean(svg), e.tagName, shown] })
            .filter(e => e[3])"""  # a plot is drawn for a phone and for a desk, and one of the two is shown
    )
    assert [s for s in sizes if s[0] < (8 if s[1] else 11)] == []


def test_axe_finds_nothing_serious(page) -> None:
    """No finding of axe-core is serious or critical."""
    found = axe_playwright.Axe().run(page).response["violations"]
    serious = [
        (v["id"], v["help"], v["nodes"][0]["html"][:160]) for v in found if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_axe_would_find_something(page) -> None:
    """The same look at a page that is spoilt on purpose does find it."""
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\"><a href=\"#x\"></a>')"
    )
    found = {
        v["id"] for v in axe_playwright.Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")
    }
    assert {"image-alt", "link-name"} <= found


def test_the_two_looks_differ(browser, report) -> None:
    """Dark is dark and light is light, the heat map's cells too."""
    colours = []
    for scheme in SCHEMES:
        opened = browser.new_page(color_scheme=scheme)
        opened.goto(report.as_uri())
        colours.append(
            opened.evaluate(
                "['body', '.heat .h0'].map(s => getComputedStyle(document.querySelector(s)).backgroundColor)"
            )
        )
        opened.close()
    for light, dark in zip(*colours, strict=True):
        assert sum(map(int, light[4:-1].split(","))) > 600 > 250 > sum(map(int, dark[4:-1].split(",")))


def test_every_part_can_be_reached_by_keyboard(page) -> None:
    """Tab goes through the links, the foldable parts and the boxes that scroll, and the first stop skips to the steps."""
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    names = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        names.add(page.evaluate("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "DIV"} <= names
