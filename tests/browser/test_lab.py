"""The report in front of a reader: JupyterLab live, JupyterLab untrusted, and an exported page."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

SETUP = "%load_ext leaklab\nimport torch\nmodel = torch.nn.Linear(64, 64)\nhistory = []"
LEAK = "%%leakcheck --name epoch\nhistory.append(model(torch.ones(8, 64)).sum())"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
TRUSTED = "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(1).trusted"


@pytest.fixture(scope="module")
def saved(browser, lab):
    """A notebook that JupyterLab has executed and saved."""
    write(lab.files / "leak.ipynb", SETUP, LEAK)
    page = browser.new_page()
    open_in_lab(page, lab, "leak.ipynb")
    run(page, "notebook:run-all-cells")
    run(page, "docmanager:save")
    page.close()
    return nbformat.read(lab.files / "leak.ipynb", 4)


def write(file, *cells):
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=KERNEL), file)


def open_in_lab(page, lab, name):
    page.goto(lab.url(name))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_function(IDLE, timeout=90_000)


def run(page, command):
    """Execute a command of JupyterLab; returns when it is done."""
    page.evaluate(f"() => window.jupyterapp.commands.execute('{command}')")


def picture(page, name):
    """Keep a picture of the page where ``LEAKLAB_SHOTS`` names a folder."""
    if folder := os.environ.get("LEAKLAB_SHOTS"):
        page.screenshot(path=str(Path(folder) / name), full_page=True)


def assert_report_is_readable(page, area):
    """The verdict, the holder, what can be unfolded, and a graph that is really drawn."""
    from playwright.sync_api import expect

    report = page.locator(area).filter(has=page.locator("details")).first
    expect(report).to_contain_text("leak", ignore_case=True, timeout=60_000)
    expect(report).to_contain_text("history")
    assert report.locator("details").count() > 0
    unfold = "root => root.querySelectorAll('details').forEach(part => part.open = true)"
    report.evaluate(unfold)
    image = report.locator("img").first
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0


def test_report_is_shown_under_the_cell_in_jupyterlab(lab, page):
    write(lab.files / "live.ipynb", SETUP, LEAK)
    open_in_lab(page, lab, "live.ipynb")
    run(page, "notebook:run-all-cells")
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-live.png")


def test_report_of_an_untrusted_notebook_is_readable(lab, page, saved):
    # A changed copy is not signed by this server: what a reader has who got the notebook by mail.
    saved.cells.append(nbformat.v4.new_markdown_cell("sent by mail"))
    nbformat.write(saved, lab.files / "mailed.ipynb")
    open_in_lab(page, lab, "mailed.ipynb")
    assert page.evaluate(TRUSTED) is False
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-untrusted.png")


def test_exported_page_is_self_contained(tmp_path, page, saved):
    nbformat.write(saved, tmp_path / "leak.ipynb")
    options = ["--HTMLExporter.mathjax_url=", "--HTMLExporter.require_js_url="]
    export = [sys.executable, "-m", "nbconvert", "--to", "html", *options, "leak.ipynb"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    page.goto((tmp_path / "leak.html").as_uri())
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "exported.png")
