"""Sum up the blocks of a snapshot: live bytes by call stack, use of each pool."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from leaklab.model.snapshots import CallFrame, LiveStack, PoolUse, StackKey
from leaklab.snapshots.schema import INACTIVE, PENDING, Memory, Segment
from leaklab.snapshots.stacks import StackTable, key_of, label_of
from leaklab.words import format_bytes


@dataclass(slots=True)
class _Sum:
    n_blocks: int = 0
    active: int = 0
    requested: int = 0
    pending: int = 0

    def add(self, other: _Sum) -> None:
        self.n_blocks += other.n_blocks
        self.active += other.active
        self.requested += other.requested
        self.pending += other.pending


def live_stacks(memory: Memory, table: StackTable) -> tuple[LiveStack, ...]:
    """Return the live bytes by device and exact call stack, largest first.

    Blocks without frames are put together by device, pool and requested size: that is all that can be said of them.
    """
    by_list: dict[tuple[str, int], tuple[_Sum, list[dict[str, object]]]] = {}
    frameless: dict[tuple[str, str, int], _Sum] = {}
    for segment in memory.segments:
        device, pool = segment.device, segment.pool
        for _address, size, requested, state, frames in segment.blocks:
            if state == INACTIVE:
                continue
            if frames:  # first by the list that blocks of one allocation site share: equal lists are merged below
                entry = by_list.get((device, id(frames)))
                if entry is None:
                    entry = by_list[device, id(frames)] = (_Sum(), frames)
                found = entry[0]
            else:
                found = frameless.setdefault((device, pool, requested), _Sum())
            found.n_blocks += 1
            found.active += size
            found.requested += requested
            if state == PENDING:
                found.pending += size
    framed: dict[tuple[str, tuple[CallFrame, ...]], _Sum] = {}
    for (device, _address), (found, frames) in by_list.items():
        framed.setdefault((device, table.stack(frames)), _Sum()).add(found)
    stacks = [_live(device, label_of(frames), frames, "", found) for (device, frames), found in framed.items()]
    stacks += [
        _live(device, frameless_label(pool, size), (), pool, found) for (device, pool, size), found in frameless.items()
    ]
    return largest_first(stacks)


def frameless_label(pool: str, size: int) -> str:
    """Return what stands in place of a stack for blocks of *size* bytes in *pool*."""
    return f"(no stack) blocks of {format_bytes(size)}, {pool}"


def _live(device: str, label: str, frames: tuple[CallFrame, ...], pool: str, found: _Sum) -> LiveStack:
    return LiveStack(device, label, frames, pool, found.n_blocks, found.active, found.requested, found.pending)


def largest_first(stacks: Iterable[LiveStack]) -> tuple[LiveStack, ...]:
    """Return *stacks* by falling size; equal ones by label, so that the order does not hang on the file's."""
    return tuple(sorted(stacks, key=lambda stack: (-stack.active_bytes, stack.device, stack.label)))


def identity(stack: LiveStack, key: StackKey) -> Hashable:
    """Return what *stack* is matched by: its frames by *key*, or the pool and the size of its blocks."""
    if stack.frames:
        return stack.device, key_of(stack.frames, key)
    return stack.device, stack.pool, stack.label


def grouped(stacks: Sequence[LiveStack], key: StackKey) -> dict[Hashable, LiveStack]:
    """Return one stack for each identity by *key*; frames are those of the largest that it puts together."""
    groups: dict[Hashable, list[LiveStack]] = {}
    for stack in stacks:
        groups.setdefault(identity(stack, key), []).append(stack)
    return {name: members[0] if len(members) == 1 else _merged(members) for name, members in groups.items()}


def _merged(members: list[LiveStack]) -> LiveStack:
    largest = max(members, key=attrgetter("active_bytes"))
    n_others = len({member.label for member in members}) - 1
    return replace(
        largest,
        label=f"{largest.label} (+{n_others} more)" if n_others else largest.label,
        n_blocks=sum(member.n_blocks for member in members),
        active_bytes=sum(member.active_bytes for member in members),
        requested_bytes=sum(member.requested_bytes for member in members),
        pending_bytes=sum(member.pending_bytes for member in members),
    )


def pool_uses(memory: Memory) -> tuple[PoolUse, ...]:
    """Return the use of each pool, in the order of the devices, the largest pool of each first."""
    pools: dict[tuple[str, str], list[Segment]] = {}
    for segment in memory.segments:
        pools.setdefault((segment.device, segment.pool), []).append(segment)
    uses = [_use(device, pool, segments) for (device, pool), segments in pools.items()]
    return tuple(sorted(uses, key=lambda use: (memory.devices.index(use.device), -use.reserved_bytes, use.pool)))


def device_uses(memory: Memory, pools: Sequence[PoolUse]) -> tuple[PoolUse, ...]:
    """Return the sum of the *pools* of each device of *memory*; zeros for a device without segments."""
    return tuple(
        _sum_of(device, [pool for pool in pools if pool.device == device]) for device in memory.devices or ("cuda:0",)
    )


def _use(device: str, pool: str, segments: Sequence[Segment]) -> PoolUse:
    split = releasable = largest = active = requested = pending = n_segments = reserved = 0
    for segment in segments:
        live, free, most = 0, 0, 0
        for block in segment.blocks:
            if block.state == INACTIVE:
                free += block.size
                most = max(most, block.size)
            else:
                live += block.size
                requested += block.requested
                pending += block.size if block.state == PENDING else 0
        n_segments += 1
        reserved += segment.total
        active += live
        largest = max(largest, most)
        if live:
            split += free
        else:
            releasable += free
    return PoolUse(device, pool, n_segments, reserved, active, requested, pending, split, releasable, largest)


def _sum_of(device: str, pools: Sequence[PoolUse]) -> PoolUse:
    def total(field: str) -> int:
        return sum(getattr(pool, field) for pool in pools)

    return PoolUse(
        device=device,
        pool="",
        n_segments=total("n_segments"),
        reserved_bytes=total("reserved_bytes"),
        active_bytes=total("active_bytes"),
        requested_bytes=total("requested_bytes"),
        pending_bytes=total("pending_bytes"),
        inactive_split_bytes=total("inactive_split_bytes"),
        releasable_bytes=total("releasable_bytes"),
        largest_free_bytes=max((pool.largest_free_bytes for pool in pools), default=0),
    )


def live_blocks(memory: Memory, device: str) -> Iterator[tuple[str, int, int, list[dict[str, object]]]]:
    """Yield pool, address, requested bytes and frames of each live block of *device*."""
    for segment in memory.segments:
        if segment.device == device:
            for block in segment.blocks:
                if block.state != INACTIVE:
                    yield segment.pool, block.address, block.requested, block.frames
