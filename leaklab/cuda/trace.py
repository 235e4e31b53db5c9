"""Say what was live at any event of a trace: at the peak, at an out-of-memory event.

The state at the end is what the blocks of the snapshot say; the trace is read backwards from there. The other way
round would be wrong: a trace is a ring, and in real files only 12 to 82 % of the live bytes were allocated within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.live_blocks import frameless_label, largest_first, live_blocks
from leaklab.cuda.schema import ADDRESS_BITS, MOST_BYTES, Memory, Segment, time_us
from leaklab.cuda.stacks import StackTable, is_project, is_python, label_of
from leaklab.errors import SnapshotError
from leaklab.model.cuda import CallFrame, LiveStack, Timeline, TracePoint

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

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one device, oldest first; all arrays have the shape ``(n_events,)``.

    Attributes:
        device: As in `leaklab.model.snapshots.LiveStack`.
        action: Codes of this module.
        address: Of the block or the segment; 0 for an event without one.
        size: Bytes that the program requested; of segments, their size.
        time_us: Microseconds since 1970; all 0 where they were not recorded.
        frames: For each event its call stack, as an index into `lists`.
        lists: The lists of frames of the file; the events share them.
        ended: For an allocation, the position of the event that freed it, ``n_events`` if it is live at the end; for a
            free, the position of its allocation, -1 if that is older than the trace; for others -1.
        raw: The events of `OOM`, by position.
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
    return Events(device, action, address, size, times, frames, list(shared.values()), _pair(action, address), raw)


def _damaged(device: str, trace: Sequence[object]) -> SnapshotError:
    """Return the error that names the first event that is none."""
    number = next(number for number, event in enumerate(trace, 1) if not _is_event(event))
    return SnapshotError(
        f"the trace of {device} is damaged: event {number:,} of {len(trace):,} has no action, address, size and frames"
        " of the right types; there is no timeline and no peak of this device, its live bytes are right"
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
            older.append((pool, requested, frames))
    deltas = deltas_of(events)
    levels = np.concatenate(([0], np.cumsum(deltas)))
    # What the trace shows as live but no block confirms is in the deltas: without it the levels would start below 0.
    gap = sum(seen.values()) - in_blocks
    reserved = sum(segment.total for segment in segments)
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


def peak_of(history: History) -> TracePoint:
    """Return the moment with the most live bytes, and what they were."""
    return _moment(history, "peak", int(np.argmax(history.levels)), {})


def ooms_of(history: History) -> list[TracePoint]:
    """Return the out-of-memory events of the trace, the newest ten, and what was live."""
    found = np.flatnonzero(history.events.action == OOM).tolist()[-_MAX_OOMS:]
    return [_moment(history, "oom", position + 1, history.events.raw[position]) for position in found]


def _moment(history: History, kind: str, event: int, raw: dict[str, Any]) -> TracePoint:
    events = history.events
    time_us = int(events.time_us[event - 1]) if event else 0
    wanted, free = raw.get("size"), raw.get("device_free")
    frames = raw.get("frames")
    return TracePoint(
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


OTHERS = "(other stacks)"
_CPP = "(C++ only)"
N_BANDS = 8
N_STRETCHES = 600


def timeline_of(history: History) -> Timeline:
    """Return the memory along the trace: of each of `N_STRETCHES` stretches the event with the most live bytes.

    A spike of one event in a million is among them, where samples at equal distances would miss it.
    """
    events, levels = history.events, history.levels
    edges = np.unique(np.linspace(0, events.n + 1, N_STRETCHES + 1).astype(np.int64))
    highest = [start + int(np.argmax(levels[start:end])) for start, end in zip(edges, edges[1:], strict=False)]
    samples = np.unique(np.array([0, *highest, events.n], np.int64))
    peak = int(np.argmax(levels))
    times = events.time_us[events.time_us > 0]
    return Timeline(
        device=events.device,
        n_events=events.n,
        seconds=float(times[-1] - times[0]) / 1e6 if len(times) > 1 else None,
        at_events=tuple(samples.tolist()),
        live_bytes=tuple(levels[samples].tolist()),
        reserved_bytes=_reserved_at(events, samples, history.reserved_bytes),
        bands=tuple(_bands(history, samples, peak)),
        peak_event=peak,
    )


def _reserved_at(events: Events, samples: Ints, end_bytes: int) -> tuple[int, ...]:
    """Return the reserved bytes at the samples, read backwards from the end; a constant without segment events."""
    came, went = events.action == SEGMENT_IN, events.action == SEGMENT_OUT
    levels = np.concatenate(([0], np.cumsum(np.where(came, events.size, 0) - np.where(went, events.size, 0))))
    return tuple((levels[samples] - levels[-1] + end_bytes).tolist())


def _bands(history: History, samples: Ints, peak: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups that were largest at the peak, then all others; they sum up to the levels."""
    names, levels = _levels_by_group(history, samples)
    at_peak = levels[:, int(np.searchsorted(samples, peak))]
    largest = [number for number in np.argsort(-at_peak, kind="stable").tolist() if np.any(levels[number])][:N_BANDS]
    for number in largest:
        yield names[number], tuple(levels[number].tolist())
    rest = history.levels[samples] - levels[largest].sum(axis=0)
    if np.any(rest):
        yield OTHERS, tuple(rest.tolist())


def _levels_by_group(history: History, samples: Ints) -> tuple[list[str], Ints]:
    """Return the names of the groups and their live bytes at the samples: shape ``(n_groups, n_samples)``."""
    events = history.events
    numbers: dict[str, int] = {BEFORE: 0}  # what was freed within the trace but allocated before it
    of_list = np.array(_numbered(events.lists, history.table, numbers), np.int64)
    of_older = _numbered((frames for _pool, _size, frames in history.older), history.table, numbers)
    starts = np.zeros(len(numbers), np.int64)
    for (_pool, size, _frames), group in zip(history.older, of_older, strict=True):
        starts[group] += size
    starts[0] += int(events.size[(events.action == FREE) & (events.ended < 0)].sum())
    # A free belongs to the group of its allocation: its own frames only say who let go.
    owner = np.where(events.action == ALLOC, np.arange(events.n), events.ended)
    group_of = np.where(owner >= 0, of_list[events.frames[np.maximum(owner, 0)]], 0)
    deltas = np.where(events.action == ALLOC, events.size, 0) - np.where(events.action == FREE, events.size, 0)
    # Summed by the interval between two samples, then over the intervals, the deltas are the levels at the samples.
    interval = np.searchsorted(samples, np.arange(events.n) + 1)
    totals = np.zeros((len(numbers), len(samples)), np.int64)
    np.add.at(totals, (group_of, interval), deltas)
    unseen = freed_unseen(events)
    np.subtract.at(totals, (group_of[unseen], interval[events.ended[unseen]]), events.size[unseen])
    return list(numbers), np.cumsum(totals, axis=1) + starts[:, None]


def _numbered(lists: Iterable[list[Any]], table: StackTable, numbers: dict[str, int]) -> list[int]:
    """Return the number of the group of each list of frames; new groups are added to *numbers*."""
    labels: dict[CallFrame, str] = {}
    found = []
    for frames in lists:
        stack = table.stack(frames)
        frame = _telling_frame(stack)
        group = labels.get(frame) if frame else _CPP if stack else NO_STACK
        if frame and not group:
            group = labels[frame] = label_of((frame,))
        found.append(numbers.setdefault(group or "", len(numbers)))
    return found


def _telling_frame(stack: Sequence[CallFrame]) -> CallFrame | None:
    """Return the innermost frame of the project, or else of any Python code; None if there is none."""
    for rule in (is_project, is_python):
        for frame in stack:
            if rule(frame.filename):
                return frame
    return None
