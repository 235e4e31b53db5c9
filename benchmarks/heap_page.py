"""Measure the exported page of a heap: how large it is, and how soon a reader can use it in a real browser.

Usage: ``python benchmarks/heap_page.py [MILLIONS]``, by default ``0.8``: objects added to the bare heap, some million
together. The exit status is the number of bars missed. Two heaps: records within records; and large tensors under long
names, so that the picture has many parts. The browser is Chromium (``CHROMIUM`` names another), without a network; a
page is usable when it has answered a click and drawn the answer.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from heap_index import fill
from measuring import Bars
from playwright.sync_api import sync_playwright

import leaklab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MAX_MB, MAX_SECONDS = 5.0, 2.0
_N_TENSORS = 1_500
_PLOT = "section.icicle .icicle-plot button"
# Milliseconds since the page was asked for, when what a click on the second rectangle changed is on the screen.
_CLICKED = f"""() => new Promise(done => {{
    document.querySelectorAll("{_PLOT}")[1].click();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
}})"""


def main() -> int:
    """Measure, print, and return how many bars were missed."""
    records = fill(float(sys.argv[1]) if sys.argv[1:] else 0.8)
    names = (f"encoder.layers.{number}.attention.projection_{'x' * 40}" for number in range(_N_TENSORS))
    heaps = {"records": {"records": records}, "tensors": {name: [torch.zeros(256, 256)] for name in names}}
    bars = Bars()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        binary = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        for title, kept in heaps.items():
            path = Path(folder) / f"{title}.html"
            _write(path, {"leaklab": leaklab, "kept": kept})
            bars.at_most(f"page of {title}, MB", path.stat().st_size / 1e6, MAX_MB)
            bars.at_most(f"page of {title}, usable after s", _seconds_until_used(browser, path), MAX_SECONDS)
        browser.close()
    return bars.n_missed


def _write(path: Path, variables: dict[str, Any]) -> None:
    exec(f"heap = leaklab.snapshot(references=True); heap.to_html({str(path)!r})", variables)  # noqa: S102 - in its variables
    heap = variables["heap"]
    print(f"heap: {heap.n_objects:,} objects, {heap.n_references:,} references")


def _seconds_until_used(browser: Browser, path: Path) -> float:
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    page.context.set_offline(offline=True)
    page.goto(path.as_uri())
    page.wait_for_selector(_PLOT)
    milliseconds: float = page.evaluate(_CLICKED)
    page.close()
    return milliseconds / 1000


if __name__ == "__main__":
    sys.exit(main())
