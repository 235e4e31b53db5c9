"""The report and the strip of a loop in front of a reader: JupyterLab live, untrusted, and a saved notebook."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from jupyter_pages import (
    AXE,
    HARD_TO_READ,
    assert_report_is_readable,
    expect,
    hard_to_use,
    open_notebook,
    picture,
    run,
    stops,
    write,
)

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.untraced]


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


def test_report_is_shown_under_the_cell_in_jupyterlab(lab, page, axe):
    write(lab.files / "live.ipynb", SETUP, LEAK)
    open_notebook(page, lab.url("live.ipynb"))
    run(page, "notebook:run-all-cells")
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-live.png", full_page=True)
    report = page.locator(".jp-OutputArea-output").filter(has=page.locator("details")).first
    expect(report).to_contain_text("Proof", timeout=60_000)  # the change has been tried: nothing is replaced any more
    assert hard_to_use(page, report, axe) == []
    assert stops(page, report)[:2] == ([], [])


def test_report_of_an_untrusted_notebook_is_readable(lab, page, saved):
    # A changed copy is not signed by this server: what a reader has who got the notebook by mail.
    saved.cells.append(nbformat.v4.new_markdown_cell("sent by mail"))
    nbformat.write(saved, lab.files / "mailed.ipynb")
    open_notebook(page, lab.url("mailed.ipynb"))
    assert page.evaluate(TRUSTED) is False
    assert_report_is_readable(page, ".jp-OutputArea-output")
    picture(page, "lab-untrusted.png", full_page=True)


def test_exported_page_is_self_contained(tmp_path, page, saved, axe):
    nbformat.write(saved, tmp_path / "leak.ipynb")
    options = ["--HTMLExporter.mathjax_url=", "--HTMLExporter.require_js_url="]
    export = [sys.executable, "-m", "nbconvert", "--to", "html", *options, "leak.ipynb"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    page.goto((tmp_path / "leak.html").as_uri())
    assert_report_is_readable(page, ".jp-OutputArea-output")
    page.evaluate(axe)
    report = page.locator(".jp-OutputArea-output").filter(has=page.locator("details")).first
    assert [*report.evaluate(AXE, {}), *report.evaluate(HARD_TO_READ)] == []
    picture(page, "exported.png", full_page=True)


LOOP = """
import os, time, leaklab
history = []
with leaklab.monitor("epoch", total_steps=10**6) as watch:
    while not os.path.exists("enough"):
        history.append(bytearray(10_000))
        time.sleep(0.005)
        watch.step()
"""
STEP = "() => Number(document.querySelector('.lls-facts').textContent.match(/step ([0-9,]+)/)[1].replaceAll(',', ''))"


def test_the_strip_lives_while_its_cell_runs_and_leaves_a_picture(lab, page, axe):
    write(lab.files / "strip.ipynb", LOOP)
    open_notebook(page, lab.url("strip.ipynb"))
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    strip = page.locator(".leaklab-strip")
    expect(strip).to_contain_text("epoch", timeout=60_000)
    expect(strip.locator("polyline")).to_have_count(2, timeout=20_000)
    first = page.evaluate(STEP)
    page.wait_for_function(f"() => ({STEP})() > {first} + 50")
    strip.get_by_role("button", name="Report so far").press("Enter")
    expect(strip.locator("pre")).to_contain_text("loop 'epoch'")
    assert hard_to_use(page, strip, axe) == []
    assert stops(page, strip)[:2] == ([], [])
    picture(page, "strip-live.png")
    (lab.files / "enough").touch()
    expect(strip).to_have_count(0, timeout=60_000)
    left = page.locator(".jp-OutputArea-output").filter(has=page.locator("details"))
    expect(left).to_contain_text("loop 'epoch'")
    assert left.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    run(page, "docmanager:save")
    picture(page, "strip-ended.png")
    outputs = nbformat.read(lab.files / "strip.ipynb", 4).cells[0].outputs
    (data,) = [output.data for output in outputs if "data" in output]
    assert sorted(data) == ["text/html", "text/plain"]
    assert "native heap" in data["text/plain"]
