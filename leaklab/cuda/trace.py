"""Read the events of a trace: what was allocated and freed, and the level after each event.

The state at the end is what the blocks of the snapshot say; the trace is read backwards from there. The other way
round would be wrong: a trace is a ring, and in real files only 12 to 82 % of the live bytes were allocated within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.live_blocks import live_blocks
from leaklab.cuda.schema import ADDRESS_BITS, MOST_BYTES, Memory, Segment, time_us
from leaklab.cuda.stacks import StackTable
from leaklab.errors import SnapshotError

ALLOC, FREE, SEGMENT_IN, SEGMENT_OUT, OOM, OTHER = range(6)
_CODES = {
    "alloc": ALLOC,
    "free_completed": FREE,
    "segment_alloc": SEGMENT_IN,
    "segment_map": SEGMENT_IN,
    "segment_free": SEGMENT_OUT,
    "segment_unmap": SEGMENT_OUT,
    "oom": OOM,
}

_NOTES = {"user_metadata": "marked", "compile_context": "compile context"}
"""What ``torch.cuda.memory._set_memory_metadata`` gave to all later events, and what ``torch.compile`` was at."""
_NO_CONTEXT = "N/A"
_NOTE_LIMIT = 200

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one device, oldest first; all arrays have the shape ``(n_events,)``.

    Attributes:
        device: As in `leaklab.model.cuda.LiveStack`.
        action: Codes of this module.
        address: Of the block or the segment; 0 for an event without one.
        size: Bytes that the program requested; of segments, their size.
        time_us: Microseconds since 1970; all 0 where they were not recorded.
        frames: For each event its call stack, as an index into `lists`.
        lists: The lists of frames of the file; the events share them.
        ended: For an allocation, the position of the event that freed it, ``n_events`` if it is live at the end; for a
            free, the position of its allocation, -1 if that is older than the trace; for others -1.
        raw: The events of `OOM`, by position.
        notes: What the events of a stretch say of themselves: first state, state behind the last, words.
    """

    device: str
    action: NDArray[np.int8]
    address: Ints
    size: Ints
    time_us: Ints
    frames: Ints
    lists: list[list[Any]]
    ended: Ints
    raw: dict[int, dict[str, Any]]
    notes: tuple[tuple[int, int, str], ...] = ()

    @property
    def n(self) -> int:
        """Number of events."""
        return len(self.action)


def events_of(device: str, trace: Sequence[dict[str, Any]]) -> Events:
    """Return the columns of *trace*.

    Raises:
        SnapshotError: if an event is none; the sentence names the first.
    """
    n = len(trace)
    codes, other = _CODES, OTHER
    nothing: list[Any] = []
    try:
        actions = [codes.get(event["action"], other) for event in trace]
        addresses = [event.get("addr", 0) for event in trace]
        sizes = [event.get("size", 0) for event in trace]
        lists_of = [event.get("frames") or nothing for event in trace]
        if set(map(type, addresses)) | set(map(type, sizes)) != {int} or set(map(type, lists_of)) != {list}:
            raise _damaged(device, trace)
        if not 0 <= min(sizes) <= max(sizes) <= MOST_BYTES:
            raise _damaged(device, trace)
    except (KeyError, TypeError, AttributeError):
        raise _damaged(device, trace) from None
    action = np.array(actions, np.int8)
    address = np.array([address & ADDRESS_BITS for address in addresses], np.int64)
    size = np.array(sizes, np.int64)
    times = np.fromiter(map(time_us, trace), np.int64, n)
    shared = {id(frames): frames for frames in lists_of}
    numbers = {key: number for number, key in enumerate(shared)}  # by first use: addresses differ from run to run
    frames = np.fromiter((numbers[id(frames)] for frames in lists_of), np.int64, n)
    raw = {position: trace[position] for position in np.flatnonzero(action == OOM).tolist()}
    ended, notes = _pair(action, address), tuple(_notes(trace))
    return Events(device, action, address, size, times, frames, list(shared.values()), ended, raw, notes)


def _notes(trace: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """Yield each stretch of events that have the same word of the user's, or of the compiler, about themselves.

    An event that says nothing of the kind, as those of frees do in some files, neither ends a stretch nor begins one.
    """
    for key, words in _NOTES.items():
        first, last, current = 0, 0, ""
        for state, event in enumerate(trace, 1):
            text = event.get(key)
            if type(text) is not str:
                continue
            text = "" if text == _NO_CONTEXT else text[:_NOTE_LIMIT]
            if text != current:
                if current:
                    yield first, last + 1, f"{words} {current}"
                first, current = state - 1, text
            last = state
        if current:
            yield first, last + 1, f"{words} {current}"


def _damaged(device: str, trace: Sequence[object]) -> SnapshotError:
    """Return the error that names the first event that is none."""
    number = next(number for number, event in enumerate(trace, 1) if not _is_event(event))
    return SnapshotError(
        f"the trace of {device} is damaged: event {number:,} of {len(trace):,} has no action, address, size and "
        "frames of the right types; this device has no timeline and no peak; its live bytes are right"
    )


def _is_event(event: object) -> bool:
    if type(event) is not dict or type(event.get("action")) is not str:
        return False
    address, size, frames = event.get("addr", 0), event.get("size", 0), event.get("frames") or []
    return type(address) is int and type(size) is int and 0 <= size <= MOST_BYTES and type(frames) is list


def _pair(action: NDArray[np.int8], address: Ints) -> Ints:
    """Pair allocations with frees: of each address the events in their order, each looks at its neighbour.

    An allocation that is followed by another one at the same address was freed unseen, at the latest by then.
    """
    n = len(action)
    ended = np.full(n, -1, np.int64)
    positions = np.flatnonzero((action == ALLOC) | (action == FREE))
    order = positions[np.argsort(address[positions], kind="stable")]
    if not len(order):
        return ended
    is_alloc = action[order] == ALLOC
    same = address[order[1:]] == address[order[:-1]]
    following = np.append(np.where(same, order[1:], n), n)
    ended[order[is_alloc]] = following[is_alloc]
    before = np.insert(np.where(same & is_alloc[:-1], order[:-1], -1), 0, -1)
    ended[order[~is_alloc]] = before[~is_alloc]
    return ended


@dataclass(frozen=True, slots=True)
class History:
    """The trace of one device, beside the blocks that were live when it ended.

    Attributes:
        events: The trace.
        levels: Live requested bytes before the first event and after each one: shape ``(n_events + 1,)``.
        segments: Of the device, with their blocks, at the end.
        older: Live blocks that the trace has not seen being allocated: pool, address, requested bytes, frames.
        reserved_bytes: Of the device's segments at the end.
        gap_bytes: Live bytes by the trace that no block accounts for; 0 where the two agree.
        table: Of the stacks.
    """

    events: Events
    levels: Ints
    segments: Sequence[Segment]
    older: tuple[tuple[str, int, int, list[dict[str, object]]], ...]
    reserved_bytes: int
    gap_bytes: int
    table: StackTable


def histories(memory: Memory, table: StackTable) -> Iterator[History | SnapshotError]:
    """Yield the history of each device that has a trace with allocations or frees; for a damaged trace its error."""
    segments = memory.segments_by_device()
    for device, trace in memory.traces:
        try:
            events = events_of(device, trace)
        except SnapshotError as error:
            yield error
            continue
        if np.any(events.action <= FREE):
            yield _history(segments[device], events, table)


def _history(segments: Sequence[Segment], events: Events, table: StackTable) -> History:
    is_live = (events.action == ALLOC) & (events.ended == events.n)
    seen = dict(zip(events.address[is_live].tolist(), events.size[is_live].tolist(), strict=True))
    older, in_blocks, end_bytes = [], 0, 0
    for pool, address, requested, frames in live_blocks(segments):
        end_bytes += requested
        if address & ADDRESS_BITS in seen:
            in_blocks += requested
        else:
            older.append((pool, address & ADDRESS_BITS, requested, frames))
    deltas = deltas_of(events)
    levels = np.concatenate(([0], np.cumsum(deltas)))
    # What the trace shows as live but no block confirms is in the deltas: without it the levels would start below 0.
    gap = sum(seen.values()) - in_blocks
    reserved = sum(segment.total for segment in segments)
    return History(events, levels + (end_bytes + gap - levels[-1]), segments, tuple(older), reserved, gap, table)


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
