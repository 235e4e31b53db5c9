"""Describe the objects of a heap that fit a condition: sizes and holders of the largest, in records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leaklab.model.found import FoundObject, FoundRecord
from leaklab.runtime.objects import is_kind_of, type_name

if TYPE_CHECKING:
    from leaklab.heap.nodes import HeapNodes
    from leaklab.runtime.addresses import Ints

_NO_CONTENT = (None, None, None, None)


def found_record(
    heap: HeapNodes,
    found: Ints,
    *,
    kind: str,
    where: str,
    limit: int,
    numbers: Ints | None = None,
    notes: tuple[str, ...] = (),
    environment: tuple[tuple[str, str], ...] = (),
) -> FoundRecord:
    """Return the record of what fits.

    Args:
        heap: Where it was looked for.
        found: For each object whether it fits.
        kind: The type that was asked for.
        where: The condition.
        limit: So many objects get a row.
        numbers: What each object is called by: its address; None where it is the object's number in a file.
        notes: What could not be looked at.
        environment: Versions.
    """
    vertices = np.flatnonzero(found)
    used = heap.used_bytes
    shown = vertices[np.lexsort((heap.paths.cost[vertices], -used[vertices]))][:limit]
    rows = tuple(_row(heap, vertex, vertex if numbers is None else int(numbers[vertex])) for vertex in shown.tolist())
    return FoundRecord(
        kind=kind,
        where=where,
        n_found=len(vertices),
        n_bytes=heap.bytes_together(found),
        n_objects=heap.n_objects,
        rows=rows,
        is_live=numbers is not None,
        notes=notes,
        environment=environment,
    )


def _row(heap: HeapNodes, vertex: int, number: int) -> FoundObject:
    content = int(heap.contents.number_of[vertex])
    shape, dtype, device, requires_grad = heap.contents.table[content] if content >= 0 else _NO_CONTENT
    holder, place = heap.name_of(vertex)
    return FoundObject(
        kind=heap.kinds[int(heap.kind_of[vertex])].name,
        holder=holder,
        place=place,
        n_bytes=int(heap.used_bytes[vertex]),
        exclusive_bytes=int(heap.exclusive_bytes[vertex]),
        shape="" if shape is None else str(shape),
        dtype=dtype or "",
        device=device or "",
        requires_grad=requires_grad,
        number=number,
    )


def row_limit(limit: object) -> int:
    """Return *limit*, how many rows were asked for.

    Raises:
        TypeError: if it is no whole number.
        ValueError: if it is negative.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        msg = f"limit must be a whole number of rows, not {type(limit).__name__}"
        raise TypeError(msg)
    if limit < 0:
        msg = f"limit must be 0 or more, not {limit}"
        raise ValueError(msg)
    return limit


def wanted_type(asked: object) -> str:
    """Return the name of the type that was asked for, empty for any.

    Raises:
        TypeError: if it is neither a class nor a text.
    """
    if asked is None:
        return ""
    if is_kind_of(asked, type):
        return type_name(asked)  # type: ignore[arg-type]  # the real type was asked
    if type(asked) is str:
        return asked
    msg = f"type must be a class or the name of one, not {type_name(type(asked))}"
    raise TypeError(msg)
