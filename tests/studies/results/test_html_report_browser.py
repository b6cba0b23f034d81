"""Report page in a browser: no errors, sorting, filtering, selection of costs, points with texts.

The tests open the page of a small study and the example page in ``docs/``. The screenshot
A screenshot is written by::

    REPORT_SCREENSHOT=example-report.png \\
        pytest -m browser tests/studies/results/test_html_report_browser.py -k screenshot
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.studies.pages import Page, page_of, references_only, study

pytestmark = pytest.mark.browser
CHROMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Containers have no sandbox and little shared memory. The pages are trusted.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
EXAMPLE = Path(__file__).parents[3] / "docs" / "example-report.html"
MAX_HTML = 600_000
MAX_PNG = 400_000  # bytes of the committed example and its picture
# Script that returns overlapping elements, and elements that are wider than the window.
OVERLAPS = """() => {
    const selector = "main > section, main > section > *, #front-panels > figure";
    const parts = Array.from(document.querySelectorAll(selector))
        .filter((part) => part.checkVisibility());
    const name = (part) => part.id || part.tagName + " " + part.textContent.slice(0, 40);
    const errors = [];
    for (const one of parts) {
        const a = one.getBoundingClientRect();
        const width = document.documentElement.clientWidth;
        if (a.left < -1 || a.right > width + 1) errors.push("too wide: " + name(one));
        for (const other of parts) {
            if (one === other || one.contains(other) || other.contains(one)) continue;
            const b = other.getBoundingClientRect();
            const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (across > 1 && down > 1) errors.push(name(one) + " on " + name(other));
        }
    }
    return errors;
}"""


def _open(playwright):
    """Start Playwright's browser, or a browser of the system; skip the test if that fails."""
    chrome = next((path for name in CHROMES if (path := shutil.which(name))), None)
    faults = []
    for kind, path in ((playwright.chromium, None), (playwright.chromium, chrome),
                       (playwright.firefox, None), (playwright.firefox, shutil.which("firefox"))):
        if path is None and faults and kind is playwright.chromium:
            continue
        try:
            return kind.launch(executable_path=path,
                               args=FLAGS if path and path == chrome else None)
        except Exception as error:
            faults.append(str(error).strip().splitlines()[0])
    pytest.skip(f"no headless browser starts here: {'; '.join(dict.fromkeys(faults))}")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api",
                              reason="no headless browser here: Playwright "
                              "is not installed (pip install playwright, then playwright install "
                              "chromium)")
    with api.sync_playwright() as playwright:
        opened = _open(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return page_of(study(tmp_path_factory.mktemp("study"))).file


@pytest.fixture
def view(browser, file):
    """Opened page of a study, and the list of its errors and network requests."""
    yield from _opened(browser, file)


@pytest.fixture
def example(browser):
    """Opened example page, and the list of its errors and network requests."""
    yield from _opened(browser, EXAMPLE)


def _opened(browser, file):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors = []
    page.on("console",
            lambda message: errors.append(message.text) if message.type in ("error", "warning")
            else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request",
            lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri())
    yield page, errors
    page.close()


def _column(page, heading):
    """Texts of the visible rows in the column ``heading``."""
    return page.evaluate("""heading => {
        const table = document.getElementById("trials-table");
        const headings = Array.from(table.tHead.rows[0].cells);
        const column = headings.findIndex((cell) => cell.textContent === heading);
        const rows = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
        return rows.map((row) => row.cells[column].textContent);
    }""", heading)


@pytest.mark.full
def test_page_opens_without_error(view, tmp_path):
    page, errors = view
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shot = tmp_path / f"{theme}.png"
        page.screenshot(path=shot, full_page=True)
        assert shot.stat().st_size > 10_000
    assert errors == []


def test_table_sorts_in_both_directions_with_missing_values_last(view):
    page, errors = view
    button = page.locator("#trials-table th button", has_text="BLEU (validation)")
    for descending in (False, True):
        button.click()
        texts = _column(page, "BLEU (validation)")
        scores = [float(text) for text in texts if text != "–"]
        assert len(scores) > 2 and scores == sorted(scores, reverse=descending)
        assert "–" not in texts[: len(scores)]
    assert button.locator("..").get_attribute("aria-sort") == "descending" and errors == []


def test_table_filters_by_state_and_words(view):
    page, _ = view
    states = _column(page, "state")
    page.select_option("#filter-state", "failed")
    assert set(_column(page, "state")) == {"failed"} and states.count("failed") == len(
        _column(page, "state"))
    page.select_option("#filter-state", "front")
    assert set(_column(page, "front")) == {"yes"}
    page.select_option("#filter-state", "")
    page.fill("#filter-words", "gated complete")
    assert 0 < len(_column(page, "state")) < len(states)


def test_click_on_point_shows_row(view):
    page, _ = view
    number = page.locator("#front .point").first.get_attribute("data-trial")
    page.locator("#front .point").first.dispatch_event("click")
    assert page.locator("tr.chosen").get_attribute("id") == f"trial-{number}"


def test_hover_on_point_shows_numbers_and_highlights_row(view):
    page, errors = view
    point = page.locator("#front-panels figure:not([hidden]) .point").first
    number = point.get_attribute("data-trial")
    point.dispatch_event("pointerenter", {"clientX": 1270, "clientY": 880})
    assert f"trial {number}" in page.locator("#tip").inner_text() and "BLEU" in page.locator(
        "#tip").inner_text()
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 900
    assert "lit" in page.locator(f"#trial-{number}").get_attribute("class")
    point.dispatch_event("pointerleave")
    assert page.locator("#tip").is_hidden() and page.locator(".lit").count() == 0 and errors == []


def _shown_costs(page):
    return page.eval_on_selector_all("#front-panels figure", """figures => figures
        .filter((figure) => figure.checkVisibility()).map((figure) => figure.dataset.x)""")


@pytest.mark.parametrize("which", ["view", "example"])
def test_reader_selects_costs(which, request):
    page, errors = request.getfixturevalue(which)
    assert _shown_costs(page) == ["params.total", "macs.total"]
    for name in ("flops.total", "memory.weights"):
        page.check(f"#front-axes input[value='{name}']")
    page.uncheck("#front-axes input[value='params.total']")
    assert _shown_costs(page) == ["macs.total", "flops.total", "memory.weights"] and errors == []


def test_figures_of_objectives_without_script(browser, file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    figures = page.locator("#front-panels figure")
    assert [figures.nth(index).get_attribute("data-x")
            for index in range(figures.count())] == ["params.total", "macs.total"]
    assert page.locator("#front-others summary").is_visible() and page.locator(
        "#front-axes").is_hidden()
    context.close()


def test_link_to_curve_highlights_it(view):
    page, errors = view
    link = page.locator("#trials-table a", has_text="curve").first
    link.click()
    number = link.get_attribute("data-mark")
    assert page.locator(
        f"#validation-loss .point.chosen[data-trial='{number}']").count() == 1 and errors == []


def test_link_unfolds_costs(view):
    page, _ = view
    link = page.locator("#trials-table a", has_text="costs").first
    link.click()
    folded = page.locator(link.get_attribute("href"))
    assert folded.evaluate("element => element.open") and folded.evaluate(
        "element => element.getBoundingClientRect().top < 900")


def test_page_of_references_opens_without_error(browser, tmp_path):
    for page, errors in _opened(browser, page_of(references_only(tmp_path)).file):
        assert page.evaluate(OVERLAPS) == [] and errors == []
        assert page.locator("#named-table tbody tr").count() == 2


def test_example_is_complete_and_small(example):
    page, errors = example
    parsed = Page(EXAMPLE)
    assert parsed.problems == [] and EXAMPLE.stat().st_size < MAX_HTML
    assert all(href.startswith(("#", "data:")) for href in parsed.hrefs)
    assert page.locator("#rungs-table").count() == 1
    # importance needs 20 finished trials: one sentence in place of the figure
    assert [page.locator(f"#importance {tag}").count() for tag in ("p", "svg")] == [1, 0]
    button = page.locator("#trials-table th button", has_text="params").first
    button.click()
    texts = [int(text.replace(",", "")) for text in _column(page, "params") if text != "–"]
    assert len(texts) > 5 and texts == sorted(texts)
    page.select_option("#filter-state", "failed")
    assert len(_column(page, "state")) == 1 and errors == []


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_example_has_no_overlaps(example, width, theme):
    page, errors = example
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert page.evaluate(OVERLAPS) == [] and page.evaluate(
        "document.documentElement.scrollWidth") <= width
    assert errors == []


@pytest.mark.full
def test_screenshot_of_example(example, tmp_path):
    page, errors = example
    file = Path(os.environ.get("REPORT_SCREENSHOT") or tmp_path / "example-report.png")
    page.set_viewport_size({"width": 1280, "height": 2000})
    number = page.locator("#trials-table tr.front").last.get_attribute("data-trial")
    page.locator(f"#front-panels .point[data-trial='{number}']").first.hover(force=True)
    assert f"trial {number}" in page.locator("#tip").inner_text()
    page.screenshot(path=file)
    assert 10_000 < file.stat().st_size < MAX_PNG and errors == []


@pytest.mark.full
def test_only_tables_are_wider_than_phone(view):
    page, _ = view
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
