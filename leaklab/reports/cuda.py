"""One memory snapshot, or the comparison of several, as the user holds it: figures, tables, pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from leaklab.cuda.along_trace import ooms_of, peak_of, phases_of, timeline_of
from leaklab.cuda.judging import growth_tree
from leaklab.cuda.live_blocks import device_uses, grouped, largest_first, live_stacks, pool_uses
from leaklab.cuda.map_of_blocks import block_map
from leaklab.cuda.reserved import excess_words
from leaklab.cuda.schema import HOST, Memory
from leaklab.cuda.stacks import StackTable, tree_of
from leaklab.cuda.trace import History, histories
from leaklab.errors import SnapshotError
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import (
    BlockMap,
    CallFrame,
    FrameNode,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    SnapshotSeries,
    StackGrowth,
    StackKey,
    Timeline,
    TracePhase,
    TracePoint,
)
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.reports.cuda_page import (
    plot_icicle,
    plot_series,
    plot_timeline,
    render_series,
    render_series_page,
    render_snapshot,
    render_snapshot_page,
)
from leaklab.reports.cuda_text import (
    SCHEMA_VERSION,
    facts_fields,
    series_fields,
    series_line,
    series_text,
    snapshot_line,
    snapshot_text,
)
from leaklab.reports.tables import pool_table, series_csv, series_device_table, series_table, stack_table
from leaklab.runtime.gc_control import gc_paused
from leaklab.text import format_bytes, unit_words, visible

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

    from leaklab.reports.figure import ReportFigure


def _restored_facts(fields: Any) -> Any:
    """Return the fields of a `SnapshotFacts` of those of its file, which leaves the tree out."""
    listed = _with_frames(fields)
    stacks = msgspec.convert(listed["stacks"], tuple[LiveStack, ...])
    return {**listed, "tree": tree_of(stacks)}


def _restored_series(fields: Any) -> Any:
    """The same of a `SnapshotSeries`."""
    listed = _with_frames(fields)
    stacks = msgspec.convert(listed["stacks"], tuple[StackGrowth, ...])
    return {**listed, "tree": growth_tree(stacks)}


def _with_frames(value: Any) -> Any:
    """Return *value* with every frame, an object in the file, as the list of which a `CallFrame` is made."""
    if isinstance(value, list):
        return [_with_frames(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == set(CallFrame._fields):
        return [value[name] for name in CallFrame._fields]
    return {key: _with_frames(item) for key, item in value.items()}


class CudaSnapshot(Report[SnapshotFacts]):
    """A memory snapshot; everything is worked out when it is first asked for.

    Attributes:
        memory: The blocks and the trace, in one form for files of all ages; None if the snapshot was read from its
            record, which has sums and no blocks.
    """

    _forms: ClassVar = Forms(
        kind=SnapshotFacts,
        format="leaklab snapshot",
        schema=SCHEMA_VERSION,
        text=snapshot_text,
        html=render_snapshot,
        page=render_snapshot_page,
        fields=facts_fields,
        restored=_restored_facts,
    )

    def __init__(self, memory: Memory | None) -> None:
        self.memory = memory
        self._table = StackTable()

    @classmethod
    def _around(cls, record: SnapshotFacts) -> Self:
        """Return a snapshot in which all that is worked out of the blocks is known, and the blocks are not."""
        snapshot = cls(None)
        vars(snapshot).update(
            name=record.name,
            devices=tuple(use.device for use in record.devices),
            device_uses=record.devices,
            pool_uses=record.pools,
            stacks=record.stacks,
            peaks=tuple(point for point in record.moments if point.kind == "peak"),
            ooms=tuple(point for point in record.moments if point.kind == "oom"),
            timelines=record.timelines,
            tree=record.tree,
            notes=record.notes,
            phases=record.phases,
        )
        return snapshot

    @property
    def _blocks(self) -> Memory:
        """The blocks and the trace.

        Raises:
            SnapshotError: for a snapshot that was read from its record.
        """
        if self.memory is None:
            msg = f"{self.name!r} was read from its record, which has no blocks; open the file that torch wrote instead"
            raise SnapshotError(msg)
        return self.memory

    @cached_property
    def name(self) -> str:
        """The file, or ``now``."""
        return self._blocks.name

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices with memory or events: ``cuda:0``, ``pinned host``."""
        return self._blocks.devices

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
        """Free bytes beside live blocks, on all CUDA devices: ``empty_cache()`` cannot give them back."""
        return sum(use.inactive_split_bytes for use in self._cuda)

    @property
    def _cuda(self) -> list[PoolUse]:
        return [use for use in self.device_uses if use.device != HOST]

    @cached_property
    def pool_uses(self) -> tuple[PoolUse, ...]:
        """The use of each pool, as records."""
        return pool_uses(self._blocks)

    @cached_property
    def device_uses(self) -> tuple[PoolUse, ...]:
        """The sum over the pools of each device, as records."""
        return device_uses(self._blocks, self.pool_uses)

    @property
    def pools(self) -> pd.DataFrame:
        """The use of each pool: reserved, active, inactive-split and releasable bytes, fragmentation."""
        return pool_table(self.pool_uses)

    @cached_property
    def stacks(self) -> tuple[LiveStack, ...]:
        """Live bytes by exact call stack, largest first, as records."""
        with gc_paused():
            return live_stacks(self._blocks, self._table)

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
    def _traces(self) -> tuple[History | SnapshotError, ...]:
        with gc_paused():
            return tuple(histories(self._blocks, self._table))

    @property
    def _histories(self) -> list[History]:
        return [trace for trace in self._traces if isinstance(trace, History)]

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
    def phases(self) -> tuple[TracePhase, ...]:
        """What memory did within each annotated part of the program, in the order in which they first begin."""
        annotations = self._blocks.annotations
        return tuple(phase for history in self._histories for phase in phases_of(history, annotations))

    @cached_property
    def tree(self) -> FrameNode:
        """All stacks in one tree of frames, outermost first, with the live bytes below each."""
        return tree_of(self.stacks)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the file lacks, or where it contradicts itself."""
        gaps = [
            f"{history.events.device}: the trace shows {format_bytes(abs(history.gap_bytes))} {more} than the blocks do"
            for history in self._histories
            if history.gap_bytes
            for more in ("more live" if history.gap_bytes > 0 else "less live",)
        ]
        damages = [str(trace) for trace in self._traces if isinstance(trace, SnapshotError)]
        _ = self.stacks, self.timelines  # frames are read where they are first needed
        n_unreadable = self._table.n_unreadable
        words = [f"{unit_words(n_unreadable, 'frames')} of the call stacks could not be read"] if n_unreadable else []
        cards = self._blocks.card_bytes
        excess = [excess_words(use, cards.get(use.device)) for use in self.device_uses]
        return (*self._blocks.notes, *damages, *gaps, *words, *filter(None, excess))

    @property
    def record(self) -> SnapshotFacts:  # type: ignore[override]  # worked out, and never set
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
            phases=self.phases,
        )

    @property
    def facts(self) -> SnapshotFacts:
        """The record, by its older name."""
        return self.record

    def _writers(self) -> dict[str, Callable[[], str]]:
        """Return the writers of all reports, and that of a page with the blocks, which no record has."""
        return {**super()._writers(), ".html": lambda: render_snapshot_page(self.record, self._maps())}

    def _maps(self) -> list[BlockMap]:
        """Return where the blocks lay, for each device whose file says it."""
        if self.memory is None:
            return []
        annotations = self.memory.annotations
        maps = (block_map(history, annotations) for history in self._histories)
        return [one for one in maps if one is not None]

    def plot(self) -> ReportFigure:
        """Return a figure of the memory along the trace."""
        return plot_timeline(self.timelines)

    def plot_stacks(self) -> ReportFigure:
        """Return a figure of the live bytes by frame: each as wide as what was allocated below it."""
        return plot_icicle(self.tree)

    def __repr__(self) -> str:
        return visible(f"<CudaSnapshot {snapshot_line(self.name, self.device_uses)}>")


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotComparison(Report[SnapshotSeries]):
    """Two or more snapshots compared by call stack.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=SnapshotSeries,
        format="leaklab snapshot series",
        schema=SCHEMA_VERSION,
        text=series_text,
        html=render_series,
        page=render_series_page,
        more={".csv": series_csv},
        fields=series_fields,
        restored=_restored_series,
    )
    record: SnapshotSeries

    stacks = FrameProperty(series_table)
    """Each call stack with its live bytes in every snapshot, largest change first."""
    devices = FrameProperty(series_device_table)
    """Active, reserved and inactive-split bytes of each device in every snapshot."""

    @property
    def series(self) -> SnapshotSeries:
        """The record, by its older name."""
        return self.record

    @property
    def leaked(self) -> bool:
        """Whether the verdict is a leak; two snapshots never make one."""
        return self.record.verdict.outcome is Outcome.LEAK

    @property
    def verdict(self) -> Verdict:
        """The outcome, its reason, bytes per step; ``str()`` begins with the outcome."""
        return self.record.verdict

    @property
    def key(self) -> StackKey:
        """By what the stacks were matched; `key_reason` says why."""
        return self.record.key

    @property
    def key_reason(self) -> str:
        """Why the stacks were matched that way, with the shares that decided."""
        return self.record.key_reason

    @property
    def growth_bytes(self) -> int:
        """Live bytes of the last snapshot minus those of the first, as the program requested them."""
        return self.record.growth_bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """What the files lack, or where they contradict themselves."""
        return self.record.notes

    def plot(self) -> ReportFigure:
        """Return a figure of the live bytes in every snapshot, stacked by call stack."""
        return plot_series(self.record)

    def __repr__(self) -> str:
        return visible(f"<SnapshotComparison {series_line(self.record)}>")
