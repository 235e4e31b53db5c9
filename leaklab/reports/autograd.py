"""Show what the autograd graph behind a tensor, a list of losses, a model or a whole notebook keeps alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from leaklab.model.autograd import RETENTION_SCHEMA, AutogradRecord, DrawnBy
from leaklab.render.autograd_html import AutogradGraph, retention_fragment, retention_page
from leaklab.render.autograd_text import headline, render_retention
from leaklab.render.base import Exports, FilePath, known_suffix, read_source, save_by_suffix
from leaklab.render.json import record_from_json, record_to_json
from leaklab.render.tables import kept_csv, kept_table, part_table

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "leaklab autograd"
"""What a file says it is, in its first field."""

_WRITERS: Mapping[str, Callable[[AutogradRecord], str]] = {
    ".html": retention_page,
    ".json": lambda retention: record_to_json(retention, FORMAT, "retention"),
    ".csv": kept_csv,
    ".txt": render_retention,
}
_DRAWN = (".svg", ".dot")
AUTOGRAD_SUFFIXES = (*_WRITERS, *_DRAWN)
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class AutogradReport(Exports):
    """What a graph keeps alive.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive.

    Attributes:
        retention: The record, with every figure.
    """

    retention: AutogradRecord

    @property
    def operations(self) -> pd.DataFrame:
        """The operations, most bytes first."""
        return part_table(self.retention.operations, "operation")

    @property
    def lines(self) -> pd.DataFrame:
        """The lines of the forward pass, most bytes first; empty where anomaly mode did not record them."""
        return part_table(self.retention.lines, "line")

    @property
    def tensors(self) -> pd.DataFrame:
        """The saved tensors, largest first."""
        return kept_table(self.retention)

    def graph(self, by: str = "") -> AutogradGraph:
        """Return the graph drawn: by node where it is small, else by module, forward line or operation.

        Args:
            by: ``node``, ``module``, ``line`` or ``operation``; without it the finest that there is.

        Raises:
            ValueError: if there is no such drawing of this graph; the message lists those there are.
        """
        drawings = {drawing.by.value: drawing for drawing in self.retention.drawings}
        chosen = by or next(iter(drawings))
        if chosen not in drawings:
            every = [each.value for each in DrawnBy]
            why = "is none of" if chosen not in every else "is not possible for this graph; there are"
            msg = f"by={chosen!r} {why} {', '.join(every if chosen not in every else drawings)}"
            raise ValueError(msg)
        return AutogradGraph(self.retention.name, drawings[chosen])

    def _html_file(self) -> str:
        return retention_page(self.retention)

    def _json_file(self) -> str:
        return _WRITERS[".json"](self.retention)

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> AutogradReport:
        """Return the report that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no report that this version can read.
        """
        return cls(record_from_json(read_source(path_or_text), AutogradRecord, FORMAT, RETENTION_SCHEMA))

    def save(self, path: FilePath) -> None:
        """Write the report to *path*: ``.html``, ``.json``, ``.csv`` the saved tensors, ``.txt``, ``.svg`` the graph.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        if known_suffix(path, AUTOGRAD_SUFFIXES) in _DRAWN:
            self.graph().save(path)
        else:
            save_by_suffix(path, {suffix: partial(write, self.retention) for suffix, write in _WRITERS.items()})

    def __str__(self) -> str:
        return render_retention(self.retention)

    def __repr__(self) -> str:
        return f"<AutogradReport {headline(self.retention)}>"

    def _fragment(self) -> str:
        return retention_fragment(self.retention)
