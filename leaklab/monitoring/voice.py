"""Say what a monitor has to say while its loop runs: lines, and the strip."""

from __future__ import annotations

import gc
import sys

from leaklab.model.monitor import StateChange
from leaklab.strip.showing import Strip, StripSource, show_strip
from leaklab.text import format_seconds, printable, unit_words

_PAUSE_SECONDS, _PAUSE_SECONDS_PER_MILLION = 0.5, 2.5
"""What the longest pause takes: some look at the whole heap."""


class Voice:
    """Writes for one monitor to standard output.

    Args:
        name: Of the loop.
    """

    def __init__(self, name: str) -> None:
        self._name = f" {name}" if name else ""
        self._strip: Strip | None = None

    def show(self, source: StripSource) -> None:
        """Show the strip, where somebody can see it."""
        self._strip = show_strip(source)

    def end(self) -> None:
        """Leave of the strip what stays."""
        strip, self._strip = self._strip, None
        if strip is not None:
            strip.close()

    def announce(self, step: int, steps_per_run: int) -> None:
        """Say before the first check that the loop will pause: other ranks of a job wait meanwhile."""
        seconds = _PAUSE_SECONDS + _PAUSE_SECONDS_PER_MILLION * len(gc.get_objects()) / 1e6
        length = unit_words(steps_per_run, "steps")
        self._write(
            f"leaklab monitor{self._name}: checking a stretch from step {step:,} on, {length} a run; "
            f"the loop pauses a few times, for up to about {format_seconds(seconds)}"
        )

    def tell(self, change: StateChange) -> None:
        """Say that a state has changed."""
        alarm = " ALARM" if change.is_alarm else ""
        self._write(f"leaklab monitor{self._name}, step {change.step:,}:{alarm} {change.state.value}: {change.words}")

    def _write(self, line: str) -> None:
        if self._strip is not None:
            self._strip.clear_line()
        sys.stdout.write(f"{printable(line)}\n")
