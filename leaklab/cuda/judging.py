"""Judge a series of snapshots: each call stack by the blocks that stay, the whole by live and by reserved bytes.

The bytes of a stack that allocates and frees go up and down, and of twenty such stacks one rises through a few
snapshots by chance. What leaks stays: the part of each snapshot that is still there in the next becomes ever more.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

from leaklab.cuda.live_blocks import Matched, Matching
from leaklab.cuda.reserved import LEAST_LADDER, full_words, judge_reserved
from leaklab.cuda.stacks import tree_of
from leaklab.decide.growth import STEADY_RATIO, Growth, judge_checkpoints
from leaklab.model import Outcome, Verdict
from leaklab.model.cuda import LiveStack, PoolUse, SnapshotSeries, StackChange, StackGrowth
from leaklab.model.stacks import FrameNode
from leaklab.text import format_bytes, levels_words

_NOISE_SHARE = 0.1
"""Of the usual growth: what changes by less did not change."""

_LIKELY_CHANCE = 0.05
"""So many of the stacks that go up and down may be expected to rise throughout by chance."""

_RELEASED_SHARE = 0.25
"""Of a growth: a stack that gives so much back has no blocks that stay for ever."""

_FOLLOWING_SHARE = 0.25

_LEAST_OF_SUM = 4
_LEAST_PAIRED = 5
"""Levels of two intervals twice."""

_SIMILAR_SHARE = 0.25
"""Of a growth: stacks that vary by less cannot be what it comes from."""


class Doubt(enum.Enum):
    """Why steady growth is not called a leak; in the order in which they are told."""

    TOO_SHORT = "too few snapshots show that the blocks stay"
    BY_CHANCE = "other stacks rise and fall as much, so it may be chance"
    RELEASED = "some long-lived blocks were freed, too"
    REPLACED = "its blocks do not stay"


@dataclass(frozen=True, slots=True)
class Judged:
    """A stack with what its bytes and blocks say.

    Attributes:
        stack: As matched.
        growth: Outcome and rate in bytes per step.
        levels: The bytes that stay in each snapshot; of the last one, which no other follows, an upper bound.
        doubt: If the growth is steady and yet no leak; then the outcome is inconclusive.
    """

    stack: Matched
    growth: Growth
    levels: tuple[int, ...] = ()
    doubt: Doubt | None = None


_NO = Growth(Outcome.CLEAN, 0.0, "")


def judge_stack(stack: Matched, at_steps: Sequence[int]) -> Judged:
    """Return what *stack* comes to, all others left aside."""
    live, kept = stack.live_bytes, stack.kept_bytes
    if len(set(live)) == 1 and len(set(kept)) <= 1:
        return Judged(stack, _NO)  # most stacks do not change, and there may be thousands
    after = [step - at_steps[0] for step in at_steps]
    by_bytes = judge_checkpoints(live, after)
    if len(kept) <= 1:
        return Judged(stack, by_bytes)
    levels = (*kept, kept[-1] + _added_last(live, kept))
    rates = [(b - a) / (to - since) for (a, b), (since, to) in zip(pairwise(levels), pairwise(after), strict=True)]
    floor = _NOISE_SHARE * median([rate for rate in rates if rate > 0] or [0.0])
    growth = _judge_levels(levels, after, floor)
    if growth.outcome is Outcome.LEAK and _live_follows(live, kept):
        if _judge_levels(kept, after[:-1], floor).outcome is Outcome.LEAK:
            return Judged(stack, growth, levels)
        return Judged(stack, _open(growth), levels, Doubt.TOO_SHORT)
    if by_bytes.outcome is Outcome.LEAK:
        return Judged(stack, _open(by_bytes), levels, Doubt.REPLACED)
    return Judged(stack, by_bytes, levels)


def _live_follows(live: Sequence[int], kept: Sequence[int]) -> bool:
    """Return whether the bytes grow with those that stay: where they do not, less is replaced, and no more is held."""
    half = len(kept) // 2
    more_kept, more_live = (mean(levels[half:]) - mean(levels[:half]) for levels in (kept, live))
    return more_kept > 0 and more_live >= _FOLLOWING_SHARE * more_kept


def _judge_levels(levels: Sequence[int], after: Sequence[int], floor: float) -> Growth:
    """Judge by each interval, and where that is no leak by every two of them: amounts may differ from one to the next.

    Only if nothing fell, and the last interval brought something.
    """
    growth = judge_checkpoints(levels, after, floor_per_run=floor)
    moves = [b - a for a, b in pairwise(levels)]
    if growth.outcome is Outcome.LEAK or len(levels) < _LEAST_PAIRED or min(moves) < 0 or moves[-1] <= 0:
        return growth
    start = (len(levels) - 1) % 2
    paired = judge_checkpoints(levels[start::2], [step - after[start] for step in after[start::2]], floor_per_run=floor)
    return paired if paired.outcome is Outcome.LEAK else growth


def _added_last(live: Sequence[int], kept: Sequence[int]) -> int:
    """Return how much of what came after the last snapshot but one may stay.

    What passes through a stack is taken off where it is about the same in each snapshot.
    """
    passing = [level - stays for level, stays in zip(live, kept, strict=False)]
    added = live[-1] - kept[-1]
    is_regular = max(passing) - min(passing) < STEADY_RATIO * (kept[-1] - kept[-2])
    return max(0, added - min(passing)) if is_regular else added


def _open(growth: Growth) -> Growth:
    return replace(growth, outcome=Outcome.INCONCLUSIVE)


def spreads_of(judged: Sequence[Judged]) -> list[int]:
    """Return by how much the bytes that stay differ, of each stack where they go up and down."""
    return [max(one.levels) - min(one.levels) for one in judged if _goes_up_and_down(one.levels)]


def unless_by_chance(one: Judged, spreads: Sequence[int]) -> Judged:
    """Return *one*, as no leak if chance may be expected to bring its growth about.

    Independent levels, such as those of the stacks that vary by *spreads*, rise n - 1 times in a row in one of n!
    cases; a level that goes up or down from where it is, as that of a stack which gives blocks back, in one of 2**n.
    """
    if one.growth.outcome is not Outcome.LEAK:
        return one
    growth = one.stack.kept_bytes[-1] - min(one.stack.kept_bytes)
    falls = [number for number, (a, b) in enumerate(pairwise(one.levels), 1) if b < a]
    levels = one.levels[max(falls, default=0) :]
    n_rises = sum(b > a for a, b in pairwise(levels))
    n_rises -= one.stack.live_bytes[-1] <= one.stack.live_bytes[-2]  # the last level is but an upper bound
    n_similar = sum(spread >= _SIMILAR_SHARE * growth for spread in spreads)
    if n_similar > _LIKELY_CHANCE * math.factorial(n_rises + 1):
        return _doubted(one, Doubt.BY_CHANCE)
    gives_back = bool(falls) or one.stack.released_bytes >= _RELEASED_SHARE * growth
    if gives_back and _LIKELY_CHANCE * 2**n_rises < 1:
        return _doubted(one, Doubt.RELEASED)
    return one


def _doubted(one: Judged, doubt: Doubt) -> Judged:
    return replace(one, growth=_open(one.growth), doubt=doubt)


def judge_sum(stacks: Sequence[Matched], at_steps: Sequence[int]) -> Judged:
    """Return what the *stacks* come to of which every block stays: the growth may come from ever new ones.

    Four or more intervals must show it: a program that warms up begins something else in each of the first.
    """
    n = len(at_steps)
    staying = [stack for stack in stacks if stack.live_bytes[:-1] == stack.kept_bytes]
    one = judge_stack(
        Matched(
            device="",
            label="call stacks that are new in each snapshot",
            frames=(),
            n_blocks=tuple(sum(stack.n_blocks[i] for stack in staying) for i in range(n)),
            live_bytes=tuple(sum(stack.live_bytes[i] for stack in staying) for i in range(n)),
            kept_bytes=tuple(sum(stack.kept_bytes[i] for stack in staying) for i in range(n - 1)),
        ),
        at_steps,
    )
    n_proven = sum(b > a for a, b in pairwise(one.stack.kept_bytes))
    if one.growth.outcome is Outcome.LEAK and n_proven < _LEAST_OF_SUM:
        return _doubted(one, Doubt.TOO_SHORT)
    return one


def _goes_up_and_down(levels: Sequence[int]) -> bool:
    least = _NOISE_SHARE * (max(levels, default=0) - min(levels, default=0))
    moves = [b - a for a, b in pairwise(levels)]
    return max(moves, default=0) > least and min(moves, default=0) < -least


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
            f"{label} grows by {rate} per {unit}, but its blocks are replaced by larger ones, or by more of them, for "
            "example because inputs get longer or a tensor is extended"
        )
    return f"a leak is suspected: every {unit} leaves {rate} at {label}, but {one.doubt.value}; take more snapshots"
