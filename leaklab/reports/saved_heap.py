"""What the user holds of a whole heap with its references: to be asked, compared, saved and opened elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, overload

from leaklab.explain.found import found_record, row_limit, wanted_type
from leaklab.explain.icicle import icicle_of, icicles_of
from leaklab.explain.saved_heap import compare_heaps, shape_of, vertex_called, why_saved
from leaklab.files import FilePath
from leaklab.heap.find import find_in
from leaklab.heap.nodes_file import load_heap, save_heap
from leaklab.heap.saved_nodes import HeapArrays, SavedNodes
from leaklab.model.heap_shape import SHAPE_SCHEMA, HeapChange, HeapShape, IcicleNode
from leaklab.render.base import Displayed, Forms, FrameProperty, Report, returned_or_written
from leaklab.render.heap_icicle import render_heap_page
from leaklab.render.heap_shape import (
    change_words,
    render_change,
    render_change_html,
    render_shape,
    render_shape_html,
    shape_words,
)
from leaklab.render.tables import holder_change_table, kind_change_table, kind_table, saved_holder_table
from leaklab.reports.alive import WhyAlive
from leaklab.reports.found import FoundObjects
from leaklab.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_WORDS_LIMIT = 120


@dataclass(frozen=True, slots=True, repr=False)
class HeapComparison(Report[HeapChange]):
    """What differs between two saved heaps.

    Attributes:
        record: Every figure.
    """

    _forms: ClassVar = Forms(
        kind=HeapChange,
        format="leaklab heap comparison",
        schema=SHAPE_SCHEMA,
        text=render_change,
        html=render_change_html,
    )
    record: HeapChange

    holders = FrameProperty(holder_change_table)
    """What holders keep alive, before and after, the largest change first."""
    kinds = FrameProperty(kind_change_table)
    """Objects by type, before and after, the largest change first."""

    def __repr__(self) -> str:
        return f"<HeapComparison {shorten(change_words(self.record), _WORDS_LIMIT)}>"


class SavedHeap(Displayed):
    """Everything that was alive at one moment, with its references: ``leaklab.snapshot(references=True)``.

    It keeps nothing of the user's alive: it has the references between objects, their names, types and sizes, no
    values. It takes some 60 bytes an object. It can be saved, and opened elsewhere by `leaklab.load`, without torch.
    """

    __slots__ = ("__dict__", "_heap")

    def __init__(self, arrays: HeapArrays) -> None:
        self._heap = SavedNodes(arrays)

    @property
    def name(self) -> str:
        """What the user calls the moment."""
        return self._heap.arrays.name

    @property
    def taken_at(self) -> float:
        """Seconds since the epoch."""
        return self._heap.arrays.taken_at

    @property
    def n_objects(self) -> int:
        """Objects, without leaklab's own."""
        return self._heap.n_objects

    @property
    def n_references(self) -> int:
        """References between them."""
        return self._heap.index.n_edges

    @cached_property
    def shape(self) -> HeapShape:
        """What fills it: the record behind its tables."""
        return shape_of(self._heap)

    @cached_property
    def icicle(self) -> IcicleNode:
        """What keeps what alive, as a tree whose widths add up: groups, variables, attributes, tensors."""
        return icicle_of(self._heap)

    @overload
    def to_html(self, path: None = None) -> str: ...

    @overload
    def to_html(self, path: FilePath) -> None: ...

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the shape of the heap as a page of its own, with its icicle; with *path* write it and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return returned_or_written(render_heap_page(self.shape, icicles_of(self._heap)), path)

    @property
    def holders(self) -> pd.DataFrame:
        """Variables and other objects, what keeps most alive first: one row each."""
        return saved_holder_table(self.shape)

    @property
    def kinds(self) -> pd.DataFrame:
        """Types, the most bytes first: one row each."""
        return kind_table(self.shape)

    def find(self, type: str | type | None = None, where: str = "", *, limit: int = 100) -> FoundObjects:  # noqa: A002 - as `leaklab.find`
        """Find the objects that fit, as `leaklab.find` does; their age is not known here.

        Raises:
            QueryError: if *where* cannot be understood.
            TypeError: if an argument is of the wrong type.
            ValueError: if *limit* is negative.
        """
        kind, limit = wanted_type(type), row_limit(limit)
        found = find_in(self._heap, kind, where)
        arrays = self._heap.arrays
        return FoundObjects(
            found_record(
                self._heap,
                found,
                kind=kind,
                where=where,
                limit=limit,
                notes=arrays.notes,
                environment=arrays.environment,
            )
        )

    def why(self, what: str | int) -> WhyAlive:
        """Say why an object was alive: the best path to it, who refers to it, what would have come back.

        Args:
            what: Its expression as reports have it, which is read and never run, ``"trainer.history[0]['loss']"``; or
                its number, as the rows of `find` and `holders` have it.

        Raises:
            QueryError: if there is no such object.
        """
        vertex = vertex_called(self._heap, what)
        return WhyAlive(why_saved(self._heap, vertex, what if isinstance(what, str) else f"object {what}"))

    def compare(self, other: SavedHeap) -> HeapComparison:
        """Return what differs from this heap to *other*, a later one: by holders and by types.

        Raises:
            TypeError: if *other* is no saved heap.
        """
        later = _heap_of(other)
        return HeapComparison(compare_heaps(self._heap, later._heap, (self.shape, later.shape)))  # noqa: SLF001 - of the same class

    def save(self, path: FilePath, *, redact: bool = False) -> None:
        """Write it to *path*, which ends in ``.heap``: references, names, types, sizes, no values and no pickle.

        Args:
            path: The file.
            redact: Whether to hide the keys of dicts. Names of variables, attributes, functions and types stay.

        Raises:
            ReportError: for another suffix, or a file that cannot be written.
        """
        save_heap(self._heap.arrays, path, redact=redact)

    @classmethod
    def load(cls, path: FilePath) -> SavedHeap:
        """Return the heap that `save` wrote.

        Raises:
            ReportError: if the file cannot be read, is damaged, or holds something else.
        """
        return cls(load_heap(path))

    def _text(self) -> str:
        return render_shape(self.shape)

    def _fragment(self) -> str:
        return render_shape_html(self.shape)

    def __repr__(self) -> str:
        return f"<SavedHeap {shorten(shape_words(self.shape), _WORDS_LIMIT)}>"


def _heap_of(other: object) -> SavedHeap:
    if not isinstance(other, SavedHeap):
        msg = f"compare asks for another saved heap, not {type(other).__name__}"
        raise TypeError(msg)
    return other
