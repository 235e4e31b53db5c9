"""Execute a notebook in a fresh kernel, away from the user's settings: the shipped demo, or one with checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from leaklab.errors import LeaklabError, ReportError
from leaklab.model.check import KeptCheck, NotebookChecks
from leaklab.render.base import write_text
from leaklab.render.json import embedded, notebook_to_json
from leaklab.reports.check import LeakReport, said_since
from leaklab.reports.check_text import card_text
from leaklab.reports.notebook import NotebookReport, load_report, redacted_checks
from leaklab.text import shorten
from leaklab.version import PACKAGE_FOLDER

_KERNEL = "leaklab"
_POLL_SECONDS = 0.2
_LAST_SECONDS = 120  # for the last cell, after a notebook that may just have been interrupted
NOTEBOOK = "01_find_a_leak.ipynb"
# Run last, never shown: the two names are those that the notebook's `-v` options give its reports.
_SAVE_REPORTS = "before.to_json('before.json')\nafter.to_json('after.json')"
_N_HEAD, _BEFORE_JSON = 1024, b"\xef\xbb\xbf \t\r\n"
_FAILURE_LIMIT = 300
OnCell = Callable[[int, int, str], None]
OnWords = Callable[[str], None]
_OWN_WORDS = "leaklab: "  # a check begins its line with them as long as it runs
DEMO_STEPS = {
    "for epoch in range(1, 31):": "a small network is trained for 30 epochs; the process grows",
    '%%leakcheck -v before --name "one epoch"': "one epoch is run again and again; every object is counted by its run",
    "class FixedTrainer(Trainer):": "the trainer is repaired by hand",
    '%%leakcheck -v after --name "one epoch"': "the repaired epoch is checked in the same way",
}
"""What the cells of the demo do, by their first lines."""
# Run last, also after a cell that failed. It needs neither a variable nor a magic of the notebook's.
_HAND_OVER = "__import__('leaklab.magics.line_magics', fromlist=['hand_over']).hand_over({path!r})"


def execute(
    notebook: NotebookNode,
    folder: Path,
    *,
    max_seconds: float | None,
    working_folder: Path | None = None,
    last: str = "",
    on_cell: OnCell | None = None,
    on_words: OnWords | None = None,
) -> None:
    """Execute *notebook* in place, with the interpreter that runs this function.

    Args:
        notebook: Gets the outputs.
        folder: An empty folder for the kernel's files: nothing of the user's Jupyter or IPython profile is read or
            written.
        max_seconds: The whole notebook must have ended by then; None for no limit.
        working_folder: Where the cells run; *folder* if None.
        last: Code to run at the end, also after a cell that failed or took too long; it leaves no trace in *notebook*.
        on_cell: Is told each code cell that begins: its number among them, how many there are, its first line.
        on_words: Is told what a check that runs says of itself, each time that it says something else.

    Raises:
        LeaklabError: in one line, if a cell fails, the kernel dies, or the time is up.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":  # what an earlier execution has left is nothing that this one shows
            cell.outputs, cell.execution_count = [], None
    stop = threading.Event()
    manager = _kernel_manager(folder)
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=None,  # the limit is on the whole notebook
        resources={"metadata": {"path": str(working_folder or folder)}},
    )
    # In a thread, because in the main thread nbclient takes Ctrl-C over and ends in a traceback.
    with ThreadPoolExecutor(max_workers=1) as pool:
        environment = environment_in(folder)
        work = _execute_until(stop, client, manager, environment, last=last, on_cell=on_cell, on_words=on_words)
        execution = pool.submit(asyncio.run, work)
        try:
            execution.result(timeout=max_seconds)
        except CellExecutionError as error:
            msg = f"the notebook failed: {error.ename}: {error.evalue}"
            raise LeaklabError(msg) from error
        except DeadKernelError as error:
            msg = "the notebook's kernel died; was there enough memory?"
            raise LeaklabError(msg) from error
        except FutureTimeoutError as error:
            msg = f"the notebook did not finish within {max_seconds:g} seconds; allow more with --timeout"
            raise LeaklabError(msg) from error
        finally:
            stop.set()


async def _execute_until(
    stop: threading.Event,
    client: NotebookClient,
    manager: AsyncKernelManager,
    environment: dict[str, str],
    *,
    last: str,
    on_cell: OnCell | None,
    on_words: OnWords | None,
) -> None:
    """Execute the notebook, then *last*; the kernel is gone at the end, also after *stop*."""
    client.reset_execution_trackers()
    # The kernel's own log goes nowhere: what the cells write to stderr is in the notebook.
    async with client.async_setup_kernel(cleanup_kc=True, env=environment, stderr=subprocess.DEVNULL):
        execution = asyncio.ensure_future(_execute_cells(client, on_cell))
        told = ""
        while not execution.done() and not stop.is_set():
            await asyncio.wait({execution}, timeout=_POLL_SECONDS)
            words = _words_of_check(client.nb)
            if on_words is not None and words != told:
                on_words(words)
            told = words
        if not execution.done():
            execution.cancel()
            await manager.interrupt_kernel()
        try:
            await execution
        finally:
            if last and await manager.is_alive():
                await _execute_last(client, last)


async def _execute_cells(client: NotebookClient, on_cell: OnCell | None) -> None:
    n_code, n_begun = sum(cell.cell_type == "code" for cell in client.nb.cells), 0
    for index, cell in enumerate(client.nb.cells):
        if cell.cell_type == "code":
            n_begun += 1
            if on_cell is not None:
                on_cell(n_begun, n_code, cell.source.strip().partition("\n")[0])
        await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
    client.set_widgets_metadata()


def _words_of_check(notebook: NotebookNode) -> str:
    """Return what a check that runs says of itself; empty where none runs."""
    shown = [cell.outputs for cell in notebook.cells if cell.get("outputs")]
    words: str = shown[-1][-1].get("data", {}).get("text/plain", "") if shown else ""
    return " ".join(words.split()) if words.startswith(_OWN_WORDS) else ""


async def _execute_last(client: NotebookClient, source: str) -> None:
    """Run *source*; what became of it is seen by what it wrote."""
    new_cell: Any = nbformat.v4.new_code_cell
    client.nb.cells.append(new_cell(source))
    client.timeout = _LAST_SECONDS
    ask: Any = client.kc
    try:
        with contextlib.suppress(CellExecutionError, DeadKernelError, TimeoutError):
            # A kernel that has just been interrupted drops what is asked of it at that moment: wait until it answers.
            await ask.kernel_info(reply=True, timeout=_LAST_SECONDS)
            await client.async_execute_cell(client.nb.cells[-1], len(client.nb.cells) - 1)
    finally:
        client.nb.cells.pop()


def _kernel_manager(folder: Path) -> AsyncKernelManager:
    # A kernel specification of our own: a user's `python3` may point to another interpreter.
    kernel = folder / "kernels" / _KERNEL
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": _KERNEL, "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(specification), encoding="utf-8")
    manager = AsyncKernelManager(
        kernel_name=_KERNEL,
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")]),
        connection_file=str(folder / "connection.json"),
    )
    if os.name == "posix":  # sockets in our folder: nobody else on this machine can listen
        manager.transport, manager.ip = "ipc", str(folder / "socket")
    return manager


def environment_in(folder: Path) -> dict[str, str]:
    """Return the environment of this process with *folder* for all that Jupyter, IPython and matplotlib keep."""
    places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    return os.environ | {place: str(folder / place.lower()) for place in places}


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


_FOUND = "<h1>What leaklab found, and what became of it</h1><p>Below that: the notebook in which it was found.</p>"


_WHERE_NEXT = (
    ("your notebook", "%load_ext leaklab, then %%leakcheck above a cell"),
    ("your script", "leaklab watch train.py"),
    ("memory is full right now", "%leaks in the notebook; leaklab attach PID for a program"),
)
LABEL_WIDTH = 28
"""Columns before what stands behind a name of `_WHERE_NEXT`, and behind those that a front end adds."""


def words_of(demo: Demo) -> str:
    """Return what the demo has found, what became of it, and where to go from here."""
    lines = [
        card_text(demo.before.record),
        "The same loop, repaired:",
        f"{demo.before.compare(demo.after)}",
        card_text(demo.after.record),
        "Where to go from here:",
        *(f"  {what}".ljust(LABEL_WIDTH) + how for what, how in _WHERE_NEXT),
    ]
    return "\n".join(lines)


def find_notebook() -> Path:
    """Return the shipped notebook: inside an installed package, or beside the package in a checkout.

    Raises:
        LeaklabError: if it is in neither place.
    """
    package = Path(PACKAGE_FOLDER)
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if (folder / NOTEBOOK).is_file():
            return folder / NOTEBOOK
    msg = f"{NOTEBOOK} is missing from this installation of leaklab; install it again"
    raise LeaklabError(msg)


def run_demo(*, max_seconds: float, on_cell: OnCell | None = None, on_words: OnWords | None = None) -> Demo:
    """Execute the shipped notebook and return what it found; *on_cell* and *on_words* are told as by `execute`.

    Kernel, settings and history live in a temporary folder: nothing of the user's Jupyter or IPython profile is read
    or written, and the interpreter is the one that runs this function.

    Raises:
        LeaklabError: if the notebook fails, or has not ended after *max_seconds*.
    """
    notebook = nbformat.read(find_notebook(), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE_REPORTS))
    with tempfile.TemporaryDirectory(prefix="leaklab-demo-") as name:
        folder = Path(name)
        execute(notebook, folder, max_seconds=max_seconds, on_cell=on_cell, on_words=on_words)
        before, after = (LeakReport.from_json(folder / f"{name}.json") for name in ("before", "after"))
    notebook.cells.pop()
    return Demo(notebook=notebook, before=before, after=after)


def as_page(demo: Demo) -> str:
    """Return the demo as one HTML page that asks nothing of the network: what was found, then the executed notebook.

    `leaklab.load` reads both checks back from it.
    """
    exporter = HTMLExporter(mathjax_url="", require_js_url="", mermaid_js_url="", embed_images=True)
    page: str
    page, _ = exporter.from_notebook_node(demo.notebook, resources={"metadata": {"name": "leaklab demo"}})
    after = said_since(demo.after, demo.before.compare(demo.after))
    cards = "".join(str(report._repr_html_()) for report in (demo.before, after))
    both = tuple(KeptCheck(report.record) for report in (demo.before, demo.after))
    record = embedded(notebook_to_json(NotebookChecks("leaklab demo", both)))
    return page.replace("<main>", f'<main>\n<section style="padding:16px 24px">{_FOUND}{cards}</section>{record}', 1)


def save_notebook(notebook: NotebookNode, file: Path) -> None:
    """Write the executed *notebook* to *file*."""
    write_text(file, nbformat.writes(notebook) + "\n")


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """What became of a notebook.

    Attributes:
        report: Its checks; those made until then if it failed.
        failure: Why it ended early; empty if it did not.
    """

    report: NotebookReport
    failure: str


def run_notebook(
    file: Path, *, max_seconds: float | None = None, redact: bool = False, on_cell: OnCell | None = None
) -> NotebookRun:
    """Execute the notebook in *file*, which stays as it is, and return the checks that it made.

    The cells run in the notebook's own folder, with the interpreter that runs this function.

    Args:
        file: The notebook.
        max_seconds: Limit for the whole notebook; None for none.
        redact: Whether to blank what the checks tell of the notebook's data.
        on_cell: As for `execute`.

    Raises:
        LeaklabError: if there is no such notebook, it cannot be read, or its kernel could not be asked for its checks.
    """
    notebook = read_notebook(file)
    with tempfile.TemporaryDirectory(prefix="leaklab-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        record, failure = folder / "checks.json", ""
        try:
            execute(
                notebook,
                folder,
                max_seconds=max_seconds,
                working_folder=file.resolve().parent,
                last=_HAND_OVER.format(path=str(record)),
                on_cell=on_cell,
            )
        except LeaklabError as error:
            failure = shorten(str(error), _FAILURE_LIMIT)
        collection = _collected(record, failure)
    collection = replace(collection, title=file.name, failure=failure)
    return NotebookRun(NotebookReport(redacted_checks(collection) if redact else collection), failure)


def read_notebook(file: Path) -> nbformat.NotebookNode:
    """Return the notebook in *file*.

    Raises:
        LeaklabError: if there is none that can be read.
    """
    read: Callable[..., nbformat.NotebookNode] = nbformat.read
    try:
        with file.open("rb") as opened:  # what is something else may be larger than memory
            if opened.read(_N_HEAD).lstrip(_BEFORE_JSON)[:1] != b"{":
                problem = "it does not begin like one"
                raise ValueError(problem)  # noqa: TRY301 - told like what nbformat raises
        return read(file, as_version=4)
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}; give the path of a notebook"
        raise LeaklabError(msg) from error
    except Exception as error:  # nbformat raises whatever its JSON reader and its validator raise
        script = f"; a script is run by `leaklab watch {file}`" if str(file).endswith(".py") else ""
        msg = f"{file} is not a notebook that can be read: {shorten(str(error), _FAILURE_LIMIT)}{script}"
        raise LeaklabError(msg) from error


def _collected(record: Path, failure: str) -> NotebookChecks:
    try:
        report = load_report(record)
    except ReportError as error:
        # The kernel is gone, or stuck in code that no interrupt ends: nothing was handed over.
        msg = failure or f"the notebook's kernel did not hand over its checks: {error}"
        raise LeaklabError(msg) from error
    if not isinstance(report, NotebookReport):
        msg = f"{record} holds one check instead of the notebook's"
        raise LeaklabError(msg)
    return report.collection
