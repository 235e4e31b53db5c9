"""Which loops are watched now, and the last words on those that an error has ended."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leaklab.model.loop import MonitorRecord


class RunningMonitor(Protocol):
    """A monitor, as far as it is known here."""

    @property
    def name(self) -> str:
        """What the user calls the loop."""

    @property
    def record(self) -> MonitorRecord:
        """What is known of the loop."""


_MOST_LAST_WORDS = 3
_running: weakref.WeakSet[RunningMonitor] = weakref.WeakSet()
_last_words: deque[MonitorRecord] = deque(maxlen=_MOST_LAST_WORDS)
_lock = threading.Lock()  # a server of metrics asks from a thread of its own


def running_monitors() -> tuple[RunningMonitor, ...]:
    """Return the monitors that have been started and not stopped, by name."""
    with _lock:
        running = tuple(_running)
    return tuple(sorted(running, key=lambda monitor: monitor.name))


def last_words() -> tuple[MonitorRecord, ...]:
    """Return what was known of the loops that an error has ended, the latest last: it may go on to end the program."""
    return tuple(_last_words)


def begin(monitor: RunningMonitor) -> None:
    """Note that *monitor* was started."""
    _last_words.clear()  # the program has gone on
    with _lock:
        _running.add(monitor)


def end(monitor: RunningMonitor, failure: str) -> None:
    """Note that *monitor* was stopped, by an error where *failure* names one."""
    with _lock:
        _running.discard(monitor)
    if failure:
        with suppress(MemoryError):  # the error may be that there is none
            _last_words.append(monitor.record)
