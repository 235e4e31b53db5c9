"""The page of a CUDA snapshot, opened from disk in a real browser without a network: its map of blocks."""

from __future__ import annotations

import random
import re

import pytest
from snapshot_writer import STEP, Card, snapshot, stack

from leaklab.cuda.schema import memory_of
from leaklab.reports.cuda import CudaSnapshot
from leaklab.text import format_bytes

pytestmark = [pytest.mark.browser, pytest.mark.untraced]
HOSTILE = stack("/home/me/</script><script>alert(1)</script>.py:3 <b>forward</b>", "/home/me/project/train.py:41 step")


@pytest.fixture(scope="module")
def taken():
    rng = random.Random(3)
    card, live = Card(), []
    stacks = [stack(f"/home/me/project/layer{i}.py:{10 + i} forward", "/home/me/train.py:41 step") for i in range(15)]
    for number in range(1500):
        if live and rng.random() < 0.48:
            card.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(card.alloc(int(rng.lognormvariate(13, 2)), rng.choice([*stacks, *[HOSTILE] * 4, []])))
        if number == 900:
            card.free(card.alloc(1 << 31, STEP))
    card.oom(3 << 30, STEP, device_free=0)
    begin = {"stage": "START", "name": "<i>step</i>", "device": 0, "time_us": card.events[500]["time_us"]}
    return CudaSnapshot(memory_of(snapshot(card, external_annotations=[begin]), "program.pickle"))


@pytest.fixture
def opened(page, taken, tmp_path):
    complaints = []
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.context.set_offline(True)
    taken.to_html(tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("canvas")
    yield page
    assert complaints == []


def told(page):
    """What the page says of the event under the cursor."""
    return page.locator("section > div[aria-live] > div").first.inner_text()


def figures(page):
    found = re.match(r"Event ([\d,]+) of ([\d,]+)", told(page))
    return tuple(int(text.replace(",", "")) for text in found.groups())


def painted(page):
    """How many colours the map shows."""
    return page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas[role=application]"), copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const context = copy.getContext("2d", {willReadFrequently: true});
            context.drawImage(canvas, 0, 0);
            const data = context.getImageData(0, 0, copy.width, copy.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )


def test_it_begins_at_the_event_at_which_memory_ended(opened, taken):
    (oom,) = taken.ooms
    assert figures(opened) == (oom.event, oom.n_events)
    assert "out of memory: no room for 3.00 GiB" in told(opened)
    live, largest = f"{oom.live_bytes / 2**20:.3g} MiB live", f"{oom.largest_free_bytes / 2**30:.3g}"
    assert live in told(opened)
    assert f"the largest free piece {largest[:3]}" in told(opened)
    assert painted(opened) > 10


def test_the_keyboard_alone_moves_zooms_and_comes_back(opened, taken):
    start, n_events = figures(opened)
    opened.locator("canvas[role=application]").focus()
    opened.keyboard.press("Home")
    assert figures(opened) == (0, n_events)
    opened.keyboard.press("End")
    assert figures(opened) == (start, n_events)
    for _ in range(9):
        opened.keyboard.press("+")
    opened.keyboard.press("ArrowLeft")
    assert figures(opened) == (start - 1, n_events)
    opened.get_by_role("button", name="go to the event with the most live bytes").press("Enter")
    assert figures(opened)[0] == taken.peak.event
    assert "2." in told(opened).partition("GiB live")[0]
    opened.get_by_role("button", name="show the whole trace").press("Enter")
    assert opened.locator("canvas").count() == 3


def test_the_mouse_names_a_block_and_a_click_tells_its_event(opened, taken):
    box = opened.locator("canvas[role=application]").bounding_box()
    names = set()
    for across in range(2, 40):
        opened.mouse.move(box["x"] + box["width"] * across / 40, box["y"] + box["height"] * 0.3)
        names.add(opened.locator("section > div").nth(1).inner_text())
    assert any(" live of " in name for name in names)
    assert any("within <i>step</i>" in name for name in names)
    assert any("within" not in name for name in names if name)
    opened.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
    event, n_events = figures(opened)
    assert abs(event - n_events / 2) < n_events / 100


def test_the_largest_holders_of_an_event_are_call_stacks_with_their_sums(opened, taken):
    (oom,) = taken.ooms
    rows = opened.locator("section details summary").all_inner_texts()
    assert len(rows) == 10
    held = {stack.label: stack for stack in oom.stacks if stack.frames}
    n_checked = 0
    for row in rows:
        size, _, label = row.partition(": ")
        if label in held and " in " in size:
            stack, n_checked = held[label], n_checked + 1
            words = format_bytes(stack.requested_bytes)
            assert size == f"{words} in {stack.n_blocks:,} blocks"
    assert n_checked > 5


def test_a_block_is_chosen_by_a_click_and_with_the_keyboard(opened):
    chosen = opened.locator("section details[open]")
    assert chosen.count() == 0
    canvas = opened.locator("canvas[role=application]")
    canvas.focus()
    lines = set()
    for _ in range(4):
        opened.keyboard.press("PageUp")
        lines.add(chosen.locator("summary").inner_text())
    assert len(lines) == 4
    assert all("event" in line and "iB" in line for line in lines)
    opened.keyboard.press("PageDown")
    assert chosen.locator("summary").inner_text() in lines
    opened.get_by_role("button", name="show the whole trace").press("Enter")
    box = canvas.bounding_box()
    for high in range(1, 20):
        place = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * high / 20
        opened.mouse.move(*place)
        hovered = opened.locator("section > div").nth(1).inner_text().partition("; within")[0]
        opened.mouse.click(*place)
        if " reserved" not in hovered:
            assert chosen.locator("summary").inner_text() == hovered
    canvas.focus()
    opened.keyboard.press("Home")
    assert chosen.count() == 0


def test_what_is_sought_stands_out_until_the_box_is_empty(opened):
    def image():
        opened.wait_for_timeout(200)
        return opened.evaluate("document.querySelector('canvas[role=application]').toDataURL()")

    before = image()
    opened.get_by_role("searchbox").fill("layer7")
    of_seven = image()
    opened.get_by_role("searchbox").fill("layer8")
    assert len({before, of_seven, image()}) == 3
    opened.get_by_role("searchbox").fill("")
    assert image() == before


def test_frames_unfold_and_are_text(opened):
    parts = opened.locator("section details")
    parts.first.locator("summary").click()
    assert ".py:" in parts.first.locator("pre").inner_text()
    assert opened.locator("section b").count() == 0
    assert "<b>forward</b>" in opened.locator("section").inner_text()


@pytest.mark.parametrize("width", [900, 1500])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(opened, width, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    opened.wait_for_timeout(100)
    assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert painted(opened) > 10
