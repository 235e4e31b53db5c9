"""What the watch itself takes of the processor and of memory: the one is limited, the other left out of the picture."""

from __future__ import annotations

import time

from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.gauges import rss_bytes


class OwnCost:
    """What was taken inside of ``with`` blocks.

    Attributes:
        seconds: Of the processor, since this was set to 0.
        memory: Bytes by which malloc's heap and the resident set have risen, less what fell in later blocks; never
            below 0: what falls beyond that was the user's garbage.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.memory = 0, 0
        self._began = 0.0
        self._before = 0, 0

    def __enter__(self) -> None:
        self._before = _levels()
        self._began = time.thread_time()

    def __exit__(self, *_error: object) -> None:
        self.seconds += time.thread_time() - self._began
        (own_heap, own_rss), (heap_before, rss_before) = self.memory, self._before
        heap, rss = _levels()
        self.memory = max(own_heap + heap - heap_before, 0), max(own_rss + rss - rss_before, 0)


def _levels() -> tuple[int, int]:
    return native_heap_bytes() or 0, rss_bytes()
