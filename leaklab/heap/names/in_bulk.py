"""Name the references of a whole heap while it is read: keys of dicts, positions in lists, attributes of instances.

One number per reference. A name is written only where it was seen to be right: the value under that key, or the value
that the attribute has, is the object referred to. What is not named has no name, never a likely one.
"""

from __future__ import annotations

import collections
import types as types_module
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, product, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leaklab.heap.index import FIRST_POSITION, OWN_DICT, UNNAMED, NameTable
from leaklab.heap.names import name_references
from leaklab.heap.names.reference import (
    MAX_SHOWN_CHARACTERS,
    MISSING,
    Reference,
    c_descriptor,
    has_plain_access,
    is_name,
    literal,
    look_up,
    read_by,
    shown,
)
from leaklab.runtime.addresses import N_PLACES, addresses_of, picked, places_of
from leaklab.runtime.objects import has_base, is_tensor_type
from leaklab.runtime.referents import get_referents

if TYPE_CHECKING:
    from leaklab.heap.index import HeapIndex
    from leaklab.runtime.addresses import Ints, KindTable

_MOST_POSITIONS = 1 << 30
_SAMPLES = 8
"""So often an object with an unnamed reference is looked at for the names of its type."""
_MOST_ONE_BY_ONE = 2_000
"""Of a type that has an ``__getattr__`` of its own so many objects are asked one by one."""
_PROBE: Final[list[list[int]]] = [[], [], []]
_BACKWARDS: Final = {
    id(kind): [*map(id, get_referents(kind(_PROBE)))] == [*map(id, reversed(_PROBE))] for kind in (list, tuple)
}
"""Whether the collector is told of the items of a list and a tuple from the last to the first, as CPython does."""
_MAPPINGS: Final = [id(kind) for kind in (dict, collections.defaultdict, collections.OrderedDict)]
_MOST_BEFORE: Final = len(get_referents(collections.defaultdict(list)))
"""So much may a mapping refer to before its values: a defaultdict to what makes them; since Python 3.12 to its type."""


class BulkNames:
    """The names of the references that one pass reads, batch by batch."""

    def __init__(self) -> None:
        self.table = NameTable()
        self._key_at = np.zeros(N_PLACES, np.int64)
        self._number_at = np.full(N_PLACES, UNNAMED, np.int32)
        self._numbers: dict[int, int] = {}
        self._keys: list[object] = []  # keeps the texts, so that no address is used again meanwhile

    def of_batch(self, batch: list[object], kinds: Ints, addresses: Ints) -> Ints:
        """Return for each of *addresses*, as `leaklab.runtime.referents.referents_of` returned them, its number.

        Args:
            batch: Objects.
            kinds: The addresses of their types.
            addresses: Of what they refer to, with a marker after the references of each.
        """
        numbers = np.full(len(addresses), UNNAMED, np.int32)
        ends = np.flatnonzero(addresses == addresses[-1])
        starts = np.concatenate([[0], ends[:-1] + 1])
        for kind, is_backwards in _BACKWARDS.items():
            owners = np.flatnonzero(kinds == kind) if is_backwards else np.zeros(0, np.int64)
            lengths = np.fromiter(map(len, picked(batch, owners)), np.int64, len(owners))
            owners = owners[lengths == ends[owners] - starts[owners]]  # a place that is not filled yet is not told
            if len(owners):
                _name_positions(numbers, starts[owners], ends[owners])
        owners = np.flatnonzero(np.isin(kinds, _MAPPINGS))
        if len(owners):
            self._in_dicts(numbers, picked(batch, owners), starts[owners], ends[owners] - starts[owners], addresses)
        return numbers

    def _in_dicts(self, numbers: Ints, dicts: list[Any], starts: Ints, n_told: Ints, addresses: Ints) -> None:
        lengths = np.fromiter(map(len, dicts), np.int64, len(dicts))
        # A table of texts tells its values only, any other its keys as well, each behind its value.
        for factor, n_before in product((1, 2), range(_MOST_BEFORE + 1)):
            chosen = np.flatnonzero((n_told == factor * lengths + n_before) & (lengths > 0))
            if not len(chosen):
                continue
            tables, counts = picked(dicts, chosen), lengths[chosen]
            keys, values = list(chain.from_iterable(tables)), list(chain.from_iterable(map(dict.values, tables)))
            within = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
            places = np.repeat(starts[chosen], counts) + n_before + factor * within
            found = self._numbers_of_keys(keys)
            is_there = addresses[places] == addresses_of(values)
            numbers[places[is_there]] = found[is_there]
            if not is_there.all():
                others = np.flatnonzero(~is_there)
                self._in_other_order(numbers, addresses, places[others], picked(values, others), found[others])

    @staticmethod
    def _in_other_order(numbers: Ints, addresses: Ints, places: Ints, values: list[object], found: Ints) -> None:
        """Name the values of dicts that share their keys with others and tell them in the order of these.

        The places of one dict lie side by side, and hold the same values in another order.
        """
        number_of = {}
        for value, number in zip(values, found.tolist(), strict=True):
            number_of[id(value)] = UNNAMED if id(value) in number_of else number
        numbers[places] = [number_of.get(address, UNNAMED) for address in addresses[places].tolist()]

    def _numbers_of_keys(self, keys: list[object]) -> Ints:
        addresses = addresses_of(keys)
        places = places_of(addresses)
        missing = np.flatnonzero(self._key_at.take(places) != addresses)
        result = self._number_at.take(places)
        if len(missing):
            for place in missing.tolist():
                result[place] = self._number_of_key(keys[place])
            at = places[missing]
            self._key_at[at], self._number_at[at] = addresses[missing], result[missing]
        return result

    def _number_of_key(self, key: object) -> int:
        number = self._numbers.get(id(key))
        if number is None:
            if type(key) is int and 0 <= key < _MOST_POSITIONS:
                number = FIRST_POSITION - key
            else:
                text = literal(key)
                is_whole = text is not None and len(text) <= MAX_SHOWN_CHARACTERS
                number = self.table.number(f"[{text}]" if is_whole else f"value under {shown(key)}")
            self._numbers[id(key)] = number
            self._keys.append(key)
        return number


def _name_positions(numbers: Ints, starts: Ints, ends: Ints) -> None:
    """Name the references of lists or tuples, which are told from the last to the first."""
    counts = ends - starts
    behind = np.repeat(np.cumsum(counts), counts) - np.arange(int(counts.sum()))  # how many still come, itself too
    numbers[np.repeat(ends, counts) - behind] = FIRST_POSITION + 1 - behind


def name_attributes(
    objects: list[Any], index: HeapIndex, types: KindTable, own_dict_of: Ints, table: NameTable
) -> Ints:
    """Return the number of each reference of *index*, of which those that had none are named as attributes.

    *objects* are in the order of *index*; *own_dict_of* has for each its ``__dict__``, or -1.
    """
    names: Ints = index.names if index.names is not None else np.full(index.n_edges, UNNAMED, np.int32)
    targets = index.forward_targets
    owners = np.repeat(np.arange(index.n_vertices, dtype=np.int32), np.diff(index.forward_offsets))
    edges = np.flatnonzero(names == UNNAMED)
    mine, held = owners.take(edges), targets.take(edges)
    is_dict = types.rows.take(held) == _row_of(types, dict)
    is_scope = types.mask(lambda kind: has_base(kind, type) or kind is types_module.ModuleType)
    is_class = index.ids.take(held) == types.addresses.take(types.rows.take(mine))
    is_own = (own_dict_of.take(mine) == held) | (is_dict & is_scope.take(mine))
    names[edges[is_class]] = table.number(".__class__")
    names[edges[is_own]] = table.number(OWN_DICT)
    edges = edges[~(is_class | is_own)]
    rows = types.rows.take(owners.take(edges))
    if len(types.addresses) <= np.iinfo(np.uint16).max:
        rows = rows.astype(np.uint16)  # numpy sorts these by counting
    order = np.argsort(rows, kind="stable")
    edges, rows = edges[order], rows[order].astype(np.int32)
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))  # none, where every reference has a name already
    attributes = _Attributes(objects, index, owners, names, table)
    for first, last in zip(firsts.tolist(), np.append(firsts[1:], len(rows)).tolist(), strict=False):
        attributes.name(types.types[int(rows[first])], edges[first:last])
    return names


def _row_of(types: KindTable, kind: type) -> int:
    found = np.flatnonzero(types.addresses == id(kind))
    return int(found[0]) if len(found) else -1


@dataclass(slots=True, eq=False)
class _Attributes:
    """References that are attributes; borrowed for the length of one pass."""

    objects: list[Any]
    index: HeapIndex
    owners: Ints
    names: Ints
    table: NameTable

    def name(self, kind: type, edges: Ints) -> None:
        """Name the references *edges* of all objects of one type: ask a few for their names, then try these on all."""
        tried: set[str] = set()
        group = _ReferencesOfType(self, edges)
        left = np.arange(len(edges))  # places in *edges*
        for round_number in range(_SAMPLES):
            if not len(left):
                return
            place = int(left[(len(left) - 1) * (round_number % 3) // 2])
            edge = int(edges[place])
            held = self.objects[self.index.forward_targets[edge]]
            found = name_references(self.objects[self.owners[edge]], held)
            fresh = [reference for reference in found if reference.text not in tried]
            for reference in fresh:
                tried.add(reference.text)
                if reference.suffix == reference.text and is_name(reference.text[1:]):
                    where = left[group.refers_by(kind, reference.text[1:], left)]
                    self.names[edges[where]] = self.table.number(reference.text)
            if fresh and self.names[edge] == UNNAMED:
                self.names[edge] = self.table.number(_words(fresh[0]))
            left = left[self.names.take(edges.take(left)) == UNNAMED] if fresh else left[left != place]


class _ReferencesOfType:
    """References of the objects of one type, object after object."""

    def __init__(self, attributes: _Attributes, edges: Ints) -> None:
        mine = attributes.owners.take(edges)
        is_first = np.diff(mine, prepend=-1) != 0
        self._number = np.cumsum(is_first, dtype=np.int32) - 1  # for each reference that of its object
        self._held = attributes.index.ids.take(attributes.index.forward_targets.take(edges))
        self._objects = picked(attributes.objects, mine[is_first])

    def refers_by(self, kind: type, name: str, places: Ints) -> Ints:
        """Return for each of *places* whether the reference there leads to what its object has as *name*."""
        read = _reader(kind, name, len(self._objects))
        if read is None:
            return np.zeros(len(places), bool)
        is_it: Ints = addresses_of(read(self._objects)).take(self._number.take(places)) == self._held.take(places)
        return is_it


def _words(reference: Reference) -> str:
    """Return a name that reads like Python only if it is."""
    is_python = reference.suffix == reference.text
    return reference.text if is_python or not reference.text.startswith((".", "[")) else f"reference {reference.text}"


def _reader(kind: type, name: str, n_objects: int) -> Callable[[list[Any]], list[Any]] | None:
    """Return what reads the attribute *name* of objects of *kind* without running anybody's code; None if nothing."""
    in_class, descriptor = look_up(kind, name), c_descriptor(kind, name)
    is_plain = has_plain_access(kind) and look_up(kind, "__getattr__") is MISSING
    if in_class is MISSING:
        if is_plain and not has_base(kind, types_module.ModuleType):  # a module may have a function of that name
            return lambda things: list(map(getattr, things, repeat(name), repeat(MISSING)))
        return (
            (lambda things: [_in_instance(thing, name) for thing in things]) if n_objects <= _MOST_ONE_BY_ONE else None
        )
    if descriptor is MISSING or is_tensor_type(kind):  # torch asks a subclass of the user's for what it reads
        return None
    return lambda things: _read_by(descriptor, things)


def _read_by(descriptor: Any, things: list[Any]) -> list[object]:
    try:
        return list(map(descriptor.__get__, things))
    except (AttributeError, TypeError, ValueError, RuntimeError):  # one has none: all are asked one by one
        return [read_by(descriptor, thing) for thing in things]


def _in_instance(thing: object, name: str) -> object:
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return MISSING
