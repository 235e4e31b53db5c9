"""Check one case in a process of its own, the way a notebook does: through the cell magic with its defaults.

Hooks, threads and caches that a case leaves behind are what it is about, so no two cases share a process. All are
forked from one server that has imported torch and the parts of a check: a start costs milliseconds, not seconds.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apart import PRELOADED
from leak_case import Case

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Said:
    """What leaklab said of one cell.

    Attributes:
        leaked: Whether it called it a leak.
        verdict: Its sentence.
        place: Path and holder of the first leak; empty without one.
        cause: The first leak's cause; empty without one.
        failure: Why there is no answer; empty if there is one.
    """

    leaked: bool = False
    verdict: str = ""
    place: str = ""
    cause: str = ""
    failure: str = ""


class Checks:
    """Checks running two at a time; `ask` waits for one of them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=2)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._answers: dict[tuple[str, str], Future[Said]] = {}

    def begin(self, case: Case, cell: str) -> None:
        """Start the check of *cell* as soon as there is room; a cell begun before is not checked twice."""
        key = (case.name, cell)
        if key not in self._answers:
            self._answers[key] = self._pool.submit(self._run, case, cell)

    def ask(self, case: Case, cell: str) -> Said:
        """Return what was said of *cell*."""
        self.begin(case, cell)
        return self._answers[case.name, cell].result()

    def close(self) -> None:
        """Wait for what runs, forget what waits."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, case: Case, cell: str) -> Said:
        answers, other_end = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(case, cell, other_end))
        process.start()
        other_end.close()
        try:
            return answers.recv() if answers.poll(TIMEOUT_SECONDS) else Said(failure="no answer in time")
        except EOFError:
            return Said(failure="the process died")
        finally:
            process.kill()
            process.join()
            answers.close()


def _answer(case: Case, cell: str, answers: Connection) -> None:
    os.environ["MPLBACKEND"] = "agg"
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            said = _check(case, cell)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent shall tell it
        said = Said(failure=traceback.format_exc() + output.getvalue()[-2000:])
    answers.send(said)
    os._exit(0)  # threads that wait for ever and finalizers of the case shall not hold the process


def _check(case: Case, cell: str) -> Said:
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    torch.set_num_threads(1)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    if case.gc_off:
        shell.run_cell("import gc; gc.disable()").raise_error()
    shell.run_cell(case.setup).raise_error()
    shell.run_line_magic("load_ext", "leaklab")
    shell.run_cell_magic("leakcheck", "-q --no-sites --no-cure -v report_of_case", cell)
    report = shell.user_ns["report_of_case"]
    first = report.leaks[0] if report.leaks else None
    return Said(
        leaked=report.leaked,
        verdict=str(report.verdict),
        place=f"{first.path} | {first.holder}" if first else "",
        cause=first.cause if first else "",
        failure=report.check.failure,
    )
