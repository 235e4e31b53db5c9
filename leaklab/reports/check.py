"""What the user holds after a check: the report, and its comparison with another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from markupsafe import Markup

from leaklab.files import FilePath
from leaklab.model import SCHEMA_VERSION, Check, Leak, Outcome, Verdict
from leaklab.model.comparison import ChangeRow
from leaklab.render.advice import LineGroup, line_groups, patch_text
from leaklab.render.base import Displayed, Forms, FrameProperty, Report, returned_or_written
from leaklab.render.json import FORMAT, check_fields
from leaklab.render.templates import page, render
from leaklab.reports import tables
from leaklab.reports.check_change import change_of_checks
from leaklab.reports.check_html import render_html, render_page
from leaklab.reports.check_text import render_text
from leaklab.reports.graphs import LEAKLAB, PathGraph
from leaklab.reports.notebook_export import render_markdown
from leaklab.reports.plots import plot_growth
from leaklab.reports.tables import leaks_csv
from leaklab.text import shorten, unit_words

if TYPE_CHECKING:
    import leaklab
    from leaklab.reports.figure import ReportFigure


_NAME_LIMIT = 60
_NO_LEAK = "no leak in either check"


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """What became of the leaks of one check in another.

    Attributes:
        fixed: Whether the first check leaked and the second proves that nothing leaks any more.
        lines: One sentence for each leak, and one for what is not proven.
        rows: Each leak before and after, in bytes per run.
    """

    fixed: bool
    lines: tuple[str, ...]
    rows: tuple[ChangeRow, ...] = ()

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the comparison as a page of its own; with *path* write it there and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return returned_or_written(page("Before and after", Markup(self._fragment())), path)  # noqa: S704 - leaklab's own

    def _text(self) -> str:
        return "\n".join(self.lines) or _NO_LEAK

    def __repr__(self) -> str:
        word = "fixed" if self.fixed else "not fixed"
        first = shorten(self.lines[0], _NAME_LIMIT) if self.lines else _NO_LEAK
        more = f" (+{len(self.lines) - 1} more)" if len(self.lines) > 1 else ""
        return f"<Comparison {word}: {first}{more}>"

    def _fragment(self) -> str:
        if not self.lines:
            return ""
        title = "Fixed" if self.fixed else "Not fixed"
        parts = [("", self.rows, self.lines)]
        return str(render("comparison.html.j2", title=title, is_good=self.fixed, parts=parts))


def compare_checks(before: Check, after: Check, *, is_other: bool = False) -> Comparison:
    """Return what became of the leaks of *before* in *after*, told by fingerprint, rate and holders.

    If the second *is_other*, a check of other code, it proves nothing.
    """
    change = change_of_checks(before, after, is_other=is_other)
    return Comparison(change.fixed, change.lines, change.rows)


_REASON_LIMIT = 72
_FORMS = Forms(
    kind=Check,
    format=FORMAT,
    schema=SCHEMA_VERSION,
    fields=check_fields,
    text=render_text,
    html=render_html,
    page=partial(render_page, has_record=True),
    more={".csv": leaks_csv, ".md": render_markdown},
)
SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a report can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class LeakReport(Report[Check]):
    """The result of a check.

    It holds records and nothing else, so it can be pickled and keeps nothing of the user's alive; tables, plots and
    graphs are made anew each time they are asked for.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: Check
    _ranks: Any = field(default=None, compare=False)

    objects = FrameProperty(tables.object_table)
    """What the runs left behind, by type."""
    tensors = FrameProperty(tables.tensor_table)
    """The tensors that the runs left behind, by shape, dtype and device."""
    containers = FrameProperty(tables.container_table)
    """The containers, buffers and graphs that grew in place."""
    runs = FrameProperty(tables.run_table)
    """The measured runs."""

    @property
    def check(self) -> Check:
        """The record, by its older name."""
        return self.record

    @property
    def ranks(self) -> leaklab.RanksReport | None:
        """The report on all ranks, on the first of those that checked together; else None. It is saved apart."""
        ranks: leaklab.RanksReport | None = self._ranks
        return ranks

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; ``bounded`` and ``inconclusive`` are none."""
        return self.record.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, its figures; ``str()`` begins with the outcome."""
        return self.record.verdict

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The leaks, largest first."""
        return self.record.leaks

    @property
    def groups(self) -> tuple[LineGroup, ...]:
        """The leaks by the line that makes or keeps them, each group with the merged paths to its places."""
        return tuple(line_groups(self.record.leaks))

    @property
    def bounded(self) -> tuple[Leak, ...]:
        """The places that grew and stopped, or whose limit is known."""
        return self.record.bounded

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats, and what could not be measured."""
        return self.record.notes

    def plot(self) -> ReportFigure:
        """Return a figure of what each run left behind and of the memory after each run."""
        return plot_growth(self.record)

    def graph(self, i: int = 0, style: str = LEAKLAB) -> PathGraph:
        """Return the path to leak number *i*, the largest first, as a graph.

        Args:
            i: Number of the leak, from 0.
            style: ``leaklab``, or ``objgraph`` for the picture that objgraph draws of the same objects.

        Raises:
            IndexError: if there is no such leak.
            ValueError: for any other style.
        """
        self._require(i)
        return PathGraph(self.leaks[i], style)

    def patch(self, i: int = 0) -> str:
        """Return the change that cured leak number *i* when it was tried, as a unified diff without context.

        Args:
            i: Number of the leak, from 0.

        Returns:
            The diff, for ``patch`` or ``git apply --unidiff-zero``; empty if no change was tried that cures the leak.

        Raises:
            IndexError: if there is no such leak.
        """
        self._require(i)
        return patch_text(self.leaks[i])

    def _require(self, i: int) -> None:
        n_leaks = len(self.leaks)
        if not 0 <= i < n_leaks:
            have = f"this report has {n_leaks}, numbered from 0" if n_leaks else "this report has none"
            msg = f"there is no leak {i}: {have}"
            raise IndexError(msg)

    def explore(self) -> leaklab.Explorer:
        """Show this report as a page with tables, graphs and buttons; the static report is displayed first."""
        from leaklab import explore  # noqa: PLC0415 - widgets are paid by those who explore

        return explore(self)

    def compare(self, other: LeakReport) -> Comparison:
        """Return what became of the leaks of this report in *other*, the check of the mended code."""
        return compare_checks(self.record, other.record)

    def __repr__(self) -> str:
        verdict, n_leaks = self.verdict, len(self.leaks)
        found = f"; {unit_words(n_leaks, 'leaks')}" if n_leaks else ""
        return f"<LeakReport {verdict.outcome.value}: {shorten(verdict.reason, _REASON_LIMIT)}{found}>"
