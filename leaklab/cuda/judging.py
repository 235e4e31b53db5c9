"""Judge a series of snapshots by the rules that cells are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from leaklab.cuda.live_blocks import Matched, Matching
from leaklab.cuda.stacks import tree_of
from leaklab.decide import Growth, judge_checkpoints
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import Change, FrameNode, LiveStack, PoolUse, SnapshotSeries, StackGrowth
from leaklab.text import format_bytes

LEAST_LADDER = 3
"""Two snapshots show a growth, not whether it goes on."""


def judge_snapshots(
    *,
    names: Sequence[str],
    steps: Sequence[int] | None,
    matching: Matching,
    devices: Sequence[tuple[PoolUse, ...]],
    card_bytes: int | None,
    notes: Sequence[str],
) -> SnapshotSeries:
    """Return what the matched stacks of two or more snapshots come to.

    Args:
        names: Of the snapshots, oldest first.
        steps: At which they were taken; None if unknown or not ascending.
        matching: Their stacks.
        devices: Use of each device in each snapshot.
        card_bytes: Memory of the card, for the projection; None if unknown.
        notes: Caveats.
    """
    at_steps = tuple(range(len(names)) if steps is None else steps)
    judged = [_judge(stack, at_steps) for stack in matching.stacks]
    stacks = tuple(sorted(judged, key=lambda stack: (-abs(stack.growth_bytes), -stack.live_bytes[-1])))
    totals = [sum(stack.live_bytes[i] for stack in stacks) for i in range(len(names))]
    total = judge_checkpoints(totals, [step - at_steps[0] for step in at_steps])
    unit = "snapshot" if steps is None else "step"
    full_after = _full_after(stacks, total, devices[-1], card_bytes)
    return SnapshotSeries(
        names=tuple(names),
        at_steps=at_steps,
        has_steps=steps is not None,
        key=matching.key,
        key_reason=matching.reason,
        stacks=stacks,
        tree=growth_tree(stacks),
        devices=tuple(devices),
        verdict=_verdict(
            stacks=stacks, totals=totals, total=total, at_steps=at_steps, unit=unit, full_after=full_after
        ),
        card_bytes=card_bytes,
        full_at_step=None if full_after is None else at_steps[-1] + full_after,
        notes=tuple(notes),
    )


_NO = Growth(Outcome.CLEAN, 0.0, "")


def _judge(stack: Matched, at_steps: Sequence[int]) -> StackGrowth:
    growth = _NO  # most stacks do not change, and there may be thousands
    if len(set(stack.live_bytes)) > 1:
        growth = judge_checkpoints(stack.live_bytes, [step - at_steps[0] for step in at_steps])
    return StackGrowth(
        device=stack.device,
        label=stack.label,
        frames=stack.frames,
        change=_change(stack.live_bytes[0], stack.live_bytes[-1]),
        n_blocks=stack.n_blocks,
        live_bytes=stack.live_bytes,
        outcome=growth.outcome,
        bytes_per_step=growth.rate,
    )


def _change(first: int, last: int) -> Change:
    if first == last:
        return Change.SAME
    if not first:
        return Change.NEW
    if not last:
        return Change.GONE
    return Change.GROWN if last > first else Change.SHRUNK


def growth_tree(stacks: Sequence[StackGrowth]) -> FrameNode:
    """Return the frames of the stacks that grew, with the bytes they grew by."""
    grown = [
        LiveStack(
            stack.device, stack.label, stack.frames, "", stack.n_blocks[-1] - stack.n_blocks[0], stack.growth_bytes, 0
        )
        for stack in stacks
        if stack.growth_bytes > 0
    ]
    return tree_of(grown, "growth of all stacks that grew")


def _leaking(stacks: Sequence[StackGrowth]) -> list[StackGrowth]:
    leaking = [stack for stack in stacks if stack.outcome is Outcome.LEAK]
    return sorted(leaking, key=lambda stack: -stack.bytes_per_step)


def _rate(stacks: Sequence[StackGrowth], total: Growth) -> float:
    """Return the bytes per step of all stacks that leak; of the total where no single one does."""
    return sum(stack.bytes_per_step for stack in _leaking(stacks)) or (
        total.rate if total.outcome is Outcome.LEAK else 0.0
    )


def _full_after(
    stacks: Sequence[StackGrowth], total: Growth, devices: Sequence[PoolUse], card_bytes: int | None
) -> int | None:
    """Return the steps after the last snapshot until the first card is full, None if none ever is."""
    if card_bytes is None:
        return None
    steps = []
    for use in devices:
        rate = _rate([stack for stack in stacks if stack.device == use.device], total if len(devices) == 1 else _NO)
        if rate > 0 and use.device.startswith("cuda"):
            steps.append(max(0, math.floor((card_bytes - use.active_bytes) / rate)))
    return min(steps, default=None)


def _verdict(
    *,
    stacks: Sequence[StackGrowth],
    totals: Sequence[int],
    total: Growth,
    at_steps: Sequence[int],
    unit: str,
    full_after: int | None,
) -> Verdict:
    n_steps = at_steps[-1] - at_steps[0]
    growth = totals[-1] - totals[0]
    leaking = _leaking(stacks)
    if len(totals) < LEAST_LADDER:
        return _verdict_of_two(stacks, growth, n_steps)
    rate = _rate(stacks, total)
    if rate > 0 and growth > 0:
        reason = _leak_words(leaking, rate, unit)
        return Verdict(Outcome.LEAK, f"{reason}{_full_words(full_after, unit)}", n_steps, rate, full_after)
    if leaking:
        reason = f"{leaking[0].label} grows steadily, but other stacks shrink as much"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)
    open_ = [stack for stack in stacks if stack.outcome is Outcome.INCONCLUSIVE and stack.growth_bytes > 0]
    if total.outcome is Outcome.INCONCLUSIVE or open_:
        what = open_[0].label if open_ else "the sum of all stacks"
        levels = open_[0].live_bytes if open_ else totals
        reason = f"{what} grows, but not steadily: {_levels_words(levels)}; take more snapshots"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)
    if total.outcome is Outcome.BOUNDED or growth > 0:
        ending = "stopped" if totals[-1] == max(totals) else "fell back"
        return Verdict(Outcome.BOUNDED, f"live bytes grew, then {ending}: {_levels_words(totals)}", n_steps)
    return Verdict(Outcome.CLEAN, f"live bytes did not grow: {_levels_words(totals)}", n_steps)


def _verdict_of_two(stacks: Sequence[StackGrowth], growth: int, n_steps: int) -> Verdict:
    grown = [stack for stack in stacks if stack.growth_bytes > 0]
    if growth <= 0 and not grown:
        words = "did not change" if not growth else f"fell by {format_bytes(-growth)}"
        return Verdict(Outcome.CLEAN, f"live bytes {words}, and no stack grew", n_steps)
    change = f"grew by {format_bytes(growth)}" if growth > 0 else f"changed by {format_bytes(growth)}"
    most = max(grown, key=lambda stack: stack.growth_bytes)
    reason = (
        f"live bytes {change}, most at {most.label} (+{format_bytes(most.growth_bytes)});"
        " two snapshots cannot tell a leak from a warm-up: take three or more"
    )
    return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)


def _leak_words(leaking: Sequence[StackGrowth], rate: float, unit: str) -> str:
    if not leaking:
        return f"live bytes grow by {format_bytes(rate)} per {unit}, though no single stack does so steadily"
    first = leaking[0]
    more = f" (and {len(leaking) - 1} more, {format_bytes(rate)} in all)" if len(leaking) > 1 else ""
    return f"every {unit} leaves {format_bytes(first.bytes_per_step)} at {first.label}{more}"


def _full_words(full_after: int | None, unit: str) -> str:
    if full_after is None:
        return ""
    return f"; the card is full after {full_after:,} more {unit}{'' if full_after == 1 else 's'}"


def _levels_words(levels: Sequence[int]) -> str:
    shown = list(levels) if len(levels) <= 6 else [*levels[:2], *levels[-3:]]  # noqa: PLR2004 - fits a line
    words = [format_bytes(level) for level in shown]
    if len(levels) > len(shown):
        words.insert(2, "...")
    return " -> ".join(words)


def ascending(steps: Sequence[int | None]) -> list[int] | None:
    """Return *steps* if all are known and each is later than the one before, else None."""
    known = [step for step in steps if step is not None]
    if len(known) < len(steps) or any(later <= earlier for earlier, later in pairwise(known)):
        return None
    return known
