"""The memory as the explorer read it: its icicle, a search over all of its objects, what is known of one of them.

It is arrays and words, as a heap file has them. No object of the user is in it; one that is asked about is found again.
"""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.ask.alive import GoneError
from leaklab.ask.find import living_object
from leaklab.explain.heaps.found import find_in, found_record
from leaklab.explain.heaps.icicle import icicles_of
from leaklab.explorer.payload import Data, rows_data
from leaklab.explorer.rows import Found, Source
from leaklab.heap.nodes import TraitsTable
from leaklab.heap.saved.arrays import HeapArrays, SavedNodes
from leaklab.heap.saved.taking import take_heap
from leaklab.reports.saved_heap import SavedHeap, icicle_rows
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.python_traces import stack_of
from leaklab.runtime.sparse_graphs import breadth_first_order, csr_array
from leaklab.text import clip, format_bytes

if TYPE_CHECKING:
    from leaklab.runtime.addresses import Ints

MOST_FOUND = 200
MOST_HOLDERS = 30
_GRAPH = ".grad_fn"
_NAME = "the living heap"
_NO_EXPRESSION = "(no expression)"
_FOUND_COLUMNS = (
    ("bytes", "bytes"), ("comes back", "bytes"), ("expression", "text"), ("type", "text"),
    ("shape, dtype, device", "text"), ("begins at", "text"),
)  # fmt: skip
_HOLDER_COLUMNS = (("reference", "text"), ("holder", "text"), ("type", "text"))


class TakenHeap(Source):
    """What was alive when it was read, each object by its number.

    Args:
        namespace: The user's variables.
        summaries: Whether shapes may be shown.
    """

    def __init__(self, namespace: dict[str, Any], *, summaries: bool) -> None:
        if gc.isenabled():
            collect_quietly()
        arrays = take_heap(_NAME, namespace)
        self._heap = SavedNodes(arrays if summaries else _without_shapes(arrays))

    def data(self) -> Data:
        """Return the icicles, one for each device, and how much there is."""
        heap = self._heap
        total = heap.bytes_together(~heap.is_foreign)
        return {
            "devices": icicle_rows(icicles_of(heap)),
            "title": f"{heap.n_objects:,} objects, {format_bytes(total)}, without leaklab's own",
            "notes": [clip(note) for note in heap.arrays.notes],
        }

    def search(self, kind: str, where: str) -> Data:
        """Return the objects that fit as a table, with the number of each.

        Raises:
            QueryError: if *where* cannot be understood.
        """
        heap = self._heap
        record = found_record(heap, find_in(heap, kind, where), kind=kind, where=where, limit=MOST_FOUND)
        words = [" ".join(filter(None, (row.shape, row.dtype, row.device))) for row in record.rows]
        rows = [
            (row.n_bytes, row.exclusive_bytes, row.holder, row.kind, traits, row.place)
            for row, traits in zip(record.rows, words, strict=True)
        ]
        found = f"{record.n_found:,} of {record.n_objects:,} objects, together {format_bytes(record.n_bytes)}"
        more = f"; the largest {len(rows)} are shown" if record.n_found > len(rows) else ""
        return {
            "title": f"{found}{more}",
            "table": rows_data(_FOUND_COLUMNS, rows),
            "numbers": [row.number for row in record.rows],
        }

    def inspect(self, number: int) -> Data:
        """Return what is known of one object, who holds it, and what may be asked about it."""
        heap = self._heap
        vertex = self._checked(number)
        expression, place = heap.name_of(vertex)
        kind = heap.kinds[int(heap.kind_of[vertex])].name
        facts = [
            ("type", kind),
            ("expression", expression or "Python has none"),
            ("begins at", place),
            *self._traits(vertex),
            *self._sizes(vertex),
            ("made at", self._line(vertex)),
        ]
        holders, n_holders = self._holders(vertex)
        return {
            "number": vertex,
            "title": clip(expression or f"a {kind}"),
            "expression": clip(expression),
            "facts": [[name, clip(words, 1000)] for name, words in facts],
            "n_holders": n_holders,
            **holders,
        }

    def find(self, number: int) -> Found:
        """Return the living object."""
        vertex = self._checked(number)
        return Found(living_object(self._heap, vertex), self._heap.name_of(vertex)[0])

    def locate(self, number: int, key: str) -> tuple[int, str]:
        """Refuse: there is no recorded graph."""
        del number, key
        msg = "look at the object first, then open its holders"
        raise GoneError(msg)

    def saved(self) -> SavedHeap:
        """Return it as the user can have it: to be written as a page or a file."""
        return SavedHeap(self._heap.arrays)

    def close(self) -> None:
        """Forget it."""
        vars(self).clear()

    def _checked(self, number: int) -> int:
        if not 0 <= number < len(self._heap.kind_of):
            msg = "there is no such object"
            raise GoneError(msg)
        return number

    def _traits(self, vertex: int) -> list[tuple[str, str]]:
        """Return what a tensor or an array is, and the node of the autograd graph that made it."""
        heap = self._heap
        content = int(heap.contents.number_of[vertex])
        if content < 0:
            return []
        traits = heap.contents.table[content]
        rows: list[tuple[str, object]] = [("shape", traits.shape), ("dtype", traits.dtype), ("device", traits.device)]
        if traits.requires_grad is not None:
            rows.append(("requires_grad", traits.requires_grad))
            nodes = [
                each for each in heap.index.referents(vertex).tolist() if heap.reference_name(vertex, each) == _GRAPH
            ]
            graph = heap.kinds[int(heap.kind_of[nodes[0]])].name if nodes else "none"
            rows.append(("graph", graph))
        return [(name, "unknown" if value is None else str(value)) for name, value in rows]

    def _sizes(self, vertex: int) -> list[tuple[str, str]]:
        heap = self._heap
        own, used = int(heap.own_bytes[vertex]), int(heap.used_bytes[vertex])
        inside = heap.bytes_together(self._led_to(vertex))
        with_storage = f", {format_bytes(used)} with the memory of the tensor" if used != own else ""
        return [
            ("its own size", f"{format_bytes(own)}{with_storage}"),
            ("comes back if it goes", format_bytes(int(heap.exclusive_bytes[vertex]))),
            (
                "all that it leads to",
                f"{format_bytes(inside)}, including what others also keep; without classes and modules",
            ),
        ]

    @cached_property
    def _references(self) -> csr_array:
        """The references but those to classes, modules and running functions, which lead to everything."""
        heap = self._heap
        is_scope = np.array([kind.is_meta or kind.name in ("module", "frame") for kind in heap.kinds], bool)
        is_end = is_scope.take(heap.kind_of)
        places = [
            vertex for start, vertex in zip(heap.starts, heap.start_vertices.tolist(), strict=True) if start.is_place
        ]
        is_end[[vertex for vertex in places if vertex >= 0]] = True
        index = heap.index
        is_kept = ~is_end[index.forward_targets]
        offsets = np.append(0, np.cumsum(is_kept))[index.forward_offsets].astype(np.int32)
        targets = index.forward_targets[is_kept].astype(np.int32, copy=False)
        return csr_array((np.ones(len(targets)), targets, offsets), shape=(index.n_vertices, index.n_vertices))

    def _led_to(self, vertex: int) -> Ints:
        """Return for each object whether references lead to it from *vertex*."""
        mask = np.zeros(self._heap.index.n_vertices, bool)
        mask[breadth_first_order(self._references, vertex, return_predecessors=False)] = True
        return mask

    def _line(self, vertex: int) -> str:
        """Return the line of the program that made an object, where that is traced."""
        if not tracemalloc.is_tracing():
            return "not known: tracemalloc is off"
        try:
            borrowed = living_object(self._heap, vertex)
        except GoneError:
            return "not known: the object is gone"
        calls = stack_of(borrowed[0])
        borrowed.clear()
        if not calls:
            return "not known: it is older than the tracing"
        filename, line = calls[0]
        return f"{filename}:{line}"

    def _holders(self, vertex: int) -> tuple[Data, int]:
        heap = self._heap
        holders = np.unique(heap.index.referrers(vertex))
        holders = holders[~heap.is_foreign[holders]]
        nearest = holders[np.argsort(heap.paths.cost[holders] % (1 << 62), kind="stable")][:MOST_HOLDERS].tolist()
        rows = []
        for holder in nearest:
            name, _place = heap.name_of(holder)
            kind = heap.kinds[int(heap.kind_of[holder])].name
            rows.append((heap.reference_name(holder, vertex) or "inside it", name or _NO_EXPRESSION, kind))
        return {"holders": rows_data(_HOLDER_COLUMNS, rows), "numbers": nearest}, len(holders)


def _without_shapes(arrays: HeapArrays) -> HeapArrays:
    table = tuple(traits._replace(shape=None) for traits in arrays.contents.table)
    return replace(arrays, contents=TraitsTable(arrays.contents.number_of, table))
