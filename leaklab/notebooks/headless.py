"""Execute a notebook in a fresh kernel, away from the user's settings."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from leaklab.errors import LeaklabError

_KERNEL = "leaklab"
_POLL_SECONDS = 0.2
_LAST_SECONDS = 120  # for the last cell, after a notebook that may just have been interrupted


def execute(
    notebook: NotebookNode,
    folder: Path,
    *,
    max_seconds: float | None,
    working_folder: Path | None = None,
    last: str = "",
) -> None:
    """Execute *notebook* in place, with the interpreter that runs this function.

    Args:
        notebook: Gets the outputs.
        folder: An empty folder for the kernel's files: nothing of the user's Jupyter or IPython profile is read or
            written.
        max_seconds: The whole notebook must have ended by then; None for no limit.
        working_folder: Where the cells run; *folder* if None.
        last: Code to run at the end, also after a cell that failed or took too long; it leaves no trace in *notebook*.

    Raises:
        LeaklabError: in one line, if a cell fails, the kernel dies, or the time is up.
    """
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
        execution = pool.submit(asyncio.run, _execute_until(stop, client, manager, _environment(folder), last))
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


async def _execute_until(
    stop: threading.Event, client: NotebookClient, manager: AsyncKernelManager, environment: dict[str, str], last: str
) -> None:
    """Execute the notebook, then *last*; the kernel is gone at the end, also after *stop*."""
    client.reset_execution_trackers()
    # The kernel's own log goes nowhere: what the cells write to stderr is in the notebook.
    async with client.async_setup_kernel(cleanup_kc=True, env=environment, stderr=subprocess.DEVNULL):
        execution = asyncio.ensure_future(_execute_cells(client))
        while not execution.done() and not stop.is_set():
            await asyncio.wait({execution}, timeout=_POLL_SECONDS)
        if not execution.done():
            execution.cancel()
            await manager.interrupt_kernel()
        try:
            await execution
        finally:
            if last and await manager.is_alive():
                await _execute_last(client, last)


async def _execute_cells(client: NotebookClient) -> None:
    for index, cell in enumerate(client.nb.cells):
        await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
    client.set_widgets_metadata()


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


def _environment(folder: Path) -> dict[str, str]:
    places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    return os.environ | {place: str(folder / place.lower()) for place in places}
