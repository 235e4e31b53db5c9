"""Run every Python block of the documentation, each page from top to bottom in a kernel of its own.

Run it as ``python docs/run_pages.py [PAGE ...]``; without pages, README.md and all of docs/. Blocks below a comment
``<!-- not run: why -->`` are left out. It prints what every block printed, and ends with 1 if one failed.
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^(<!-- not run: .+ -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def documents() -> list[Path]:
    """Return the pages that have Python blocks to run."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if blocks(page)]


def blocks(page: Path, *, all_of_them: bool = False) -> list[str]:
    """Return the Python blocks of *page* that are to be run, or all."""
    return [source for not_run, source in _BLOCK.findall(page.read_text("utf-8")) if all_of_them or not not_run]


def run_page(page: Path) -> nbformat.NotebookNode:
    """Execute the blocks of *page* in an empty folder and return them as an executed notebook.

    Raises:
        CellExecutionError: if a block fails.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in blocks(page)])
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": folder}}).execute()
    return notebook


def words(notebook: nbformat.NotebookNode) -> str:
    """Return what the blocks of an executed page showed, as text."""
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def main() -> int:
    """Run the pages of the command line; return the exit status."""
    failed = []
    for page in [Path(name).resolve() for name in sys.argv[1:]] or documents():
        print(f"=== {page.relative_to(ROOT)}", flush=True)
        try:
            print(words(run_page(page)), flush=True)
        except CellExecutionError as error:
            print(error)
            failed.append(page.name)
    print(f"failed: {', '.join(failed)}" if failed else "every block ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
