"""One memory snapshot as the user holds it: figures, tables, pictures."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from leaklab.model.snapshots import FrameNode, LiveStack, Moment, PoolUse, SnapshotFacts, StackKey, Timeline
from leaklab.render.exports import Exports
from leaklab.render.files import FilePath, save_by_suffix
from leaklab.render.snapshot_html import render_snapshot, render_snapshot_page
from leaklab.render.snapshot_json import facts_json
from leaklab.render.snapshot_plot import plot_icicle, plot_timeline
from leaklab.render.snapshot_tables import pool_table, stack_table
from leaklab.render.snapshot_text import snapshot_line, snapshot_text
from leaklab.snapshots.history import History, histories, ooms_of, peak_of
from leaklab.snapshots.live import device_uses, grouped, largest_first, live_stacks, pool_uses
from leaklab.snapshots.pausing import collector_paused
from leaklab.snapshots.schema import HOST, Memory
from leaklab.snapshots.stacks import StackTable
from leaklab.snapshots.timeline import timeline_of
from leaklab.snapshots.tree import tree_of
from leaklab.words import format_bytes

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
        with collector_paused():
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
        with collector_paused():
            return tuple(histories(self.memory, self._table))

    @cached_property
    def peaks(self) -> tuple[Moment, ...]:
        """For each device with a trace, its moment with the most live bytes; what was before the trace is unknown."""
        with collector_paused():
            return tuple(map(peak_of, self._histories))

    @property
    def peak(self) -> Moment | None:
        """The largest of the peaks; None without a trace."""
        return max(self.peaks, key=lambda moment: moment.live_bytes, default=None)

    @cached_property
    def ooms(self) -> tuple[Moment, ...]:
        """The out-of-memory events in the traces, at most ten of each device, with what was live."""
        return tuple(moment for history in self._histories for moment in ooms_of(history))

    @cached_property
    def timelines(self) -> tuple[Timeline, ...]:
        """The memory of each device along its trace."""
        with collector_paused():
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
