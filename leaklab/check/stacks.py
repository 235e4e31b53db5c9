"""Name the call stacks that allocated what stays, and divide what each leak leaves among them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from leaklab.check.findings import FoundLines
from leaklab.heap.source_lines import LineWriter, short_path
from leaklab.lines.storages import Stack
from leaklab.model import Leak
from leaklab.model.stacks import OTHER_STACKS, OUTSIDE, AllocationStack, AllocationStacks, StackFrame
from leaklab.runtime.ours import Origin, origin_of, part_of_library

_MAX_STACKS = 50
"""Of one leak; smaller ones are added up."""
_LEAST_SHARE = 1e-3
_OTHERS = StackFrame(OTHER_STACKS, "", 0, is_yours=False)

SizedStacks = tuple[tuple[tuple[StackFrame, ...], int], ...]
"""Call stacks, innermost frame first, with the bytes that were allocated by them."""


def named_stacks(sizes: Mapping[Stack, int], writer: LineWriter) -> SizedStacks:
    """Return *sizes*, largest first, with every frame named as a report names it; many small stacks are one.

    What takes no byte, such as the storage of an empty tensor, is left out.
    """
    total = sum(sizes.values())
    known: dict[tuple[str, int, str], StackFrame] = {}
    named: dict[tuple[StackFrame, ...], int] = {}
    for stack, n_bytes in sorted(filter(itemgetter(1), sizes.items()), key=lambda pair: -pair[1]):
        is_told = len(named) < _MAX_STACKS and n_bytes > _LEAST_SHARE * total
        frames = tuple(_named(line, writer, known) for line in stack) if is_told else (_OTHERS,)
        named[frames] = named.get(frames, 0) + n_bytes
    return tuple(named.items())


def _named(line: tuple[str, int, str], writer: LineWriter, known: dict[tuple[str, int, str], StackFrame]) -> StackFrame:
    filename, number, function = line
    if not filename:
        return StackFrame(function, "", 0, is_yours=False)
    if line not in known:
        is_yours = origin_of(filename) is Origin.USER
        place = writer.cell_of(filename) or part_of_library(filename) or short_path(filename)
        name = function.replace("<locals>.", "") or writer.function_at(filename, number) or OUTSIDE
        known[line] = StackFrame(name, place.replace(os.sep, "/"), number, is_yours)
    return known[line]


def allocation_stacks(leaks: Iterable[Leak], found: Sequence[FoundLines]) -> AllocationStacks:
    """Return the stacks of *leaks*: what each leak leaves per run, divided as the traced runs saw it."""
    numbers: dict[StackFrame, int] = {}
    stacks = []
    for leak in leaks:
        sized = next((lines.stacks[leak.fingerprint] for lines in found if lines.stacks.get(leak.fingerprint)), ())
        total = sum(n_bytes for _frames, n_bytes in sized)
        for frames, n_bytes in sized if leak.bytes_per_run > 0 else ():
            positions = tuple(numbers.setdefault(frame, len(numbers)) for frame in frames)
            stacks.append(AllocationStack(leak.fingerprint, positions, leak.bytes_per_run * n_bytes / total))
    return AllocationStacks(tuple(numbers), tuple(sorted(stacks, key=lambda stack: -stack.bytes_per_run)))
