"""Execute the shipped notebook in a fresh kernel, away from the user's settings."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leaklab.errors import LeaklabError

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager
    from nbformat import NotebookNode

    from leaklab.report import LeakReport

NOTEBOOK = "01_find_a_leak.ipynb"
_KERNEL = "leaklab-demo"
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
        if not any("history" in leak.holder for leak in self.before.leaks):
            return "the shipped leak was found, but not what holds it (expected trainer.history)"
        if self.after.leaked:
            return f"the repaired loop still counts as a leak ({self.after.verdict})"
        return ""


def find_notebook() -> Path:
    """Return the shipped notebook: inside an installed package, or beside the package in a checkout.

    Raises:
        LeaklabError: if it is in neither place.
    """
    package = Path(__file__).parent
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
    import nbformat
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    from leaklab.report import LeakReport

    notebook = nbformat.read(find_notebook(), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE_REPORTS))
    with tempfile.TemporaryDirectory(prefix="leaklab-demo-") as name:
        folder = Path(name)
        try:
            asyncio.run(_execute(notebook, folder, max_seconds))
        except CellExecutionError as error:
            msg = f"the notebook failed: {error.ename}: {error.evalue}"
            raise LeaklabError(msg) from error
        except (CellControlSignal, DeadKernelError, RuntimeError) as error:
            msg = f"the notebook's kernel failed: {error}"
            raise LeaklabError(msg) from error
        except (asyncio.TimeoutError, TimeoutError) as error:
            msg = f"the notebook did not end in {max_seconds:g} seconds; give it more with --timeout"
            raise LeaklabError(msg) from error
        before, after = (LeakReport.from_json(folder / f"{name}.json") for name in ("before", "after"))
    notebook.cells.pop()
    return Demo(notebook=notebook, before=before, after=after)


def as_page(notebook: NotebookNode) -> str:
    """Return the executed *notebook* as one HTML page that asks nothing of the network."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(mathjax_url="", require_js_url="", mermaid_js_url="", embed_images=True)
    page: str
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": "leaklab demo"}})
    return page


async def _execute(notebook: NotebookNode, folder: Path, max_seconds: float) -> None:
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        km=_kernel_manager(folder),
        timeout=None,  # the limit is on the whole notebook, below
        resources={"metadata": {"path": str(folder)}},
    )
    await asyncio.wait_for(client.async_execute(env=_kernel_environment(folder)), max_seconds)


def _kernel_manager(folder: Path) -> AsyncKernelManager:
    # A kernel specification of our own: a user's `python3` may point to another interpreter.
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    kernel = folder / "kernels" / _KERNEL
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": "leaklab demo", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(specification), encoding="utf-8")
    return AsyncKernelManager(
        kernel_name=_KERNEL,
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")]),
        connection_file=str(folder / "connection.json"),
    )


def _kernel_environment(folder: Path) -> dict[str, str]:
    places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    return os.environ | {place: str(folder / place.lower()) for place in places}
