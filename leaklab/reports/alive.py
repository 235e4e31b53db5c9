"""What the user holds of the question why one object is alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from leaklab.model.alive import ALIVE_SCHEMA_VERSION, Counts, Cut, Hold, Retained, WhyAliveRecord
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.reports.alive_text import render_alive
from leaklab.reports.answer_html import render_alive_html, render_alive_page
from leaklab.reports.graphs import LEAKLAB, BackReferenceGraph
from leaklab.reports.tables import path_table, reference_table
from leaklab.text import shorten

_WHAT_LIMIT = 72
_FORMS = Forms(
    kind=WhyAliveRecord,
    format="leaklab whyalive",
    schema=ALIVE_SCHEMA_VERSION,
    text=render_alive,
    html=render_alive_html,
    page=render_alive_page,
    more={
        ".svg": lambda alive: BackReferenceGraph(alive).svg_file(),
        ".dot": lambda alive: BackReferenceGraph(alive).dot,
    },
)
WHYALIVE_SUFFIXES: Final = _FORMS.suffixes
"""What `WhyAlive.save` can write."""


@dataclass(frozen=True, slots=True, repr=False)
class WhyAlive(Report[WhyAliveRecord]):
    """The answer to one question.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive; tables and graphs
    are made anew each time they are asked for.

    Attributes:
        record: Everything that was found out.
    """

    _forms: ClassVar = _FORMS
    record: WhyAliveRecord

    paths = FrameProperty(path_table)
    """The paths, one row for each step."""
    references = FrameProperty(reference_table)
    """The direct references to the object, one row for each."""

    @property
    def hold(self) -> Hold:
        """What keeps the object alive."""
        return self.record.hold

    @property
    def reason(self) -> str:
        """One sentence that says so."""
        return self.record.reason

    @property
    def holders(self) -> tuple[str, ...]:
        """For each path the expression for what refers to the object; empty where Python has none."""
        return tuple(path.holder for path in self.record.paths)

    @property
    def cut(self) -> Cut | None:
        """The fewest references to let go of, with the proof; None where no root reaches the object."""
        return self.record.cut

    @property
    def counts(self) -> Counts:
        """The reference counts, explained."""
        return self.record.counts

    @property
    def retained(self) -> Retained:
        """What comes back if the object goes."""
        return self.record.retained

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats and observations."""
        return self.record.notes

    def graph(self, style: str = LEAKLAB) -> BackReferenceGraph:
        """Return all paths as one graph, drawn by leaklab or, with ``style="objgraph"``, by objgraph.

        Raises:
            ValueError: for any other style.
        """
        return BackReferenceGraph(self.record, style)

    def __repr__(self) -> str:
        return f"<WhyAlive {shorten(self.record.what, _WHAT_LIMIT)}: {shorten(self.reason, _WHAT_LIMIT)}>"
