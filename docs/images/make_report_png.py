"""Photograph the tutorial's first report as a page; needs the `test` extra and Chromium.

Run it as ``python docs/images/make_report_png.py``.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
TARGET = FOLDER / "report.png"
WIDTH, HEIGHT = 960, 620
N_BLOCKS = 3
"""The tutorial's first ones: the program, loading leaklab, the check."""
COLOURS = 64


def main() -> None:
    """Run the tutorial up to its first report, open that as a page, and keep what fits on one screen."""
    tutorial = (FOLDER.parent / "tutorial.md").read_text("utf-8")
    shell: Any = InteractiveShell.instance()
    for block in re.findall(r"^```python\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE)[:N_BLOCKS]:
        shell.run_cell(block, store_history=True).raise_error()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        shell.user_ns["before"].to_html(page_file)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.screenshot(path=TARGET)
        browser.close()
    with Image.open(TARGET) as image:
        flat = image.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat.save(TARGET, optimize=True)


if __name__ == "__main__":
    main()
