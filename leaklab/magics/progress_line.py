"""The line in which ``%%leakcheck`` says how far it is and what it knows, and the report that takes its place."""

from __future__ import annotations

import math
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from IPython import get_ipython
from IPython.display import display, update_display

from leaklab.decide.verdict import MORE_TIME, usual_runs
from leaklab.model import MIN_RUNS, Check, Settings
from leaklab.model.sentences import LINES, RUNS, Progress
from leaklab.reports.check import LeakReport
from leaklab.text import shorten

_WORTH_A_REPORT = 2.0
"""So many seconds of trials are worth showing the report before them."""
_PERIOD_SECONDS = 0.25
_MINUTE = 60
Result = TypeVar("Result")


class ProgressLine:
    """Says how far a check is and what it knows: as an updated display in a notebook, else as one line on a terminal.

    It is written between the runs, at most four times a second. In a notebook the report takes its place as soon as the
    verdict stands, and is shown again when a change has held; where neither a kernel nor a terminal is, nothing is
    written.

    Args:
        shell: The user's shell.
        settings: Of the check, for the limits.
        is_shown: False keeps it quiet.
        make_report: Makes the report of a record.
    """

    def __init__(
        self, shell: Any, settings: Settings, *, is_shown: bool, make_report: Callable[[Check], object] = LeakReport
    ) -> None:
        self._settings, self._stream, self._make_report, self._shell = settings, sys.stdout, make_report, shell
        self._write = self._writer(shell) if is_shown else None
        self._started = self._next = time.perf_counter()
        self._n_begun = 0
        self._known = ""
        self._is_measured = False
        self._display_id = self._report_id = ""
        self._n_written = 0

    def ticking(self, run_once: Callable[[int], Result]) -> Callable[[int], Result]:
        """Return *run_once*, before each call of which the line may be written anew."""

        def tick_and_run(number: int) -> Result:
            __tracebackhide__ = True
            self._tick(number)
            return run_once(number)

        return tick_and_run

    @property
    def on_progress(self) -> Callable[[Progress], None] | None:
        """Takes in what the check knows by now, and shows it; None where nothing is shown, so that nothing is told."""
        return None if self._write is None else self.note

    def note(self, progress: Progress) -> None:
        """Take in what the check knows by now, and show it."""
        self._is_measured = progress.check is not None
        if self._is_measured or progress.growing or progress.piles or self._known:
            self._known = str(progress)
        if progress.stage == RUNS:
            return  # the next run's line says it
        if progress.stage == LINES:
            self.say("looking for the line that leaks")
            return
        if self._write == self._write_display and progress.seconds >= _WORTH_A_REPORT and progress.check:
            self._show_early(self._make_report(progress.check))
        limit = f", for about {_rounded(progress.seconds)}" if progress.seconds >= 1 else ""
        self.say(f"trying changes that would end the leak{limit}; interrupt to keep the report as it is")

    @property
    def can_go_on(self) -> bool:
        """Whether what is shown can change after the cell has ended, and somebody is there to see that.

        Who runs a notebook as a whole, such as nbconvert, takes no input for it, and ends the kernel behind the last
        cell.
        """
        kernel = getattr(get_ipython(), "kernel", None)
        return self._write == self._write_display and bool(getattr(kernel, "_allow_stdin", False))

    def show_beside(self, report: object) -> None:
        """Display *report* in the place of the line, and below it that changes are tried while the kernel is free."""
        self._show_early(report)
        self.say("trying changes that would end the leak in a copy of the process; the kernel is free meanwhile")

    def show(self, report: object) -> None:
        """Display *report*, in the place of the line if there is one."""
        if self._report_id:
            place, self._report_id = self._report_id, ""
            below, self._display_id = self._display_id, ""
            update_display(report, display_id=place)
            self._offer(report, place, below)
            return
        if self._display_id:
            place, self._display_id = self._display_id, ""
            update_display(report, display_id=place)
            self._offer(report, place, "")
            return
        self.close()
        display(report)

    def _offer(self, report: object, place: str, below: str) -> None:
        """Show the button that applies a change, where one held and somebody can press it, in the place *below*.

        Args:
            report: What is shown.
            place: Where it is shown, and the next one will be.
            below: The display that the button replaces; empty for a new one.
        """
        offered = None
        if self.can_go_on and isinstance(report, LeakReport) and report.so_far.leaks:
            from leaklab.magics.prove import prove_button  # widgets are paid by those who need one
            from leaklab.strip.widget import view_of

            button = prove_button(self._shell, report, lambda again: update_display(again, display_id=place))
            offered = None if button is None else {**view_of(button), "text/plain": repr(button)}
        if below:
            update_display(offered or {"text/plain": ""}, display_id=below, raw=True)
        elif offered:
            display(offered, raw=True)

    def close(self) -> None:
        """Take the line away; after `show` there is none."""
        if self._display_id:
            place, self._display_id = self._display_id, ""
            update_display({"text/plain": ""}, display_id=place, raw=True)
        if self._n_written:
            print("\r" + " " * self._n_written, end="\r", file=self._stream, flush=True)
            self._n_written = 0

    def _show_early(self, report: object) -> None:
        """Show *report* while more is tried; the line goes on below it."""
        self._report_id, self._display_id = self._display_id or uuid.uuid4().hex, ""
        update_display(report, display_id=self._report_id)
        self._known = ""

    def _writer(self, shell: Any) -> Callable[[str], None] | None:
        kernel = getattr(shell, "kernel", None)
        # What an engine of ipyparallel displays is shown by its client, but no update of it: the report would be lost.
        if kernel is not None and not type(kernel).__module__.startswith("ipyparallel."):
            # The first display makes objects that stay (8 in ipykernel 7.4): now, and not in a measured run.
            getattr(shell.display_pub, "_hooks", None)
            return self._write_display
        return self._write_terminal if sys.stdout.isatty() else None

    def _tick(self, number: int) -> None:
        now = time.perf_counter()
        if self._write is not None and now >= self._next:
            self._next = now + _PERIOD_SECONDS
            self.say(self._words(number, now - self._started))
        self._n_begun += 1

    def say(self, words: str) -> None:
        """Write *words*, and below them what is known."""
        if self._write is not None:
            self._write("\n".join(filter(None, [f"leaklab: {words} ...", self._known])))

    def _words(self, number: int, elapsed_seconds: float) -> str:
        limit = self._settings.max_runs
        if self._is_measured or type(number) is not int:
            return "running once more to find the line that leaks"
        if not number:
            return "warming up"
        per_run, max_seconds = elapsed_seconds / max(self._n_begun, 1), self._settings.max_seconds
        fewest, most = usual_runs(limit, per_run)
        if number < MIN_RUNS and MIN_RUNS * per_run > MORE_TIME * max_seconds:
            enough = math.ceil(1.1 * MIN_RUNS * per_run)
            return (
                f"run {number:,}; a run takes {_rounded(per_run)} and {MIN_RUNS} runs are needed, more than "
                f"the limit of {_rounded(max_seconds)} allows: interrupt and raise it (-t {enough}), or check a "
                "smaller piece"
            )
        left = min((most - number + 1) * per_run, max(MORE_TIME * max_seconds - elapsed_seconds, 0.0))
        most = max(most, number)  # a run may have taken longer than those before it
        runs = f" of {fewest:,} to {most:,}" if number < fewest < most else f" of at most {most:,}"
        runs = runs if number <= most else ""  # the last run took longer than those that the limit was reckoned by
        rest = f", at most {_rounded(left)} left, then the search for the line" if left >= 1 else ""
        return f"run {number:,}{runs}{rest}"

    def _write_display(self, words: str) -> None:
        if self._display_id:
            update_display({"text/plain": words}, display_id=self._display_id, raw=True)
        else:
            self._display_id = uuid.uuid4().hex
            display({"text/plain": words}, display_id=self._display_id, raw=True)
        # Wait until it is sent: in the queue of the sending thread it would count as left behind by the run.
        self._stream.flush()

    def _write_terminal(self, words: str) -> None:
        line = shorten(words.replace("\n", " "), shutil.get_terminal_size().columns - 1)
        print("\r" + line.ljust(self._n_written), end="", file=self._stream, flush=True)
        self._n_written = len(line)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"
