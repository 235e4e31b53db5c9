"""Say why one object is alive: from Python, without a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leaklab.model.alive import ALIVE_SCHEMA_VERSION, Counts, Cut, Hold, Retained, WhyAliveRecord
from leaklab.render.alive_html import render_alive_html, render_alive_page
from leaklab.render.alive_text import render_alive
from leaklab.render.base import Exports, FilePath, read_source, save_by_suffix
from leaklab.render.dot import LEAKLAB, BackReferenceGraph
from leaklab.render.json import record_from_json, record_to_json
from leaklab.render.tables import path_table, reference_table
from leaklab.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_WHAT_LIMIT = 72
FORMAT = "leaklab whyalive"
"""What a file says it is, in its first field."""
WHYALIVE_SUFFIXES: Final = (".html", ".svg", ".dot", ".txt", ".json")
"""What `WhyAlive.save` can write."""


@dataclass(frozen=True, slots=True, repr=False)
class WhyAlive(Exports):
    """The answer to one question.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive; tables and graphs
    are made anew each time they are asked for.

    Attributes:
        record: Everything that was found out.
    """

    record: WhyAliveRecord

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
    def paths(self) -> pd.DataFrame:
        """The paths, one row for each step."""
        return path_table(self.record)

    @property
    def references(self) -> pd.DataFrame:
        """The direct references to the object, one row for each."""
        return reference_table(self.record)

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

    def _html_file(self) -> str:
        return render_alive_page(self.record)

    def _json_file(self) -> str:
        return record_to_json(self.record, FORMAT, "record")

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> WhyAlive:
        """Return the answer that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no answer that this version can read.
        """
        return cls(record_from_json(read_source(path_or_text), WhyAliveRecord, FORMAT, ALIVE_SCHEMA_VERSION))

    def save(self, path: FilePath) -> None:
        """Write to *path*: ``.html`` a page, ``.svg`` or ``.dot`` the graph, ``.txt`` the text, ``.json`` the record.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        graph = self.graph()
        writers: Mapping[str, Callable[[], str]] = {
            ".html": self._html_file,
            ".svg": graph.svg_file,
            ".dot": lambda: graph.dot,
            ".txt": self.__str__,
            ".json": self._json_file,
        }
        save_by_suffix(path, writers)

    def __str__(self) -> str:
        return render_alive(self.record)

    def __repr__(self) -> str:
        return f"<WhyAlive {shorten(self.record.what, _WHAT_LIMIT)}: {shorten(self.reason, _WHAT_LIMIT)}>"

    def _fragment(self) -> str:
        return render_alive_html(self.record)
