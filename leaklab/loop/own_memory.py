"""What the watch itself takes of memory: it is left out of the picture of the loop's."""

from __future__ import annotations

from leaklab.measure.gauges import native_heap_bytes, rss_bytes


class OwnMemory:
    """Bytes by which the memory of the process has risen inside of ``with`` blocks, less what fell in later ones.

    Attributes:
        taken: Of malloc's heap, and of the resident set. Never below 0: what falls beyond that was the user's garbage.
    """

    def __init__(self) -> None:
        self.taken = 0, 0
        self._before = 0, 0

    def __enter__(self) -> None:
        self._before = _levels()

    def __exit__(self, *_error: object) -> None:
        heap, rss = _levels()
        (own_heap, own_rss), (heap_before, rss_before) = self.taken, self._before
        self.taken = max(own_heap + heap - heap_before, 0), max(own_rss + rss - rss_before, 0)


def _levels() -> tuple[int, int]:
    return native_heap_bytes() or 0, rss_bytes()
