"""The first run of a checked cell, watched from inside: a long one in which a loop turns is a check of its own.

Nobody repeats a training cell of minutes to learn whether it leaks. Its steps are counted while it runs for the first
time, and judged as `leaklab.monitor` judges a loop. If that answers, the cell is not run again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leaklab.decide.verdict import MORE_TIME
from leaklab.model import MIN_RUNS, Settings
from leaklab.text import format_seconds, unit_words

if TYPE_CHECKING:
    from leaklab.loop.inside import BlockWatch
    from leaklab.reports.loop import MonitorReport

LONG_SECONDS = 10.0
"""What ends sooner is checked by repeating it."""
_FEWEST_STEPS = 20
"""Fewer steps are no loop that could be judged."""


class AnsweredError(BaseException):
    """Ends a check whose first run has answered; no error of the user's, so nothing of theirs catches it."""


class FirstRun:
    """Watches the first run of a cell, where torch is loaded; only a cell that has one as a warm-up.

    Args:
        namespace: The user's variables.
        settings: Of the check.
        say: Is told in a sentence what is seen while the run goes on.

    Attributes:
        report: On the loop in the first run, where that answers or was interrupted; else None.
    """

    def __init__(self, namespace: dict[str, Any], settings: Settings, say: Callable[[str], object]) -> None:
        self._namespace, self._settings, self._say = namespace, settings, say
        self._is_over = not settings.n_warmups or "torch.optim" not in sys.modules
        self.report: MonitorReport | None = None

    def watching(self, run_once: Callable[[int], object]) -> Callable[[int], object]:
        """Return *run_once*, whose first run is watched; behind it comes `AnsweredError` if that is enough."""

        def watched(number: int) -> object:
            __tracebackhide__ = True
            if self._is_over or number:
                return run_once(number)
            self._is_over = True
            return self._watched(run_once)

        return watched

    def _watched(self, run_once: Callable[[int], object]) -> object:
        __tracebackhide__ = True
        from leaklab.check.session import lent_to_loops
        from leaklab.loop.inside import BlockWatch

        watch = BlockWatch(
            self._settings.name,
            self._namespace,
            not_before=LONG_SECONDS,
            on_change=lambda change: self._say(f"step {change.step:,}: {change.words}"),
        )
        started = time.perf_counter()
        try:
            with lent_to_loops(), watch:
                result = run_once(0)
        except KeyboardInterrupt:
            self._conclude(watch, time.perf_counter() - started, is_interrupted=True)
            raise
        self._conclude(watch, time.perf_counter() - started)
        if self.report is not None:
            raise AnsweredError
        return result

    def _conclude(self, watch: BlockWatch, seconds: float, *, is_interrupted: bool = False) -> None:
        if seconds < LONG_SECONDS or watch.n_steps < _FEWEST_STEPS:
            return
        report = watch.report()
        is_too_long = MIN_RUNS * seconds > MORE_TIME * self._settings.max_seconds
        if report.leaked or is_too_long or is_interrupted:
            ended = "was interrupted" if is_interrupted else f"took {format_seconds(seconds)}"
            note = (
                f"the cell was run once, which {ended}: its {unit_words(watch.n_steps, 'steps')} were judged, but not "
                "what each run of the cell leaves behind"
            )
            self.report = type(report)(replace(report.record, notes=(note, *report.record.notes)))
