"""A comparison of snapshots as the user holds it: verdict, tables, pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaklab.model import Outcome, Verdict
from leaklab.model.snapshots import SnapshotSeries, StackKey
from leaklab.render.exports import Exports
from leaklab.render.files import FilePath, save_by_suffix
from leaklab.render.snapshot_html import render_series, render_series_page
from leaklab.render.snapshot_json import series_json
from leaklab.render.snapshot_plot import plot_series
from leaklab.render.snapshot_tables import series_device_table, series_table
from leaklab.render.snapshot_text import series_line, series_text

if TYPE_CHECKING:
    import pandas as pd

    from leaklab.render.figure import ReportFigure


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotComparison(Exports):
    """Two or more snapshots compared by call stack.

    Attributes:
        series: The record, with every figure.
    """

    series: SnapshotSeries

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; two snapshots never make one."""
        return self.series.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, bytes per step; ``str()`` begins with the outcome."""
        return self.series.verdict

    @property
    def key(self) -> StackKey:
        """By what the stacks were matched; `key_reason` says why."""
        return self.series.key

    @property
    def key_reason(self) -> str:
        """Why the stacks were matched that way, with the shares that decided."""
        return self.series.key_reason

    @property
    def growth_bytes(self) -> int:
        """Live bytes of the last snapshot minus those of the first, as the program requested them."""
        return self.series.growth_bytes

    @property
    def stacks(self) -> pd.DataFrame:
        """Each call stack with its live bytes in every snapshot, largest change first."""
        return series_table(self.series)

    @property
    def devices(self) -> pd.DataFrame:
        """Active, reserved and inactive-split bytes of each device in every snapshot."""
        return series_device_table(self.series)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the files lack, or where they contradict themselves."""
        return self.series.notes

    def plot(self) -> ReportFigure:
        """Return a figure of the live bytes in every snapshot, stacked by call stack."""
        return plot_series(self.series)

    def _html_file(self) -> str:
        return render_series_page(self.series)

    def _json_file(self) -> str:
        return series_json(self.series)

    def save(self, path: FilePath) -> None:
        """Write to *path* a page (``.html``), the record (``.json``), the stacks (``.csv``) or the text (``.txt``).

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        writers = {
            ".html": self._html_file,
            ".json": self._json_file,
            ".csv": lambda: str(self.stacks.to_csv(lineterminator="\n")),
            ".txt": self.__str__,
        }
        save_by_suffix(path, writers)

    def __str__(self) -> str:
        return series_text(self.series)

    def __repr__(self) -> str:
        return f"<SnapshotComparison {series_line(self.series)}>"

    def _fragment(self) -> str:
        return render_series(self.series)
