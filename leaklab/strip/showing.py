"""Show the strip of a loop wherever its user looks: in the notebook, on a terminal, or nowhere.

On a terminal it is one line, written anew in its place. What a monitor says while its loop runs is printed
here, too; the strip's line makes way for it.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import Protocol

from leaklab.model.loop import MonitorRecord, MonitorStatus, StateChange
from leaklab.render.base import terminal_columns
from leaklab.runtime.objects import running_shell
from leaklab.strip.drawing import strip_line
from leaklab.text import format_seconds, printable, shorten, unit_words


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


PERIOD_SECONDS = 0.5
MOST_SHARE = 0.0008
"""Of a processor; where a look costs more than that allows every half second, the looks are further apart."""
_NEWEST_WEIGHT = 0.2
_JOIN_SECONDS = 2.0
_MOST_FAILURES = 5


class StripSource(Protocol):
    """What a strip shows: a `Monitor`, or whatever has the same three attributes, to be read from any thread."""

    @property
    def status(self) -> MonitorStatus:
        """What is known now."""

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The states that were come to, oldest first."""

    @property
    def record(self) -> MonitorRecord:
        """Everything that is known now."""


class Face(Protocol):
    """Where a strip is seen."""

    def sample(self, status: MonitorStatus) -> None:
        """Show one more moment."""

    def news(self, record: MonitorRecord) -> None:
        """Show what has changed."""

    def clear_line(self) -> None:
        """Take away a line that is not ended."""

    def finish(self, record: MonitorRecord | None) -> None:
        """Leave what stays; *record* is None where the source is gone."""


class Strip:
    """A shown strip; a thread draws it anew about twice a second until it is closed, or its source is gone.

    The thread neither collects garbage nor walks the heap, and holds the source only while it reads it.

    Args:
        source: What is shown; referred to weakly.
        face: Where; None for nowhere: then there is no thread either.
        period: Least seconds between two looks.
        share: Of a processor that the looks may take.
    """

    def __init__(
        self, source: StripSource, face: Face | None, period: float = PERIOD_SECONDS, share: float = MOST_SHARE
    ) -> None:
        self._source = weakref.ref(source)
        self._face = face
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if face is not None:
            arguments = (self._source, face, self._ended, period, share)
            self._thread = threading.Thread(target=_draw, args=arguments, name="leaklab strip", daemon=True)
            self._thread.start()

    @property
    def is_live(self) -> bool:
        """Whether the thread draws."""
        return self._thread is not None and self._thread.is_alive()

    def clear_line(self) -> None:
        """Take the line away, before something else is printed; it comes again. Does nothing in a notebook."""
        if self._face is not None:
            self._face.clear_line()

    def close(self) -> None:
        """End the thread, and leave the picture and the text that stay; a second call does nothing."""
        face, self._face = self._face, None
        if face is None or self._ended.is_set():
            return
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        source = self._source()
        with suppress(Exception):  # a front end that is gone must not end the user's loop
            face.finish(None if source is None else source.record)


def show_strip(source: StripSource) -> Strip:
    """Show the strip of *source* below the cell that runs, or as one line of a terminal; in other places nothing.

    Args:
        source: A monitor that runs. It is not kept alive.

    Returns:
        The strip; `close` it when the loop ends. One whose source is gone ends by itself.
    """
    return Strip(source, _face(source))


def _face(source: StripSource) -> Face | None:
    kernel = getattr(running_shell(), "kernel", None)
    # What an engine of ipyparallel displays is shown by its client, but no update of it.
    if kernel is not None and not type(kernel).__module__.startswith("ipyparallel."):
        try:
            from leaklab.strip.widget import NotebookFace  # noqa: PLC0415 - paid by those who have a notebook

            return NotebookFace(source)
        except Exception:  # noqa: BLE001 - whatever a front end lacks: the user's loop goes on without a strip
            return None
    try:
        return TerminalLine() if sys.stdout.isatty() else None
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None


def _draw(reference: weakref.ref[StripSource], face: Face, ended: threading.Event, period: float, share: float) -> None:
    """Look at the source until the strip is closed; in this function, so that the thread holds no strip."""
    last: StateChange | None = None
    n_failures = 0
    cost = 0.0
    while not ended.wait(max(period, cost / share)):
        source = reference()
        if source is None:
            ended.set()
            with suppress(Exception):
                face.finish(None)
            return
        try:
            began = time.thread_time()
            changes = source.changes
            face.sample(source.status)
            seconds = time.thread_time() - began
            # The first look imports; the typical one comes out over the next.
            cost = min(seconds, period * share) if not cost else cost + _NEWEST_WEIGHT * (seconds - cost)
            if changes and changes[-1] is not last:
                face.news(source.record)
                last = changes[-1]
            n_failures = 0
        except Exception:  # noqa: BLE001 - the loop writes while this reads: the next look may go well
            n_failures += 1
            if n_failures >= _MOST_FAILURES:
                return
        finally:
            source = None
            changes = ()


class MonitorOutput:
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

    def announce(self, step: int, steps_per_run: int, seconds: float) -> None:
        """Say before the first check that the loop will pause, up to *seconds*: other ranks of a job wait meanwhile."""
        length = unit_words(steps_per_run, "steps")
        self._write(
            f"leaklab monitor{self._name}: checking the steps from {step:,} on, {length} per run; the loop will pause "
            f"a few times, for up to about {format_seconds(seconds)}"
        )

    def report(self, change: StateChange) -> None:
        """Say that a state has changed."""
        alarm = " ALARM" if change.is_alarm else ""
        self._write(f"leaklab monitor{self._name}, step {change.step:,}:{alarm} {change.state.value}: {change.words}")

    def _write(self, line: str) -> None:
        if self._strip is not None:
            self._strip.clear_line()
        sys.stdout.write(f"{printable(line)}\n")
