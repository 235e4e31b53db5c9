"""The strip as one line of a terminal, written anew in its place."""

from __future__ import annotations

import sys

from leaklab.model.monitor import MonitorRecord, MonitorStatus
from leaklab.render.terminal import terminal_columns
from leaklab.strip.drawing import strip_line
from leaklab.text import shorten


class TerminalLine:
    """A line that begins with a carriage return; nothing of it stays."""

    def __init__(self) -> None:
        self._n_written = 0

    def sample(self, status: MonitorStatus) -> None:
        """Write the line anew."""
        line = shorten(strip_line(status), max(terminal_columns() - 1, 20))
        sys.stdout.write("\r" + line.ljust(self._n_written))
        sys.stdout.flush()
        self._n_written = len(line)

    def news(self, record: MonitorRecord) -> None:
        """Leave changes to the monitor, which prints a line for each."""

    def clear_line(self) -> None:
        """Take the line away; it comes again with the next sample."""
        if self._n_written:
            sys.stdout.write("\r" + " " * self._n_written + "\r")
            sys.stdout.flush()
            self._n_written = 0

    def finish(self, _record: MonitorRecord | None) -> None:
        """Take the line away for good."""
        self.clear_line()
