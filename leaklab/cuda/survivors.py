"""Find the blocks of one snapshot that are still there in the next, once the snapshots are in order.

A block survives if the next snapshot has a block at the same address, of the same size and call stack, and no trace
tells that it was allocated in between: the allocator gives an address out again at once, often to the same line. That
holds within one process only: snapshots that cannot be of one are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.live_blocks import Identity, Matching, device_uses, frameless_label, identity, live_stacks, pool_uses
from leaklab.cuda.schema import ADDRESS_BITS, INACTIVE, LATEST_US, Memory
from leaklab.cuda.stacks import StackTable
from leaklab.model.cuda import LiveStack, PoolUse, StackKey

Ints = NDArray[np.int64]
_N_COMPARED = 64
_SLACK_US, _SLACK_SHARE = 3, 50_000
"""torch works out the times anew for each snapshot: the same event may differ by a little, and 20 us per second."""


@dataclass(frozen=True, slots=True)
class Ring:
    """When the events of a trace happened, oldest first; the arrays have the shape ``(n_events,)``.

    Attributes:
        times: Microseconds since 1970.
        addresses: Of their blocks or segments, 0 for an event without one.
        is_alloc: Whether the event allocates a block.
    """

    times: Ints
    addresses: Ints
    is_alloc: NDArray[np.bool_]

    @property
    def first_us(self) -> int:
        """Time of the oldest event."""
        return int(self.times[0])

    @property
    def last_us(self) -> int:
        """Time of the newest event."""
        return int(self.times[-1])

    def births_of(self, addresses: Ints) -> Ints:
        """Return the time of the last allocation at each of *addresses*; 0 where there is none."""
        order = np.argsort(self.addresses[self.is_alloc], kind="stable")
        known = np.append(-1, self.addresses[self.is_alloc][order])
        times = np.append(0, self.times[self.is_alloc][order])
        last = np.searchsorted(known, addresses, side="right") - 1
        born: Ints = np.where(known[last] == addresses, times[last], 0)
        return born

    def goes_on_in(self, later: Ring) -> bool | None:
        """Return whether *later* has the newest events of this trace; None where it begins after them."""
        newest = min(self.last_us, later.last_us)
        if newest < max(self.first_us, later.first_us):
            return None
        ends = np.flatnonzero((self.times <= newest) & (self.times >= later.first_us))[-_N_COMPARED:]
        slack = _SLACK_US + (self.last_us - self.first_us) // _SLACK_SHARE
        found = [
            bool(np.any((np.abs(later.times - self.times[end]) <= slack) & (later.addresses == self.addresses[end])))
            for end in ends
        ]
        return 2 * sum(found) > len(found)


def rings_of(memory: Memory) -> dict[str, Ring]:
    """Return the ring of each device whose trace has times, and is not damaged."""
    rings = {}
    for device, trace in memory.traces:
        try:
            times = [event["time_us"] for event in trace]
            places = [event.get("addr", 0) for event in trace]
            is_alloc = [event["action"] == "alloc" for event in trace]
        except (AttributeError, KeyError, TypeError):
            continue
        if set(map(type, times)) | set(map(type, places)) == {int} and min(times) > 0 and max(times) < LATEST_US:
            addresses = np.array([place & ADDRESS_BITS for place in places], np.int64)
            rings[device] = Ring(np.array(times, np.int64), addresses, np.array(is_alloc, np.bool_))
    return rings


@dataclass(frozen=True, slots=True)
class LiveBlocks:
    """The live blocks of a snapshot whose addresses are known; all arrays have the shape ``(n_blocks,)``.

    Attributes:
        stack: Number of the exact call stack, the same in all snapshots that share the numbers.
        address: In the memory of the device.
        requested: Bytes that the program asked for.
        born_us: When it was allocated; 0 if that is older than the trace, or not recorded.
        first_us: Of the trace of its device; 0 without one.
        last_us: The same.
    """

    stack: Ints
    address: Ints
    requested: Ints
    born_us: Ints
    first_us: Ints
    last_us: Ints


def live_blocks_of(
    memory: Memory, rings: Mapping[str, Ring], table: StackTable, numbers: dict[Identity, int]
) -> LiveBlocks:
    """Return the live blocks of *memory*.

    Args:
        memory: The snapshot.
        rings: Of its traces.
        table: Of its stacks.
        numbers: Of exact stacks, as `leaklab.cuda.live_blocks.identity` names them; new ones are added.
    """
    parts: list[tuple[Ints, ...]] = []
    known: dict[tuple[str, int] | tuple[str, str, int], int] = {}
    for device, segments in memory.segments_by_device().items():
        rows: list[tuple[int, int, int]] = []
        for segment in segments:
            if not segment.address:  # no address was recorded
                continue
            pool = segment.pool
            for address, _size, requested, state, frames in segment.blocks:
                if state == INACTIVE:
                    continue
                key = (device, id(frames)) if frames else (device, pool, requested)
                number = known.get(key)
                if number is None:
                    name: Identity = (device, table.stack(frames), "", "")
                    if not frames:
                        name = (device, (), pool, frameless_label(pool, requested))
                    number = known[key] = numbers.setdefault(name, len(numbers))
                rows.append((number, address & ADDRESS_BITS, requested))
        stack, place, size = np.array(rows, np.int64).reshape(-1, 3).T
        ring, nothing = rings.get(device), np.zeros(len(rows), np.int64)
        times = (ring.births_of(place), nothing + ring.first_us, nothing + ring.last_us) if ring else (nothing,) * 3
        parts.append((stack, place, size, *times))
    columns = zip(*(parts or [(np.zeros(0, np.int64),) * 6]), strict=True)
    return LiveBlocks(*map(np.concatenate, columns))


@dataclass(frozen=True, slots=True)
class BlockSurvival:
    """What became of the blocks of each exact stack; bytes that the program asked for.

    Attributes:
        kept: For each snapshot but the last, what is still there in the next.
        released: Over all snapshots, what was there in two of them and is gone in the third.
    """

    kept: tuple[dict[Identity, int], ...]
    released: dict[Identity, int]


def survival_of(snapshots: Sequence[LiveBlocks], numbers: Mapping[Identity, int]) -> BlockSurvival:
    """Return what became of the blocks of *snapshots*, oldest first; *numbers* are those of their stacks."""
    names = list(numbers)
    kept, released = [], np.zeros(len(names), np.int64)
    old = np.zeros(len(snapshots[0].stack), np.bool_)
    for here, there in pairwise(snapshots):
        first, second = survivors_of(here, there)
        sums = np.zeros(len(names), np.int64)
        np.add.at(sums, here.stack[first], here.requested[first])
        kept.append(_by_name(sums, names))
        old[first] = False
        np.add.at(released, here.stack[old], here.requested[old])
        old = np.zeros(len(there.stack), np.bool_)
        old[second] = True
    return BlockSurvival(tuple(kept), _by_name(released, names))


def with_survival(matching: Matching, snapshots: Sequence[Sequence[LiveStack]], survival: BlockSurvival) -> Matching:
    """Return *matching* of the stacks of *snapshots* with what became of their blocks."""
    kept: list[dict[Identity, int]] = [{} for _ in survival.kept]
    released: dict[Identity, int] = {}
    names = {identity(stack, StackKey.EXACT): identity(stack, matching.key) for stacks in snapshots for stack in stacks}
    for exact, name in names.items():
        for sums, bytes_of in zip(kept, survival.kept, strict=True):
            sums[name] = sums.get(name, 0) + bytes_of.get(exact, 0)
        released[name] = released.get(name, 0) + survival.released.get(exact, 0)
    stacks = tuple(
        replace(stack, kept_bytes=tuple(sums[name] for sums in kept), released_bytes=released[name])
        for name, stack in zip(matching.names, matching.stacks, strict=True)
    )
    return replace(matching, stacks=stacks)


def _by_name(sums: Ints, names: Sequence[Identity]) -> dict[Identity, int]:
    return {names[number]: int(sums[number]) for number in np.flatnonzero(sums).tolist()}


def survivors_of(here: LiveBlocks, there: LiveBlocks) -> tuple[Ints, Ints]:
    """Return the positions in *here* of the blocks that are still live in *there*, and those that they have there."""
    n_here = len(here.stack)
    columns = [np.concatenate(pair) for pair in ((here.requested, there.requested), (here.address, there.address))]
    columns.append(np.concatenate((here.stack, there.stack)))
    order = np.lexsort(columns)  # stable: of equal blocks that of *here* comes first
    before, after = order[:-1], order[1:]
    same = (before < n_here) & (after >= n_here)
    for column in columns:
        same &= column[before] == column[after]
    first, second = before[same], after[same] - n_here
    stays = ~_is_reallocated(here, first, there, second)
    return first[stays], second[stays]


def _is_reallocated(here: LiveBlocks, first: Ints, there: LiveBlocks, second: Ints) -> NDArray[np.bool_]:
    """Return for each pair of like blocks whether a trace tells that they are two: where it tells nothing, False."""
    born_first, born_second = here.born_us[first], there.born_us[second]
    starts, ends = here.first_us[first], here.last_us[first]
    slack = _SLACK_US + (ends - starts) // _SLACK_SHARE
    agree = (born_first > 0) & (born_second > 0) & (np.abs(born_second - born_first) <= slack)
    since = (ends > 0) & (born_second > ends + slack)
    # A trace that reaches back to a birth shows it: a birth that only one of the two knows is that of another block.
    only_there = (ends > 0) & (born_second > 0) & (born_first == 0)
    only_here = (born_second == 0) & (there.first_us[second] > 0) & (born_first >= there.first_us[second])
    differ = (born_first > 0) & (born_second > 0)
    proven: NDArray[np.bool_] = ~agree & (since | only_there | only_here & (born_first > 0) | differ)
    return proven


@dataclass(frozen=True, slots=True)
class Summary:
    """What a comparison needs of a snapshot; the events of a large file take far more.

    Attributes:
        name: Of the file.
        step: As recorded in the file; None if it is not.
        cards: Memory of each card, as recorded.
        run: What names the process; empty if unknown.
        notes: What was missing or does not add up.
        stacks: Live bytes by exact stack.
        devices: Use of each device.
        segments: Device and address of each segment whose address is known.
        rings: The times of the trace of each device that has one.
        blocks: Its live blocks.
    """

    name: str
    step: int | None
    cards: dict[str, int]
    run: str
    notes: tuple[str, ...]
    stacks: tuple[LiveStack, ...]
    devices: tuple[PoolUse, ...]
    segments: frozenset[tuple[str, int]]
    rings: dict[str, Ring]
    blocks: LiveBlocks

    @property
    def last_us(self) -> int | None:
        """Time of its newest event; None if unknown."""
        return max((ring.last_us for ring in self.rings.values()), default=None)

    @property
    def step_or_number(self) -> int | None:
        """The recorded step, or the number that the name of the file ends in."""
        return number_of(self.name) if self.step is None else self.step


def summary_of(memory: Memory, numbers: dict[Identity, int]) -> Summary:
    """Return the summary of *memory*; *numbers* of exact stacks are shared by all snapshots of a comparison."""
    table, rings = StackTable(), rings_of(memory)
    return Summary(
        name=memory.name,
        step=memory.step,
        cards=memory.card_bytes,
        run=memory.run,
        notes=memory.notes,
        stacks=live_stacks(memory, table),
        devices=device_uses(memory, pool_uses(memory)),
        segments=frozenset((segment.device, segment.address) for segment in memory.segments if segment.address),
        rings=rings,
        blocks=live_blocks_of(memory, rings, table, numbers),
    )


def number_of(name: str) -> int | None:
    """Return the number that the name of a file ends in."""
    found = re.search(r"(\d{1,15})$", Path(name).stem)
    return None if found is None else int(found[1])


_ORDERS: tuple[tuple[str, Callable[[Summary], int | None]], ...] = (
    ("the times in their traces", lambda one: one.last_us),
    ("their recorded steps", lambda one: one.step),
    ("the numbers in their names", lambda one: number_of(one.name)),
)


def in_order(read: Sequence[Summary], numbers: Mapping[Identity, int]) -> tuple[list[Summary], list[str]]:
    """Return the snapshots of one process oldest first, and what is to be said of their order.

    Those of several processes keep the order in which they were given: it may mean something else.
    """
    given = list(read)
    for words, key in _ORDERS:
        places = [key(one) for one in given]
        known = [place for place in places if place is not None]
        if len(set(known)) < len(given):
            continue
        ordered = [given[number] for number in sorted(range(len(given)), key=known.__getitem__)]
        if first_strangers(ordered, numbers):
            return given, []
        notes = []
        if ordered != given:
            names = ", ".join(Path(one.name).name for one in given)
            notes.append(f"the files were given in another order ({names}): they are compared by {words}")
        steps = [one.step_or_number for one in ordered]
        if None not in steps and ascending(steps) is None:
            shown = ", ".join(map(str, steps))
            notes.append(f"the steps or numbers of the files ({shown}) contradict {words}, and are not used")
        return ordered, notes
    return given, []


def ascending(steps: Sequence[int | None]) -> list[int] | None:
    """Return *steps* if all are known and each is later than the one before, else None."""
    known = [step for step in steps if step is not None]
    if len(known) < len(steps) or any(later <= earlier for earlier, later in pairwise(known)):
        return None
    return known


def first_strangers(read: Sequence[Summary], numbers: Mapping[Identity, int]) -> tuple[int, str] | None:
    """Return the position of the first snapshot that is not shown to be of one process with the next, and why.

    None if all are. Addresses alone show little: each process begins at the same ones, and gives them out in the same
    order.
    """
    is_framed = np.array([bool(frames) for _device, frames, _pool, _label in numbers], np.bool_)
    for number, (here, there) in enumerate(pairwise(read)):
        why = _why_strange(here, there, is_framed)
        if why:
            return number, why
    return None


def is_shown_to_be_one_run(read: Sequence[Summary]) -> bool:
    """Return whether notes of leaklab or traces that go on prove it, not only like blocks at the same addresses."""
    return all(
        (here.run and here.run == there.run) or True in _traces_go_on(here, there) for here, there in pairwise(read)
    )


def _traces_go_on(here: Summary, there: Summary) -> list[bool | None]:
    shared = here.rings.keys() & there.rings.keys()
    return [here.rings[device].goes_on_in(there.rings[device]) for device in shared]


def _why_strange(here: Summary, there: Summary, is_framed: NDArray[np.bool_]) -> str:
    if here.run and there.run:
        return "" if here.run == there.run else "two processes recorded them"
    if any(one.stacks and not one.segments for one in (here, there)):
        return "not all of them hold the addresses of their memory"
    if here.segments and there.segments and here.segments.isdisjoint(there.segments):
        return "they share no segment of memory"
    go_on = _traces_go_on(here, there)
    if True in go_on or not go_on:
        return ""
    if False in go_on:
        return "their traces show different events at the same time"
    survivors, _there = survivors_of(here.blocks, there.blocks)
    if np.any(is_framed[here.blocks.stack[survivors]]):
        return ""
    return "their traces do not overlap (a larger max_entries helps), and no block with a call stack is in both"
