"""Keep the state of Python's collector, and bring it back whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

FROZEN_BY_PYTHON = 2_000
"""More objects than CPython itself freezes: every full collection of 3.12 moves its 375 immortal ones there."""


def user_has_frozen() -> bool:
    """Return whether somebody has called ``gc.freeze()``: it takes everything alive, many thousand objects."""
    return gc.get_freeze_count() > FROZEN_BY_PYTHON


_pauses: list[None] = []
"""One entry for each thread in which leaklab has switched the collector off for a moment."""


def user_lets_collect() -> bool:
    """Return whether the user has the collector on, be it off for a moment while another thread looks at the heap."""
    return gc.isenabled() or bool(_pauses)


def pause_gc() -> bool:
    """Switch the collector off; return whether it was on, which `resume_gc` must be told."""
    was_enabled = gc.isenabled()
    if was_enabled:
        _pauses.append(None)
        gc.disable()
    return was_enabled


def resume_gc(*, was_enabled: bool) -> None:
    """Switch the collector on again, if `pause_gc` has switched it off."""
    if was_enabled:
        gc.enable()
        _pauses.pop()


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
        return cls(user_lets_collect(), gc.get_threshold(), gc.get_debug(), tuple(gc.callbacks))

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


YOUNG, OLD = 1, 2
"""Generations of the collector. Of what has been made since a full collection, the young ones hold all."""


def collect_quietly(generation: int = OLD) -> int:
    """Collect all garbage, or that of *generation* and younger; return how many objects that were.

    Debug flags (``DEBUG_SAVEALL`` would keep it all) are off for the time of the call.
    """
    debug = gc.get_debug()
    if debug:
        gc.set_debug(0)
    try:
        return gc.collect() if generation == OLD else gc.collect(generation)
    finally:
        if debug:
            gc.set_debug(debug)


def gc_paused() -> AbstractContextManager[None]:
    """Run no automatic collection inside; the collector's switch is as before afterwards.

    A CUDA snapshot of a million events is some two million dicts and lists. Every full collection that starts while
    they are made looks at all of them: with the collector on, loading takes three times as long.
    """
    return _Pause()


class _Pause:
    """What is listed inside shows this object and its bound ``__exit__``, which nothing tells to be leaklab's."""

    __slots__ = ("_was_enabled",)

    def __init__(self) -> None:
        self._was_enabled = False

    def __enter__(self) -> None:
        self._was_enabled = pause_gc()

    def __exit__(self, *_raised: object) -> None:
        resume_gc(was_enabled=self._was_enabled)
