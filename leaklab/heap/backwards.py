"""Find what can lie on the best path to one object, backwards from it, without a graph of the whole heap.

Level by level, what refers to the objects of one level is the next, until no root further away could begin a cheaper
path. References that the collector does not report would be missed: of every object that is passed, the reference count
must be the number of references found. Where it is not, the whole heap has to be looked at.
"""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from leaklab.heap.roots import is_shell_type
from leaklab.heap.running import local_variables, running_frames
from leaklab.heap.shortest_paths import Start
from leaklab.runtime.addresses import N_PLACES, Addresses, Ints, addresses_of, places_of
from leaklab.runtime.objects import is_tensor, loaded_type, no_torch_functions
from leaklab.runtime.ours import is_own_kind
from leaklab.runtime.referents import BATCH_OBJECTS, is_own_dict, referents_of

_MOST_PASSED = 20_000
"""Where more objects than this lead to the one asked about, the graph of the heap is cheaper."""
_DEAREST = 32
"""A path that costs more may be beaten by one from a table of the interpreter, which only the whole heap shows."""
_STEP = 1


def on_best_paths(
    objects: list[Any], address: int, starts: Sequence[Start], ignored: Collection[int] = ()
) -> list[int] | None:
    """Return the positions, ascending, of all that can lie on a cheapest path to the object at *address*.

    The best path among these objects alone, also where several cost the same, is that among all of *objects*.

    *ignored* are addresses of objects that are no holders, though they refer to others.

    Returns:
        None where that is not certain, or would cost more than the graph of the heap.
    """
    search = _BackwardSearch(objects, starts, ignored)
    places = np.flatnonzero(search.addresses == address)
    return search.run(int(places[0])) if len(places) == 1 else None


class _UncertainError(Exception):
    """What was passed may have a holder that cannot be seen."""


class _BackwardSearch:
    """One search."""

    def __init__(self, objects: list[Any], starts: Sequence[Start], ignored: Collection[int]) -> None:
        self.addresses = addresses_of(objects)
        self._objects, self._ignored = objects, set(ignored)
        self._references: list[tuple[int, Addresses, Ints]] = []
        self._cost_of_root: dict[int, int] = {}
        for start in starts:
            cost = start.cost + _STEP * start.is_variable
            self._cost_of_root[start.address] = min(cost, self._cost_of_root.get(start.address, cost))
        self._ends = {start.address for start in starts if start.is_place}
        self._n_locals: Counter[int] = Counter()
        self._n_running = Counter(_running_code())  # each call has a reference to its function
        self._read_frames()
        probe = [object()]
        self._own_count = sys.getrefcount(probe[0])  # what the list of the heap and the question itself count for
        self._distance: dict[int, int] = {}
        self._least = _DEAREST + 1

    def _read_frames(self) -> None:
        """Note the local variables of running functions; the dicts in which Python shows them are no holders."""
        for running in running_frames():
            snapshot = running.frame.f_locals
            if type(snapshot) is dict:
                self._ignored.add(id(snapshot))
            del snapshot
            cost = self._cost_of_root.get(id(running.frame), 0) + _STEP
            for _name, value in local_variables(running.frame):
                self._n_locals[id(value)] += 1
                self._cost_of_root[id(value)] = min(cost, self._cost_of_root.get(id(value), cost))

    def run(self, place: int) -> list[int] | None:
        """Return what can lie on a cheapest path to the object at *place* of the heap."""
        level = self._enter([place], 0)
        distance = 0
        try:
            while level and self._may_be_beaten(level, distance):
                distance += _STEP
                level = self._before(level, distance)
        except _UncertainError:
            return None
        return sorted(self._distance) if self._least <= _DEAREST else None

    def _may_be_beaten(self, level: list[int], distance: int) -> bool:
        """Return whether a path through *level*, which is at *distance*, may cost no more than the cheapest so far.

        No root costs less than a step. What refers to *level* is one step further away, but for the owners of dicts.
        """
        has_dicts = any(type(self._objects[place]) is dict for place in level)
        return distance + _STEP + _STEP * (not has_dicts) <= self._least

    def _enter(self, places: Iterator[int] | list[int], distance: int) -> list[int]:
        """Note what is at *distance*; return what a path may come through."""
        passed = []
        for place in places:
            address = int(self.addresses[place])
            kind = type(self._objects[place])
            if place in self._distance or address in self._ignored or is_own_kind(kind):
                continue
            self._distance[place] = distance
            if address in self._cost_of_root:
                self._least = min(self._least, distance + self._cost_of_root[address])
            if address in self._ends:
                continue
            if is_shell_type(kind) or len(self._distance) > _MOST_PASSED:
                raise _UncertainError
            passed.append(place)
        return passed

    def _before(self, level: list[int], distance: int) -> list[int]:
        """Return what refers to *level*, which is at *distance*; the owner of a dict is as far away as its dict."""
        found: list[int] = []
        while level:
            held = {int(self.addresses[place]): place for place in level}
            holders, targets = self._references_to(np.sort(np.fromiter(held, np.int64, len(held))))
            self._require_all_seen(held, targets)
            owners = [
                holder
                for holder, target in zip(holders.tolist(), targets.tolist(), strict=True)
                if is_own_dict(self._objects[holder], self._objects[held[target]])
            ]
            level = self._enter(owners, distance - _STEP)
            found += holders.tolist()
        return self._enter(found, distance)

    def _references_to(self, wanted: Addresses) -> tuple[Ints, Addresses]:
        """Return holder, as a position, and held, as an address, of all references to *wanted*, ascending."""
        may_be_wanted = np.zeros(N_PLACES, bool)
        may_be_wanted[places_of(wanted)] = True
        holders, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for start, addresses, owners in self._all_references():
            possible = np.flatnonzero(may_be_wanted.take(places_of(addresses)))
            if len(possible):
                targets.append(addresses[possible])
                holders.append(owners[possible].astype(np.int64) + start)
        holder, target = np.concatenate(holders), np.concatenate(targets)
        is_wanted = wanted[np.minimum(np.searchsorted(wanted, target), len(wanted) - 1)] == target
        return holder[is_wanted], target[is_wanted]

    def _all_references(self) -> Iterator[tuple[int, Addresses, Ints]]:
        """Yield the references of the heap, batch after batch: position of the first object, held, holder in it."""
        if self._references:
            yield from self._references
            return
        for start in range(0, len(self._objects), BATCH_OBJECTS):
            _referents, addresses, owners = referents_of(self._objects[start : start + BATCH_OBJECTS])
            self._references.append((start, addresses, owners))
            yield self._references[-1]

    def _require_all_seen(self, held: Mapping[int, int], targets: Addresses) -> None:
        """Refuse to go on where anything of *held* has more references than were found."""
        n_seen = Counter(targets.tolist())
        for address, place in held.items():
            if _is_held_by_frames(self._objects[place]):
                continue
            count = sys.getrefcount(self._objects[place]) - self._own_count
            if type(self._objects[place]) is types.FunctionType:
                count -= self._n_running[self._objects[place].__code__]
            if count > n_seen[address] + self._n_locals[address] or _has_cpp_owners(self._objects[place]):
                raise _UncertainError


def _running_code() -> Iterator[types.CodeType]:
    """Yield the code of every running function, in all threads."""
    threads = sys._current_frames()  # noqa: SLF001
    for innermost in threads.values():
        frame: types.FrameType | None = innermost
        while frame is not None:
            yield frame.f_code
            frame = frame.f_back
    threads.clear()  # this function's own frame is in it, which would be a cycle


def _is_held_by_frames(thing: Any) -> bool:
    """Return whether it is the running functions that have such references to *thing*: cells, running generators."""
    if type(thing) is types.GeneratorType:
        return thing.gi_running
    return type(thing) is types.CellType


def _has_cpp_owners(thing: Any) -> bool:
    """Return whether *thing* is a tensor that C++ owns too, or may own: a graph, a gradient's owner, a view."""
    if not is_tensor(thing):
        return False
    read = getattr(loaded_type("torch", "Tensor"), "_use_count", None)
    with no_torch_functions():
        try:
            return read is None or int(read(thing)) > 1
        except (RuntimeError, TypeError):
            return True
