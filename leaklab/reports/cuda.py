"""One memory snapshot as the user holds it: figures, tables, pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from leaklab.cuda.live_blocks import device_uses, grouped, largest_first, live_stacks, pool_uses
from leaklab.cuda.schema import HOST, Memory
from leaklab.cuda.stacks import StackTable, tree_of
from leaklab.cuda.trace import History, histories, ooms_of, peak_of, timeline_of
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import (
    FrameNode,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    SnapshotSeries,
    StackKey,
    Timeline,
    TracePoint,
)
from leaklab.render.base import Exports, FilePath, save_by_suffix
from leaklab.render.cuda_html import (
    render_series,
    render_series_page,
    render_snapshot,
    render_snapshot_page,
)
from leaklab.render.cuda_plots import plot_icicle, plot_series, plot_timeline
from leaklab.render.cuda_text import facts_json, series_json, series_line, series_text, snapshot_line, snapshot_text
from leaklab.render.tables import pool_table, series_device_table, series_table, stack_table
from leaklab.runtime.gc_control import gc_paused
from leaklab.text import format_bytes

if TYPE_CHECKING:
    import pandas as pd

    from leaklab.render.figure import ReportFigure


class CudaSnapshot(Exports):
    """A memory snapshot; everything is worked out when it is first asked for.

    Attributes:
        memory: The blocks and the trace, in one form for files of all ages.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._table = StackTable()

    @property
    def name(self) -> str:
        """The file, or ``now``."""
        return self.memory.name

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices with memory or events: ``cuda:0``, ``pinned host``."""
        return self.memory.devices

    @property
    def active_bytes(self) -> int:
        """Bytes in live blocks of all CUDA devices, as the allocator counts them: rounded up."""
        return sum(use.active_bytes for use in self._cuda)

    @property
    def requested_bytes(self) -> int:
        """Bytes that the program asked for in those blocks."""
        return sum(use.requested_bytes for use in self._cuda)

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the driver on all CUDA devices."""
        return sum(use.reserved_bytes for use in self._cuda)

    @property
    def inactive_split_bytes(self) -> int:
        """Free bytes in segments that also hold live blocks, on all CUDA devices: nothing can give them back."""
        return sum(use.inactive_split_bytes for use in self._cuda)

    @property
    def _cuda(self) -> list[PoolUse]:
        return [use for use in self.device_uses if use.device != HOST]

    @cached_property
    def pool_uses(self) -> tuple[PoolUse, ...]:
        """The use of each pool, as records."""
        return pool_uses(self.memory)

    @cached_property
    def device_uses(self) -> tuple[PoolUse, ...]:
        """The sum over the pools of each device, as records."""
        return device_uses(self.memory, self.pool_uses)

    @property
    def pools(self) -> pd.DataFrame:
        """The use of each pool: reserved, active, inactive-split and releasable bytes, fragmentation."""
        return pool_table(self.pool_uses)

    @cached_property
    def stacks(self) -> tuple[LiveStack, ...]:
        """Live bytes by exact call stack, largest first, as records."""
        with gc_paused():
            return live_stacks(self.memory, self._table)

    def by_stack(self, key: str = "exact") -> pd.DataFrame:
        """Return the live bytes by call stack, largest first; blocks without a stack by device, pool and size.

        Args:
            key: ``"exact"`` tells stacks apart by every frame; ``"project"`` by file name and function of the
                project's own frames, whatever their line.

        Raises:
            ValueError: if the key is another one.
        """
        try:
            wanted = StackKey(key)
        except ValueError:
            msg = f"the key must be 'exact' or 'project', not {key!r}"
            raise ValueError(msg) from None
        return stack_table(largest_first(grouped(self.stacks, wanted).values()))

    @cached_property
    def _histories(self) -> tuple[History, ...]:
        with gc_paused():
            return tuple(histories(self.memory, self._table))

    @cached_property
    def peaks(self) -> tuple[TracePoint, ...]:
        """For each device with a trace, its moment with the most live bytes; what was before the trace is unknown."""
        with gc_paused():
            return tuple(map(peak_of, self._histories))

    @property
    def peak(self) -> TracePoint | None:
        """The largest of the peaks; None without a trace."""
        return max(self.peaks, key=lambda moment: moment.live_bytes, default=None)

    @cached_property
    def ooms(self) -> tuple[TracePoint, ...]:
        """The out-of-memory events in the traces, at most ten of each device, with what was live."""
        return tuple(moment for history in self._histories for moment in ooms_of(history))

    @cached_property
    def timelines(self) -> tuple[Timeline, ...]:
        """The memory of each device along its trace."""
        with gc_paused():
            return tuple(map(timeline_of, self._histories))

    @cached_property
    def tree(self) -> FrameNode:
        """All stacks in one tree of frames, outermost first, with the live bytes below each."""
        return tree_of(self.stacks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file lacks, or where it contradicts itself."""
        gaps = [
            f"{history.events.device}: the trace shows {format_bytes(abs(history.gap_bytes))} {more} than the blocks do"
            for history in self._histories
            if history.gap_bytes
            for more in ("more live" if history.gap_bytes > 0 else "less live",)
        ]
        return (*self.memory.notes, *gaps)

    @property
    def facts(self) -> SnapshotFacts:
        """All that is known, as one record that refers to nothing of the file."""
        return SnapshotFacts(
            name=self.name,
            devices=self.device_uses,
            pools=self.pool_uses,
            stacks=self.stacks,
            moments=self.peaks + self.ooms,
            timelines=self.timelines,
            tree=self.tree,
            notes=self.notes,
        )

    def plot(self) -> ReportFigure:
        """Return a figure of the memory along the trace."""
        return plot_timeline(self.timelines)

    def plot_stacks(self) -> ReportFigure:
        """Return a figure of the live bytes by frame: each as wide as what was allocated below it."""
        return plot_icicle(self.tree)

    def _html_file(self) -> str:
        return render_snapshot_page(self.facts)

    def _json_file(self) -> str:
        return facts_json(self.facts)

    def save(self, path: FilePath) -> None:
        """Write to *path* a page (``.html``), the facts (``.json``) or the text (``.txt``).

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        save_by_suffix(path, {".html": self._html_file, ".json": self._json_file, ".txt": self.__str__})

    def __str__(self) -> str:
        return snapshot_text(self.facts)

    def __repr__(self) -> str:
        return f"<CudaSnapshot {snapshot_line(self.name, self.device_uses)}>"

    def _fragment(self) -> str:
        return render_snapshot(self.facts)


# A comparison of snapshots as the user holds it: verdict, tables, pictures.


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
