"""Every kind of exported page is asked by axe whether people with a screen reader, or with weak eyes, can read it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_heap_page import SHAPE, heap

import leaklab
from leaklab.reports.saved_heap import render_heap_page

pytestmark = pytest.mark.browser
RECORDS = Path(__file__).parents[1] / "guards" / "records"
REPORTS = {
    "a check": "check_two_leaks.json", "a check of hostile texts": "check_hostile.json",
    "a notebook": "notebook_before.json", "why alive": "whyalive_held.json", "a graph": "autograd_tensor.json",
    "a difference": "memdiff_named.json", "ranks": "ranks_of_loops.json", "a CUDA series": "cuda_step_series.json",
}  # fmt: skip
ASK = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(found => found.violations.map(
    one => [one.id, one.nodes.length, one.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))"""
# All that the scheme changes is colours.
RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    for kind, name in REPORTS.items():
        leaklab.load(RECORDS / name).save(folder / f"{kind}.html")
    leaklab.load_cuda_snapshot(RECORDS / "cuda_oom.pickle").to_html(folder / "a CUDA snapshot.html")
    (folder / "a heap.html").write_text(render_heap_page(SHAPE, [("cpu", heap()), ("cuda:0", heap())]), "utf-8")
    history = []
    with leaklab.monitor("loop", first_step=20, quiet=True) as watch:
        for _ in range(600):
            history.append(torch.ones(4))
            watch.step()
    watch.report.save(folder / "a monitored loop.html")
    return sorted(folder.glob("*.html"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(page, pages, axe, scheme):
    page.emulate_media(color_scheme=scheme)
    findings = {}
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("() => { for (const part of document.querySelectorAll('details')) part.open = true; }")
        page.evaluate(axe)
        if found := page.evaluate(ASK, RULES[scheme]):
            findings[path.stem] = found
    assert findings == {}
    assert len(pages) == len(REPORTS) + 3
