"""Know the monitors that watch a loop now: metrics and reports on request ask for them."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leaklab.monitoring.monitor import Monitor

_running: weakref.WeakSet[Monitor] = weakref.WeakSet()
_lock = threading.Lock()  # a server of metrics asks from a thread of its own


def running_monitors() -> tuple[Monitor, ...]:
    """Return the monitors that have been started and not stopped, by name."""
    with _lock:
        running = tuple(_running)
    return tuple(sorted(running, key=lambda monitor: monitor.name))


def enlist(monitor: Monitor) -> None:
    """Note that *monitor* watches a loop from now on."""
    with _lock:
        _running.add(monitor)


def dismiss(monitor: Monitor) -> None:
    """Note that *monitor* watches no more; does nothing for one that did not."""
    with _lock:
        _running.discard(monitor)
