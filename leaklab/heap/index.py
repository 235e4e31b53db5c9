"""Build the graph of the heap: which object refers to which, in flat arrays.

One pass over the heap answers every later question. It costs about two ``gc.collect()``, because everything stays in C:
the references of thousands of objects are asked for at once, with a marker after each object's to show where they end,
and no list is made per object. The name of a reference is a number, too: from 0 on that of a text in a table, below
that of a position.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from leaklab.runtime.addresses import (
    N_PLACES,
    AddressTable,
    JoinedTable,
    KindTable,
    addresses_of,
    kinds_of,
    picked,
    places_of,
    types_at,
)
from leaklab.runtime.gc_control import gc_paused
from leaklab.runtime.referents import BATCH_OBJECTS, dict_pointers, referents_of, words_at
from leaklab.runtime.sparse_graphs import csr_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaklab.runtime.addresses import Ints


class HeapIndex:
    """The references between the objects of a heap, by number; no object is kept.

    Attributes:
        ids: Address of each vertex, int64. A vertex is the position of its object in the list the index was built of.
        forward_offsets: Where the references of each vertex begin in *forward_targets*; one more entry than vertices.
        forward_targets: The vertices referred to, vertex after vertex. The same reference may occur twice.
        names: For each reference the number of its name, as `leaklab.heap.names.in_bulk` gives them; None if the names
            were not asked for.
    """

    def __init__(
        self, ids: Ints, forward_offsets: Ints, forward_targets: Ints, table: AddressTable, names: Ints | None = None
    ) -> None:
        self.ids = ids
        self.forward_offsets = forward_offsets
        self.forward_targets = forward_targets
        self.names = names
        self._table = table
        self._reverse: tuple[Ints, Ints] | None = None

    def __repr__(self) -> str:
        return f"<HeapIndex: {self.n_vertices:,} objects, {self.n_edges:,} references>"

    @property
    def n_vertices(self) -> int:
        """Number of objects."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of references between them."""
        return len(self.forward_targets)

    @property
    def reverse(self) -> tuple[Ints, Ints]:
        """Offsets and sources of the references *to* each vertex, sources ascending; made when first asked for."""
        if self._reverse is None:
            self._reverse = _reversed(self.forward_offsets, self.forward_targets)
        return self._reverse

    def vertex_of(self, address: int) -> int:
        """Return the vertex of the object at *address*, -1 if it is not in the heap."""
        return self._table.position(address)

    def vertices_of(self, addresses: Ints) -> Ints:
        """Return the vertex of each of *addresses*, -1 where there is none."""
        return self._table.positions(np.asarray(addresses, dtype=np.int64))

    def referents(self, vertex: int) -> Ints:
        """Return the vertices that *vertex* refers to."""
        return self.forward_targets[self.forward_offsets[vertex] : self.forward_offsets[vertex + 1]]

    def referrers(self, vertex: int) -> Ints:
        """Return the vertices that refer to *vertex*, ascending."""
        offsets, sources = self.reverse
        return sources[offsets[vertex] : offsets[vertex + 1]]


def build_index(
    objects: list[object], *, ignored: Ints | None = None, hidden: Sequence[tuple[object, ...]] = ()
) -> HeapIndex:
    """Build the graph of *objects*.

    Args:
        objects: What ``gc.get_objects()`` returned, and after it any object that the collector does not track but that
            is to be a vertex. No object twice. The list itself never becomes part of the graph.
        ignored: Addresses of objects that get no reference, neither from nor to them: leaklab's own.
        hidden: References that the collector does not report, as ``(source, target)``; anything more in such a tuple
            is not looked at. One whose source or target is no vertex is left out.
    """
    return ReferencePass(objects, ignored).finish([], hidden)


# They refer to nothing that matters here; a plain object is also what marks the end of an object's references.
_PLAIN = np.array([*map(id, (bytes, types.CodeType, type, object, bool, type(None), int, float, str))], np.int64)


def _table_of(kinds: Ints) -> Ints:
    table = np.zeros(N_PLACES, np.int64)
    table[places_of(kinds)] = kinds  # one that shares its place with another is looked at in vain, no more
    return table


_PLAIN_AT = _table_of(_PLAIN)
_PLAIN_BUT_BYTES_AT = _table_of(_PLAIN[1:])


class ReferencePass:
    """One pass over the references of a heap, to which objects that it brings to light can be added afterwards.

    Args:
        objects: As `build_index` has it.
        ignored: The same.
        types: Those of *objects*, if they are known already.
        names: Names the references on the way.
        with_bytes: Whether bytes are among what `unlisted` yields.

    Attributes:
        table: The vertex of each address.
        types: The types of the objects.
    """

    def __init__(
        self,
        objects: list[object],
        ignored: Ints | None = None,
        types: KindTable | None = None,
        *,
        names: BatchNames | None = None,
        with_bytes: bool = False,
    ) -> None:
        self._objects = objects
        self.types = KindTable(kinds_of(objects)) if types is None else types
        self._ids = addresses_of(objects)
        self.table = AddressTable(self._ids)
        self._dropped = _dropped(self.table, ignored, len(objects), id(objects))
        self._counts: list[Ints] = []
        self._targets: list[Ints] = []
        self._unlisted: list[tuple[Ints, Ints]] = []  # per batch: addresses, and the vertices that refer to them
        self._plain_seen = np.zeros(N_PLACES, np.int64)
        self._is_run = False
        self._names = names
        self._numbers: list[Ints] = []  # per batch: those of the names
        self._plain_at = _PLAIN_BUT_BYTES_AT if with_bytes else _PLAIN_AT

    def unlisted(self) -> Iterator[list[object]]:
        """Make the pass; yield for each batch of objects those that they refer to and that are no vertices.

        Left out are numbers, strings and the like, which refer to nothing.

        Yields:
            The same object as often as it is referred to. To be looked at before the next list is asked for.
        """
        self._is_run = True
        with gc_paused():
            for start in range(0, len(self._objects), BATCH_OBJECTS):
                yield self._batch(start)

    def is_referred_to(self) -> npt.NDArray[np.bool_]:
        """Return for each vertex whether the pass has met a reference to it; to be asked when the pass is made."""
        met = np.zeros(len(self._ids), bool)
        for targets in self._targets:
            met[targets] = True
        return met

    def finish(self, extra: list[object], hidden: Sequence[tuple[object, ...]]) -> HeapIndex:
        """Return the graph.

        Args:
            extra: Objects that become vertices after the others; none of them is one already.
            hidden: As `build_index` has it.
        """
        if not self._is_run:
            for referents in self.unlisted():
                referents.clear()
        with gc_paused():
            n_references = np.concatenate([np.zeros(1, np.int64), *self._counts])
            targets = np.concatenate([np.zeros(0, np.int32), *self._targets])
            numbers = np.concatenate([np.zeros(0, np.int32), *self._numbers])
            self._counts.clear()
            self._targets.clear()
            self._numbers.clear()
            offsets = np.cumsum(n_references)
            ids, added = self._ids, _NO_REFERENCES
            table = self.table
            if extra:
                ids = np.concatenate([ids, addresses_of(extra)])
                table = JoinedTable(self.table, addresses_of(extra))
                added = self._around(extra, table)
                offsets = np.concatenate([offsets, np.full(len(extra), offsets[-1])])
            self._unlisted.clear()
            heads = table.positions(addresses_of([edge[0] for edge in hidden]))
            tails = table.positions(addresses_of([edge[1] for edge in hidden]))
            heads, tails = np.append(added[0], heads), np.append(added[1], tails)
            kept = _kept(heads, tails, len(offsets) - 1, self._dropped)
            order = kept[np.argsort(heads[kept], kind="stable")]
            before = offsets[heads[order] + 1]
            offsets = offsets + np.append(0, np.cumsum(np.bincount(heads[order], minlength=len(offsets) - 1)))
            targets = np.insert(targets, before, tails[order]) if len(order) else targets
            if self._names is None:
                return HeapIndex(ids, offsets, targets, table)
            more = np.append(added[2], [self._names.table.number(str(edge[2])) for edge in hidden]).astype(np.int32)
            return HeapIndex(ids, offsets, targets, table, np.insert(numbers, before, more[order]))

    def _batch(self, start: int) -> list[object]:
        """Note the references of one batch; return what is no vertex."""
        batch = self._objects[start : start + BATCH_OBJECTS]
        referents, addresses, owners = referents_of(batch)
        is_known, targets = self.table.look_up(addresses)
        heads = np.compress(is_known, owners)
        numbers = None
        if self._names is not None:
            kinds = self.types.kinds_of(np.arange(start, start + len(batch)))
            numbers = self._names.of_batch(batch, kinds, addresses).compress(is_known)
        unlisted = self._that_matter(referents, addresses, np.flatnonzero(~is_known))
        if self._dropped is not None:
            kept = ~(self._dropped[targets] | self._dropped[heads + np.int32(start)])
            heads, targets = heads[kept], targets[kept]
            numbers = None if numbers is None else numbers[kept]
        if numbers is not None:
            self._numbers.append(numbers)
        self._counts.append(np.bincount(heads, minlength=len(batch)))
        self._targets.append(targets.astype(np.int32, copy=False))
        self._unlisted.append((addresses[unlisted], owners[unlisted] + np.int32(start)))
        return picked(referents, unlisted)

    def _that_matter(self, referents: list[object], addresses: Ints, places: Ints) -> Ints:
        """Return those of *places* of *referents* where something lies that may refer to more.

        Most are the same names and small numbers again and again: what was found to be plain is not touched twice.
        """
        places = places.compress(addresses.take(places) != addresses[-1])  # the marker
        at = addresses.take(places)
        is_new = self._plain_seen.take(places_of(at)) != at
        places, at = places.compress(is_new), at.compress(is_new)
        kinds = kinds_of(picked(referents, places))
        is_plain = self._plain_at.take(places_of(kinds)) == kinds
        plain = at.compress(is_plain)
        self._plain_seen[places_of(plain)] = plain
        return places.compress(~is_plain)

    def _around(self, extra: list[object], table: AddressTable) -> tuple[Ints, Ints, Ints]:
        """Return holder, held and name of the references from and to *extra*, objects that *table* contains by now.

        Who seemed to refer to one of them in the pass is asked again: an address may have been used again since.
        """
        n_known = len(self._ids)
        some = AddressTable(addresses_of(extra))
        seeming = [owners[some.positions(at) >= 0] for at, owners in self._unlisted]
        holders = np.unique(np.concatenate([np.zeros(0, np.int32), *seeming]))
        asked = np.concatenate([holders, np.arange(n_known, n_known + len(extra))]).astype(np.int64)
        things = [self._objects[holder] for holder in holders.tolist()] + extra
        _, addresses, owners = referents_of(things)
        held = table.positions(addresses)
        holder_of = np.append(asked, -1)[owners]
        wanted = (held >= 0) & ((held >= n_known) | (holder_of >= n_known))
        numbers = (
            np.zeros(len(addresses))
            if self._names is None
            else self._names.of_batch(things, kinds_of(things), addresses)
        )
        return holder_of[wanted], held[wanted], numbers[wanted]


_NO_REFERENCES = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _dropped(table: AddressTable, ignored: Ints | None, n_vertices: int, own_list: int) -> Ints | None:
    """Return which vertices are to stay without references; None if there is no such vertex."""
    addresses = np.append(np.zeros(0, np.int64) if ignored is None else ignored, own_list).astype(np.int64)
    vertices = table.positions(addresses)
    vertices = vertices[vertices >= 0]
    if len(vertices) == 0:
        return None
    dropped = np.zeros(n_vertices, dtype=bool)
    dropped[vertices] = True
    return dropped


def _kept(heads: Ints, tails: Ints, n_vertices: int, dropped: Ints | None) -> Ints:
    """Return the positions of those references of which both ends are vertices, and none is dropped."""
    kept = (heads >= 0) & (tails >= 0)
    if dropped is not None:
        is_dropped = np.append(dropped, np.zeros(n_vertices - len(dropped), bool))
        kept &= ~is_dropped[heads] & ~is_dropped[tails]
    return np.flatnonzero(kept)


def _reversed(offsets: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Return offsets and sources of the same edges turned round."""
    n_vertices = len(offsets) - 1
    # A conversion between two layouts of a sparse matrix: scipy counts, where numpy would have to sort.
    parts = (np.ones(len(targets), np.int8), targets, offsets.astype(targets.dtype))
    by_target = csr_array(parts, shape=(n_vertices, n_vertices)).tocsc()
    return by_target.indptr.astype(np.int64), by_target.indices.astype(np.int32, copy=False)


def ranges(starts: Ints, ends: Ints) -> Ints:
    """Return the numbers from each start up to its end, one range after the other."""
    counts = ends - starts
    before = np.cumsum(counts) - counts
    numbers: Ints = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


def own_dicts(index: HeapIndex, table: KindTable) -> Ints:
    """Return for each vertex that of its ``__dict__``, -1 for all but instances of Python classes that have one.

    Args:
        index: The heap, whose objects are alive.
        table: The types of the vertices.
    """
    result: Ints = np.full(index.n_vertices, -1, np.int32)
    offset_of = dict(dict_pointers(types_at(table.addresses)))
    edges = np.flatnonzero(table.mask_of([id(dict)]).take(index.forward_targets))
    owners = np.repeat(np.arange(index.n_vertices, dtype=np.int32), np.diff(index.forward_offsets)).take(edges)
    offsets = np.array([offset_of.get(kind, 0) for kind in table.addresses.tolist()], np.int64).take(table.rows)
    possible = offsets.take(owners) != 0
    edges, owners = edges.compress(possible), owners.compress(possible)
    targets = index.forward_targets.take(edges)
    is_own = words_at(index.ids.take(owners) + offsets.take(owners)) == index.ids.take(targets)
    result[owners[is_own]] = targets[is_own]
    return result


UNNAMED: Final = -1
"""The number of a reference that has no name."""
FIRST_POSITION: Final = -2
"""The number of ``[0]``; ``[1]`` is one less, and so on. So are the keys of dicts that are small whole numbers."""
OWN_DICT: Final = ".__dict__"


class NameTable:
    """The names of references, each with its number; numbers below zero are `UNNAMED` or positions."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of *text*."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> tuple[str, ...]:
        """All names, in the order of their numbers."""
        return tuple(self._numbers)


class BatchNames(Protocol):
    """Numbers the names of references while a pass reads them, batch by batch; `leaklab.heap.names.in_bulk` does."""

    table: NameTable

    def of_batch(self, batch: list[object], kinds: Ints, addresses: Ints) -> Ints:
        """Return the number of the name of each reference of *batch*."""
