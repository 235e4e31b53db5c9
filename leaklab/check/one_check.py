"""One check at a time in a process: each freezes what is alive, and counts what everything else makes meanwhile."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable

from leaklab.check.steps import Steps
from leaklab.errors import CheckRunningError

_running: dict[int, _Claim] = {}
"""The check under way, by the process: one that was forked during a check has none."""


class _Claim:
    """What a check has while it runs, and gives back whatever ends it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread = threading.current_thread()

    def take(self) -> None:
        """Let no other check begin; raises `CheckRunningError` if one is under way."""
        other = _running.setdefault(self._process, self)  # one step: no other thread comes between
        if other is self:
            return
        if other._thread is self._thread:  # noqa: SLF001 - of the same class
            msg = "a check is running in this thread: it must end before another one begins, and cannot have one inside"
        else:
            msg = f"a check is running in the thread {other._thread.name!r}: start this one when it has ended"  # noqa: SLF001
        raise CheckRunningError(msg)

    def give_back(self) -> None:
        """Let others begin; does nothing for a claim that was refused."""
        if _running.get(self._process) is self:
            del _running[self._process]


def one_at_a_time(steps: Callable[..., Steps]) -> Callable[..., Steps]:
    """Return *steps* so that its second caller is refused at the first step, until the first caller's have ended."""

    @functools.wraps(steps)
    def claimed(*args: object, **kwargs: object) -> Steps:
        claim = _Claim()
        try:
            claim.take()
            return (yield from steps(*args, **kwargs))
        finally:
            claim.give_back()

    return claimed
