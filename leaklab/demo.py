"""Execute the shipped notebook in a fresh kernel, away from the user's settings."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from leaklab.errors import LeaklabError
from leaklab.report import LeakReport

NOTEBOOK = "01_find_a_leak.ipynb"
_KERNEL = "leaklab-demo"
_POLL_SECONDS = 0.2
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
    notebook = nbformat.read(find_notebook(), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE_REPORTS))
    with tempfile.TemporaryDirectory(prefix="leaklab-demo-") as name:
        folder = Path(name)
        _execute(notebook, folder, max_seconds)
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


def _execute(notebook: NotebookNode, folder: Path, max_seconds: float) -> None:
    """Execute *notebook* in place; raise `LeaklabError` in words of one line if that fails."""
    stop = threading.Event()
    # In a thread, because in the main thread nbclient takes Ctrl-C over and ends in a traceback.
    with ThreadPoolExecutor(max_workers=1) as pool:
        execution = pool.submit(asyncio.run, _execute_until(stop, notebook, folder))
        try:
            execution.result(timeout=max_seconds)
        except CellExecutionError as error:
            msg = f"the notebook failed: {error.ename}: {error.evalue}"
            raise LeaklabError(msg) from error
        except DeadKernelError as error:
            msg = "the notebook's kernel died; was there enough memory?"
            raise LeaklabError(msg) from error
        except FutureTimeoutError as error:
            msg = f"the notebook did not end in {max_seconds:g} seconds; give it more with --timeout"
            raise LeaklabError(msg) from error
        finally:
            stop.set()


async def _execute_until(stop: threading.Event, notebook: NotebookNode, folder: Path) -> None:
    """Execute *notebook*; the kernel is gone at the end, also after *stop*."""
    client = NotebookClient(
        notebook,
        km=_kernel_manager(folder),
        timeout=None,  # the limit is on the whole notebook
        resources={"metadata": {"path": str(folder)}},
    )
    # The kernel's own log goes nowhere: what the cells write to stderr is in the notebook.
    cells = client.async_execute(cleanup_kc=True, env=_kernel_environment(folder), stderr=subprocess.DEVNULL)
    execution = asyncio.ensure_future(cells)
    while not execution.done() and not stop.is_set():
        await asyncio.wait({execution}, timeout=_POLL_SECONDS)
    if not execution.done():
        execution.cancel()
    await execution


def _kernel_manager(folder: Path) -> AsyncKernelManager:
    # A kernel specification of our own: a user's `python3` may point to another interpreter.
    kernel = folder / "kernels" / _KERNEL
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": "leaklab demo", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(specification), encoding="utf-8")
    manager = AsyncKernelManager(
        kernel_name=_KERNEL,
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")]),
        connection_file=str(folder / "connection.json"),
    )
    if os.name == "posix":  # sockets in our folder: nobody else on this machine can listen
        manager.transport, manager.ip = "ipc", str(folder / "socket")
    return manager


def _kernel_environment(folder: Path) -> dict[str, str]:
    places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    return os.environ | {place: str(folder / place.lower()) for place in places}
