"""Find references that the garbage collector does not report, and objects that it does not list.

A table of providers: numpy arrays that hold objects, autograd graphs, running functions. Everything is read through
the descriptors of the C types themselves, so neither a subclass, nor a hook, nor ``__torch_function__`` gets to run.
"""

from __future__ import annotations

import array
import gc
import itertools
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.heap.index import ReferencePass
from leaklab.heap.names.code import loop_words
from leaklab.heap.running import local_variables, places_in_code, running_frames
from leaklab.model.check import UNFOLLOWED_NODES
from leaklab.runtime.addresses import AddressTable, addresses_of, kinds_of
from leaklab.runtime.autograd_graph import (
    MAX_WRAPPED_NODES,
    PACK_HOOK,
    UNPACK_HOOK,
    Edge,
    GraphWalk,
    count_leaves,
    is_node_type,
)
from leaklab.runtime.frame_stacks import loops_in, stack_words
from leaklab.runtime.gc_control import gc_paused
from leaklab.runtime.node_hooks import is_function_type, node_hooks, origin_of, tensor_hooks
from leaklab.runtime.objects import class_attribute, is_exactly, is_tensor_type
from leaklab.runtime.referents import BATCH_OBJECTS, get_referents, referents_of
from leaklab.runtime.sizes import shallow_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leaklab.runtime.addresses import Ints

# numpy's own descriptors and methods, which is what an array of the exact type has.
_base_of = np.ndarray.__dict__["base"].__get__
_dtype_of = np.ndarray.__dict__["dtype"].__get__
_shape_of = np.ndarray.__dict__["shape"].__get__
_MAX_NAMED = 3
_DATA_TYPES = (np.ndarray, bytes, bytearray, array.array)
_DATA_KINDS = tuple(map(id, _DATA_TYPES))


@dataclass(slots=True, eq=False, repr=False)
class HiddenEdges:
    """What has to be added to a heap; holds the user's objects, so it must be dropped soon.

    Attributes:
        edges: ``(source, target, reference)``, the reference as Python writes it where it can.
        extra_objects: Objects to become vertices that the collector did not list: arrays, frames, autograd nodes,
            tensors that nothing in Python had touched. None of them is in the list of objects that was given.
        n_unwalked: Autograd nodes whose inputs, and tensors whose graph, were not looked at.
        notes: What could not be looked at and why, one sentence each.
    """

    edges: list[Edge] = field(default_factory=list)
    extra_objects: list[Any] = field(default_factory=list)
    n_unwalked: int = 0
    notes: tuple[str, ...] = ()


def hidden_edges(
    objects: list[Any],
    references: ReferencePass | None = None,
    *,
    min_data_bytes: int | None = None,
    is_followed: bool = False,
) -> HiddenEdges:
    """Find what the collector does not report about *objects*, which ``gc.get_objects()`` returned.

    Reading a gradient or a saved tensor for the first time makes a Python object of it that stays for its life: count
    objects before, not after.

    Args:
        objects: The heap.
        references: A pass over them that has not been made; it is made here, so that only one is needed.
        min_data_bytes: Arrays and bytes of so many bytes, which refer to nothing, become vertices too; none by default.
        is_followed: Whether somebody will look again, after further runs: half of the nodes that may be wrapped are
            left for what graphs have got until then.
    """
    before = places_in_code()
    with gc_paused():
        references = ReferencePass(objects) if references is None else references
        found = _FoundArrays(objects, references)
        frame_edges = _frames(found)
        _arrays(found, references, [target for _, target, _ in frame_edges], min_data_bytes)
        walk = _graphs(found, is_followed=is_followed)
        found.add(list(_pack_hooks(found, references, walk.edges)), [])
        result = found.result()
    result.n_unwalked = walk.n_unwalked
    result.notes = (*_left_out(walk.n_unwalked), *_changes(before))
    return result


def _left_out(n_unwalked: int) -> Iterator[str]:
    if n_unwalked:
        yield (
            f"{n_unwalked:,} {UNFOLLOWED_NODES}: reading more than {MAX_WRAPPED_NODES:,} of a graph from Python could "
            "crash the process when the graph is freed; graph sizes are lower bounds"
        )


def _changes(before: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield a caveat for threads that ran meanwhile."""
    after = places_in_code()
    ran = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if ran:
        names = ", ".join(map(repr, ran[:_MAX_NAMED])) + (" and others" if len(ran) > _MAX_NAMED else "")
        yield (
            f"other threads ({names}) changed the heap while it was read: some objects may be missing or out of date"
        )


class _FoundArrays:
    """References and objects found so far, beside the objects that are known."""

    def __init__(self, objects: list[Any], references: ReferencePass) -> None:
        self.objects = objects
        self.edges: list[Edge] = []
        self.extra: dict[int, Any] = {}
        self._table = references.table
        self.types = references.types

    def add(self, edges: list[Edge], vertices: list[Any]) -> list[Any]:
        """Add references and objects; return those of the objects that are new."""
        self.edges.extend(edges)
        unlisted = self._table.positions(addresses_of(vertices)) < 0
        new = {id(vertices[at]): vertices[at] for at in np.flatnonzero(unlisted).tolist()}
        new = {address: vertex for address, vertex in new.items() if address not in self.extra}
        self.extra.update(new)
        return list(new.values())

    def known(self, addresses: Ints) -> list[Any]:
        """Return for each address the known object that lies there; None where there is none."""
        return [self.objects[at] if at >= 0 else None for at in self._table.positions(addresses).tolist()]

    def of_types(self, is_wanted: Callable[[type], bool]) -> list[Any]:
        """Return the known objects whose type *is_wanted*; each type is asked for once."""
        return [self.objects[at] for at in np.flatnonzero(self.types.mask(is_wanted)).tolist()]

    def result(self) -> HiddenEdges:
        """Return everything between objects that are vertices."""
        vertices = list(self.extra.values())
        table = AddressTable(addresses_of(vertices))
        is_vertex = np.ones(len(self.edges), dtype=bool)
        for end in (0, 1):
            addresses = addresses_of([edge[end] for edge in self.edges])
            is_vertex &= (self._table.positions(addresses) >= 0) | (table.positions(addresses) >= 0)
        return HiddenEdges([self.edges[at] for at in np.flatnonzero(is_vertex).tolist()], vertices)


def _frames(found: _FoundArrays) -> list[Edge]:
    """Add the local variables of running functions, and what their loops go through."""
    loops = list(_iterators(found))
    found.add(loops, [frame for frame, _iterator, _words in loops])
    running = running_frames()
    edges = [
        (one.frame, value, f"local {name!r} of {one.function}()")
        for one in running
        for name, value in local_variables(one.frame)
    ]
    found.add(edges, [one.frame for one in running])
    return edges


def _iterators(found: _FoundArrays) -> Iterator[Edge]:
    """Yield the iterators of the loops that are open: on a stack they are the lowest, and above may lie old ones.

    The collector does not list each of them, that of a `range` for one: what is not known counts as the iterator of a
    loop. What is known and no iterator is that of a ``with``.
    """
    frames = [one.frame for one in running_frames(bodies=True, ended=False)]
    stacks = list(map(stack_words, frames))
    things = iter(found.known(np.concatenate([np.zeros(0, np.int64), *stacks])))
    loops: dict[int, tuple[tuple[int, int], ...]] = {}
    for frame, stack in zip(frames, stacks, strict=True):
        on_stack = list(zip(stack.tolist(), itertools.islice(things, len(stack)), strict=True))
        if not any(_is_iterator(thing) for _word, thing in on_stack):
            continue
        code = frame.f_code
        if id(code) not in loops:
            loops[id(code)] = loops_in(code)
        n_open = sum(begin <= frame.f_lasti < end for begin, end in loops[id(code)])
        of_loops = (thing for word, thing in on_stack if word and (thing is None or _is_iterator(thing)))
        for iterator in itertools.islice(of_loops, n_open):
            if iterator is not None:
                yield frame, iterator, loop_words(code)


def _is_iterator(thing: object) -> bool:
    return class_attribute(type(thing), "__next__") is not None


def _arrays(
    found: _FoundArrays, references: ReferencePass, local_values: list[Any], min_data_bytes: int | None
) -> None:
    """Add what numpy arrays hold, and data."""
    arrays = ArraySearch(min_data_bytes)
    for unlisted in references.unlisted():
        arrays.among(unlisted)
    arrays.among(local_values)
    found.add(arrays.edges, list(arrays.vertices.values()))


def _graphs(found: _FoundArrays, *, is_followed: bool) -> GraphWalk:
    """Add what tensors and autograd graphs hold."""
    nodes = found.of_types(is_node_type)
    tensors = found.of_types(is_tensor_type)
    most_nodes = (len(nodes) + MAX_WRAPPED_NODES) // 2 if is_followed else MAX_WRAPPED_NODES
    walk = GraphWalk(nodes, count_leaves(tensors), most_nodes)
    while tensors:
        n_before = len(walk.edges)
        walk.from_tensors(tensors)
        edges = walk.edges[n_before:]
        new = found.add(edges, [*walk.nodes.values(), *(held for _, held, _ in edges if is_tensor_type(type(held)))])
        tensors = [thing for thing in new if is_tensor_type(type(thing))]
    hooks = [*node_hooks(walk.nodes.values()), *tensor_hooks(walk.edges)]
    found.add(hooks, [held for _, held, _ in hooks])
    return walk


def _pack_hooks(found: _FoundArrays, references: ReferencePass, edges: list[Edge]) -> Iterator[Edge]:
    """Yield the pack hooks that graphs keep: torch shows only the unpack hook of a saved tensor, and holds both.

    A pack hook that the program has let go of is a function, or a method, that no Python object refers to, made where
    an unpack hook was made that a node holds. Each unpack hook has one.
    """
    unpacking = {id(hook): (node, hook, name) for node, hook, name in reversed(edges) if name.endswith(UNPACK_HOOK)}
    if not unpacking:
        return
    is_alone = ~references.is_referred_to()
    alone: dict[object, deque[Any]] = defaultdict(deque)
    for at in np.flatnonzero(found.types.mask(is_function_type) & is_alone).tolist():
        if id(found.objects[at]) not in unpacking:
            alone[origin_of(found.objects[at])].append(found.objects[at])
    for node, hook, name in reversed(unpacking.values()):
        if is_function_type(type(hook)) and (made_there := alone.get(origin_of(hook))):
            yield node, made_there.popleft(), name.removesuffix(UNPACK_HOOK) + PACK_HOOK


class ArraySearch:
    """Arrays that hold objects, what they hold, and the untracked containers on the way to them.

    The collector does not track arrays: it neither lists them nor reports what lies in them. The same is true of a dict
    or a tuple that, like ``{"losses": array}``, holds nothing the collector tracks. So the references of the whole heap
    are searched for arrays, and for such untracked containers, which are then searched in turn.

    Args:
        min_data_bytes: Arrays and bytes that hold nothing are vertices too if they have so many bytes; None for none.

    Attributes:
        edges: From an array to its items, and to the object whose memory it shows.
        vertices: Those arrays and containers, by address.
    """

    def __init__(self, min_data_bytes: int | None = None) -> None:
        self.edges: list[Edge] = []
        self.vertices: dict[int, Any] = {}
        self._min_data_bytes = min_data_bytes

    def through(self, objects: list[Any]) -> None:
        """Look through the references of *objects*."""
        for start in range(0, len(objects), BATCH_OBJECTS):
            self.among(get_referents(*objects[start : start + BATCH_OBJECTS]))

    def among(self, things: list[Any]) -> None:
        """Look at *things* themselves."""
        kinds = kinds_of(things)
        for position in np.flatnonzero(kinds == id(np.ndarray)).tolist():
            self.into(things[position])
        for position in self._positions_of_data(kinds):
            self._note_data(things[position])
        self._follow([things[position] for position in _positions_untracked(things, kinds)])

    def into(self, array: Any) -> bool:
        """Note what *array* holds, and what arrays in it hold; return whether it leads to any object."""
        pending = [array]
        while pending:
            current = pending.pop()
            if id(current) not in self.vertices and _may_hold(current):
                found = [*_items(current), *_memory(current)]
                if found:
                    self.vertices[id(current)] = current
                    self.edges.extend(found)
                    pending.extend(target for _, target, _ in found if type(target) is np.ndarray)
        return id(array) in self.vertices

    def _follow(self, containers: list[Any]) -> None:
        """Follow untracked containers, level by level, to arrays; keep the containers that lead to objects."""
        inside: list[tuple[Any, Any]] = []
        probed: set[int] = set()
        while containers:
            level = list({id(item): item for item in containers if id(item) not in probed}.values())
            probed.update(map(id, level))
            referents, _, owners = referents_of(level)
            kinds = kinds_of(referents)
            for position in np.flatnonzero(kinds == id(np.ndarray)).tolist():
                if self.into(referents[position]):
                    owner = level[owners[position]]
                    self.vertices[id(owner)] = owner
            for position in self._positions_of_data(kinds):
                if self._note_data(referents[position]):
                    owner = level[owners[position]]
                    self.vertices[id(owner)] = owner
            nested = _positions_untracked(referents, kinds)
            inside.extend((level[owners[position]], referents[position]) for position in nested)
            containers = [referents[position] for position in nested]
        self._keep_outer(inside)

    def _positions_of_data(self, kinds: Ints) -> list[int]:
        if self._min_data_bytes is None:
            return []
        is_data = kinds == _DATA_KINDS[0]
        for kind in _DATA_KINDS[1:]:
            is_data |= kinds == kind
        return np.flatnonzero(is_data).tolist()

    def _note_data(self, thing: Any) -> bool:
        """Note *thing*, and the memory that it shows, where that is large enough; return whether it is."""
        chain = [thing]
        while type(chain[-1]) is np.ndarray and is_exactly(base := _base_of(chain[-1]), _DATA_TYPES):
            chain.append(base)
        is_large = shallow_bytes(chain[-1]) >= (self._min_data_bytes or 0)
        if is_large and id(thing) not in self.vertices:
            self.vertices.update((id(each), each) for each in chain)
            self.edges.extend((view, memory, ".base") for view, memory in itertools.pairwise(chain))
        return is_large

    def _keep_outer(self, inside: list[tuple[Any, Any]]) -> None:
        """Keep each container in which one lies that is kept."""
        n_kept = -1
        while n_kept != len(self.vertices):
            n_kept = len(self.vertices)
            for outer, inner in reversed(inside):
                if id(inner) in self.vertices:
                    self.vertices[id(outer)] = outer


def _positions_untracked(things: list[Any], kinds: Ints) -> list[int]:
    """Return the positions of dicts and tuples that the collector does not track, and so does not report."""
    positions = np.flatnonzero((kinds == id(tuple)) | (kinds == id(dict))).tolist()
    return [position for position in positions if not gc.is_tracked(things[position])]


def _may_hold(array: Any) -> bool:
    return _dtype_of(array).hasobject or _base_of(array) is not None


def _is_followed(items: Iterable[Any]) -> Iterator[bool]:
    """Yield for each item whether it can lead further: the collector tracks it, or it is an array that may."""
    return (gc.is_tracked(item) or (type(item) is np.ndarray and _may_hold(item)) for item in items)


def _items(array: Any) -> Iterator[Edge]:
    """Yield the items of an object array; those that lead nowhere, like strings, are left out."""
    if _dtype_of(array).kind != "O":
        return
    shape = _shape_of(array)
    items = array.ravel().tolist() if len(shape) != 1 else array.tolist()
    for number in compress(range(len(items)), _is_followed(items)):
        at = ", ".join(str(place) for place in np.unravel_index(number, shape)) if len(shape) != 1 else str(number)
        yield array, items[number], f"[{at or '()'}]"


def _memory(array: Any) -> Iterator[Edge]:
    """Yield the object whose memory *array* shows: the array it is a view of, or a tensor."""
    base = _base_of(array)
    if base is not None and next(_is_followed([base])):
        yield array, base, ".base"


def untracked_holders(objects: list[Any], target: object) -> list[Any]:
    """Return the untracked dicts and tuples through which tracked *objects* lead to *target*, each once.

    An array, a ``bytes`` or a plain ``object()`` is not tracked by the collector, and neither is a dict or a tuple that
    holds nothing else.
    """
    with gc_paused():
        found: dict[int, Any] = {}
        for start in range(0, len(objects), BATCH_OBJECTS):
            _follow(get_referents(*objects[start : start + BATCH_OBJECTS]), target, found)
        return list(found.values())


def _follow(things: list[Any], target: object, found: dict[int, Any]) -> None:
    """Look through *things* and what untracked containers among them hold; add to *found* what leads to *target*."""
    seen: set[int] = set()
    inside: list[tuple[Any, Any]] = []
    level = _untracked_inside(things, seen)
    while level:
        referents, _, owners = referents_of(level)
        for position, referent in enumerate(referents):
            if referent is target:
                owner = level[owners[position]]
                found[id(owner)] = owner
        nested = _positions_untracked(referents, kinds_of(referents))
        inside.extend((level[owners[position]], referents[position]) for position in nested)
        level = _untracked_inside([referents[position] for position in nested], seen)
    n_before = -1
    while n_before != len(found):
        n_before = len(found)
        found.update((id(outer), outer) for outer, inner in reversed(inside) if id(inner) in found)


def _untracked_inside(things: list[Any], seen: set[int]) -> list[Any]:
    """Return the untracked containers among *things* that are not in *seen*, and note them there."""
    new = {id(things[position]): things[position] for position in _positions_untracked(things, kinds_of(things))}
    new = {address: thing for address, thing in new.items() if address not in seen}
    seen.update(new)
    return list(new.values())
