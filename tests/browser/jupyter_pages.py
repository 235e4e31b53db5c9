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
