"""Where each block of a device lay, and when: what is drawn as a map of events and addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.along_trace import Span, group_of, highest_events, spans_of
from leaklab.cuda.live_blocks import frameless_label
from leaklab.cuda.reserved import segments_after, without
from leaklab.cuda.schema import Annotation
from leaklab.cuda.stacks import labels_of
from leaklab.cuda.trace import ALLOC, FREE, OOM, SEGMENT_IN, SEGMENT_OUT, Events, History, Ints
from leaklab.model.cuda import BEFORE, NO_STACK, BlockMap, CallFrame, MapStack
from leaklab.text import format_bytes

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
