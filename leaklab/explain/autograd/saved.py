"""Add up what the nodes of a graph saved: each storage once, with who else holds it."""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leaklab.explain.autograd.nodes import Node, State
from leaklab.heap.folding import shows_parts
from leaklab.heap.names import best_reference
from leaklab.heap.names.containers import keys_of
from leaklab.model.autograd import GraphPart, KeptTensor, Sharing
from leaklab.runtime.containers import EMPTY, items_in, keys_in
from leaklab.runtime.objects import (
    has_base,
    is_kind_of,
    is_tensor,
    is_tensor_type,
    loaded_type,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.ours import HISTORY_HOMES, is_machinery
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import storage_bytes, storages_of

MAX_OBJECTS = 200_000
"""A search of so many objects takes 0.2 s; of more objects only the first are searched."""
_ATOMS = frozenset(map(id, (str, bytes, bytearray, int, float, complex, bool, type(None), range, slice)))
_NOT_ENTERED: tuple[type, ...] = (
    type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType,
)  # fmt: skip
_NOT_ENTERED_PACKAGES = ("asyncio.", "logging.")
_MAX_STEPS = 30
_TABLES = ("._parameters", "._buffers", "['_parameters']", "['_buffers']")
_FOLDS = (
    (re.compile(r"\.__dict__\['([^\W\d]\w*)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['([^\W\d]\w*)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters)\['(\d+)'\]"), r"[\1]"),
)
Key = tuple[str, int]
"""Of a storage, or of a tensor whose storage torch does not show."""
_MAX_SAVERS = 8
"""Operations named for one storage: a weight that every step uses is saved by thousands of nodes, of few operations."""


@dataclass(slots=True)
class SavedStorage:
    """Memory that at least one operation saved.

    Attributes:
        n_bytes: None where torch does not show it.
        words: Type, shape, dtype and device of the first tensor saved with it.
        savers: Positions of the nodes, each with the name under which it saved.
        is_packed: Whether a pack hook put it there.
    """

    n_bytes: int | None
    words: tuple[str, tuple[int, ...], str, str]
    savers: list[tuple[int, str]] = field(default_factory=list)
    is_packed: bool = False
    sharing: Sharing = Sharing.GRAPH
    shared_with: str = ""


class SavedStorages:
    """What the nodes saved.

    Attributes:
        by_key: Every storage.
        n_saved: Saved tensors; *n_packed* of them packed by hooks, *n_opaque* of those without any tensor inside.
        n_freed: Saved tensors that a backward pass has freed.
        unsaved_leaf_bytes: Memory of leaves that no operation saved.
        unheld_leaf_bytes: Memory of leaves, saved or not, that no variable was found to hold.
    """

    def __init__(self, nodes: list[Node], found: FoundTensors) -> None:
        """Read the fields of *nodes*, and look among the *found* tensors for who else holds their memory."""
        self.by_key: dict[Key, SavedStorage] = {}
        self.n_saved = self.n_packed = self.n_opaque = self.n_freed = 0
        self._nodes = nodes
        for position, node in enumerate(nodes):
            for one in node.fields:
                self._count(one.state, n_tensors=len(one.tensors))
                for tensor in one.tensors:
                    self._add(tensor, position, one.name, is_packed=one.state is State.PACKED)
        held = self._mark_variables(found)
        self._mark_leaves(found, held)

    def total(self, sharing: Sharing | None = None) -> int:
        """Return the bytes of all storages, or of those shared in one way."""
        wanted = [one for one in self.by_key.values() if sharing is None or one.sharing is sharing]
        return sum(one.n_bytes or 0 for one in wanted)

    @property
    def n_unknown(self) -> int:
        """How many saved tensors are of unknown size."""
        return sum(1 for one in self.by_key.values() if one.n_bytes is None)

    def parts(self, name_of: dict[int, str]) -> tuple[GraphPart, ...]:
        """Add up by part, most bytes first.

        Args:
            name_of: Position of each node that counts, with the part it belongs to.
        """
        all_bytes, own_bytes = Counter[str](), Counter[str]()
        for one in self.by_key.values():
            savers = {name_of[position] for position, _field in one.savers if position in name_of}
            n_others = sum(1 for position, _field in one.savers if position not in name_of)
            for name in savers:
                all_bytes[name] += one.n_bytes or 0
                if len(savers) == 1 and not n_others and one.sharing is Sharing.GRAPH:
                    own_bytes[name] += one.n_bytes or 0
        counts: dict[str, Counter[State]] = {name: Counter() for name in name_of.values()}
        for position, name in name_of.items():
            counts[name].update(one.state for one in self._nodes[position].fields)
        n_nodes = Counter(name_of.values())
        parts = [
            GraphPart(
                name, n_nodes[name], count[State.HELD] + count[State.PACKED], count[State.FREED],
                count[State.PACKED], all_bytes[name], own_bytes[name],
            )
            for name, count in counts.items()
        ]  # fmt: skip
        return tuple(sorted(parts, key=lambda part: (-part.n_bytes, -part.n_nodes, part.name)))

    def rows(self) -> tuple[KeptTensor, ...]:
        """Return the storages, those that are alike together, largest first."""
        alike: Counter[KeptTensor] = Counter(map(self._row, self.by_key.values()))
        rows = [
            row
            if count == 1
            else replace(row, count=count, n_bytes=None if row.n_bytes is None else row.n_bytes * count)
            for row, count in alike.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-(row.n_bytes or 0), row.saved_by)))

    def _count(self, state: State, *, n_tensors: int) -> None:
        if state is State.FREED:
            self.n_freed += 1
            return
        self.n_saved += 1
        if state is State.PACKED:
            self.n_packed += 1
            self.n_opaque += not n_tensors

    def _add(self, tensor: Any, position: int, name: str, *, is_packed: bool) -> None:
        for key, n_bytes in _keys_of(tensor):
            storage = self.by_key.get(key)
            if storage is None:
                storage = self.by_key[key] = SavedStorage(n_bytes, _words(tensor))
            storage.savers.append((position, name))
            storage.is_packed |= is_packed

    def _mark_variables(self, found: FoundTensors) -> set[int]:
        """Name the variable that holds a storage, and return the storages of everything that variables hold."""
        held: set[int] = set()
        for tensor in found.tensors:
            for key, _n_bytes in storages_of(tensor) or ():
                storage = self.by_key.get(("storage", key))
                if storage is not None and storage.sharing is Sharing.GRAPH:
                    storage.sharing, storage.shared_with = Sharing.VARIABLE, found.name_of(tensor)
                held.add(key)
        return held

    def _mark_leaves(self, found: FoundTensors, held: set[int]) -> None:
        leaves = [node.leaf for node in self._nodes if node.leaf is not None]
        known = {id(tensor) for tensor in found.tensors}
        for leaf in leaves:
            for key, _n_bytes in storages_of(leaf) or ():
                storage = self.by_key.get(("storage", key))
                if storage is not None:
                    storage.sharing = Sharing.LEAF
                    storage.shared_with = found.name_of(leaf) if id(leaf) in known else storage.shared_with
        sizes = storage_bytes(leaves)
        saved = {number for kind, number in self.by_key if kind == "storage"}
        self.unsaved_leaf_bytes = sum(size for key, size in sizes.items() if key not in saved)
        self.unheld_leaf_bytes = sum(size for key, size in sizes.items() if key not in held)

    def _row(self, one: SavedStorage) -> KeptTensor:
        kind, shape, dtype, device = one.words
        savers = _first(f"{self._nodes[position].name}.{name}" for position, name in one.savers)
        lines = _first(self._nodes[position].line for position, _name in one.savers)
        return KeptTensor(
            kind, shape, dtype, device, 1, one.n_bytes, savers, lines, one.sharing, one.shared_with, one.is_packed
        )


def _keys_of(tensor: Any) -> list[tuple[Key, int | None]]:
    found = storages_of(tensor)
    if found is None:
        return [(("tensor", id(tensor)), None)]
    if not found:  # fake, meta and wrapper tensors have no memory of their own
        return [(("tensor", id(tensor)), 0)]
    return [(("storage", key), n_bytes) for key, n_bytes in found]


def _first(names: Iterable[str]) -> tuple[str, ...]:
    """Return the first few different names."""
    distinct = list(dict.fromkeys(name for name in names if name))
    return tuple(distinct[:_MAX_SAVERS])


def _words(tensor: Any) -> tuple[str, tuple[int, ...], str, str]:
    base: Any = loaded_type("torch", "Tensor")
    kind = type_name(type(tensor))
    with no_torch_functions():
        try:
            shape = tuple(int(size) for size in base.size(tensor))
            dtype = str(base.dtype.__get__(tensor)).removeprefix("torch.")
            return kind, shape, dtype, str(base.device.__get__(tensor))
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return kind, (), "?", "?"


class FoundTensors:
    """The tensors that objects or a namespace hold, each with the expression that leads to it.

    The search goes breadth first through `gc.get_referents`, which runs no code of the objects and reads no
    ``__dict__``; names are looked up afterwards, for the few objects that are shown. Modules, classes, functions and
    the notebook's own machinery are not entered: through them everything is reachable from anything.

    Attributes:
        tensors: In the order in which they were met, the nearest first.
        is_complete: Whether the search ended before `MAX_OBJECTS`.
    """

    def __init__(self, starts: Mapping[str, object]) -> None:
        """Search from *starts*: expressions, the preferred first, with their objects."""
        self.tensors: list[Any] = []
        self.is_complete = True
        self._names: dict[int, str] = {}
        self._parents: dict[int, Any] = {}
        self._seen: dict[int, Any] = {}
        self._enterable: dict[int, bool] = {}
        self._keys: list[tuple[Any, Any]] = []
        fresh: list[Any] = []
        for name, thing in starts.items():
            if self._meet(thing, fresh):
                self._names[id(thing)] = name
        while fresh or self._keys:
            # A parameter is a key of its optimizer's state, which is near, and has a name in its model.
            fresh = self._next(fresh) if fresh else self._those_by_key()

    def name_of(self, thing: object) -> str:
        """Return the expression for an object that was met; words for a reference that Python cannot write."""
        suffixes: list[str] = []
        while id(thing) not in self._names:
            holder = self._parents[id(thing)]
            reference = best_reference(holder, thing)
            suffixes.append(reference.suffix or self._entry(holder, thing) or f" ({reference.text})")
            thing = holder
            if len(suffixes) == _MAX_STEPS:
                return "..." + _folded("".join(reversed(suffixes)))
        return _folded(self._names[id(thing)] + "".join(reversed(suffixes)))

    def _entry(self, holder: Any, value: object) -> str:
        """Return Python for a value in a dict by the name of its key; empty where the key has no name."""
        keys = keys_of(holder, value) if is_kind_of(holder, dict) else []
        name = self.name_of(keys[0]) if keys and id(keys[0]) in self._seen else ""
        return f"[{name}]" if name and " (" not in name else ""

    def _meet(self, thing: Any, fresh: list[Any]) -> bool:
        kind = type(thing)
        if id(kind) in _ATOMS or id(thing) in self._seen:
            return False
        enterable = self._enterable.get(id(kind))
        if enterable is None:
            enterable = self._enterable[id(kind)] = _is_enterable(kind)
        if not enterable:
            return False
        if len(self._seen) >= MAX_OBJECTS:
            self.is_complete = False
            return False
        self._seen[id(thing)] = thing
        if is_tensor(thing):
            self.tensors.append(thing)
        else:
            fresh.append(thing)
        return True

    def _next(self, holders: list[Any]) -> list[Any]:
        fresh: list[Any] = []
        for holder in holders:
            keys = {id(key) for key in keys_in(holder)} if is_kind_of(holder, dict) else ()
            for held in _held_by(holder):
                if id(held) in keys:
                    self._keys.append((holder, held))
                elif self._meet(held, fresh) or (is_tensor(held) and self._is_better(holder, held)):
                    self._parents[id(held)] = holder
        return fresh

    def _is_better(self, holder: Any, tensor: object) -> bool:
        """Return whether *holder* is a table of a module, and no such table has led to the tensor, met before."""
        return self._is_table(holder) and id(tensor) in self._parents and not self._is_table(self._parents[id(tensor)])

    def _is_table(self, holder: Any) -> bool:
        """Return whether *holder* is a dict in which a module has its parameters or buffers."""
        owner = self._parents.get(id(holder)) if is_kind_of(holder, dict) else None
        name = best_reference(owner, holder).text if type(owner) is dict or shows_parts(type(owner)) else ""
        if type(owner) is dict:
            owner = self._parents.get(id(owner))
        return shows_parts(type(owner)) and name in _TABLES

    def _those_by_key(self) -> list[Any]:
        """Return the keys that no other holder has led to."""
        fresh: list[Any] = []
        for holder, key in self._keys:
            if self._meet(key, fresh):
                self._parents[id(key)] = holder
        self._keys.clear()
        return fresh


def user_variables(namespace: Mapping[str, object]) -> dict[str, object]:
    """Return the variables to search, the user's own names before those that begin with ``_``.

    A notebook's outputs (``Out``, ``_``) stay among them: they keep graphs as any variable does.
    """
    variables = [(name, value) for name, value in list(namespace.items()) if type(name) is str]
    variables.sort(key=lambda pair: pair[0].startswith("_") or pair[0] in HISTORY_HOMES)
    return dict(variables)


def _is_enterable(kind: type) -> bool:
    if is_tensor_type(kind):
        return True
    name = type_name(kind)
    is_users = not (is_machinery(name) or name.startswith(_NOT_ENTERED_PACKAGES))
    return is_users and not any(has_base(kind, base) for base in _NOT_ENTERED)


def _held_by(holder: Any) -> Iterable[Any]:
    kind = type(holder)
    if kind is list or kind is tuple:  # the collector lists their items from behind
        return [each for each in items_in(holder) if each is not EMPTY]
    if kind is types.FunctionType:  # its globals would lead to everything
        return [each for each in (holder.__closure__, holder.__defaults__, holder.__kwdefaults__) if each is not None]
    if kind is types.MethodType and not is_kind_of(holder.__self__, types.ModuleType):
        return [holder.__self__]
    return get_referents(holder)


def _folded(expression: str) -> str:
    """Write attributes as a person does: ``model[0].weight`` for ``model._modules['0']._parameters['weight']``."""
    for pattern, replacement in _FOLDS:
        expression = pattern.sub(replacement, expression)
    return expression
