"""Keep the state of Python's collector, and bring it back whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FROZEN_BY_PYTHON = 2_000
"""More objects than CPython itself freezes: every full collection of 3.12 moves its 375 immortal ones there."""


def user_has_frozen() -> bool:
    """Return whether somebody has called ``gc.freeze()``: it takes everything alive, many thousand objects."""
    return gc.get_freeze_count() > FROZEN_BY_PYTHON


@dataclass(frozen=True, slots=True)
class GcState:
    """What the user chose for the collector. Frozen objects are looked after by the census, not here."""

    enabled: bool
    threshold: tuple[int, int, int]
    debug: int
    callbacks: tuple[Callable[..., Any], ...]

    @classmethod
    def now(cls) -> GcState:
        """Return the state as it is."""
        return cls(gc.isenabled(), gc.get_threshold(), gc.get_debug(), tuple(gc.callbacks))

    def restore(self) -> tuple[str, ...]:
        """Bring this state back.

        Returns:
            What had to be put back, in words; empty if nothing had changed.
        """
        now, changed = GcState.now(), []
        if now.enabled != self.enabled:
            (gc.enable if self.enabled else gc.disable)()
            changed.append("on again" if self.enabled else "off again")
        if now.threshold != self.threshold:
            gc.set_threshold(*self.threshold)
            changed.append(f"thresholds {self.threshold}")
        if now.debug != self.debug:
            gc.set_debug(self.debug)
            changed.append(f"debug flags {self.debug}")
        if list(map(id, now.callbacks)) != list(map(id, self.callbacks)):
            gc.callbacks[:] = self.callbacks
            changed.append(f"{len(self.callbacks)} callbacks")
        return tuple(changed)


def collect_quietly() -> int:
    """Collect all garbage; debug flags (``DEBUG_SAVEALL`` would keep it all) are off for the time of the call."""
    debug = gc.get_debug()
    if debug:
        gc.set_debug(0)
    try:
        return gc.collect()
    finally:
        if debug:
            gc.set_debug(debug)
