"""Put several snapshots in order, and say whether they can be of one process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leaklab.cuda.live_blocks import Identity, device_uses, live_stacks, pool_uses
from leaklab.cuda.schema import Memory
from leaklab.cuda.stacks import StackTable
from leaklab.cuda.survivors import LiveBlocks, Ring, live_blocks_of, rings_of, survivors_of
from leaklab.model.cuda import LiveStack, PoolUse


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
            notes.append(f"the steps or numbers of the files ({shown}) contradict {words}: they are not used")
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
