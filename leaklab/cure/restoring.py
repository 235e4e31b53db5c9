"""Bring something back whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable


def to_the_end(work: Callable[[], None]) -> None:
    """Call *work*, again where an interrupt has stopped it, and raise that interrupt when it is done.

    Args:
        work: May be called again after any part of it.
    """
    interrupts: list[KeyboardInterrupt] = []
    while not _is_done(work, interrupts):
        pass
    if interrupts:
        raise interrupts.pop()


def _is_done(work: Callable[[], None], interrupts: list[KeyboardInterrupt]) -> bool:
    try:
        work()
    except KeyboardInterrupt as raised:
        interrupts.append(raised)
        return False
    return True
