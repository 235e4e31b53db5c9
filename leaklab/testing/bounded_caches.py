"""Empty the caches that a test fills, after each of its turns: only in a copy of the process.

A cache of a library that drops entries beyond a limit grows for hundreds of runs, and looks like a leak until it is
full. What grows while they are emptied again and again is none of theirs. A program must work with a cache
emptied; one that does not is run again in another copy, with its caches as they are.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leaklab.explain.leaks.limits import LimitedCache

_SOON = 500
"""What is full after so many more runs would be seen to stop, if they were made."""


class BoundedCaches:
    """The caches with a limit in this process; those that have gained entries between two looks are emptied."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._filling: list[LimitedCache] = []

    @property
    def are_emptied(self) -> bool:
        """Whether any cache has been found that is emptied."""
        return bool(self._filling)

    def look(self) -> None:
        """Note how many entries each has."""
        self._lengths = {cache.address: len(cache) for cache in _found()}

    def look_again(self, n_runs: int, grown_bytes: float) -> bool:
        """Find those that have gained entries since the first look, and empty them; return whether there are any.

        One that is far too large when it is full leaks until then, and stays as it is, unless it is full soon.

        Args:
            n_runs: So many runs were made since then.
            grown_bytes: So much memory the process has gained, which may all be the entries of one cache.
        """
        gained = [(cache, len(cache) - self._lengths.get(cache.address, len(cache))) for cache in _found()]
        self._filling = [
            cache
            for cache, new in gained
            if new > 0
            and (
                (cache.limit.entries - len(cache)) / new * n_runs <= _SOON or not cache.limit.is_far(grown_bytes / new)
            )
        ]
        self._lengths.clear()
        self.empty()
        return self.are_emptied

    def empty(self) -> None:
        """Empty those that have been found."""
        for cache in self._filling:
            with suppress(Exception):  # a method of a library's; what it leaves is counted
                cache.clear()


def _found() -> list[LimitedCache]:
    # Not before something grows: a suite that has no numpy gets none.
    from leaklab.explain.leaks.limits import limited_caches  # noqa: PLC0415

    gc.collect()  # what would be frozen as well, for good: all older garbage is frozen
    gc.unfreeze()  # the collector lists nothing that is frozen
    try:
        return limited_caches(gc.get_objects())
    finally:
        gc.freeze()
