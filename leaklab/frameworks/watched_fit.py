"""What the callbacks of all frameworks share: options, and the monitor of the fit that runs or ran last."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leaklab.loop.monitor import Monitor
from leaklab.model.loop import StateChange
from leaklab.reports.loop import MonitorReport

if TYPE_CHECKING:
    from typing_extensions import Self


class WatchedFit:
    """Begins a monitor with each fit and ends it with the fit. Between two calls it holds nothing of the user's.

    Args:
        name: What to call the loop.
        overhead: The share of the loop's time that watching may take in the long run.
        first_step: The first check begins after so many steps.
        on_change: Called with each `StateChange`.
        fail: Whether to raise `LeakFound` in the loop when a leak is certain and matters.
        quiet: Whether nothing is printed.

    Attributes:
        monitor: Of the fit that runs, or ran last; None before the first.
    """

    def __init__(
        self,
        name: str = "",
        *,
        overhead: float = 0.01,
        first_step: int | None = None,
        on_change: Callable[[StateChange], object] | None = None,
        fail: bool = False,
        quiet: bool = False,
    ) -> None:
        super().__init__()
        self._name = name
        self._options: dict[str, Any] = {
            "overhead": overhead,
            "first_step": first_step,
            "on_change": on_change,
            "fail": fail,
            "quiet": quiet,
        }
        Monitor(name, **self._options)  # a wrong option is refused here, not in the middle of a fit
        self.monitor: Monitor | None = None
        self._is_watching = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del error, traceback  # they keep the frames of the loop
        self.end_fit("" if kind is None else kind.__name__)

    def __getstate__(self) -> dict[str, Any]:
        """Return the options alone: where a framework copies or sends its callbacks, the monitor stays behind."""
        return {**self.__dict__, "monitor": None, "_is_watching": False}

    @property
    def report(self) -> MonitorReport:
        """The report on the fit that runs, or ran last.

        Raises:
            RuntimeError: if there was none.
        """
        if self.monitor is None:
            msg = "there is no report before the first step: give this callback to a trainer, and train"
            raise RuntimeError(msg)
        return self.monitor.report

    def begin_fit(self, total_steps: float | None, roots: Mapping[str, object | None], rank: int | None = None) -> None:
        """Begin to watch; the watch over an earlier fit, which may have died without a word, ends.

        Args:
            total_steps: Steps to come; None, infinite or not above 0 where nobody knows.
            roots: Objects by the names they shall have in what is reported; None is left out.
            rank: Of this process, where there are several.
        """
        self.end_fit("the next fit")
        name = " ".join(part for part in (self._name, "" if rank is None else f"rank {rank}") if part)
        known = {key: root for key, root in roots.items() if root is not None}
        self.monitor = Monitor(name, total_steps=whole_steps(total_steps), roots=known, **self._options)
        self.monitor.start()
        self._is_watching = True

    def count_step(self) -> None:
        """Note that a step has ended; nothing where no fit is watched."""
        if self.monitor is not None and self._is_watching:
            self.monitor.step()

    def end_fit(self, failure: str = "") -> None:
        """End the watch, if there is one. *failure* names what ended the fit before its time."""
        self._is_watching = False
        if self.monitor is not None:
            self.monitor.stop(failure)


def whole_steps(total: float | None) -> int | None:
    """Return *total* as a number of steps, None where it tells nothing."""
    if total is None or not math.isfinite(total) or total <= 0:
        return None
    return int(total)
