"""The strip of a loop in front of a reader: while its cell runs, when it has ended, and in the saved notebook."""

from __future__ import annotations

import nbformat
import pytest
from jupyter_pages import expect, open_notebook, picture, run, write

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

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


def test_the_strip_lives_while_its_cell_runs_and_leaves_a_picture(lab, page):
    write(lab.files / "strip.ipynb", LOOP)
    open_notebook(page, lab.url("strip.ipynb"))
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    strip = page.locator(".leaklab-strip")
    expect(strip).to_contain_text("epoch", timeout=60_000)
    expect(strip.locator("polyline")).to_have_count(2, timeout=20_000)
    first = page.evaluate(STEP)
    page.wait_for_function(f"() => ({STEP})() > {first} + 50")
    strip.get_by_role("button", name="Report so far").click()
    expect(strip.locator("pre")).to_contain_text("loop 'epoch'")
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
