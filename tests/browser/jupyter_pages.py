"""A notebook in a browser page: written, opened, run, photographed."""

import os
from pathlib import Path

import nbformat

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
TIMEOUT_MS = 30_000
START_MS = 240_000
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file:")
SHOTS = os.environ.get("LEAKLAB_SHOTS")
"""The folder in which the tests leave pictures of what they saw; none without it."""

# Text may be scrolled to in a folded table; what is seen at once is read without that, unless an ellipsis says that
# there is more.
CUT = """() => [...document.querySelectorAll('main *')].filter(part => part.checkVisibility()
    && (part.getBoundingClientRect().right > innerWidth || part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).display !== 'inline' && getComputedStyle(part).textOverflow !== 'ellipsis')
    ).map(part => part.outerHTML.slice(0, 200))"""

MARK_STOPS = """root => {
    for (const part of root.querySelectorAll('details')) part.open = true;
    const all = [...root.querySelectorAll('summary, a[href], button, input, select, textarea, [tabindex]')];
    const stops = all.filter(one => one.tabIndex >= 0 && !one.disabled
        && one.checkVisibility({visibilityProperty: true}));
    stops.forEach((one, number) => { one.dataset.stop = number; });
    return stops.map(one => one.outerHTML.slice(0, 160));
}"""
# The focus is seen by an outline.
AT = """() => {
    const one = document.activeElement, look = getComputedStyle(one);
    const isSeen = look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0;
    const scrolls = one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight;
    return [one.dataset.stop ?? (scrolls ? 'scrolls' : ''), isSeen, one.outerHTML.slice(0, 160)];
}"""


def stops(page, root):
    """Walk through *root* with the Tab key alone.

    Returns:
        What the focus did not come to though it could be used, where it could not be seen, and how many places scroll.
    """
    wanted, met, unseen, n_scrolls = root.evaluate(MARK_STOPS), set(), [], 0
    root.locator("[data-stop='0']").focus()
    for _ in range(2 * len(wanted) + 20):
        stop, is_seen, markup = page.evaluate(AT)
        if stop == "scrolls":
            n_scrolls += 1
        elif not stop:
            break
        else:
            met.add(int(stop))
        if not is_seen and stop != "0":  # the first one got it from here
            unseen.append(markup)
        page.keyboard.press("Tab")
    return [markup for number, markup in enumerate(wanted) if number not in met], unseen, n_scrolls


AXE = """(root, options) => {
    for (const part of root.querySelectorAll('details')) part.open = true;
    return axe.run(root, {resultTypes: ["violations"], ...options}).then(found => found.violations.map(
        one => [one.id, one.nodes.length, one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]));
}"""
# All that a theme changes is colours.
# Of the texts in a notebook, axe judges those of the inputs only: HARD_TO_READ judges all.
RULES = {"Light": {}, "Dark": {"runOnly": ["color-contrast"]}}
HARD_TO_READ = """root => {
    const parts = colour => (colour.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(each => each / 255)
        .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
    const over = (top, below) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)); };
    const ground = one => {
        if (!one) return [255, 255, 255];
        const own = parts(getComputedStyle(one).backgroundColor);
        return own.length === 3 ? own : over(own, ground(one.parentElement));
    };
    const faint = one => one ? Number(getComputedStyle(one).opacity) * faint(one.parentElement) : 1;
    const bad = [];
    for (const one of root.querySelectorAll('*')) {
        const text = [...one.childNodes].some(node => node.nodeType === 3 && node.nodeValue.trim());
        if (!text || !one.checkVisibility() || one.disabled || one.closest('svg, option')) continue;
        const below = ground(one), ink = parts(getComputedStyle(one).color);
        const seen = over([...ink.slice(0, 3), (ink[3] ?? 1) * faint(one)], below);
        const [high, low] = [light(seen), light(below)].sort((a, b) => b - a);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) bad.push(`${contrast.toFixed(2)} ${one.className} ${one.textContent.slice(0, 40)}`);
    }
    return bad;
}"""


def write(file, *cells):
    """Write a notebook of code *cells*."""
    code = [nbformat.v4.new_code_cell(cell.strip()) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=KERNEL), file)


def new_context(browser, width, height):
    """A window of its own, with twice the pixels where pictures are wanted."""
    return browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=2 if SHOTS else 1)


def watch(page):
    """Keep in ``page.outside`` what *page* asks outside this machine, in ``page.errors`` what it complains of."""
    page.outside, page.errors = [], []
    page.on("request", lambda request: request.url.startswith(LOCAL) or page.outside.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda said: said.type == "error" and page.errors.append(said.text))


def open_notebook(page, url):
    """Go to a notebook; returns when its kernel waits for work."""
    page.goto(url)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_MS)
    page.wait_for_function(IDLE, timeout=START_MS)


def run(page, command, arguments="{}"):
    """Execute a command of Jupyter's page; returns when it is done."""
    page.evaluate(f"() => window.jupyterapp.commands.execute('{command}', {arguments})")


def run_all(page, shown, state="visible"):
    """Run all cells; returns when *shown* is there. Where it does not come, the notebook is told as it is then."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

    run(page, "notebook:run-all-cells")
    try:
        page.wait_for_selector(shown, timeout=START_MS, state=state)
    except PlaywrightTimeoutError:
        text = page.inner_text(".jp-Notebook")
        msg = f"{shown} did not appear; the notebook shows:\n{text[-4000:]}"
        raise AssertionError(msg) from None


def expect(what):
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(what)


def picture(shown, name, **options):
    """Keep a picture of *shown*, a page or a part of one, where ``LEAKLAB_SHOTS`` names a folder."""
    if SHOTS:
        shown.screenshot(path=str(Path(SHOTS) / name), **options)


def assert_report_is_readable(page, area):
    """The verdict, the holder, what can be unfolded, and a graph that is really drawn."""
    report = page.locator(area).filter(has=page.locator("details")).first
    expect(report).to_contain_text("leak", ignore_case=True, timeout=60_000)
    expect(report).to_contain_text("history")
    assert report.locator("details").count() > 0
    report.evaluate("root => root.querySelectorAll('details').forEach(part => part.open = true)")
    image = report.locator("img").first
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0


def theme(page, name):
    run(page, "apputils:change-theme", f"{{theme: '{name}'}}")
    page.wait_for_function(f"() => document.body.dataset.jpThemeName === '{name}'")
    page.locator("#jupyterlab-splash").wait_for(state="detached")


def hard_to_use(page, part, axe):
    """What axe finds in *part* of a notebook, and which of its texts are faint, in the light and in the dark theme."""
    page.evaluate(axe)
    found = []
    for colours, rules in RULES.items():
        theme(page, f"JupyterLab {colours}")
        found += [*part.evaluate(AXE, rules), *part.evaluate(HARD_TO_READ)]
    theme(page, "JupyterLab Light")
    return found
