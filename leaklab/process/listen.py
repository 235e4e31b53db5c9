"""``leaklab.listen``: a running process answers a signal with a report on what it holds."""

from __future__ import annotations

import atexit
import signal
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from leaklab.files import FilePath, say_on_stderr
from leaklab.process.ask import announce, withdraw
from leaklab.process.signal_hook import ENDING, SignalHook, refuse_uncatchable, signal_name
from leaklab.process.stock import ReportFiles, calls_of, rehearse, take_stock

if TYPE_CHECKING:
    from typing_extensions import Self

_PREFIX = "process"
_USUAL = ("SIGUSR2", "SIGBREAK")  # the latter on Windows
_UNCATCHABLE = ("SIGKILL", "SIGSTOP")
_OF_ERRORS = ("SIGSEGV", "SIGFPE", "SIGILL", "SIGBUS", "SIGABRT")


def listen(signum: int | None = None, folder: FilePath = ".", *, keep: int = 3) -> Listener:
    """Answer a signal with a report: what this process holds, who holds it, where it is.

    ``kill -USR2 PID``, or ``leaklab ask PID``, from another terminal; no debugger, no restart. The text goes to stderr
    and, with a page, into *folder*: ``process_<start>_<process>.txt`` and ``.html``, of one process the latest. The
    program stands still meanwhile, half a second for 200,000 objects, and goes on. A handler that was there before is
    called afterwards; a signal that ends processes, such as SIGTERM, still does.

    Args:
        signum: The signal; by default SIGUSR2, on Windows SIGBREAK.
        folder: Where the files are written; made if it is missing.
        keep: Of so many processes the files stay in the folder; older ones are removed.

    Returns:
        The listener; its ``stop()`` brings the handler back that was there before.

    Raises:
        LeaklabError: outside of the main thread, which alone may set handlers; or if C code has the signal.
        ReportError: if the folder cannot be made.
        ValueError: if Python cannot catch the signal, or *keep* is less than 1.
    """
    number = _usable(signum)
    refuse_uncatchable(number, "listen()")
    return Listener(number, ReportFiles(folder, _PREFIX, keep))


class Listener:
    """What `leaklab.listen` returns; also a context manager, which stops at its end.

    Attributes:
        signum: The signal that is answered.
        file: The text of the latest answer; None before the first.
    """

    def __init__(self, signum: int, files: ReportFiles) -> None:
        rehearse()
        self.signum = signum
        self.file: Path | None = None
        self._files = files
        self._is_on = True
        self._hook = SignalHook(signum, self._answer, in_children=True)
        if signal_name(signum) not in ENDING:
            announce(signum, files.text_file)
            atexit.register(withdraw)

    def __repr__(self) -> str:
        state = "waiting" if self._is_on else "stopped"
        return f"<leaklab.listen({signal_name(self.signum)}, {str(self._files.folder)!r}): {state}>"

    def __enter__(self) -> Self:
        """Return the listener; it has begun already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop listening."""
        self.stop()

    def stop(self) -> None:
        """Bring back the handler that was there before; one that somebody has put over this stays."""
        if self._is_on:
            self._is_on = False
            withdraw()
            atexit.unregister(withdraw)
            self._hook.remove()

    def _answer(self, frame: FrameType | None) -> None:
        try:
            self._report(frame)
        except Exception as error:  # noqa: BLE001 - the program is not to die of a question
            say_on_stderr(f"leaklab: no report was made: {type(error).__name__}: {error}\n")

    def _report(self, frame: FrameType | None) -> None:
        report = take_stock(f"asked for by {signal_name(self.signum)}", stack=calls_of(frame))
        say_on_stderr(str(report))
        self._files.write(report)
        self.file = self._files.text_file
        say_on_stderr(f"leaklab: also written to {self.file}\n")


def _usable(signum: int | None) -> int:
    """Return the signal to listen to.

    Raises:
        ValueError: if Python cannot catch it.
    """
    usual = next((name for name in _USUAL if hasattr(signal, name)), "SIGINT")
    number = int(getattr(signal, usual)) if signum is None else int(signum)
    known = {int(each) for each in signal.valid_signals()}
    name = signal_name(number)
    if number not in known:
        there = ", ".join(
            sorted(signal_name(each) for each in known if signal_name(each) not in (*_UNCATCHABLE, *_OF_ERRORS))
        )
        msg = f"{sys.platform} has no signal {number}; it has {there}"
        raise ValueError(msg)
    if name in _UNCATCHABLE:
        msg = f"no program can catch {name}: give another signal, such as {usual}"
        raise ValueError(msg)
    if name in _OF_ERRORS:
        msg = f"{name} says that C code failed, after which Python cannot go on: give another signal, such as {usual}"
        raise ValueError(msg)
    return number
