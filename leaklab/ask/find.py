"""Find the living objects that fit a condition, from Python."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np

from leaklab.explain.found import found_record, row_limit, wanted_type
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.find import find_in
from leaklab.heap.live_nodes import LiveNodes
from leaklab.heap.nodes import MIN_DATA_BYTES
from leaklab.heap.query import parse
from leaklab.heap.view import NO_BIRTHS
from leaklab.reports.found import FoundObjects
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.gc_control import collect_quietly
from leaklab.version import environment


def find(
    type: str | type | None = None,  # noqa: A002 - what the user asks for is called that
    where: str = "",
    *,
    limit: int = 100,
    namespace: dict[str, Any] | None = None,
) -> FoundObjects:
    """Find the living objects that fit, with who holds each of them.

    Garbage is collected first, unless the user has switched the collector off. Looked at is all that the collector
    knows, what it does not list but graphs, arrays and running functions hold, and arrays and bytes of a kilobyte or
    more; no texts and numbers. No code of the user is run.

    Args:
        type: Of the objects: a class, its name with or without the module, or a pattern such as ``"torch.*"``. Objects
            of classes derived from it are not meant. None for any type.
        where: A condition, such as ``"dtype == 'float32' and bytes > 1 MiB"``. Properties are ``type``, ``module``,
            ``bytes``, ``exclusive``, ``shape``, ``ndim``, ``numel``, ``dtype``, ``device``, ``requires_grad``, ``age``;
            ``held_by('history')`` asks whether the path to the object begins at that variable. The condition is read
            by a parser of its own and never run.
        limit: So many objects get a row, the largest first; all are counted.
        namespace: The user's variables; by default the global variables of the caller.

    Returns:
        The answer. It is made of records: it keeps nothing alive.

    Raises:
        QueryError: if *where* cannot be understood; the message says where in it, and what is known.
        TypeError: if an argument is of the wrong type.
        ValueError: if *limit* is negative.
    """
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's variables
    kind, limit = wanted_type(type), row_limit(limit)
    _refuse_strangers(variables)
    parse(where)  # what is wrong with it is said before the heap is looked at
    young = [*gc.get_objects(generation=0), *gc.get_objects(generation=1)]
    fresh = addresses_of(young)
    young.clear()
    if gc.isenabled():
        collect_quietly()
    with borrow_heap(NO_BIRTHS, variables, min_data_bytes=MIN_DATA_BYTES) as view:
        heap = LiveNodes(view)
        found = find_in(heap, kind, where, is_young=np.isin(heap.index.ids, fresh))
        record = found_record(
            heap,
            found,
            kind=kind,
            where=where,
            limit=limit,
            numbers=heap.index.ids,
            notes=tuple(view.notes),
            environment=environment(),
        )
    return FoundObjects(record)


def _refuse_strangers(namespace: object) -> None:
    if not isinstance(namespace, dict):
        msg = f"namespace must be a dict of variables, not {type(namespace).__name__}"
        raise TypeError(msg)
