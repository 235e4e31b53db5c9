"""Photograph the report of the first notebook for the README; needs the `test` extra and Chromium.

Run it as ``python docs/images/make_report_png.py``.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from leaklab.notebooks import run_demo

TARGET = Path(__file__).parent / "report.png"
WIDTH, HEIGHT = 1060, 1180


def main() -> None:
    """Execute the notebook, open the page of its first report, and keep what fits on one screen."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        run_demo(max_seconds=300).before.to_html(page_file)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.screenshot(path=TARGET)
        browser.close()


if __name__ == "__main__":
    main()
