"""Run a function in a process of its own, where it may leave behind what nothing can free.

Each is forked from one server that has imported torch and the parts of a check: it starts in milliseconds, not in
seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

TIMEOUT_SECONDS = 120
PRELOADED = [
    "torch",
    "numpy",
    "IPython.core.interactiveshell",
    "pytest",
    "hypothesis",
    "_hypothesis_pytestplugin",
    "leaklab.magics",
    "leaklab.check.api",
    "leaklab.check.cures",
    "leaklab.reports.check",
]
"""What the server imports, once; what is not installed it leaves out."""


class DiedError(AssertionError):
    """A process ended without an answer."""


class Apart:
    """A process that calls *function*, which must be importable, with *arguments*.

    The end of the ``with`` block kills it.
    """

    def __init__(self, function: Any, *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._output = tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace")  # noqa: SIM115 - until the end
        self._answers, other_end = context.Pipe(duplex=False)
        self._process = context.Process(target=_answer, args=(other_end, self._output.name, function, arguments))
        self._process.start()
        other_end.close()

    def __enter__(self) -> Apart:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.join()
        self._answers.close()
        self._output.close()

    def result(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        """Return what the function returned.

        Raises:
            DiedError: if the process died.
            AssertionError: if the function raised, or did not return in time.
        """
        try:
            in_time = self._answers.poll(timeout_seconds)
            failure, result = self._answers.recv() if in_time else ("no answer in time", None)
        except EOFError:
            self._process.join()
            msg = f"the process died with status {self._process.exitcode}\n{self.output}"
            raise DiedError(msg) from None
        assert not failure, f"{failure}\n{self.output}"
        return result

    @property
    def output(self) -> str:
        """What the process has written until now."""
        self._output.seek(0)
        return self._output.read()


def apart(function: Any, *arguments: Any) -> Any:
    """Return what *function*, called with *arguments* in a fresh process, returned."""
    with Apart(function, *arguments) as process:
        return process.result()


def _answer(answers: Connection, output: str, function: Any, arguments: tuple[Any, ...]) -> None:
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    try:
        answer = ("", function(*arguments))
    except BaseException:  # noqa: BLE001 - whatever it is, the parent shall tell it
        answer = (traceback.format_exc(), None)
    sys.stdout.flush()
    sys.stderr.flush()
    answers.send(answer)
    # Until it is killed: a process that ends takes its connections to others along, and may wait for threads.
    time.sleep(TIMEOUT_SECONDS)
