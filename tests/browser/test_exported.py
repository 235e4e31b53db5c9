"""The exported page of a notebook's checks, opened from disk in a real browser without a network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.reports import NotebookReport, load_report

pytestmark = pytest.mark.browser
LONG = "x" * 1_000_000
RTL = "\u202egnp.exe\u202c \u05e9\u05dc\u05d5\u05dd"


def collection():
    checks = (samples.leaky_check(), samples.clean_check(), samples.failed_check(), samples.hostile_check(), huge())
    view = KeptView("<script>alert(2)</script>", "In [9]", "a <b>text</b>\nof two lines")
    return NotebookChecks("</title><script>alert(3)</script>", tuple(KeptCheck(c, RTL) for c in checks), (view,))


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
    assert opened.evaluate(column)[-3:] == ["32.2 KiB", "32.0 KiB", "1 B"]


def test_a_graph_zooms_pans_and_fits_again(opened):
    if not opened.locator(".graph").count():
        pytest.skip("nothing here draws graphs")
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
    assert page.locator("img").first.is_visible()
    context.close()


def test_three_hundred_leaks_are_less_than_three_megabytes_and_read_back(page, tmp_path):
    leaks = tuple(replace(samples.history_leak(), fingerprint=f"{number:012}") for number in range(5))
    check = replace(samples.leaky_check(), leaks=leaks)
    many = NotebookChecks("many", (KeptCheck(check),) * 60)
    file = tmp_path / "many.html"
    from leaklab.render import render_collection

    file.write_text(render_collection(many, draw=lambda _source, *, seconds: f"<svg>{'x' * 25_000}</svg>"))
    assert file.stat().st_size < 3_000_000
    assert load_report(file).collection == many
    page.goto(file.as_uri())
    assert page.locator("#check-60").is_visible()
