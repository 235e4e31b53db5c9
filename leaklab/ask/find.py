"""Find the living objects that fit a condition, from Python.

What was found in arrays that were read from the living heap is found there again by `living_object`.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.ask.alive import GoneError
from leaklab.explain.heaps.found import find_in, found_record, row_limit, wanted_type
from leaklab.explain.heaps.query import parse
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.live_nodes import LiveNodes
from leaklab.heap.names import name_references
from leaklab.heap.nodes import MIN_DATA_BYTES
from leaklab.heap.view import NO_BIRTHS
from leaklab.measure.checkpoint import whole_heap
from leaklab.reports.found import FoundObjects
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import type_name
from leaklab.runtime.referents import contents_of
from leaklab.text import shorten
from leaklab.version import environment

if TYPE_CHECKING:
    from leaklab.heap.nodes import HeapNodes


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


_MOST_HOLDERS = 200
_KIND_LIMIT = 120


def living_object(heap: HeapNodes, vertex: int) -> list[Any]:
    """Return the object as the only item of a list, if it still is where it was.

    An address says little once an object is gone: another may lie there by now. So one that held the object then must
    hold it still, unless no object did that the collector lists: what a running function or C++ holds.

    Args:
        heap: Of this process, with the addresses of its objects.
        vertex: The object.

    Raises:
        GoneError: if it is gone, or others hold it by now.
    """
    address, kind = int(heap.index.ids[vertex]), heap.kinds[int(heap.kind_of[vertex])].name
    holders = np.unique(heap.index.referrers(vertex))[:_MOST_HOLDERS]
    with whole_heap() as objects:
        addresses = addresses_of(objects)
        known = np.flatnonzero(np.isin(addresses, heap.index.ids[holders])).tolist()
        for place in known:
            for child in contents_of(objects[place]):
                if id(child) == address and type_name(type(child)) == kind:
                    return [child]
        for place in np.flatnonzero(addresses == address).tolist():
            # What a tensor or an autograd node holds in C++ only its names tell.
            is_held = not known or any(name_references(objects[at], objects[place]) for at in known)
            if is_held and type_name(type(objects[place])) == kind:
                return [objects[place]]
    msg = f"that {shorten(kind, _KIND_LIMIT)} is gone, or other objects hold it now: read the memory again"
    raise GoneError(msg)
