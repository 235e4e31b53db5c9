"""The report in front of a reader: JupyterLab live, JupyterLab untrusted, and an exported page."""

import subprocess
import sys

import nbformat
import pytest
from jupyter_pages import assert_report_is_readable, open_notebook, picture, run, write

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

SETUP = "%load_ext leaklab\nimport torch\nmodel = torch.nn.Linear(64, 64)\nhistory = []"
LEAK = "%%leakcheck --name epoch\nhistory.append(model(torch.ones(8, 64)).sum())"
TRUSTED = "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(1).trusted"


@pytest.fixture(scope="module")
def saved(browser, lab):
    """A notebook that JupyterLab has executed and saved."""
    write(lab.files / "leak.ipynb", SETUP, LEAK)
    page = browser.new_page()
    open_notebook(page, lab.url("leak.ipynb"))
    run(page, "notebook:run-all-cells")
    run(page, "docmanager:save")
    page.close()
    return nbformat.read(lab.files / "leak.ipynb", 4)


def test_report_is_shown_under_the_cell_in_jupyterlab(lab, page):
    write(lab.files / "live.ipynb", SETUP, LEAK)
    open_notebook(page, lab.url("live.ipynb"))
    run(page, "notebook:run-all-cells")
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-live.png", full_page=True)


def test_report_of_an_untrusted_notebook_is_readable(lab, page, saved):
    # A changed copy is not signed by this server: what a reader has who got the notebook by mail.
    saved.cells.append(nbformat.v4.new_markdown_cell("sent by mail"))
    nbformat.write(saved, lab.files / "mailed.ipynb")
    open_notebook(page, lab.url("mailed.ipynb"))
    assert page.evaluate(TRUSTED) is False
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-untrusted.png", full_page=True)


def test_exported_page_is_self_contained(tmp_path, page, saved):
    nbformat.write(saved, tmp_path / "leak.ipynb")
    options = ["--HTMLExporter.mathjax_url=", "--HTMLExporter.require_js_url="]
    export = [sys.executable, "-m", "nbconvert", "--to", "html", *options, "leak.ipynb"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    page.goto((tmp_path / "leak.html").as_uri())
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "exported.png", full_page=True)
