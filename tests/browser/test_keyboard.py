"""Every page with the keyboard alone: all that can be used is come to, the focus is seen, Enter and Space do it."""

from __future__ import annotations

import pytest
from jupyter_pages import stops

pytestmark = [pytest.mark.browser, pytest.mark.untraced]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_the_tab_key_comes_to_all_that_can_be_used_and_the_focus_is_seen(page, pages, scheme):
    page.emulate_media(color_scheme=scheme)
    found, n_pages = {}, 0
    for kind, path in pages.items():
        page.goto(path.as_uri())
        page.wait_for_timeout(50)
        if not page.locator("main :is(summary, button, a, input, [tabindex])").count():
            continue
        n_pages += 1
        missed, unseen, _n = stops(page, page.locator("main"))
        if missed or unseen:
            found[kind] = [missed[:3], unseen[:3]]
    assert found == {}
    assert n_pages > 25


@pytest.mark.parametrize("key", ["Enter", " "])
def test_every_fold_opens_and_closes(page, pages, key):
    for path in pages.values():
        page.goto(path.as_uri())
        for fold in page.locator("summary:not([data-leaklab=copy]):visible").all()[:5]:
            is_open = "summary => summary.parentElement.open"
            before = fold.evaluate(is_open)
            fold.focus()
            page.keyboard.press(key)
            assert fold.evaluate(is_open) != before, path.stem
            page.keyboard.press(key)
            assert fold.evaluate(is_open) == before, path.stem


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_changed_cell_is_copied(page, pages, key):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for kind in ("one leak", "a notebook"):
        page.goto(pages[kind].as_uri())
        page.evaluate("navigator.clipboard.writeText('')")
        page.locator("summary[data-leaklab=copy]:visible").first.press(key)
        page.get_by_text("Copied").wait_for()
        assert "trainer.history.append(loss.item())" in page.evaluate("navigator.clipboard.readText()")


def test_a_table_that_is_wider_than_the_page_is_scrolled(page, pages):
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(pages["bounded"].as_uri())
    page.evaluate("() => { for (const part of document.querySelectorAll('details')) part.open = true; }")
    wide = page.locator("div:has(> table)").filter(has_text="native heap")
    page.locator("summary", has_text="Runs").focus()
    page.keyboard.press("Tab")
    assert wide.evaluate("table => table === document.activeElement")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")


def test_a_graph_is_zoomed_and_moved(page, pages):
    page.goto(pages["a notebook"].as_uri())
    frames = page.locator(".graph")
    assert frames.count()
    page.get_by_role("button", name="unfold every part").press("Enter")
    zoom, frame = page.get_by_role("button", name="zoom in").last, frames.last
    for _ in range(6):
        zoom.press(" ")
    frame.focus()
    assert frame.evaluate("frame => frame.scrollLeft") == 0
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")
    assert frame.evaluate("frame => frame === document.activeElement && frame.scrollLeft > 0")
