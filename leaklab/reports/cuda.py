"""One CUDA memory snapshot as the user holds it: figures, tables, pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from markupsafe import Markup

from leaklab.cuda.along_trace import block_map, ooms_of, peak_of, phases_of, timeline_of
from leaklab.cuda.live_blocks import device_uses, grouped, largest_first, live_stacks, pool_uses
from leaklab.cuda.reserved import excess_words
from leaklab.cuda.schema import HOST, Memory
from leaklab.cuda.stacks import StackTable, tree_of
from leaklab.cuda.trace import History, histories
from leaklab.errors import SnapshotError
from leaklab.model.cuda import (
    BlockMap,
    CallFrame,
    LiveStack,
    PoolUse,
    SnapshotFacts,
    StackKey,
    Timeline,
    TracePhase,
    TracePoint,
)
from leaklab.model.stacks import FrameNode
from leaklab.render.base import Forms, Report
from leaklab.render.json import embedded
from leaklab.render.templates import page
from leaklab.render.writers import html_of
from leaklab.reports.cuda_document import SCRIPT, snapshot_document, snapshot_line, snapshot_title
from leaklab.reports.plots import plot_icicle, plot_timeline, stack_colours
from leaklab.reports.stacks import exports
from leaklab.reports.tables import pool_table, stack_table
from leaklab.runtime.gc_control import gc_paused
from leaklab.text import format_bytes, unit_words, visible

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

    from leaklab.reports.figure import ReportFigure


SCHEMA_VERSION = 1
"""Of the JSON files of snapshots and of their comparison."""


def _fields(facts: SnapshotFacts) -> dict[str, Any]:
    """Return what a file of *facts* holds; the tree is left out, the stacks say the same.

    Phases only where there are any: files of 0.1.0 have none.
    """
    record = {name: value for name, value in asdict(facts).items() if name != "tree" and (value or name != "phases")}
    return {"schema": SCHEMA_VERSION, **record}


def _restored(fields: Any) -> Any:
    """Return the fields of a `SnapshotFacts` of those of its file, which leaves the tree out."""
    listed = with_frames(fields)
    stacks = msgspec.convert(listed["stacks"], tuple[LiveStack, ...])
    return {**listed, "tree": tree_of(stacks)}


def with_frames(value: Any) -> Any:
    """Return *value* with every frame, an object in the file, as the list of which a `CallFrame` is made."""
    if isinstance(value, list):
        return [with_frames(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == set(CallFrame._fields):
        return [value[name] for name in CallFrame._fields]
    return {key: with_frames(item) for key, item in value.items()}


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
        document=snapshot_document,
        title=snapshot_title,
        more=exports(lambda facts: facts.tree, "live bytes of accelerator memory", "the snapshot has no live block"),
        fields=_fields,
        restored=_restored,
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
        return {**super()._writers(), ".html": self._page}

    def _page(self) -> str:
        record, maps = self.record, self._maps()
        body = html_of(snapshot_document(record, is_page=True, maps=maps))
        body += Markup(embedded(self._forms.json(record)))  # noqa: S704 - a script element of its own
        return page(snapshot_title(record), body, script=SCRIPT if maps else "")

    def _maps(self) -> list[BlockMap]:
        """Return where the blocks lay, for each device whose file says it."""
        if self.memory is None:
            return []
        annotations = self.memory.annotations
        maps = (block_map(history, annotations) for history in self._histories)
        return [one for one in maps if one is not None]

    def plot(self) -> ReportFigure:
        """Return a figure of the memory along the trace."""
        return plot_timeline(self.timelines, stack_colours(self.timelines, self.stacks))

    def plot_stacks(self) -> ReportFigure:
        """Return a figure of the live bytes by frame: each as wide as what was allocated below it."""
        return plot_icicle(self.tree, stack_colours(self.timelines, self.stacks))

    def __repr__(self) -> str:
        return visible(f"<CudaSnapshot {snapshot_line(self.name, self.device_uses)}>")
