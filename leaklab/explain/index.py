"""Build the graph of the heap: which object refers to which, in flat arrays.

One pass over the heap answers every later question. It costs two to three times a ``gc.collect()``, because everything
stays in C: the references of 50,000 objects are asked for at once, with a marker after each object's to tell where
they end, and no list is made per object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leaklab.addresses import addresses_of
from leaklab.explain.address_table import AddressTable
from leaklab.explain.referents import BATCH_OBJECTS, gc_paused, referents_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leaklab.explain.address_table import Ints


class HeapIndex:
    """The references between the objects of a heap, by number; no object is kept.

    Attributes:
        ids: Address of each vertex, int64. A vertex is the position of its object in the list the index was built of.
        forward_offsets: Where the references of each vertex begin in *forward_targets*; one more entry than vertices.
        forward_targets: The vertices referred to, vertex after vertex. The same reference may occur twice.
    """

    def __init__(self, ids: Ints, forward_offsets: Ints, forward_targets: Ints, table: AddressTable) -> None:
        self.ids = ids
        self.forward_offsets = forward_offsets
        self.forward_targets = forward_targets
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
    with gc_paused():
        ids = addresses_of(objects)
        table = AddressTable(ids)
        dropped = _dropped(table, ignored, len(objects), id(objects))
        batches = list(_batches(objects, table, dropped))
        n_references = np.concatenate([np.zeros(1, np.int64), *(counts for counts, _ in batches)])
        targets = np.concatenate([np.zeros(0, np.int32), *(batch for _, batch in batches)])
        offsets, targets = _with_hidden(np.cumsum(n_references), targets, table, dropped, hidden)
        return HeapIndex(ids, offsets, targets, table)


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


def _batches(objects: list[object], table: AddressTable, dropped: Ints | None) -> Iterator[tuple[Ints, Ints]]:
    """Yield for each batch of objects the number of references per object, and their targets."""
    for start in range(0, len(objects), BATCH_OBJECTS):
        batch = objects[start : start + BATCH_OBJECTS]
        _, addresses, owners = referents_of(batch)
        targets = table.positions(addresses)
        kept = targets >= 0
        if dropped is not None:
            kept &= ~dropped[targets]
            # The last marker counts up to one owner more than there are; it is no target, so its owner is never kept.
            kept &= ~np.append(dropped[start : start + len(batch)], True)[owners]
        yield np.bincount(owners[kept], minlength=len(batch)), targets[kept].astype(np.int32, copy=False)


def _with_hidden(
    offsets: Ints, targets: Ints, table: AddressTable, dropped: Ints | None, hidden: Sequence[tuple[object, ...]]
) -> tuple[Ints, Ints]:
    """Add the *hidden* references behind the others of their source."""
    if not hidden:
        return offsets, targets
    heads = table.positions(addresses_of([edge[0] for edge in hidden]))
    tails = table.positions(addresses_of([edge[1] for edge in hidden]))
    kept = (heads >= 0) & (tails >= 0)
    if dropped is not None:
        kept &= ~dropped[heads] & ~dropped[tails]
    order = np.argsort(heads[kept], kind="stable")
    heads, tails = heads[kept][order], tails[kept][order]
    grown = offsets + np.concatenate([[0], np.cumsum(np.bincount(heads, minlength=len(offsets) - 1))])
    return grown, np.insert(targets, offsets[heads + 1], tails)


def _reversed(offsets: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Return offsets and sources of the same edges turned round."""
    n_vertices = len(offsets) - 1
    counts = np.bincount(targets, minlength=n_vertices)
    packed = targets.astype(np.int64) << 32
    packed |= np.repeat(np.arange(n_vertices, dtype=np.int64), np.diff(offsets))
    packed.sort()  # numpy sorts numbers four times faster than it sorts their positions
    packed &= (1 << 32) - 1
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), packed.astype(np.int32)
