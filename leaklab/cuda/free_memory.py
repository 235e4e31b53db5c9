"""What was free within the reserved memory of a device at an event of its trace: the pieces between live blocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from leaklab.cuda.schema import ADDRESS_BITS, INACTIVE, Segment
from leaklab.cuda.trace import ALLOC, FREE, SEGMENT_IN, SEGMENT_OUT, Events

_ROUNDING = 512
"""Bytes to which the allocator rounds a request up; the trace records what was requested."""
_WRONG_SHARE = 0.01
"""If more of the live bytes lie outside every segment, the trace contradicts the segments."""

Range = tuple[int, int]
"""First address, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class FreePieces:
    """Reserved memory of one device at one moment, in bytes.

    Attributes:
        reserved_bytes: Taken from the driver.
        free_bytes: The part in no live block.
        largest_bytes: The largest piece of it: no larger tensor fits without new memory from the driver.
    """

    reserved_bytes: int
    free_bytes: int
    largest_bytes: int


def free_pieces(events: Events, segments: Sequence[Segment], n_done: int) -> FreePieces | None:
    """Return what was free after the first *n_done* events of a device.

    The segments and blocks of the snapshot are the state at the end; what came later is taken back.

    Returns:
        The pieces; None where the snapshot has no addresses (its schema is of 2023) or contradicts its trace.
    """
    if not segments or not all(segment.address for segment in segments):
        return None
    ranges = segments_after(events, segments, n_done)
    live = sorted(_live_after(events, segments, n_done))
    starts, ends = [start for start, _end in live], [end for _start, end in live]
    pieces = []
    within = 0
    for start, end in ranges:
        free_from = start
        for number in range(bisect_right(ends, start), bisect_left(starts, end)):
            within += min(ends[number], end) - max(starts[number], start)
            if starts[number] > free_from:
                pieces.append(starts[number] - free_from)
            free_from = max(free_from, ends[number])
        if free_from < end:
            pieces.append(end - free_from)
    in_live = sum(ends) - sum(starts)
    if in_live - within > _WRONG_SHARE * in_live:
        return None
    return FreePieces(sum(end - start for start, end in ranges), sum(pieces), max(pieces, default=0))


def segments_after(events: Events, segments: Sequence[Segment], n_done: int) -> list[Range]:
    """Return the segments, by address. Pages of expandable segments that lie side by side are one piece."""
    ranges = sorted((address := segment.address & ADDRESS_BITS, address + segment.total) for segment in segments)
    later = np.flatnonzero((events.action == SEGMENT_IN) | (events.action == SEGMENT_OUT))
    for position in later[later >= n_done].tolist()[::-1]:
        start, size = int(events.address[position]), int(events.size[position])
        if events.action[position] == SEGMENT_OUT:
            ranges.insert(bisect_left(ranges, (start, start + size)), (start, start + size))
        else:
            ranges = list(without(ranges, (start, start + size)))
    return list(_joined(ranges)) if any(segment.is_expandable for segment in segments) else ranges


def without(ranges: Iterable[Range], taken: Range) -> Iterable[Range]:
    """Yield what is left of *ranges*."""
    for start, end in ranges:
        if end <= taken[0] or start >= taken[1]:
            yield start, end
            continue
        if start < taken[0]:
            yield start, taken[0]
        if end > taken[1]:
            yield taken[1], end


def _joined(ranges: Iterable[Range]) -> Iterable[Range]:
    last: Range | None = None
    for start, end in ranges:
        if last is not None and start <= last[1]:
            last = (last[0], max(last[1], end))
            continue
        if last is not None:
            yield last
        last = (start, end)
    if last is not None:
        yield last


def _live_after(events: Events, segments: Iterable[Segment], n_done: int) -> Iterable[Range]:
    """Yield the live blocks: those of the trace, and those that are older than it."""
    positions = np.arange(events.n)
    is_alloc = events.action == ALLOC
    known = set(events.address[is_alloc & (events.ended == events.n)].tolist())
    alive = is_alloc & (positions < n_done) & (events.ended >= n_done)
    older = (events.action == FREE) & (events.ended < 0) & (positions >= n_done)
    for chosen in (alive, older):
        for start, size in zip(events.address[chosen].tolist(), events.size[chosen].tolist(), strict=True):
            yield start, start + max(1, -(-size // _ROUNDING)) * _ROUNDING
    for segment in segments:
        for block in segment.blocks:
            start = block.address & ADDRESS_BITS
            if block.state != INACTIVE and start not in known:
                yield start, start + block.size
