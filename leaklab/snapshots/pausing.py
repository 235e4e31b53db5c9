"""Keep the garbage collector off while many objects are made and none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from leaklab.pausing import gc_paused


@contextmanager
def collector_paused(*, ages: bool = False) -> Iterator[None]:
    """Switch the collector off inside the block, and back to what it was.

    A snapshot of a million events is some two million dicts and lists. Every full collection that starts meanwhile
    looks at all of them: with the collector on, loading takes three times as long.

    Args:
        ages: At the end, move everything to the oldest generation: else the very next object that anybody makes would
            start a collection of all the new ones, 0.25 s for that snapshot. Not done where the user froze objects:
            thawing ours would thaw theirs.
    """
    was_enabled = gc.isenabled()
    with gc_paused():
        try:
            yield
        finally:
            if ages and was_enabled and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
