"""Measure what a call costs, and print figures beside what is required of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return what one call of *function* costs; its result is dropped after the clock was read."""
    started = time.process_time()
    result = function()
    seconds = time.process_time() - started
    del result
    return seconds


class Bars:
    """Print figures beside what is required of them."""

    def __init__(self) -> None:
        self.n_missed = 0

    def at_most(self, what: str, figure: float, bar: float) -> None:
        """Print *figure*, which must not be above *bar*."""
        self._line(what, figure, f"at most {bar:g}", holds=figure <= bar)

    def at_least(self, what: str, figure: float, bar: float) -> None:
        """Print *figure*, which must not be below *bar*."""
        self._line(what, figure, f"at least {bar:g}", holds=figure >= bar)

    def _line(self, what: str, figure: float, bar: str, *, holds: bool) -> None:
        self.n_missed += not holds
        print(f"  {what:<62} {figure:8.2f}  {bar:<14} {'ok' if holds else 'MISSED'}", flush=True)
