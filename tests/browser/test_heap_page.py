"""The page of a saved heap, opened from disk in a real browser without a network: its icicle."""

from __future__ import annotations

import pytest

from leaklab.model.heap import HeapHolder, HeapShape, IcicleNode
from leaklab.reports.saved_heap import render_heap_page
from leaklab.text import format_bytes

pytestmark = [pytest.mark.browser, pytest.mark.untraced]
MIB = 1 << 20
SHAPE = HeapShape(
    "now", 0.0, 1_000_000, 3_000_000, 40 * MIB, 30 * MIB, (HeapHolder("model", "Net", "notebook variable", MIB, 3),), ()
)


def node(label, size, *children, expression="", kind="", part="other", small=0, n_small=0, number=-1):
    return IcicleNode(label, expression, kind, part, size, small, n_small, number, children)


def heap():
    gradient = node(".grad", 4 * MIB, expression="model.w.grad", kind="torch.Tensor", part="gradient", number=7)
    weight = node(".w", 8 * MIB, gradient, expression="model.w", kind="Parameter", part="parameter", number=6)
    model = node("model", 12 * MIB, weight, expression="model", kind="Net", small=MIB, n_small=2_000, number=5)
    hostile = node("<img src=x onerror=alert(1)>", 4 * MIB, expression="x['</script>']", kind="dict", number=9)
    yours = node("your variables", 16 * MIB, model, hostile)
    torch = node("torch", 20 * MIB, node("torch.ops", 10 * MIB, expression="torch.ops", kind="module", number=8))
    return node("all objects", 40 * MIB, yours, node("libraries", 20 * MIB, torch), small=4 * MIB, n_small=12)


def card():
    weight = node("model.w", 6 * MIB, expression="model.w", kind="Parameter", part="parameter", number=6)
    return node("all objects", 30 * MIB, node("your variables", 6 * MIB, weight), node("libraries", 24 * MIB))


@pytest.fixture
def opened(page, tmp_path):
    complaints = []
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.context.set_offline(True)
    (tmp_path / "page.html").write_text(render_heap_page(SHAPE, [("host", heap()), ("cuda:0", card())]), "utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".icicle-plot button")
    yield page
    assert complaints == []


def shown(page):
    """The labels of the rectangles, in their order."""
    return [name.partition(", ")[0] for name in page.eval_on_selector_all(
        ".icicle-plot button", "all => all.map(one => one.getAttribute('aria-label'))"
    )]  # fmt: skip


def told(page):
    return page.locator("section > div[aria-live]").inner_text()


def box(page, label):
    return page.locator(f'.icicle-plot button[aria-label^="{label}, "]').bounding_box()


def test_widths_are_shares_and_libraries_stay_folded(opened):
    assert "torch" not in shown(opened)
    whole = box(opened, "all objects")["width"]
    for label, size in (("your variables", 16), ("libraries", 20), ("model", 12), (".w", 8), (".grad", 4)):
        assert abs(box(opened, label)["width"] / whole - size / 40) < 0.005
    assert box(opened, "12 smaller")["y"] == box(opened, "libraries")["y"]
    assert abs(box(opened, "model")["x"] - box(opened, "your variables")["x"]) < 1


def test_the_keyboard_alone_walks_zooms_and_comes_back(opened):
    opened.locator(".icicle-plot button").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        opened.keyboard.press(key)
    assert told(opened).startswith(".w: 8.00 MiB come back if it goes, 66.7 % of model")
    assert "Parameter, parameter; 4.00 MiB of its own; number 6" in told(opened)
    assert "model.w" in told(opened)
    opened.keyboard.press("ArrowUp")
    opened.keyboard.press("ArrowRight")
    assert told(opened).startswith("<img src=x onerror=alert(1)>: 4.00 MiB")
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("Enter")
    assert shown(opened)[:3] == ["model", ".w", ".grad"]
    opened.keyboard.press("Backspace")
    assert shown(opened)[0] == "your variables"
    opened.keyboard.press("Escape")
    assert shown(opened)[0] == "all objects"


def test_crumbs_lead_back_and_a_folded_group_opens(opened):
    opened.get_by_role("button", name="libraries").click()
    assert shown(opened)[:3] == ["libraries", "torch", "torch.ops"]
    opened.get_by_role("navigation").get_by_role("button", name="all objects").click()
    assert "torch" not in shown(opened)


def test_the_memory_of_an_accelerator_is_shown_by_itself(opened):
    card, host = (opened.get_by_role("button", name=name) for name in ("cuda:0", "host"))
    assert card.inner_text() == "cuda:0 30.0 MiB"
    card.focus()
    opened.keyboard.press("Enter")
    assert shown(opened) == ["your variables", "model.w"]  # what is a small part of the whole is shown by itself first
    assert (card.get_attribute("aria-pressed"), host.get_attribute("aria-pressed")) == ("true", "false")
    host.click()
    assert "libraries" in shown(opened)


def test_what_is_sought_keeps_its_colour(opened):
    opened.get_by_role("searchbox").fill("PARAMETER")
    faint = opened.eval_on_selector_all(
        ".icicle-plot button",
        "all => all.filter(one => one.style.opacity).map(one => one.getAttribute('aria-label'))",
    )
    assert len(faint) == len(shown(opened)) - 1
    assert not any(name.startswith(".w,") for name in faint)


def test_the_script_writes_bytes_as_reports_do(opened):
    sizes = [0, 1, 999, 1000, 1023, 1024, 10_233, 10_240, 1023 * 1024, 1_023_488, 102_349, 102_400, 5 << 40, 1 << 62]
    assert opened.evaluate("sizes => sizes.map(sizeWords)", sizes) == [format_bytes(size) for size in sizes]


@pytest.mark.parametrize("width", [900, 1500])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_and_nothing_is_wider_than_the_window(opened, width, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 700})
    opened.wait_for_timeout(100)
    assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    colours = opened.eval_on_selector_all(
        ".icicle-plot button", "all => all.map(one => [one.style.color, one.style.backgroundColor])"
    )
    assert all(contrast(ink, ground) >= 4.5 for ink, ground in colours)


def contrast(ink, ground):
    """The contrast of two colours, ``rgb(r, g, b)``, as WCAG 2 defines it."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    bright, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
