"""What the user holds of a loop that was watched: its state, what grows, the checks of its stretches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leaklab.model import Leak
from leaklab.model.monitor import MONITOR_SCHEMA, LoopState, MonitorRecord, StateChange
from leaklab.render.base import Forms, Report
from leaklab.render.monitor import leaks_of, monitor_html, monitor_line, monitor_text
from leaklab.reports.check import LeakReport


@dataclass(frozen=True, slots=True, repr=False)
class MonitorReport(Report[MonitorRecord]):
    """What is known of a loop at one moment.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=MonitorRecord,
        format="leaklab monitor",
        schema=MONITOR_SCHEMA,
        text=monitor_text,
        html=monitor_html,
    )
    record: MonitorRecord

    @property
    def leaked(self) -> bool:
        """Whether a leak is certain: it was found, and found again at twice the steps."""
        return self.record.status.state is LoopState.LEAK

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks that are certain, the largest first; their rates are per step."""
        return leaks_of(self.record)

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The states that were come to, oldest first."""
        return self.record.changes

    @property
    def checks(self) -> tuple[LeakReport, ...]:
        """The reports of the checks of stretches, oldest first; their rates are per run of several steps."""
        return tuple(LeakReport(done.check) for done in self.record.stretches)

    def __repr__(self) -> str:
        return f"<MonitorReport {monitor_line(self.record)}>"
