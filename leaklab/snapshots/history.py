"""Say what was live at any event of a trace: at the peak, at an out-of-memory event.

The state at the end is what the blocks of the snapshot say; the trace is read backwards from there. The other way
round would be wrong: a trace is a ring, and in real files only 12 to 82 % of the live bytes were allocated within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaklab.model.snapshots import CallFrame, LiveStack, Moment
from leaklab.snapshots.events import ALLOC, FREE, OOM, Events, Ints, events_of
from leaklab.snapshots.live import frameless_label, largest_first, live_blocks
from leaklab.snapshots.schema import Memory
from leaklab.snapshots.stacks import StackTable, label_of

BEFORE = "(allocated before the trace)"
NO_STACK = "(no stack)"
_MAX_OOMS = 10


@dataclass(frozen=True, slots=True)
class History:
    """The trace of one device, beside the blocks that were live when it ended.

    Attributes:
        events: The trace.
        levels: Live requested bytes before the first event and after each one: shape ``(n_events + 1,)``.
        older: Live blocks that the trace has not seen being allocated: pool, requested bytes, frames.
        reserved_bytes: Of the device's segments at the end.
        gap_bytes: Live bytes by the trace that no block accounts for; 0 where the two agree.
        table: Of the stacks.
    """

    events: Events
    levels: Ints
    older: tuple[tuple[str, int, list[dict[str, object]]], ...]
    reserved_bytes: int
    gap_bytes: int
    table: StackTable


def histories(memory: Memory, table: StackTable) -> Iterator[History]:
    """Yield the history of each device that has a trace with allocations or frees.

    Raises:
        SnapshotError: if an event is none.
    """
    for device, trace in memory.traces:
        events = events_of(device, trace)
        if np.any(events.action <= FREE):
            yield _history(memory, events, table)


def _history(memory: Memory, events: Events, table: StackTable) -> History:
    is_live = (events.action == ALLOC) & (events.ended == events.n)
    seen = dict(zip(events.address[is_live].tolist(), events.size[is_live].tolist(), strict=True))
    older, in_blocks, end_bytes = [], 0, 0
    for pool, address, requested, frames in live_blocks(memory, events.device):
        end_bytes += requested
        if address & 0x7FFFFFFFFFFFFFFF in seen:
            in_blocks += requested
        else:
            older.append((pool, requested, frames))
    deltas = deltas_of(events)
    levels = np.concatenate(([0], np.cumsum(deltas)))
    # What the trace shows as live but no block confirms is in the deltas: without it the levels would start below 0.
    gap = sum(seen.values()) - in_blocks
    reserved = sum(segment.total for segment in memory.segments if segment.device == events.device)
    return History(events, levels + (end_bytes + gap - levels[-1]), tuple(older), reserved, gap, table)


def deltas_of(events: Events) -> Ints:
    """Return by how much each event changes the live bytes, frees that were not recorded included."""
    deltas = np.where(events.action == ALLOC, events.size, 0) - np.where(events.action == FREE, events.size, 0)
    unseen = freed_unseen(events)
    np.subtract.at(deltas, events.ended[unseen], events.size[unseen])
    return deltas


def freed_unseen(events: Events) -> Ints:
    """Return the positions of allocations that only the next one at their address shows to be over."""
    ended = np.where(events.action == ALLOC, events.ended, events.n)
    closed = np.flatnonzero(ended < events.n)
    unseen: Ints = closed[events.action[ended[closed]] == ALLOC]
    return unseen


def peak_of(history: History) -> Moment:
    """Return the moment with the most live bytes, and what they were."""
    return _moment(history, "peak", int(np.argmax(history.levels)), {})


def ooms_of(history: History) -> list[Moment]:
    """Return the out-of-memory events of the trace, the newest ten, and what was live."""
    found = np.flatnonzero(history.events.action == OOM).tolist()[-_MAX_OOMS:]
    return [_moment(history, "oom", position + 1, history.events.raw[position]) for position in found]


def _moment(history: History, kind: str, event: int, raw: dict[str, Any]) -> Moment:
    events = history.events
    time_us = int(events.time_us[event - 1]) if event else 0
    wanted, free = raw.get("size"), raw.get("device_free")
    frames = raw.get("frames")
    return Moment(
        device=events.device,
        kind=kind,
        event=event,
        n_events=events.n,
        time_us=time_us or None,
        live_bytes=int(history.levels[event]),
        wanted_bytes=wanted if kind == "oom" and type(wanted) is int else None,
        free_bytes=free if kind == "oom" and type(free) is int else None,
        request=history.table.stack(frames) if type(frames) is list else (),
        stacks=stacks_after(history, event),
    )


def stacks_after(history: History, n_done: int) -> tuple[LiveStack, ...]:
    """Return what was live after the first *n_done* events, by call stack. Their bytes are requested bytes."""
    events = history.events
    started = (events.action == ALLOC) & (np.arange(events.n) < n_done) & (events.ended >= n_done)
    sums: dict[tuple[str, tuple[CallFrame, ...]], list[int]] = {}

    def add(label: str, stack: tuple[CallFrame, ...], n_bytes: int) -> None:
        found = sums.setdefault((label, stack), [0, 0])
        found[0] += 1
        found[1] += n_bytes

    for frames, size in zip(events.frames[started].tolist(), events.size[started].tolist(), strict=True):
        stack = history.table.stack(events.lists[frames])
        add("" if stack else NO_STACK, stack, size)
    for pool, size, frames in history.older:
        stack = history.table.stack(frames)
        add("" if stack else frameless_label(pool, size), stack, size)
    unknown = (events.action == FREE) & (events.ended < 0) & (np.arange(events.n) >= n_done)
    for size in events.size[unknown].tolist():
        add(BEFORE, (), size)
    return largest_first(
        LiveStack(events.device, label or label_of(stack), stack, "", n, n_bytes, n_bytes)
        for (label, stack), (n, n_bytes) in sums.items()
    )
