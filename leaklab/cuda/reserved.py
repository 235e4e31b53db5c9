"""Say what becomes of reserved memory, which grows without a leak where free pieces lie between live blocks.

What the pieces were at an event of the trace, such as the one at which memory ran out, is computed from the events.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leaklab.cuda.schema import ADDRESS_BITS, HOST, INACTIVE, Segment
from leaklab.cuda.trace import ALLOC, FREE, SEGMENT_IN, SEGMENT_OUT, Events
from leaklab.decide.growth import STEADY_RATIO, judge_checkpoints
from leaklab.model import Outcome
from leaklab.model.cuda import PoolUse
from leaklab.text import format_bytes, levels_words, unit_words

SEGMENT_BYTES = 20 << 20
"""The allocator takes so much at a time: less is no growth of its own."""

LEAST_LADDER = 3
"""Two snapshots show a growth, not whether it goes on."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What the reserved memory of all devices comes to.

    Attributes:
        fragmented: One sentence for each device whose reserved memory grows by what is free beside live blocks.
        others: The same for one that reserves more than its card has, or ever more free segments.
        full_after: Steps after the last snapshot until what leaks fills the first card; None if it does not.
    """

    fragmented: tuple[str, ...]
    others: tuple[str, ...]
    full_after: int | None


def judge_reserved(
    snapshots: Sequence[Sequence[PoolUse]],
    at_steps: Sequence[int],
    cards: Mapping[str, int | None],
    rates: Mapping[str, float],
    unit: str,
) -> Reserved:
    """Return what reserved memory comes to.

    Args:
        snapshots: The use of each device in each snapshot.
        at_steps: At which they were taken.
        cards: Memory of each card; None where it is not known.
        rates: Bytes per step that leak, by device.
        unit: What the snapshots are counted by.
    """
    by_device = [{use.device: use for use in uses} for uses in snapshots]
    fragmented, others, full_after = [], [], []
    for device, last in by_device[-1].items():
        if device == HOST:
            continue
        uses = [use[device] for use in by_device if device in use]
        steps = [step for step, use in zip(at_steps, by_device, strict=True) if device in use]
        card, leaks = cards.get(device), rates.get(device, 0.0)
        grows = _rate_beside([use.reserved_bytes for use in uses], steps, leaks)
        full = None
        if card and max(grows, leaks) > 0:
            full = math.floor(max(0, card - last.reserved_bytes) / max(grows, leaks))
        if leaks > 0 and full is not None:
            full_after.append(full)
        if grows:
            words = _growth_words(uses, grows, leaks, unit)
            split = [use.inactive_split_bytes for use in uses]
            if 2 * (split[-1] - split[0]) >= uses[-1].reserved_bytes - uses[0].reserved_bytes:
                why = f"it is fragmented: free memory between live blocks ({levels_words(split)}) does not fit requests"
                fragmented.append(f"{words}; {why}{full_words(full, unit)}")
            else:
                others.append(f"{words}; the rest is free, and torch gives most of it back when memory runs out")
        others.append(excess_words(last, card))
    return Reserved(tuple(fragmented), tuple(filter(None, others)), min(full_after, default=None))


def excess_words(use: PoolUse, card: int | None) -> str:
    """Return what is to be said of a device that reserves more than its *card* has; nothing of others."""
    if not card or use.reserved_bytes <= card:
        return ""
    reserved = format_bytes(use.reserved_bytes)
    return (
        f"{use.device} reserves {reserved}, but the card has {format_bytes(card)}:"
        " the driver keeps the rest in host memory, which is slow, or the size of the card is wrong"
    )


def _rate_beside(levels: Sequence[int], at_steps: Sequence[int], leaks: float) -> float:
    """Return by how much *levels* grow per step, if they do so steadily and what *leaks* does not explain it."""
    if len(levels) < LEAST_LADDER:
        return 0.0
    n_steps, grown = at_steps[-1] - at_steps[0], levels[-1] - levels[0]
    if leaks * n_steps >= STEADY_RATIO * (grown - SEGMENT_BYTES):
        return 0.0
    growth = judge_checkpoints(levels, [step - at_steps[0] for step in at_steps])
    return grown / n_steps if growth.outcome is Outcome.LEAK else 0.0


def _growth_words(uses: Sequence[PoolUse], rate: float, leaks: float, unit: str) -> str:
    levels = levels_words([use.reserved_bytes for use in uses])
    beside = f"what leaks is {format_bytes(leaks)}" if leaks else "live memory does not"
    return f"reserved memory of {uses[-1].device} grows by {format_bytes(rate)} per {unit} ({levels}), {beside}"


def full_words(full_after: int | None, unit: str) -> str:
    """Return when the card is full, as the end of a sentence; nothing if it is not known."""
    if full_after is None:
        return ""
    if not full_after:
        return "; the card is full"
    return f"; the card is full after {unit_words(full_after, f'more {unit}s')}"


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
