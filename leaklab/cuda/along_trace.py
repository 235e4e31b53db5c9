"""Follow the memory of a device along its trace: its levels, the phases of the program, what was live at one event.

Levels are taken at so many events as a picture is wide. Annotations say which part of the program ran at which events.
The events at which somebody wants to know what was live are the peak and those where memory ran out. Where each block
lay, and when, is drawn as a map of events and addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.live_blocks import frameless_label, largest_first
from leaklab.cuda.reserved import free_pieces, segments_after, without
from leaklab.cuda.schema import Annotation
from leaklab.cuda.stacks import StackTable, is_project, is_python, label_of, labels_of
from leaklab.cuda.trace import ALLOC, FREE, OOM, SEGMENT_IN, SEGMENT_OUT, Events, History, Ints, freed_unseen
from leaklab.model.cuda import (
    BEFORE,
    CPP,
    NO_STACK,
    OTHERS,
    BlockMap,
    CallFrame,
    LiveStack,
    MapStack,
    Timeline,
    TracePhase,
    TracePoint,
)
from leaklab.text import format_bytes

N_BANDS = 8
N_STRETCHES = 600


def highest_events(history: History, n_stretches: int) -> Ints:
    """Return the first event with the most live bytes of each stretch, and both ends."""
    levels, n_events = history.levels, history.events.n
    edges = np.unique(np.linspace(0, n_events + 1, n_stretches + 1).astype(np.int64))
    highest = [start + int(np.argmax(levels[start:end])) for start, end in pairwise(edges)]
    return np.unique(np.array([0, *highest, n_events], np.int64))


def timeline_of(history: History) -> Timeline:
    """Return the memory along the trace: of each of `N_STRETCHES` stretches the event with the most live bytes.

    A spike of one event in a million is among them, where samples at equal distances would miss it.
    """
    events, levels = history.events, history.levels
    samples = highest_events(history, N_STRETCHES)
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
    """Yield the groups that were largest at the peak or are at the end, then all others; they sum up to the levels."""
    names, levels = _levels_by_group(history, samples)
    weights = np.maximum(levels[:, int(np.searchsorted(samples, peak))], levels[:, -1])
    largest = [number for number in np.argsort(-weights, kind="stable").tolist() if np.any(levels[number])][:N_BANDS]
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
    of_older = _numbered((frames for _pool, _address, _size, frames in history.older), history.table, numbers)
    starts = np.zeros(len(numbers), np.int64)
    for (_pool, _address, size, _frames), group in zip(history.older, of_older, strict=True):
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
    groups = (group_of(table.stack(frames)) for frames in lists)
    return [numbers.setdefault(group, len(numbers)) for group in groups]


@lru_cache(maxsize=4096)  # a pure function, asked for every list of frames of a file
def group_of(stack: tuple[CallFrame, ...]) -> str:
    """Return the group of a stack: its innermost frame of the project, or else of any Python code."""
    for rule in (is_project, is_python):
        for frame in stack:
            if rule(frame.filename):
                return label_of((frame,))
    return CPP if stack else NO_STACK


class Span(NamedTuple):
    """One part of the program: it begins in state *first*, and *last* is the first state that is no longer its own."""

    first: int
    last: int
    name: str


def spans_of(history: History, annotations: Iterable[Annotation]) -> list[Span]:
    """Return the annotated parts that reach into the trace, by their begin, outer ones first.

    So are stretches whose events say the same of themselves: what the user marked them with, or a context of
    ``torch.compile``.

    An end belongs to the newest begin of its name. A begin that the trace, a ring, has lost is at its first event; what
    never ends does so with the trace.
    """
    times, n_events = history.events.time_us, history.events.n
    found = [Span(*note) for note in history.events.notes]
    if not n_events or not times.all():
        return sorted(found, key=_order)
    times = np.maximum.accumulate(times)
    begun: dict[str, list[int]] = defaultdict(list)
    for _device, name, is_start, time_us in annotations:
        state = int(np.searchsorted(times, time_us, side="right" if is_start else "left"))
        if is_start:
            begun[name].append(state)
        elif state:
            first = begun[name].pop() if begun[name] else 0
            found.append(Span(first, state + 1, name))
        elif begun[name]:
            begun[name].pop()  # over before the first event
    found += [Span(first, n_events + 1, name) for name, starts in begun.items() for first in starts]
    return sorted(found, key=_order)


def _order(span: Span) -> tuple[int, int, str]:
    return span.first, -span.last, span.name


def phases_of(history: History, annotations: Iterable[Annotation]) -> Iterator[TracePhase]:
    """Yield each annotation of the device once, in the order in which they first begin."""
    device = history.events.device
    by_name: dict[str, list[Span]] = {}
    for span in spans_of(history, (one for one in annotations if one.device == device)):
        by_name.setdefault(span.name, []).append(span)
    levels = history.levels
    for name, spans in by_name.items():
        yield TracePhase(
            device=device,
            name=name,
            n_times=len(spans),
            first_event=spans[0].first,
            start_bytes=int(levels[spans[0].first]),
            highest_bytes=max(int(levels[span.first : span.last].max()) for span in spans),
            end_bytes=int(levels[max(span.last for span in spans) - 1]),
        )


_MAX_OOMS = 10


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
    request = history.table.stack(frames) if type(frames) is list else ()
    pieces = free_pieces(events, history.segments, event)
    return TracePoint(
        device=events.device,
        kind=kind,
        event=event,
        n_events=events.n,
        time_us=time_us or None,
        live_bytes=int(history.levels[event]),
        wanted_bytes=wanted if kind == "oom" and type(wanted) is int else None,
        free_bytes=free if kind == "oom" and type(free) is int else None,
        request=request,
        stacks=stacks_after(history, event),
        request_label=label_of(request) if request else "",
        reserved_bytes=pieces.reserved_bytes if pieces else None,
        reserved_free_bytes=pieces.free_bytes if pieces else None,
        largest_free_bytes=pieces.largest_bytes if pieces else None,
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
    for pool, _address, size, frames in history.older:
        stack = history.table.stack(frames)
        add("" if stack else frameless_label(pool, size), stack, size)
    unknown = (events.action == FREE) & (events.ended < 0) & (np.arange(events.n) >= n_done)
    for size in events.size[unknown].tolist():
        add(BEFORE, (), size)
    labels = labels_of(stack for _label, stack in sums)
    return largest_first(
        LiveStack(events.device, label or labels[stack], stack, "", n, n_bytes, n_bytes)
        for (label, stack), (n, n_bytes) in sums.items()
    )


MOST_BLOCKS = 200_000
_MOST_FRAMES = 60
_MOST_MARKS = 200
_MOST_PHASES = 500
_N_STRETCHES = 4096
_GAP_SHARE = 0.004
"""Of the height, between two segments that are no neighbours."""

Heights = NDArray[np.float64]
Piece = tuple[int, int, int, int]
"""Reserved memory: first state, state behind the last, first address, address behind the last."""


def block_map(history: History, annotations: Iterable[Annotation] = ()) -> BlockMap | None:
    """Return the map of a device; None where its file has no addresses."""
    events, segments = history.events, history.segments
    is_block = events.action <= FREE
    if not all(segment.address for segment in segments) or not events.address[is_block].all():
        return None
    pieces = list(_pieces(events, segments_after(events, segments, 0)))
    ranges, bottoms, height = _folded(pieces)
    first, last, address, size, stack, stacks = _blocks(history)
    bottom = _bottoms_of(address, ranges, bottoms)
    shown = np.flatnonzero(bottom >= 0)
    if len(shown) > MOST_BLOCKS:
        shown = np.sort(shown[np.argsort(-size[shown], kind="stable")[:MOST_BLOCKS]])
    since, until, start, end = np.array(pieces, np.int64).reshape(-1, 4).T
    peaks = highest_events(history, _N_STRETCHES)
    return BlockMap(
        device=events.device,
        n_events=events.n,
        height=float(height),
        n_left_out=len(first) - len(shown),
        first=_u32(first[shown]),
        last=_u32(last[shown]),
        bottom=_f64(bottom[shown]),
        size=_f64(size[shown]),
        stack=_u32(stack[shown]),
        segment_first=_u32(since),
        segment_last=_u32(until),
        segment_bottom=_f64(_bottoms_of(start, ranges, bottoms)),
        segment_size=_f64(end - start),
        stacks=stacks,
        marks=tuple(_marks(events)),
        phases=tuple(_longest(spans_of(history, (one for one in annotations if one.device == events.device)))),
        peaks=tuple(zip(peaks.tolist(), history.levels[peaks].tolist(), strict=True)),
    )


def _blocks(history: History) -> tuple[Ints, Ints, Ints, Ints, Ints, tuple[MapStack, ...]]:
    """Return of each block its first state, the state behind its last, address, bytes, and stack; then all stacks."""
    events, table = history.events, history.table
    numbers: dict[tuple[str, tuple[CallFrame, ...]], int] = {}

    def number_of(stack: tuple[CallFrame, ...], name: str) -> int:
        return numbers.setdefault(("" if stack else name, stack), len(numbers))

    made = np.flatnonzero(events.action == ALLOC)
    freed = np.flatnonzero((events.action == FREE) & (events.ended < 0))  # of blocks that are older than the trace
    of_list = np.array([number_of(table.stack(frames), NO_STACK) for frames in events.lists], np.int64)
    of_freed = np.full(len(freed), number_of((), BEFORE) if len(freed) else 0, np.int64)
    older = [
        (address, size, number_of(table.stack(frames), frameless_label(pool, size)))
        for pool, address, size, frames in history.older
    ]
    address, size, stack = np.array(older, np.int64).reshape(-1, 3).T
    columns = (
        (made + 1, np.zeros(len(freed)), np.zeros(len(older))),
        (events.ended[made] + 1, freed + 1, np.full(len(older), events.n + 1)),
        (events.address[made], events.address[freed], address),
        (events.size[made], events.size[freed], size),
        (of_list[events.frames[made]], of_freed, stack),
    )
    first, last, addresses, sizes, stacks = (np.concatenate(parts).astype(np.int64) for parts in columns)
    return first, last, addresses, sizes, stacks, _map_stacks(numbers)


def _map_stacks(named: Iterable[tuple[str, tuple[CallFrame, ...]]]) -> tuple[MapStack, ...]:
    rows = list(named)
    labels = labels_of(stack for _name, stack in rows)
    return tuple(_map_stack(name or labels[stack], name, stack) for name, stack in rows)


def _map_stack(label: str, name: str, stack: tuple[CallFrame, ...]) -> MapStack:
    frames = tuple(f"{frame.filename}:{frame.line} {frame.name}" for frame in stack[:_MOST_FRAMES])
    group = group_of(stack) if stack else BEFORE if name == BEFORE else NO_STACK
    return MapStack(label, group, frames)


def _u32(numbers: Ints) -> bytes:
    return numbers.astype("<u4").tobytes()


def _f64(numbers: Heights | Ints) -> bytes:
    return numbers.astype("<f8").tobytes()


def _longest(spans: list[Span]) -> list[Span]:
    """Return *spans*, the longest of very many."""
    if len(spans) <= _MOST_PHASES:
        return spans
    return sorted(sorted(spans, key=lambda span: span.first - span.last)[:_MOST_PHASES])


def _marks(events: Events) -> Iterator[tuple[int, str]]:
    for position in np.flatnonzero(events.action == OOM)[-_MOST_MARKS:].tolist():
        yield position + 1, f"out of memory: no room for {format_bytes(int(events.size[position]))}"


def _pieces(events: Events, at_first: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Yield reserved memory piece by piece: the same addresses for as long as they were reserved."""
    alive = [(start, end, 0) for start, end in at_first]
    changes = np.flatnonzero((events.action == SEGMENT_IN) | (events.action == SEGMENT_OUT))
    for position in changes.tolist():
        start, size, state = int(events.address[position]), int(events.size[position]), position + 1
        taken = (start, start + size)
        touched = [piece for piece in alive if piece[0] < taken[1] and piece[1] > taken[0]]
        for piece in touched:
            alive.remove(piece)
            yield piece[2], state, piece[0], piece[1]
            alive += [(left, right, state) for left, right in without([piece[:2]], taken)]
        if events.action[position] == SEGMENT_IN:
            alive.append((*taken, state))
    for start, end, since in alive:
        yield since, events.n + 1, start, end


def _folded(pieces: Iterable[Piece]) -> tuple[list[tuple[int, int]], list[float], float]:
    """Return the ranges of addresses that were ever reserved, the height of each above the lowest, and of all."""
    ranges: list[tuple[int, int]] = []
    for _since, _until, start, end in sorted(pieces, key=lambda piece: piece[2]):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    total = sum(end - start for start, end in ranges)
    gap = total * _GAP_SHARE if len(ranges) < 1 / _GAP_SHARE else total / max(1, len(ranges))
    bottoms, height = [], 0.0
    for start, end in ranges:
        bottoms.append(height)
        height += end - start + gap
    return ranges, bottoms, max(0.0, height - gap) if ranges else 0.0


def _bottoms_of(address: Ints, ranges: Sequence[tuple[int, int]], bottoms: Sequence[float]) -> Heights:
    """Return the height of each address on the map; -1 for one that was never reserved."""
    if not ranges:
        return np.full(len(address), -1.0)
    starts = np.array([start for start, _end in ranges], np.int64)
    ends = np.array([end for _start, end in ranges], np.int64)
    place = np.maximum(np.searchsorted(starts, address, side="right") - 1, 0)
    is_within = (address >= starts[place]) & (address < ends[place])
    return np.where(is_within, np.array(bottoms)[place] + (address - starts[place]), -1.0)
