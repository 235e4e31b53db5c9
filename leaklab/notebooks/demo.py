"""Execute the shipped notebook in a fresh kernel, away from the user's settings."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from leaklab.errors import LeaklabError
from leaklab.notebooks.headless import execute
from leaklab.report import LeakReport

NOTEBOOK = "01_find_a_leak.ipynb"
# Run last, never shown: the two names are those that the notebook's `-v` options give its reports.
_SAVE_REPORTS = "before.to_json('before.json')\nafter.to_json('after.json')"


@dataclass(frozen=True, slots=True)
class Demo:
    """What the notebook found.

    Attributes:
        notebook: The executed notebook, with its outputs.
        before: Report of the leaking training loop.
        after: Report of the repaired one.
    """

    notebook: NotebookNode
    before: LeakReport
    after: LeakReport

    @property
    def failure(self) -> str:
        """Why the demo did not show what it should; empty if it did."""
        if not self.before.leaked:
            return f"the shipped leak was not found ({self.before.verdict})"
        if not any("epoch_outputs" in leak.holder for leak in self.before.leaks):
            return "the shipped leak was found, but not what holds it (expected trainer.epoch_outputs)"
        if self.after.leaked:
            return f"the repaired loop still counts as a leak ({self.after.verdict})"
        return ""


def find_notebook() -> Path:
    """Return the shipped notebook: inside an installed package, or beside the package in a checkout.

    Raises:
        LeaklabError: if it is in neither place.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if (folder / NOTEBOOK).is_file():
            return folder / NOTEBOOK
    msg = f"{NOTEBOOK} is missing from this installation of leaklab; install it again"
    raise LeaklabError(msg)


def run_demo(*, max_seconds: float) -> Demo:
    """Execute the shipped notebook and return what it found.

    Kernel, settings and history live in a temporary folder: nothing of the user's Jupyter or IPython profile is read
    or written, and the interpreter is the one that runs this function.

    Raises:
        LeaklabError: if the notebook fails, or has not ended after *max_seconds*.
    """
    notebook = nbformat.read(find_notebook(), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE_REPORTS))
    with tempfile.TemporaryDirectory(prefix="leaklab-demo-") as name:
        folder = Path(name)
        execute(notebook, folder, max_seconds=max_seconds)
        before, after = (LeakReport.from_json(folder / f"{name}.json") for name in ("before", "after"))
    notebook.cells.pop()
    return Demo(notebook=notebook, before=before, after=after)


def as_page(notebook: NotebookNode) -> str:
    """Return the executed *notebook* as one HTML page that asks nothing of the network."""
    exporter = HTMLExporter(mathjax_url="", require_js_url="", mermaid_js_url="", embed_images=True)
    page: str
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": "leaklab demo"}})
    return page


def save_notebook(notebook: NotebookNode, file: Path) -> None:
    """Write the executed *notebook* to *file*."""
    nbformat.write(notebook, file)
