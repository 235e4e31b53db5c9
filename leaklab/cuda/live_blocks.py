"""Sum up the blocks of a snapshot: live bytes by call stack, use of each pool."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from leaklab.cuda.schema import INACTIVE, PENDING, Block, Memory, Segment
from leaklab.cuda.stacks import StackTable, key_of, labels_of
from leaklab.model.cuda import CallFrame, LiveStack, PoolUse, StackKey
from leaklab.text import format_bytes


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
    labels = labels_of(frames for _device, frames in framed)
    stacks = [_live(device, labels[frames], frames, "", found) for (device, frames), found in framed.items()]
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


Identity = tuple[str, Hashable, str, str]
"""Device, frames as a key has them, and for blocks without frames their pool and label."""


def identity(stack: LiveStack, key: StackKey) -> Identity:
    """Return what *stack* is matched by: its frames by *key*, or the pool and the size of its blocks."""
    if stack.frames:
        return stack.device, key_of(stack.frames, key), "", ""
    return stack.device, (), stack.pool, stack.label


def grouped(stacks: Sequence[LiveStack], key: StackKey) -> dict[Identity, LiveStack]:
    """Return one stack for each identity by *key*; frames are those of the largest that it puts together."""
    groups: dict[Identity, list[LiveStack]] = {}
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
    places = {device: place for place, device in enumerate(memory.devices)}
    return tuple(sorted(uses, key=lambda use: (places[use.device], -use.reserved_bytes, use.pool)))


def device_uses(memory: Memory, pools: Sequence[PoolUse]) -> tuple[PoolUse, ...]:
    """Return the sum of the *pools* of each device of *memory*; zeros for a device without segments."""
    by_device: dict[str, list[PoolUse]] = {device: [] for device in memory.devices or ("cuda:0",)}
    for pool in pools:
        by_device[pool.device].append(pool)
    return tuple(_sum_of(device, of_device) for device, of_device in by_device.items())


_PAGE_BYTES = {"small": 2 << 20, "large": 20 << 20}
"""Of an expandable segment, by the kind of its pool: ``empty_cache()`` unmaps whole free pages."""


def _use(device: str, pool: str, segments: Sequence[Segment]) -> PoolUse:
    split = releasable = largest = active = requested = pending = n_segments = reserved = 0
    for segment in segments:
        live, free, pages, most = 0, 0, 0, 0
        for block in segment.blocks:
            if block.state == INACTIVE:
                free += block.size
                pages += _whole_pages(segment, block) if segment.is_expandable else 0
                most = max(most, block.size)
            else:
                live += block.size
                requested += block.requested
                pending += block.size if block.state == PENDING else 0
        n_segments += 1
        reserved += segment.total
        active += live
        largest = max(largest, most)
        given_back = pages if live else free
        split += free - given_back
        releasable += given_back
    return PoolUse(device, pool, n_segments, reserved, active, requested, pending, split, releasable, largest)


def _whole_pages(segment: Segment, block: Block) -> int:
    """Return the bytes of the pages of an expandable *segment* that lie in a free *block* entirely."""
    page = _PAGE_BYTES.get(segment.pool.split(",", 1)[0], _PAGE_BYTES["large"])
    start = block.address - segment.address
    return max(0, (start + block.size) // page - -(-start // page)) * page


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


def live_blocks(segments: Iterable[Segment]) -> Iterator[tuple[str, int, int, list[dict[str, object]]]]:
    """Yield pool, address, requested bytes and frames of each live block of *segments*."""
    for segment in segments:
        for block in segment.blocks:
            if block.state != INACTIVE:
                yield segment.pool, block.address, block.requested, block.frames


EXACT_IS_ENOUGH = 0.9
"""Exact stacks are kept as long as they match this share of what the tolerant key matches."""


@dataclass(frozen=True, slots=True)
class Matched:
    """One call stack in several snapshots.

    Attributes:
        device: As in `LiveStack`.
        label: As in `LiveStack`.
        frames: As in `LiveStack`.
        n_blocks: In each snapshot, 0 where the stack is not in it.
        live_bytes: Requested bytes, in the same order.
        kept_bytes: The part that is still there in the next snapshot, for each but the last.
        released_bytes: What was there in two snapshots and is gone in the third, over all of them.
    """

    device: str
    label: str
    frames: tuple[CallFrame, ...]
    n_blocks: tuple[int, ...]
    live_bytes: tuple[int, ...]
    kept_bytes: tuple[int, ...] = ()
    released_bytes: int = 0

    @property
    def growth_bytes(self) -> int:
        """Live bytes in the last snapshot minus those in the first."""
        return self.live_bytes[-1] - self.live_bytes[0]


@dataclass(frozen=True, slots=True)
class Matching:
    """All stacks of several snapshots, with the key that put them together and the reason for it."""

    key: StackKey
    reason: str
    names: tuple[Identity, ...]
    stacks: tuple[Matched, ...]


_Groups = Sequence[Mapping[Identity, LiveStack]]


def match(snapshots: Sequence[Sequence[LiveStack]], key: StackKey | None = None) -> Matching:
    """Match the stacks of *snapshots*, oldest first.

    Args:
        snapshots: Two or more, by exact stack.
        key: By what stacks are the same. None: exactly, unless far more of the memory matches by file name and
            function of the project's frames, as it does when lines have moved.
    """
    exact = [grouped(stacks, StackKey.EXACT) for stacks in snapshots]
    exact_share = _share(exact)
    if key is StackKey.EXACT:
        return _matching(exact, StackKey.EXACT, f"compared line by line, as asked; {_words(exact_share)}")
    if key is None and exact_share is None:
        return _matching(exact, StackKey.EXACT, "no snapshot has call stacks: blocks are compared by pool and size")
    if key is None and exact_share is not None and exact_share >= EXACT_IS_ENOUGH:  # the other share is 1.0 at most
        return _matching(exact, StackKey.EXACT, f"compared line by line: {_words(exact_share)}")
    project = [grouped(stacks, StackKey.PROJECT) for stacks in snapshots]
    project_share = _share(project)
    if key is StackKey.PROJECT:
        reason = f"compared by file name and function of the project's frames, as asked; {_words(project_share)}"
        return _matching(project, StackKey.PROJECT, reason)
    if (exact_share or 0.0) >= EXACT_IS_ENOUGH * (project_share or 0.0):
        return _matching(exact, StackKey.EXACT, f"compared line by line: {_words(exact_share)}")
    reason = (
        f"compared by file name and function of the project's frames: {_words(project_share)} that way,"
        f" only {exact_share:.0%} line by line (lines have moved, or paths differ)"
    )
    return _matching(project, StackKey.PROJECT, reason)


def _share(groups: _Groups) -> float | None:
    """Return the share of the framed bytes of the first and last snapshot whose stack is in both; None without any."""
    first, last = groups[0], groups[-1]
    total = matched = 0
    for here, there in ((first, last), (last, first)):
        for name, stack in here.items():
            if stack.frames:
                total += stack.requested_bytes
                matched += stack.requested_bytes if name in there else 0
    return matched / total if total else None


def _words(share: float | None) -> str:
    return "no stack was recorded" if share is None else f"{share:.0%} of the bytes with a stack match"


def _matching(groups: _Groups, key: StackKey, reason: str) -> Matching:
    names = tuple(dict.fromkeys(name for group in groups for name in group))
    return Matching(key, reason, names, tuple(_matched([group.get(name) for group in groups]) for name in names))


def _matched(found: Sequence[LiveStack | None]) -> Matched:
    newest = next(stack for stack in reversed(found) if stack is not None)
    return Matched(
        device=newest.device,
        label=newest.label,
        frames=newest.frames,
        n_blocks=tuple(0 if stack is None else stack.n_blocks for stack in found),
        live_bytes=tuple(0 if stack is None else stack.requested_bytes for stack in found),
    )
