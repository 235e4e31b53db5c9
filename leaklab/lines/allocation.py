"""Find the line of the user's code that made an object, or had it copied: by its storage, or by tracemalloc."""

from __future__ import annotations

import functools
import itertools
import threading
import tracemalloc
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from leaklab.lines.arrival import Line
from leaklab.lines.asked import innermost_and_asking
from leaklab.lines.change import Whose
from leaklab.lines.storages import Stack, StorageLines
from leaklab.measure.measurement import Measurement
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.autograd_graph import GraphWalk
from leaklab.runtime.objects import is_exactly, is_kind_of, is_tensor
from leaklab.runtime.python_traces import Places, stack_of
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import shallow_bytes, storages_of

_DEPTH = 4
"""From a function over its closure and a cell of it to a tensor's tuple."""
_MAX_LOOKED_AT = 200
_MAX_DEPTH, _MAX_BELOW = 40, 20_000
"""A model within a model has its tensors ten references down; so many things are looked at in 0.1 s."""
_CONTAINERS = (list, tuple, dict, types.CellType, types.MethodType)
_MAX_SURVIVORS = 20_000
"""So many survivors of the traced runs are asked for their line: 1 s."""


def line_that_made(thing: object, whose: Whose) -> Line | None:
    """Return the line of the user's code that made *thing*, or had it copied; None if that was not recorded."""
    innermost, asking = _lines_in(whose, stack_of(thing))
    return asking or innermost


def _lines_in(whose: Whose, stack: Places) -> tuple[Line | None, Line | None]:
    return innermost_and_asking(((filename, (filename, number, "")) for filename, number in stack), whose)


def _calls_in(whose: Whose, stack: Places) -> Stack:
    """Return what of *stack* lies outside of leaklab; nothing if none of the user's code does."""
    own = tuple(
        (filename, number, "")
        for filename, number in itertools.takewhile(lambda each: whose(each[0]) is not None, stack)
    )
    return own if any(whose(filename) for filename, *_ in own) else ()


class Made(NamedTuple):
    """Where an object was made.

    Attributes:
        line: The line that made it, or had it copied.
        born_at: File and line of the innermost line of the user's that ran then.
        is_elsewhere: Whether another thread made it than the one that runs the code.
        parts: What was allocated for it, with the calls that led there.
    """

    line: Line
    born_at: tuple[str, int]
    is_elsewhere: bool = False
    parts: tuple[tuple[Stack, int], ...] = ()


class Makers:
    """Finds the lines that made objects: tensors by their storage, everything else by tracemalloc."""

    def __init__(self, whose: Whose, storages: StorageLines) -> None:
        self._whose = functools.cache(whose)  # of every frame of every stack
        self._lines_in = functools.cache(functools.partial(_lines_in, self._whose))  # a stack makes many objects
        self._calls_in = functools.cache(functools.partial(_calls_in, self._whose))
        self.storages = storages

    def made_of(self, entries: list[object]) -> list[Made]:
        """Return where the tensors in *entries* were made, or *entries* themselves where there are none."""
        tensors = list(filter(is_tensor, _things_in(entries)))
        return [made for thing in tensors or entries if (made := self._made(thing)) is not None]

    def allocated_below(self, entries: list[object]) -> Counter[Stack]:
        """Return by call stack how many bytes were allocated for *entries*: what they keep, and their graphs.

        Each storage is counted once. What is older than the traced runs is left out.
        """
        things = list(itertools.islice(_things_in(entries, _MAX_DEPTH, _MAX_BELOW), _MAX_BELOW))
        graphs = GraphWalk((), 0)
        graphs.from_tensors(filter(is_tensor, things))
        saved = (held for _holder, held, _reference in graphs.edges if is_tensor(held))
        sizes: Counter[Stack] = Counter()
        seen: set[int] = set()
        for thing in {id(thing): thing for thing in (*things, *saved)}.values():
            for stack, n_bytes in self._parts(thing, seen):
                sizes[stack] += n_bytes
        return sizes

    def made_by_survivor(self, measurement: Measurement, n_before: int) -> dict[int, Made]:
        """Return where each object was made that a run after the first *n_before* left; a phase is open.

        Objects are known by their addresses; one whose line was not recorded is left out.
        """
        addresses, _kinds, runs = measurement.cohorts.members()
        with measurement.young() as objects:
            new = np.flatnonzero(np.isin(addresses_of(objects), addresses[runs >= n_before]))
            seen: set[int] = set()
            found = ((id(thing), self._made(thing), thing) for thing in (objects[row] for row in new[:_MAX_SURVIVORS]))
            return {
                address: made._replace(parts=tuple(self._parts(thing, seen)))
                for address, made, thing in found
                if made is not None
            }

    def _parts(self, thing: object, seen: set[int]) -> Iterator[tuple[Stack, int]]:
        """Yield the calls that allocated *thing*, or those of its storages that are not *seen*, with their bytes."""
        if is_tensor(thing):
            for key, n_bytes in storages_of(thing) or ():
                if key not in seen and (calls := self.storages.stack_of(key)):
                    seen.add(key)
                    yield calls, n_bytes
            return
        if own := self._calls_in(stack_of(thing)):
            yield own, shallow_bytes(thing)

    def _made(self, thing: object) -> Made | None:
        stack = stack_of(thing)
        innermost, asking = self._lines_in(stack)
        line = (self.storages.line_of(thing) if is_tensor(thing) else None) or asking or innermost
        return None if line is None else Made(line, (innermost or line)[:2], self._is_elsewhere(stack))

    def _is_elsewhere(self, stack: Sequence[tuple[str, int]]) -> bool:
        """Return whether *stack* is known to its end, begins where a thread does, and did not come by leaklab."""
        is_whole = 0 < len(stack) < tracemalloc.get_traceback_limit()
        is_threads = is_whole and stack[-1][0] == threading.__file__
        return is_threads and all(self._whose(filename) is not None for filename, _number in stack)


def _things_in(entries: list[object], n_levels: int = _DEPTH, limit: int = _MAX_LOOKED_AT) -> Iterator[object]:
    """Yield *entries* and what they are made of, at most *limit* things of each level; of a tensor nothing."""
    seen: set[int] = set()
    level = entries
    for _ in range(n_levels + 1):
        new = [thing for thing in level if id(thing) not in seen]
        seen.update(map(id, new))
        yield from new
        level = [inner for thing in new if not is_tensor(thing) for inner in _content_of(thing)][:limit]
        if not level:
            return


def _content_of(thing: object) -> list[object]:
    """Return what *thing*, made a moment ago, is made of: not what it shares with the rest of the program."""
    kind = type(thing)
    if kind is types.FunctionType:  # nor its global variables
        parts = (thing.__closure__, thing.__defaults__)  # type: ignore[attr-defined]  # a function
        return [part for part in parts if part is not None]
    # Short containers are made in memory of old ones, of which tracemalloc says nothing.
    may_be_new = (
        stack_of(thing) if tracemalloc.is_tracing() else not any(is_kind_of(thing, kind) for kind in _NEVER_NEW)
    )
    return get_referents(thing)[:_MAX_LOOKED_AT] if may_be_new or is_exactly(thing, _CONTAINERS) else []


_NEVER_NEW = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
