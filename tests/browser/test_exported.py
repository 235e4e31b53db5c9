"""The exported page of checks, opened from disk without a network; every kind of page is asked by axe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples
from jupyter_pages import CUT
from kinds_of_pages import RECORDS

import leaklab
from leaklab.ask.loading import KINDS
from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.render.json import find_embedded, format_of
from leaklab.reports.check import LeakReport
from leaklab.reports.notebook import NotebookReport, load_report

pytestmark = [pytest.mark.browser, pytest.mark.untraced]


LONG = "x" * 1_000_000
RTL = "\u202egnp.exe\u202c \u05e9\u05dc\u05d5\u05dd"


def collection():
    checks = (samples.leaky_check(), samples.clean_check(), samples.failed_check(), samples.hostile_check(), huge())
    view = KeptView("<script>alert(2)</script>", "In [9]", "a <b>text</b>\nof two lines")
    graph = LeakReport(samples.leaky_check()).graph()
    views = (KeptView("a graph", "In [10]", str(graph), str(graph._repr_html_())), view)
    return NotebookChecks("</title><script>alert(3)</script>", tuple(KeptCheck(c, RTL) for c in checks), views)


def huge():
    leak = replace(
        samples.history_leak(), what=LONG, holder=f"cache['{LONG}']", reason=LONG, advice=LONG, sites=(LONG,)
    )
    return replace(samples.only(leak), notes=(LONG, RTL + "\ud800"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "leaks.html"
    NotebookReport(collection()).save(path)
    return path


@pytest.fixture
def opened(page, file):
    """The page, opened with the network off; any message of an error on the console fails the test."""
    complaints = []
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.context.set_offline(True)
    page.goto(file.as_uri())
    yield page
    assert complaints == []


def test_every_part_opens_and_closes(opened):
    count = "want => [...document.querySelectorAll('details')].filter(part => part.open === want).length"
    n_parts = opened.locator("details").count()
    assert n_parts > 20
    opened.get_by_role("button", name="fold every part", exact=True).click()
    assert opened.evaluate(count, False) == n_parts
    opened.locator("details > summary").first.click()
    assert opened.evaluate(count, True) == 1
    opened.get_by_role("button", name="unfold every part").click()
    assert opened.evaluate(count, True) == n_parts
    assert opened.locator("section", has_text="of two lines").last.is_visible()


def test_a_table_sorts_by_the_size_of_its_figures_and_back(opened):
    opened.get_by_role("button", name="unfold every part").click()
    nav = opened.get_by_role("navigation")
    head = nav.locator("th", has_text="bytes per run")
    column = "() => [...document.querySelectorAll('nav tbody tr')].map(row => row.cells[5].textContent)"
    head.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert opened.evaluate(column)[:3] == ["1 B", "32.0 KiB", "32.2 KiB"]
    head.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert opened.evaluate(column)[:3] == ["32.2 KiB", "32.0 KiB", "1 B"]  # the empty ones stay last


def test_a_graph_zooms_pans_and_fits_again(opened):
    if not opened.locator(".graph").count():
        pytest.skip("nothing here draws graphs")
    opened.get_by_role("button", name="unfold every part").click()
    frame, image = opened.locator(".graph").first, opened.locator(".graph img").first
    width = image.bounding_box()["width"]
    for _ in range(4):
        opened.get_by_role("button", name="zoom in").first.click()
    assert image.bounding_box()["width"] == pytest.approx(width * 1.4**4, rel=0.02)
    frame.evaluate("frame => frame.scrollIntoView({block: 'center'})")
    box = frame.bounding_box()
    opened.mouse.move(box["x"] + 200, box["y"] + 200)
    opened.mouse.down()
    opened.mouse.move(box["x"] + 100, box["y"] + 120)
    opened.mouse.up()
    assert frame.evaluate("frame => [frame.scrollLeft, frame.scrollTop]") == [100, 80]
    opened.get_by_role("button", name="fit the graph to the page").first.click()
    assert image.bounding_box()["width"] == pytest.approx(width, abs=1)


def test_a_link_of_the_contents_opens_its_check(opened):
    opened.get_by_role("button", name="fold every part", exact=True).click()
    opened.get_by_role("navigation").get_by_role("link").nth(1).click()
    assert opened.locator("#check-2").is_visible()


def test_hostile_texts_run_nothing_and_break_no_layout(opened):
    opened.get_by_role("button", name="unfold every part").click()
    assert opened.locator("body script").count() == 2  # the record and our own
    width = opened.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert "\u202e" not in opened.locator("body").inner_text()


def test_without_script_everything_is_there_to_read(browser, file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.get_by_role("navigation").get_by_role("link").count() == 5
    assert page.locator("button").count() == 0
    page.locator("summary", has_text="The runs and all figures").first.click()
    assert page.locator("img").first.is_visible()
    context.close()


def test_three_hundred_leaks_are_less_than_three_megabytes_and_read_back(page, tmp_path):
    leaks = tuple(replace(samples.history_leak(), fingerprint=f"{number:012}") for number in range(5))
    check = replace(samples.leaky_check(), leaks=leaks)
    many = NotebookChecks("many", (KeptCheck(check),) * 60)
    file = tmp_path / "many.html"
    from leaklab.reports.notebook_export import render_collection

    file.write_text(render_collection(many))
    assert file.stat().st_size < 3_000_000
    assert load_report(file).collection == many
    page.goto(file.as_uri())
    assert page.locator("#check-60").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_place_rate_line_and_change_stand_in_the_first_400_pixels(page, tmp_path, scheme):
    LeakReport(samples.only(samples.cured_leak())).save(tmp_path / "one.html")
    page.set_viewport_size({"width": 1500, "height": 950})
    page.emulate_media(color_scheme=scheme)
    page.goto((tmp_path / "one.html").as_uri())
    for words in ("grows by 2 tensors (32.0 KiB) every run", "cell 4, line 8", ".item()", "same gradients"):
        box = page.get_by_text(words).first.bounding_box()
        assert box["y"] + box["height"] < 400


SHORT = ("check_*.json", "whyalive_*.json", "memdiff_*.json", "monitor_*.json")


@pytest.fixture(scope="module")
def short_pages(tmp_path_factory):
    """The page of each stored report of a kind that a cell or a loop shows."""
    folder = tmp_path_factory.mktemp("short")
    for path in (path for pattern in SHORT for path in RECORDS.glob(pattern)):
        is_moments = path.name.startswith("memdiff")
        report = leaklab.MemDiff.from_json(path) if is_moments else leaklab.load(path)
        report.to_html(folder / f"{path.stem}.html")
    return sorted(folder.glob("*.html"))


@pytest.mark.parametrize(("width", "scheme"), [(1500, "light"), (900, "dark")])
def test_a_leak_takes_400_pixels_before_its_evidence_and_a_report_700(page, short_pages, width, scheme):
    page.set_viewport_size({"width": width, "height": 950})
    page.emulate_media(color_scheme=scheme)
    heights = {}
    for path in short_pages:
        page.goto(path.as_uri())
        heights[path.stem] = page.locator("main").bounding_box()["height"]
        card = page.locator("b", has_text="Change").locator("xpath=../..").first
        if card.count():
            assert card.bounding_box()["height"] <= 400, path.stem
    assert {name: height for name, height in heights.items() if height > 700} == {}
    assert len(heights) == len(short_pages) >= 30


def test_at_400_pixels_nothing_that_is_seen_at_once_is_cut(page, short_pages):
    page.set_viewport_size({"width": 400, "height": 800})
    found = {}
    for path in short_pages:
        page.goto(path.as_uri())
        if cut := page.evaluate(CUT):
            found[path.stem] = cut[:2]
    assert found == {}


def test_the_changed_cell_is_copied_by_a_page_alone(page, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    leak = samples.only(samples.cured_leak())
    LeakReport(leak).save(tmp_path / "one.html")
    NotebookReport(NotebookChecks("", (KeptCheck(leak, "In [3]"),))).save(tmp_path / "all.html")
    for name in ("one.html", "all.html"):
        page.goto((tmp_path / name).as_uri())
        page.evaluate("navigator.clipboard.writeText('')")
        page.get_by_text("Copy the changed cell").click()
        page.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == samples.CHANGED_CELL


def test_without_scripts_the_changed_cell_unfolds(browser, tmp_path):
    LeakReport(samples.only(samples.cured_leak())).save(tmp_path / "one.html")
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((tmp_path / "one.html").as_uri())
    opened.get_by_text("Copy the changed cell").click()
    assert opened.get_by_text("for x, y in loader").is_visible()
    context.close()


ASK = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(found => found.violations.map(
    one => [one.id, one.nodes.length, one.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))"""
# All that the scheme changes is colours. Where a page is narrow, tables scroll, and axe does not know that a browser
# lets the focus into them; test_keyboard.py holds.
RULES = {
    ("light", 1100): {}, ("dark", 1100): {"runOnly": ["color-contrast"]},
    ("light", 400): {"rules": {"scrollable-region-focusable": {"enabled": False}}},
}  # fmt: skip


AT_NIGHT = [("light", 400)]
CASES = [pytest.param(*case, marks=pytest.mark.nightly if case in AT_NIGHT else ()) for case in RULES]


@pytest.mark.parametrize(("scheme", "width"), CASES)
def test_axe_finds_nothing_on_any_page(page, pages, axe, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 1400})
    findings = {}
    for kind, path in pages.items():
        page.goto(path.as_uri())
        page.evaluate("() => { for (const part of document.querySelectorAll('details')) part.open = true; }")
        page.evaluate(axe)
        if found := page.evaluate(ASK, RULES[scheme, width]):
            findings[kind] = found
    assert findings == {}


def test_no_kind_of_report_is_without_a_page_here(pages):
    records = filter(None, (find_embedded(path.read_bytes()) for path in pages.values()))
    assert {format_of(record) for record in records} >= set(KINDS)


ANSWERS = ("one leak", "three leaks", "forty leaks", "every cause", "checked again", "clean", "bounded", "inconclusive")


@pytest.mark.parametrize("width", [1500, 900])
def test_checks_of_one_leak_and_of_forty_keep_the_same_heights(page, pages, width):
    page.set_viewport_size({"width": width, "height": 950})
    for kind in ANSWERS:
        page.goto(pages[kind].as_uri())
        assert page.locator("main").bounding_box()["height"] <= 700, kind
        for card in page.locator("b:visible", has_text="Proof").locator("xpath=../..").all():
            assert card.bounding_box()["height"] <= 400, kind


# A table may be scrolled, the page may not; what is folded is looked at, too.
SCROLLED = """open => {
    if (open) for (const part of document.querySelectorAll('details')) part.open = true;
    return document.documentElement.scrollWidth > innerWidth;
}"""
OUTSIDE_OF_TABLES = CUT.replace("part.checkVisibility()", "part.checkVisibility() && !part.closest('div:has(> table)')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_400_pixels_no_page_scrolls_sideways_and_no_word_is_cut(page, pages, scheme):
    page.set_viewport_size({"width": 400, "height": 800})
    page.emulate_media(color_scheme=scheme)
    found = {}
    for kind, path in pages.items():
        page.goto(path.as_uri())
        page.wait_for_timeout(50)
        cut = page.evaluate(OUTSIDE_OF_TABLES)[:2]
        wide = [is_open for is_open in (False, True) if page.evaluate(SCROLLED, is_open)]
        if cut or wide:
            found[kind] = [wide, cut]
    assert found == {}
