"""Say what becomes of reserved memory: it grows without a leak where free memory lies between live blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leaklab.cuda.schema import HOST
from leaklab.decide import judge_checkpoints
from leaklab.decide.growth import STEADY_RATIO
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
    beside = f"what leaks is {format_bytes(leaks)}" if leaks else "what is live does not"
    return f"reserved memory of {uses[-1].device} grows by {format_bytes(rate)} per {unit} ({levels}), {beside}"


def full_words(full_after: int | None, unit: str) -> str:
    """Return when the card is full, as the end of a sentence; nothing if it is not known."""
    if full_after is None:
        return ""
    if not full_after:
        return "; the card is full"
    return f"; the card is full after {unit_words(full_after, f'more {unit}s')}"
