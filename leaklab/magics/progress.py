"""Say during a check how far it is, in one line that is gone at the end."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from IPython.display import display, update_display

from leaklab.model import Settings

Result = TypeVar("Result")
_QUIET_SECONDS = 0.5  # a check that takes no longer shows nothing
_PERIOD_SECONDS = 0.25
_MINUTE = 60


class ProgressLine:
    """One line, written anew at most four times a second: as an updated display in a notebook, else on a terminal.

    It is written between the runs, and is not created at all for a short check. In a notebook the report takes its
    place, so nothing of it is saved; where neither a kernel nor a terminal is, nothing is written.

    Args:
        shell: The user's shell.
        settings: Of the check, for the limits.
        is_shown: False keeps it quiet.
    """

    def __init__(self, shell: Any, settings: Settings, *, is_shown: bool) -> None:
        self._settings = settings
        self._write = self._writer(shell) if is_shown else None
        self._started = time.perf_counter()
        self._next = self._started + _QUIET_SECONDS
        self._n_begun = 0
        self._display_id = ""
        self._n_written = 0

    def ticking(self, run_once: Callable[[int], Result]) -> Callable[[int], Result]:
        """Return *run_once*, before each call of which the line may be written anew."""

        def tick_and_run(number: int) -> Result:
            __tracebackhide__ = True
            self._tick(number)
            return run_once(number)

        return tick_and_run

    def show(self, report: object) -> None:
        """Display *report*, in the place of the line if there is one."""
        if self._display_id:
            place, self._display_id = self._display_id, ""
            update_display(report, display_id=place)
            return
        self.close()
        display(report)

    def close(self) -> None:
        """Take the line away; after `show` there is none."""
        if self._display_id:
            place, self._display_id = self._display_id, ""
            update_display({"text/plain": ""}, display_id=place, raw=True)
        if self._n_written:
            print("\r" + " " * self._n_written, end="\r", flush=True)
            self._n_written = 0

    def _writer(self, shell: Any) -> Callable[[str], None] | None:
        if getattr(shell, "kernel", None) is not None:
            # The first display makes objects that stay (8 in ipykernel 7.4): now, and not in a measured run.
            getattr(shell.display_pub, "_hooks", None)
            return self._write_display
        return self._write_terminal if sys.stdout.isatty() else None

    def _tick(self, number: int) -> None:
        now = time.perf_counter()
        if self._write is not None and now >= self._next:
            self._next = now + _PERIOD_SECONDS
            self._write(self._words(number, now - self._started))
        self._n_begun += 1

    def _words(self, number: int, elapsed_seconds: float) -> str:
        limit = self._settings.max_runs
        if type(number) is not int or number > limit:  # the traced runs are numbered in their own way
            return "leaklab: running once more to find the lines that leak ..."
        if not number:
            return "leaklab: warming up ..."
        by_runs = (limit - number + 1) * elapsed_seconds / max(self._n_begun, 1)
        left = min(by_runs, max(self._settings.max_seconds - elapsed_seconds, 0.0))
        return f"leaklab: run {number:,} of at most {limit:,}, at most {_rounded(left)} left"

    def _write_display(self, words: str) -> None:
        if self._display_id:
            update_display({"text/plain": words}, display_id=self._display_id, raw=True)
        else:
            self._display_id = uuid.uuid4().hex
            display({"text/plain": words}, display_id=self._display_id, raw=True)
        # Wait until it is sent: in the queue of the sending thread it would count as left behind by the run.
        sys.stdout.flush()

    def _write_terminal(self, words: str) -> None:
        print("\r" + words.ljust(self._n_written), end="", flush=True)
        self._n_written = len(words)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"
