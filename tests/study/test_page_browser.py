"""The report page in a real browser: no error, a table that sorts and filters, a point that leads to its row."""

import shutil

import pytest

from tests.study.pages import page_of, study

pytestmark = pytest.mark.browser
CHROMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# In a container there is neither a sandbox nor much shared memory, and a page of our own needs no sandbox.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


def _open(playwright):
    """A browser: Playwright's own, or one of the system's. Skips where none starts."""
    chrome = next((found for name in CHROMES if (found := shutil.which(name))), None)
    faults = []
    for kind, path in ((playwright.chromium, None), (playwright.chromium, chrome), (playwright.firefox, None),
                       (playwright.firefox, shutil.which("firefox"))):
        if path is None and faults and kind is playwright.chromium:
            continue
        try:
            return kind.launch(executable_path=path, args=FLAGS if path and path == chrome else None)
        except Exception as error:
            faults.append(str(error).strip().splitlines()[0])
    pytest.skip(f"no headless browser starts here: {'; '.join(dict.fromkeys(faults))}")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="no headless browser here: Playwright is not installed "
                              "(pip install playwright, then playwright install chromium)")
    with api.sync_playwright() as playwright:
        opened = _open(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return page_of(study(tmp_path_factory.mktemp("study"))).file


@pytest.fixture
def view(browser, file):
    """The page, opened, and what its console and its requests had to complain of."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri())
    yield page, wrong
    page.close()


def _column(page, heading):
    """What the visible rows say under ``heading``."""
    return page.evaluate("""heading => {
        const table = document.getElementById("candidates-table");
        const at = Array.from(table.tHead.rows[0].cells).findIndex((cell) => cell.textContent === heading);
        return Array.from(table.tBodies[0].rows).filter((row) => !row.hidden).map((row) => row.cells[at].textContent);
    }""", heading)


def test_it_opens_without_an_error_and_is_seen(view, tmp_path):
    page, wrong = view
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shot = tmp_path / f"{theme}.png"
        page.screenshot(path=shot, full_page=True)
        assert shot.stat().st_size > 10_000
    assert wrong == []


def test_the_table_sorts_both_ways_with_gaps_at_the_end(view):
    page, wrong = view
    button = page.locator("#candidates-table th button", has_text="BLEU (valid)")
    for down in (False, True):
        button.click()
        said = _column(page, "BLEU (valid)")
        scores = [float(text) for text in said if text != "–"]
        assert len(scores) > 2 and scores == sorted(scores, reverse=down)
        assert "–" not in said[: len(scores)]
    assert button.locator("..").get_attribute("aria-sort") == "descending" and wrong == []


def test_the_table_filters_by_state_and_words(view):
    page, _ = view
    everyone = _column(page, "state")
    page.select_option("#filter-state", "failed")
    assert set(_column(page, "state")) == {"failed"} and everyone.count("failed") == len(_column(page, "state"))
    page.select_option("#filter-state", "front")
    assert set(_column(page, "front")) == {"yes"}
    page.select_option("#filter-state", "")
    page.fill("#filter-words", "gated complete")
    assert 0 < len(_column(page, "state")) < len(everyone)


def test_a_point_leads_to_its_row(view):
    page, _ = view
    number = page.locator("#front .point").first.get_attribute("data-trial")
    page.locator("#front .point").first.dispatch_event("click")
    assert page.locator("tr.chosen").get_attribute("id") == f"trial-{number}"


def test_nothing_but_tables_is_wider_than_a_phone(view):
    page, _ = view
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
