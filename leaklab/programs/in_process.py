"""Answer `leaklab attach` inside of the program that leaklab was loaded into; nothing stays there but its modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from leaklab.errors import LeaklabError
from leaklab.files import write_bytes
from leaklab.loop.clocks import hear_calls
from leaklab.loop.inside import BlockWatch
from leaklab.process.stock import calls_of, main_variables, take_stock
from leaklab.programs.question import ANSWER, ERROR, Question
from leaklab.version import __version__

if TYPE_CHECKING:
    from leaklab.reports.loop import MonitorReport
    from leaklab.reports.process import ProcessReport

_MAIN = "__main__"
_watches: dict[int, tuple[BlockWatch, ExitStack]] = {}
"""The watch of this process and what ends it, by its number: a child that was forked off is not watched."""


def answer(question: Question, frame: FrameType | None) -> None:
    """Do what is asked, and write the answer into the folder of the question.

    Args:
        question: What is asked.
        frame: Where the main thread is.

    Raises:
        LeaklabError: if that cannot be; the message is one sentence for the asker.
    """
    if question["version"] != __version__:
        msg = (
            f"process {os.getpid()} has leaklab {__version__}, and this is leaklab {question['version']}: ask with "
            "that version, or install this version there"
        )
        raise LeaklabError(msg)
    acts: dict[str, Callable[[Question, FrameType | None], None]] = {"look": _look, "watch": _begin, "stop": _end}
    acts[question["act"]](question, frame)


def _look(question: Question, frame: FrameType | None) -> None:
    _send(question, take_stock("asked for by leaklab attach", stack=calls_of(frame)))


def _begin(question: Question, _frame: FrameType | None) -> None:
    pid, named = os.getpid(), question["named"]
    if pid in _watches:
        msg = f"process {pid} is watched already: `leaklab attach {pid} --stop` ends that"
        raise LeaklabError(msg)
    # What the steps need is loaded now: there an error would be the program's, here it is the asker's.
    from leaklab.loop import monitor  # noqa: F401, PLC0415

    watch = BlockWatch(
        "leaklab attach", main_variables(), total_steps=question["total_steps"], any_thread=True, named=named
    )
    module, _, function = named.rpartition(":")
    with ExitStack() as begun:
        begun.callback(watch.end)
        try:
            watch.__enter__()
            if function and module in ("", _MAIN):
                begun.callback(hear_calls(sys.modules[_MAIN], function, watch.note_named))
        except AttributeError as error:
            msg = f"process {pid} has no function {named.strip(':')}: give one as --step module:function"
            raise LeaklabError(msg) from error
        _watches.clear()
        _watches[pid] = watch, begun.pop_all()
    _send(question, None)


def _end(question: Question, _frame: FrameType | None) -> None:
    watch, begun = _watches.pop(os.getpid(), (None, ExitStack()))
    if watch is None:
        msg = f"process {os.getpid()} is not watched: `leaklab attach {os.getpid()} --watch` begins that"
        raise LeaklabError(msg)
    watched = watch

    def end() -> None:
        try:
            begun.close()
            if watched.n_steps:
                _send(question, watched.report())
            else:
                _refuse(
                    question, f"process {os.getpid()} is no longer watched, and nothing was found: {watched.missing}"
                )
        except Exception as error:  # noqa: BLE001 - it may be called from a step of the program, which is not to fail
            _refuse(question, f"{type(error).__name__}: {error}")

    watch.when_idle(end)


def _refuse(question: Question, words: str) -> None:
    write_bytes(Path(question["folder"], ERROR), words.encode("utf-8", "backslashreplace"))


def _send(question: Question, report: ProcessReport | MonitorReport | None) -> None:
    words = "" if report is None else report.to_json()
    write_bytes(Path(question["folder"], ANSWER), words.encode())
