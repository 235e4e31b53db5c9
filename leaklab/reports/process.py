"""What the user holds of a process at one moment: who held its memory when it died, or when somebody asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leaklab.model.process import PROCESS_SCHEMA, ProcessRecord
from leaklab.render.base import Forms, Report
from leaklab.render.process_html import render_process_html
from leaklab.render.process_text import render_process
from leaklab.text import shorten

_OCCASION_LIMIT = 100


@dataclass(frozen=True, slots=True, repr=False)
class ProcessReport(Report[ProcessRecord]):
    """A process at one moment, made by `leaklab.on_oom` and `leaklab.listen`.

    Attributes:
        record: Everything that was found out; nothing of the user's is in it.
    """

    _forms: ClassVar = Forms(
        kind=ProcessRecord,
        format="leaklab process",
        schema=PROCESS_SCHEMA,
        text=render_process,
        html=render_process_html,
    )
    record: ProcessRecord

    @property
    def holders(self) -> tuple[str, ...]:
        """Who holds the largest tensors, the most bytes first."""
        return tuple(held.holder for held in self.record.tensors)

    def __repr__(self) -> str:
        return f"<ProcessReport {self.record.pid}: {shorten(self.record.occasion, _OCCASION_LIMIT)}>"
