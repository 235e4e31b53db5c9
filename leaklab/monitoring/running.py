"""Know the monitors that watch a loop now: metrics and reports on request ask for them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leaklab.monitoring.monitor import Monitor

_running: weakref.WeakSet[Monitor] = weakref.WeakSet()


def running_monitors() -> tuple[Monitor, ...]:
    """Return the monitors that have been started and not stopped, by name."""
    return tuple(sorted(_running, key=lambda monitor: monitor.name))


def enlist(monitor: Monitor) -> None:
    """Note that *monitor* watches a loop from now on."""
    _running.add(monitor)


def dismiss(monitor: Monitor) -> None:
    """Note that *monitor* watches no more; does nothing for one that did not."""
    _running.discard(monitor)
