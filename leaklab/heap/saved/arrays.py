"""A heap that was saved: everything that `leaklab.heap.nodes.HeapNodes` tells, from arrays and words alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leaklab.heap.dominators import DominatorTree, dominators
from leaklab.heap.index import FIRST_POSITION, OWN_DICT, UNNAMED
from leaklab.heap.names_by_others import route_to
from leaklab.heap.nodes import HeapNodes, NodeType, StorageUse, TraitsTable, in_own_modules
from leaklab.heap.shortest_paths import PathTree, paths_from, reach

if TYPE_CHECKING:
    from leaklab.heap.index import HeapIndex
    from leaklab.heap.shortest_paths import Start
    from leaklab.runtime.addresses import Ints

_KEY = re.compile(r"\['([^\W\d]\w*)'\]")
_DIGITS = re.compile(r"\['(\d+)'\]")
_LOCAL = re.compile(r"local '(.+)' of .+")
_INTO_GRAPH = re.compile(r"\.(grad_fn|next_functions|variable|_saved|_raw_saved)")
_TABLES = ("._parameters", "._buffers", "._modules")
_LISTS = ("Sequential", "ModuleList", "ParameterList")
_LISTS_OF_MODULES = tuple(f"torch.nn.modules.container.{name}" for name in _LISTS)


@dataclass(frozen=True, slots=True, eq=False)
class HeapArrays:
    """Everything that is kept of a heap: flat arrays by the numbers of its objects, and words.

    Attributes:
        name: What the user calls the moment.
        taken_at: Seconds since the epoch.
        environment: Versions.
        notes: What could not be looked at.
        index: Who refers to whom, with the numbers of the names of references.
        texts: The names of references, by their numbers.
        kind_of: For each object the number of its type.
        kinds: The types.
        own_bytes: Of each object alone.
        contents: What tensors and arrays are.
        storages: The memory of tensors.
        starts: Where paths begin; their addresses mean nothing.
        start_vertices: The object of each, -1 where it is none of the heap.
        namespace: The dict of the user's variables, -1 if there is none.
        own: The objects that are leaklab's.
        n_listed: So many of the objects the collector listed.
    """

    name: str
    taken_at: float
    environment: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    index: HeapIndex
    texts: tuple[str, ...]
    kind_of: Ints
    kinds: tuple[NodeType, ...]
    own_bytes: Ints
    contents: TraitsTable
    storages: StorageUse
    starts: tuple[Start, ...]
    start_vertices: Ints
    namespace: int
    own: Ints
    n_listed: int


class NamedStep(NamedTuple):
    """One step of a path: the reference as a person writes it, the object, and Python for it, empty without any."""

    reference: str
    vertex: int
    expression: str


class _NamedReference(NamedTuple):
    """A reference with its name."""

    name: str
    holder: int
    held: int


class SavedNodes(HeapNodes):
    """The objects of a heap at one moment, of which nothing but *arrays* is left."""

    def __init__(self, arrays: HeapArrays) -> None:
        self.arrays = arrays
        self.index = arrays.index
        self.kind_of = arrays.kind_of
        self.starts = arrays.starts
        self.n_listed = arrays.n_listed

    @property
    def kinds(self) -> Sequence[NodeType]:
        """The types."""
        return self.arrays.kinds

    @property
    def own_bytes(self) -> Ints:
        """Of each object alone."""
        return self.arrays.own_bytes

    @property
    def contents(self) -> TraitsTable:
        """Of tensors and arrays."""
        return self.arrays.contents

    @property
    def storages(self) -> StorageUse:
        """Of tensors."""
        return self.arrays.storages

    @property
    def namespace(self) -> int:
        """The dict of the user's variables, -1 if there is none."""
        return self.arrays.namespace

    @property
    def start_vertices(self) -> Ints:
        """Of the roots."""
        return self.arrays.start_vertices

    @cached_property
    def own_dicts(self) -> Ints:
        """For each object its ``__dict__``, -1 where it has none."""
        index, names = self.index, self.index.names
        found: Ints = np.full(index.n_vertices, -1, np.int32)
        if names is not None and OWN_DICT in self.arrays.texts:
            edges = np.flatnonzero(names == self.arrays.texts.index(OWN_DICT))
            holders = np.searchsorted(index.forward_offsets, edges, side="right") - 1
            found[holders] = index.forward_targets[edges]
        return found

    @cached_property
    def roots(self) -> Ints:
        """Where everything that is alive begins."""
        has_namespace = self.arrays.namespace >= 0
        kept = np.array([not (has_namespace and start.is_variable) for start in self.starts], bool)
        found = np.unique(np.append(self.start_vertices[kept], self.arrays.namespace))
        return found[found >= 0].astype(np.int64)

    @cached_property
    def is_foreign(self) -> Ints:
        """For each object whether it is leaklab's."""
        mask = in_own_modules(self.starts, self.paths)
        mask[self.arrays.own] = True
        return mask

    @cached_property
    def paths(self) -> PathTree:
        """The cheapest path to each object."""
        costs = np.ones(self.index.n_vertices, np.int64)
        is_scope = np.array([kind.is_meta or kind.name == "module" for kind in self.kinds], bool).take(self.kind_of)
        own = np.where(is_scope, -1, self.own_dicts).astype(np.int32)
        vertices, namespace = self.start_vertices, self.arrays.namespace
        return paths_from(self.index, self.starts, vertices, namespace, costs=costs, own_dicts=own)

    @cached_property
    def dominators(self) -> DominatorTree:
        """Who alone keeps whom alive; what no root reaches counts as a root: it is alive too."""
        is_orphan = self.paths.root_of < 0
        is_orphan[self.roots] = False
        return dominators(self.index, reach(self.index, np.union1d(self.roots, np.flatnonzero(is_orphan))))

    def reference_name(self, holder: int, held: int) -> str:
        """Return the first name of the references from one object to another; empty if they have none."""
        index = self.index
        if index.names is None:
            return ""
        start = int(index.forward_offsets[holder])
        numbers = index.names[start + np.flatnonzero(index.referents(holder) == held)]
        named = numbers[numbers != UNNAMED]
        return self._text(int(named[0])) if len(named) else ""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.arrays.texts)}

    def number_of_text(self, text: str) -> int | None:
        """Return the number of a name of references, None if none has it."""
        return self._numbers.get(text)

    def _text(self, number: int) -> str:
        return f"[{FIRST_POSITION - number}]" if number <= FIRST_POSITION else self.arrays.texts[number]

    def python_along(self, vertices: Sequence[int], known: str | None = None) -> list[tuple[int, str]]:
        """Return the objects that are steps along *vertices*, with Python for each, empty where there is none."""
        start = self.starts[int(self.paths.root_of[vertices[0]])]
        if known is not None:
            start = replace(start, expression=known, is_variable=True, is_place=False)
        return [(step.vertex, step.expression) for step in self._steps_along(start, list(vertices))]

    def key_of(self, mapping: int, value: int) -> int:
        """Return the object under which a dict has *value*; -1 where that is a text or number, or nothing is known.

        A dict whose keys are not all texts tells each key behind its value.
        """
        index, names = self.index, self.index.names
        if names is None:
            return -1
        start, end = (int(offset) for offset in index.forward_offsets[mapping : mapping + 2])
        for edge in (start + np.flatnonzero(index.forward_targets[start : end - 1] == value)).tolist():
            behind = int(names[edge + 1])
            is_key = behind == UNNAMED or (behind >= 0 and self._text(behind).startswith("key "))
            if self._text(int(names[edge])).startswith("value under <") and is_key:
                return int(index.forward_targets[edge + 1])
        return -1

    def is_key(self, holder: int, held: int) -> bool:
        """Return whether *held* is a tensor that *holder*, a dict, has as a key."""
        name = self.reference_name(holder, held)
        is_dict = "dict" in self.kinds[int(self.kind_of[holder])].name.lower()
        return bool(self.contents.number_of[held] >= 0 and (name.startswith("key ") or (not name and is_dict)))

    def steps_to(self, vertex: int) -> list[NamedStep]:
        """Return the best path to an object, which a root reaches, as a report writes it."""
        path = route_to(self, vertex)
        return self._steps_along(self.starts[int(self.paths.root_of[path[0]])], path)

    def _steps_along(self, start: Start, vertices: list[int]) -> list[NamedStep]:
        first = vertices[0]
        kind = self.kinds[int(self.kind_of[first])].name
        is_scope = not start.is_variable and kind == "dict" and bool(start.expression)
        hops = self._folded(vertices, is_scope=is_scope)
        if not hops:
            expression = f"{start.expression}{OWN_DICT}" if is_scope else start.expression
            return [NamedStep(expression or kind, first, expression)]
        return list(self._in_words(start, hops, is_step=not (is_scope or start.is_place)))

    def _folded(self, vertices: list[int], *, is_scope: bool) -> list[_NamedReference]:
        """Return the references along a path, those folded into one that programmers write as one."""
        hops: list[_NamedReference] = []
        for holder, held in itertools.pairwise(vertices):
            name = self.reference_name(holder, held)
            if hops and hops[-1].name == OWN_DICT:
                holder = hops.pop().holder  # noqa: PLW2901 - of whose attributes this is one
                name = _attribute(name)
            elif is_scope and not hops:
                name = _attribute(name)
            if hops and hops[-1].name in _TABLES:
                folded = self._part_of_module(self.kinds[int(self.kind_of[hops[-1].holder])], name)
                if folded:
                    holder, name = hops.pop().holder, folded  # noqa: PLW2901 - the module
            hops.append(_NamedReference(name, holder, held))
        return hops

    @staticmethod
    def _part_of_module(kind: NodeType, name: str) -> str:
        """Return how a parameter, buffer or module of a ``torch.nn.Module`` is written; empty where it is no such."""
        if not kind.is_torch_module:
            return ""
        key, digits = _KEY.fullmatch(name), _DIGITS.fullmatch(name)
        if digits is not None:
            return f"[{digits[1]}]" if kind.name in _LISTS_OF_MODULES else ""
        return f".{key[1]}" if key is not None and key[1] not in kind.hidden else ""

    def _in_words(self, start: Start, hops: list[_NamedReference], *, is_step: bool) -> Iterator[NamedStep]:
        known = start.expression
        if is_step:
            first = hops[0].holder
            yield NamedStep(known or self.kinds[int(self.kind_of[first])].name, first, known)
        for number, (name, holder, held) in enumerate(hops):
            local = _LOCAL.fullmatch(name) if not number else None
            if local is not None:
                known = local[1]
            else:
                is_python = name.startswith((".", "[")) and not self._is_hidden(name, holder, held)
                known = f"{known}{name}" if known and is_python else ""
            words = name or f"reference inside {self.kinds[int(self.kind_of[holder])].name}"
            is_whole = known and local is None and not number and not is_step
            yield NamedStep(known if is_whole else words, held, known)

    def _is_hidden(self, name: str, holder: int, held: int) -> bool:
        """Return whether Python gives something else by that name, or would unpack a graph to give it."""
        is_of_class = self.kinds[int(self.kind_of[holder])].is_meta
        is_other = name == OWN_DICT or self.kinds[int(self.kind_of[held])].is_descriptor
        return _INTO_GRAPH.match(name) is not None or (is_of_class and is_other)


def _attribute(name: str) -> str:
    """Return a key of a dict of attributes as the attribute."""
    key = _KEY.fullmatch(name)
    if key is not None:
        return f".{key[1]}"
    return f"{OWN_DICT}{name}" if name.startswith("[") else name
