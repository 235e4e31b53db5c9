"""Judge a series of snapshots: by the blocks that stay, by live bytes, by reserved memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leaklab.cuda.kept_growth import Doubt, Judged, judge_stack, judge_sum, spreads_of, unless_by_chance
from leaklab.cuda.live_blocks import Matching
from leaklab.cuda.reserved import LEAST_LADDER, full_words, judge_reserved
from leaklab.cuda.stacks import tree_of
from leaklab.decide import judge_checkpoints
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import FrameNode, LiveStack, PoolUse, SnapshotSeries, StackChange, StackGrowth
from leaklab.text import format_bytes, levels_words


def judge_snapshots(
    *,
    names: Sequence[str],
    steps: Sequence[int] | None,
    matching: Matching,
    devices: Sequence[tuple[PoolUse, ...]],
    card_bytes: int | None,
    cards: Mapping[str, int],
    strangers: str,
    notes: Sequence[str],
) -> SnapshotSeries:
    """Return what the matched stacks of two or more snapshots come to.

    Args:
        names: Of the snapshots, oldest first.
        steps: At which they were taken; None if unknown or not ascending.
        matching: Their stacks; for three or more with what stays from each snapshot to the next.
        devices: Use of each device in each snapshot.
        card_bytes: Memory of each card for the projection; None takes it from *cards*.
        cards: Memory of the cards as the files tell it.
        strangers: Why they cannot be of one process; empty if they can.
        notes: Caveats.
    """
    at_steps = tuple(range(len(names)) if steps is None else steps)
    unit = "snapshot" if steps is None else "step"
    judged = [judge_stack(stack, at_steps) for stack in matching.stacks]
    spreads = spreads_of(judged)
    total = judge_sum(matching.stacks, at_steps)
    judged = [unless_by_chance(one, spreads) for one in judged]
    judged.sort(key=lambda one: (-abs(one.stack.growth_bytes), -one.stack.live_bytes[-1]))
    verdict = _verdict(judged, total, at_steps, unit, strangers)
    is_leak = verdict.outcome is Outcome.LEAK
    known = {use.device: card_bytes or cards.get(use.device) for use in devices[-1]}
    reserved = judge_reserved(devices, at_steps, known, _rates(judged, total, known) if is_leak else {}, unit)
    statements = reserved.others + reserved.fragmented
    if is_leak:
        reason = verdict.reason + full_words(reserved.full_after, unit)
        verdict = replace(verdict, reason=reason, full_after_runs=reserved.full_after)
    elif reserved.fragmented and verdict.outcome is not Outcome.INCONCLUSIVE:
        verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reserved.fragmented[0])
        statements = reserved.others + reserved.fragmented[1:]
    stacks = tuple(_recorded(one) for one in judged)
    return SnapshotSeries(
        names=tuple(names),
        at_steps=at_steps,
        has_steps=steps is not None,
        key=matching.key,
        key_reason=matching.reason,
        stacks=stacks,
        tree=growth_tree(stacks),
        devices=tuple(devices),
        verdict=verdict,
        card_bytes=card_bytes or min(cards.values(), default=None),
        full_at_step=None if verdict.full_after_runs is None else at_steps[-1] + verdict.full_after_runs,
        notes=tuple(notes),
        statements=() if strangers else statements,
    )


def _recorded(one: Judged) -> StackGrowth:
    stack = one.stack
    return StackGrowth(
        device=stack.device,
        label=stack.label,
        frames=stack.frames,
        change=_change(stack.live_bytes[0], stack.live_bytes[-1]),
        n_blocks=stack.n_blocks,
        live_bytes=stack.live_bytes,
        outcome=one.growth.outcome,
        bytes_per_step=one.growth.rate,
    )


def _change(first: int, last: int) -> StackChange:
    if first == last:
        return StackChange.SAME
    if not first:
        return StackChange.NEW
    if not last:
        return StackChange.GONE
    return StackChange.GROWN if last > first else StackChange.SHRUNK


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


def _leaking(judged: Sequence[Judged]) -> list[Judged]:
    leaking = [one for one in judged if one.growth.outcome is Outcome.LEAK]
    return sorted(leaking, key=lambda one: -one.growth.rate)


def _rates(judged: Sequence[Judged], total: Judged, devices: Mapping[str, object]) -> dict[str, float]:
    """Return the bytes per step that leak, by device; of the total where no single stack does and there is one."""
    rates: dict[str, float] = {}
    for one in _leaking(judged):
        rates[one.stack.device] = rates.get(one.stack.device, 0.0) + one.growth.rate
    return rates or (dict.fromkeys(devices, total.growth.rate) if len(devices) == 1 else {})


def _verdict(judged: Sequence[Judged], total: Judged, at_steps: Sequence[int], unit: str, strangers: str) -> Verdict:
    n, n_steps = len(at_steps), at_steps[-1] - at_steps[0]
    totals = [sum(one.stack.live_bytes[i] for one in judged) for i in range(n)]
    if n < LEAST_LADDER:
        return _verdict_of_two(judged, totals[-1] - totals[0], n_steps)
    if strangers:
        return Verdict(Outcome.INCONCLUSIVE, strangers, n_steps)
    leaking = _leaking(judged) or _leaking([total])
    if leaking and sum(one.stack.kept_bytes[-1] - one.stack.kept_bytes[0] for one in judged) > 0:
        rate = sum(one.growth.rate for one in leaking)
        return Verdict(Outcome.LEAK, _leak_words(leaking, rate, unit), n_steps, rate)
    if leaking:
        reason = f"{leaking[0].stack.label} grows steadily, but other stacks shrink as much"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)
    doubted = [one for doubt in Doubt for one in (*judged, total) if one.doubt is doubt]
    if doubted:
        return Verdict(Outcome.INCONCLUSIVE, _doubt_words(doubted[0], unit), n_steps)
    by_bytes = judge_checkpoints(totals, [step - at_steps[0] for step in at_steps])
    grown = [one.stack for one in judged if one.growth.outcome is Outcome.INCONCLUSIVE and one.stack.growth_bytes > 0]
    if grown or by_bytes.outcome is Outcome.INCONCLUSIVE:
        what, levels = (grown[0].label, grown[0].live_bytes) if grown else ("the sum of all stacks", totals)
        reason = f"{what} grows, but not steadily: {levels_words(levels)}; take more snapshots"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)
    if by_bytes.outcome is Outcome.BOUNDED or totals[-1] > totals[0]:
        ending = "stopped" if totals[-1] == max(totals) else "fell back"
        return Verdict(Outcome.BOUNDED, f"live bytes grew, then {ending}: {levels_words(totals)}", n_steps)
    return Verdict(Outcome.CLEAN, f"live bytes did not grow: {levels_words(totals)}", n_steps)


def _verdict_of_two(judged: Sequence[Judged], growth: int, n_steps: int) -> Verdict:
    grown = [one.stack for one in judged if one.stack.growth_bytes > 0]
    if growth <= 0 and not grown:
        words = "did not change" if not growth else f"fell by {format_bytes(-growth)}"
        return Verdict(Outcome.CLEAN, f"live bytes {words}, and no stack grew", n_steps)
    change = f"grew by {format_bytes(growth)}" if growth > 0 else f"changed by {format_bytes(growth)}"
    most = max(grown, key=lambda stack: stack.growth_bytes)
    reason = (
        f"live bytes {change}, most at {most.label} (+{format_bytes(most.growth_bytes)});"
        " two snapshots cannot tell a leak from a warm-up: take four or more"
    )
    return Verdict(Outcome.INCONCLUSIVE, reason, n_steps)


def _leak_words(leaking: Sequence[Judged], rate: float, unit: str) -> str:
    first = leaking[0]
    more = f" (and {len(leaking) - 1} more, {format_bytes(rate)} in all)" if len(leaking) > 1 else ""
    return f"every {unit} leaves {format_bytes(first.growth.rate)} at {first.stack.label}{more}"


def _doubt_words(one: Judged, unit: str) -> str:
    rate, label = format_bytes(one.growth.rate), one.stack.label
    if one.doubt is Doubt.REPLACED or one.doubt is None:
        return (
            f"{label} grows by {rate} per {unit}, but its blocks do not stay: larger or more ones replace them, as"
            " where a tensor is appended to, or inputs become longer"
        )
    return f"a leak is suspected: every {unit} leaves {rate} at {label}, but {one.doubt.value}; take more snapshots"
