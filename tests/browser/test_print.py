"""Pages on paper: printed by Chromium as A4, light or dark, the answer first and what it rests on behind it."""

from __future__ import annotations

import base64
import re

import pytest
from jupyter_pages import CUT, SHOTS

pytestmark = [pytest.mark.browser, pytest.mark.untraced]

A4 = {"paperWidth": 8.27, "paperHeight": 11.69, "generateTaggedPDF": False}  # tags are numbered by the process
SHEET = {"width": 703, "height": 1016}
"""What the margins leave of it, in CSS pixels."""
CARDS = {"one leak": 1, "three leaks": 3}
WITHOUT_APPENDIX = """() => {
    for (const part of document.querySelectorAll('[data-leaklab=evidence], [data-leaklab=figures]')) part.remove();
}"""
PRINTS = "() => dispatchEvent(new Event('beforeprint'))"
OPEN = "() => [...document.querySelectorAll('details')].map(part => part.open)"
CANVASES = "() => [...document.querySelectorAll('canvas')].map(canvas => canvas.toDataURL())"


def printed(page):
    """The page as PDF, without the moment at which it was made."""
    pdf = base64.b64decode(page.context.new_cdp_session(page).send("Page.printToPDF", A4)["data"])
    return re.sub(rb"/(?:CreationDate|ModDate) \([^)]*\)", b"", pdf)


def n_sheets(pdf):
    return len(re.findall(rb"/Type /Page\b", pdf))


@pytest.mark.parametrize("kind", CARDS)
def test_the_whole_answer_stands_on_the_first_sheet_and_the_theme_is_left_out(page, pages, kind):
    sheets = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(pages[kind].as_uri())
        sheets[scheme] = printed(page)
    assert sheets["light"] == sheets["dark"]
    assert 2 <= n_sheets(sheets["light"]) <= 3
    if SHOTS:
        (pages[kind].parent / f"{kind}.pdf").write_bytes(sheets["light"])
    page.evaluate(PRINTS)
    changes = page.locator("b", has_text="Proof")
    bottom = max(one.bounding_box()["y"] for one in changes.all())
    assert changes.count() == CARDS[kind]
    assert bottom < min(one.bounding_box()["y"] for one in page.locator("summary", has_text="Evidence").all())
    page.evaluate(WITHOUT_APPENDIX)
    assert n_sheets(printed(page)) == 1


def test_each_evidence_says_on_paper_what_it_is_of_and_all_is_as_before_afterwards(page, pages):
    page.goto(pages["three leaks"].as_uri())
    before, words = page.evaluate(OPEN), page.locator("main").inner_text()
    page.evaluate(PRINTS)
    assert all(page.evaluate(OPEN))
    titles = page.locator("[data-leaklab=evidence] > summary").all_inner_texts()
    names = ("trainer.history", "trainer.kept_9", "trainer.kept_12")
    assert titles == [f"Evidence: {name} grows by 2 tensors (32.0 KiB) every run" for name in names]
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(OPEN) == before
    assert page.locator("main").inner_text() == words


def test_nothing_is_cut_on_paper_and_no_button_is_printed(page, pages):
    page.set_viewport_size(SHEET)
    page.emulate_media(media="print")
    found = {}
    for kind, path in pages.items():
        page.goto(path.as_uri())
        page.evaluate(PRINTS)
        # Three words of 285 pixels stand side by side there: a printed page is made a little smaller, a window is not.
        if kind != "hostile texts" and (cut := page.evaluate(CUT)):
            found[kind] = cut[:2]
        assert page.locator(".tools:visible, summary[data-leaklab=copy]:visible").count() == 0
    assert found == {}


def test_a_map_of_blocks_is_drawn_for_white_paper_whatever_the_theme(page, pages):
    drawn = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(pages["a CUDA snapshot"].as_uri())
        page.wait_for_selector("canvas")
        page.wait_for_timeout(200)
        on_screen = page.evaluate(CANVASES)
        page.evaluate(PRINTS)
        drawn[scheme] = page.evaluate(CANVASES)
        assert (drawn[scheme] == on_screen) == (scheme == "light")
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(CANVASES) == on_screen
    assert drawn["light"] == drawn["dark"]
