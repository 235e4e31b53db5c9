"""What the user holds after a check: the record, and every view of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from leaklab.model import Check, Leak, Outcome, Verdict
from leaklab.render import tables
from leaklab.render.collection_markdown import render_markdown
from leaklab.render.comparison import Comparison, compare_checks
from leaklab.render.csv import to_csv
from leaklab.render.exports import Exports
from leaklab.render.files import FilePath, read_source, save_by_suffix
from leaklab.render.graph import LEAKLAB, PathGraph
from leaklab.render.html import render_html, render_page
from leaklab.render.json import from_json, to_json
from leaklab.render.plot import plot_growth
from leaklab.render.text import render_text
from leaklab.render.wording import shorten

if TYPE_CHECKING:
    import pandas as pd

    from leaklab.render.figure import ReportFigure
    from leaklab.widgets.exploring import Explorer

_REASON_LIMIT = 72
_render_file = partial(render_page, has_record=True)
_WRITERS: Mapping[str, Callable[[Check], str]] = {
    ".html": _render_file,
    ".json": to_json,
    ".csv": to_csv,
    ".md": render_markdown,
}


@dataclass(frozen=True, slots=True, repr=False)
class LeakReport(Exports):
    """The result of a check.

    It holds the record and nothing else, so it can be pickled and keeps nothing of the user's alive; tables, plots and
    graphs are made anew each time they are asked for.

    Attributes:
        check: The record, with every figure.
    """

    check: Check

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; ``bounded`` and ``inconclusive`` are none."""
        return self.check.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, its figures; ``str()`` begins with the outcome."""
        return self.check.verdict

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks, largest first."""
        return self.check.leaks

    @property
    def bounded(self) -> tuple[Leak, ...]:
        """The places that grew and stopped, or whose limit is known."""
        return self.check.bounded

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats, and what could not be measured."""
        return self.check.notes

    @property
    def objects(self) -> pd.DataFrame:
        """What the runs left behind, by type."""
        return tables.object_table(self.check)

    @property
    def tensors(self) -> pd.DataFrame:
        """The tensors that the runs left behind, by shape, dtype and device."""
        return tables.tensor_table(self.check)

    @property
    def containers(self) -> pd.DataFrame:
        """The containers, buffers and graphs that grew in place."""
        return tables.container_table(self.check)

    @property
    def runs(self) -> pd.DataFrame:
        """The measured runs."""
        return tables.run_table(self.check)

    def plot(self) -> ReportFigure:
        """Return a figure of what each run left behind and of the memory after each run."""
        return plot_growth(self.check)

    def graph(self, i: int = 0, style: str = LEAKLAB) -> PathGraph:
        """Return the path to leak number *i*, the largest first, as a graph.

        Args:
            i: Number of the leak, from 0.
            style: ``leaklab``, or ``objgraph`` for the picture that objgraph draws of the same objects.

        Raises:
            IndexError: if there is no such leak.
            ValueError: for any other style.
        """
        n_leaks = len(self.leaks)
        if not 0 <= i < n_leaks:
            have = f"this report has {n_leaks}, numbered from 0" if n_leaks else "this report has none"
            msg = f"there is no leak {i}: {have}"
            raise IndexError(msg)
        return PathGraph(self.leaks[i], style)

    def explore(self) -> Explorer:
        """Show this report as a page with tables, graphs and buttons; the static report is displayed first."""
        from leaklab import explore  # noqa: PLC0415 - widgets are paid by those who explore

        return explore(self)

    def compare(self, other: LeakReport) -> Comparison:
        """Return what became of the leaks of this report in *other*, the check of the mended code."""
        return compare_checks(self.check, other.check)

    def _html_file(self) -> str:
        return _render_file(self.check)

    def _json_file(self) -> str:
        return to_json(self.check)

    @classmethod
    def from_json(cls, path_or_text: FilePath) -> LeakReport:
        """Return the report that `to_json` wrote, from its file or its text.

        Raises:
            ReportError: if there is no such file, or it holds no report that this version can read.
        """
        return cls(from_json(read_source(path_or_text)))

    def save(self, path: FilePath) -> None:
        """Write the report to *path*: ``.html`` a page, ``.json`` the record, ``.csv`` the table of leaks, ``.md``.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        save_by_suffix(path, {suffix: partial(write, self.check) for suffix, write in _WRITERS.items()})

    def __str__(self) -> str:
        return render_text(self.check)

    def __repr__(self) -> str:
        verdict, n_leaks = self.verdict, len(self.leaks)
        found = f"; {n_leaks} {'leak' if n_leaks == 1 else 'leaks'}" if n_leaks else ""
        return f"<LeakReport {verdict.outcome.value}: {shorten(verdict.reason, _REASON_LIMIT)}{found}>"

    def _fragment(self) -> str:
        return render_html(self.check)


SUFFIXES = tuple(_WRITERS)
"""Of the files that a report can be saved to."""
