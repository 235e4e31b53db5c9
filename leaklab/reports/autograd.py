"""What the user holds of an autograd graph: what it keeps alive, in tables and drawings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from leaklab.model.autograd import RETENTION_SCHEMA, AutogradRecord, DrawnBy
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.reports.answer_html import AutogradGraph, retention_fragment, retention_page
from leaklab.reports.autograd_text import headline, render_retention
from leaklab.reports.tables import kept_csv, kept_table, part_table

_FORMS = Forms(
    kind=AutogradRecord,
    format="leaklab autograd",
    schema=RETENTION_SCHEMA,
    text=render_retention,
    html=retention_fragment,
    page=retention_page,
    more={
        ".csv": kept_csv,
        ".svg": lambda record: AutogradReport(record).graph().svg_file(),
        ".dot": lambda record: AutogradReport(record).graph().dot,
    },
)
AUTOGRAD_SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class AutogradReport(Report[AutogradRecord]):
    """What a graph keeps alive.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: AutogradRecord

    operations = FrameProperty(lambda record: part_table(record.operations, "operation"))
    """The operations, most bytes first."""
    lines = FrameProperty(lambda record: part_table(record.lines, "line"))
    """The lines of the forward pass, most bytes first; empty where anomaly mode did not record them."""
    tensors = FrameProperty(kept_table)
    """The saved tensors, largest first."""

    @property
    def retention(self) -> AutogradRecord:
        """The record, by its older name."""
        return self.record

    def graph(self, by: str = "") -> AutogradGraph:
        """Return the graph drawn: by node where it is small, else by module, forward line or operation.

        Args:
            by: ``node``, ``module``, ``line`` or ``operation``; without it the finest that there is.

        Raises:
            ValueError: if there is no such drawing of this graph; the message lists those there are.
        """
        drawings = {drawing.by.value: drawing for drawing in self.record.drawings}
        chosen = by or next(iter(drawings))
        if chosen not in drawings:
            every = [each.value for each in DrawnBy]
            why = "is none of" if chosen not in every else "is not possible for this graph; there are"
            msg = f"by={chosen!r} {why} {', '.join(every if chosen not in every else drawings)}"
            raise ValueError(msg)
        return AutogradGraph(self.record.name, drawings[chosen])

    def __repr__(self) -> str:
        return f"<AutogradReport {headline(self.record)}>"
