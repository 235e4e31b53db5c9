"""Do something at a signal, and then what was done at it before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from leaklab.errors import LeaklabError

ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU")
"""Their default action ends the process, and is what their sender wants; of the others nobody wants it."""


def signal_name(number: int) -> str:
    """Return ``SIGTERM``, or ``signal 99`` for one that has no name here."""
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def is_main_thread() -> bool:
    """Return whether this is the thread in which Python allows handlers to be set."""
    return threading.current_thread() is threading.main_thread()


def refuse_uncatchable(number: int, call: str) -> None:
    """Raise a LeaklabError outside of the main thread, or if C code has the signal.

    Args:
        number: The signal.
        call: What is to be called elsewhere, such as ``listen()``.
    """
    if not is_main_thread():
        msg = f"call {call} in the main thread: Python allows signal handlers there only"
        raise LeaklabError(msg)
    if signal.getsignal(number) is None:
        msg = f"C code handles {signal_name(number)}, and Python could not restore that handler: give another signal"
        raise LeaklabError(msg)


def _at_once(act: Callable[[], object]) -> None:
    act()


class SignalHook:
    """Calls *act* at a signal, then the handler that was there before; a signal that ends processes still does.

    Args:
        signum: The signal; `refuse_uncatchable` has passed it.
        act: Is given where the main thread was. Signals that come meanwhile are answered by calling it once more.
        when: Calls what it is given, at once or soon: a signal may come at a moment that bears no answer.
        in_children: Whether forked children answer, too; otherwise they have the handler that was there before, from
            their first instruction on.
    """

    def __init__(
        self,
        signum: int,
        act: Callable[[FrameType | None], object],
        *,
        when: Callable[[Callable[[], object]], object] = _at_once,
        in_children: bool = False,
    ) -> None:
        self._signum, self._act, self._when = signum, act, when
        self._n_asked = 0
        self._is_acting = False
        self._is_on = True
        self._fork = threading.local()
        self._handler = self._handle
        self._before: Callable[[int, FrameType | None], Any] | int | None = signal.signal(signum, self._handler)
        if not in_children and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child
            )

    def remove(self) -> None:
        """Bring back the handler that was there before.

        Where somebody has put another one over this, or in another thread, it stays and only hands on.
        """
        if self._is_on:
            self._is_on = False
            self._put_back()

    def _put_back(self) -> None:
        if is_main_thread() and signal.getsignal(self._signum) == self._handler:
            before = self._before
            while isinstance(hook := getattr(before, "__self__", None), SignalHook) and not hook._is_on:  # noqa: SLF001 - of this class
                before = hook._before  # noqa: SLF001
            signal.signal(self._signum, before)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._n_asked += 1
        self._when(lambda: self._answer(signum, frame))

    def _answer(self, signum: int, frame: FrameType | None) -> None:
        if self._is_on and not self._is_acting:
            self._is_acting = True
            n_answered = 0
            try:
                while n_answered < self._n_asked:  # asked again meanwhile: that asker waits for an answer, too
                    n_answered = self._n_asked
                    self._act(frame)
            finally:
                self._is_acting = False
        before = self._before
        if callable(before):
            before(signum, frame)
        elif before == signal.SIG_DFL and signal_name(signum) in ENDING:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    def _before_fork(self) -> None:
        """Hold the signal back: a child drops what comes for its handler before the interpreter in it is ready."""
        self._fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {self._signum}) if self._is_on else None

    def _after_fork(self) -> None:
        if self._fork.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._fork.mask)

    def _in_child(self) -> None:
        """A forked child is not asked: it does at once what it would do without this."""
        if self._is_on:
            self._is_on = False
            self._put_back()
        self._after_fork()
