"""Run a function in a process of its own, where it may leave behind what nothing can free."""

from __future__ import annotations

import multiprocessing
import traceback
from typing import Any

TIMEOUT_SECONDS = 120
PRELOADED = [
    "torch",
    "numpy",
    "IPython.core.interactiveshell",
    "leaklab.magics",
    "leaklab.check.api",
    "leaklab.check.cures",
    "leaklab.reports.check",
]
"""What a check needs, imported once, by the server from which processes are forked."""


def apart(function: Any) -> Any:
    """Return what *function*, called without arguments in a fresh process, returned; it must be importable."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    answers, other_end = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, other_end))
    process.start()
    other_end.close()
    try:
        failure, result = answers.recv() if answers.poll(TIMEOUT_SECONDS) else ("no answer in time", None)
    except EOFError:
        failure, result = "the process died", None
    finally:
        process.kill()
        process.join()
        answers.close()
    assert not failure, failure
    return result


def _answer(function: Any, answers: Any) -> None:
    try:
        answers.send(("", function()))
    except Exception:  # noqa: BLE001 - whatever it is, the parent shall tell it
        answers.send((traceback.format_exc(), None))
