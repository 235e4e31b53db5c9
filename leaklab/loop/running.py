"""Which loops are watched now, and the last words on those that have ended: the program may die of what they left."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class SpareMemory(Protocol):
    """Memory that is set aside to say something with when there is no other."""

    def free(self) -> None:
        """Give it back to the system."""

    def take(self) -> None:
        """Set it aside again, where there is some."""


_MOST_LAST_WORDS = 3
_running: weakref.WeakSet[RunningMonitor] = weakref.WeakSet()
_last_words: deque[MonitorRecord] = deque(maxlen=_MOST_LAST_WORDS)
_rooms: list[SpareMemory] = []
_lock = threading.Lock()  # a server of metrics asks from a thread of its own


def running_monitors() -> tuple[RunningMonitor, ...]:
    """Return the monitors that have been started and not stopped, by name."""
    with _lock:
        running = tuple(_running)
    return tuple(sorted(running, key=lambda monitor: monitor.name))


def last_words() -> tuple[MonitorRecord, ...]:
    """Return what was known of the loops that an error has ended, or whose growth is left behind, the latest last."""
    return tuple(_last_words)


def begin(monitor: RunningMonitor) -> None:
    """Note that *monitor* was started: the program has gone on after an error, and a loop of this name begins again."""
    left = [record for record in _last_words if not record.failure and record.status.name != monitor.name]
    _last_words.clear()
    _last_words.extend(left)
    with _lock:
        _running.add(monitor)


def end(monitor: RunningMonitor, failure: str) -> None:
    """Note that *monitor* was stopped, by an error where *failure* names one."""
    with _lock:
        _running.discard(monitor)
    with suppress(MemoryError):  # the error may be that there is none
        record = monitor.record
        if failure or record.places:
            _last_words.append(record)


def add_room(room: SpareMemory) -> None:
    """Use *room* for last words from now on."""
    _rooms.append(room)


def remove_room(room: SpareMemory) -> None:
    """Use *room* no more."""
    _rooms[:] = [known for known in _rooms if known is not room]


@contextmanager
def room_for_last_words(failure: str) -> Iterator[None]:
    """Free inside what was set aside, where *failure* names an error: it may be that there is no memory."""
    if not failure:
        yield
        return
    for room in _rooms:
        room.free()
    try:
        yield
    finally:
        for room in _rooms:
            room.take()
