"""Execute the notebooks and keep what they show: ``python docs/run_notebooks.py [FILE ...]``.

On a page that has no kernel, such as GitHub's, a notebook shows what is kept in it. What only says when and on which
machine it was made is left out, so that a second run changes as little as can be.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
_SYSTEM = re.compile(r"(system Linux)-[\w.+-]+")
_TIMEOUT = 600


def run(file: Path) -> None:
    """Execute *file* in an empty folder, and write it with its outputs."""
    notebook = nbformat.read(file, 4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=_TIMEOUT, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    text = nbformat.writes(notebook).replace(f"{folder}/", "")
    file.write_text(_SYSTEM.sub(r"\1", text) + "\n", "utf-8")


if __name__ == "__main__":
    for chosen in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        run(chosen)
