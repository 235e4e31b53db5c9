"""Find an object of a heap that was read into arrays in the living heap again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.ask.alive import GoneError
from leaklab.collect.checkpoint import whole_heap
from leaklab.heap.names import name_references
from leaklab.runtime.addresses import addresses_of, contents_of
from leaklab.runtime.objects import type_name
from leaklab.text import shorten

if TYPE_CHECKING:
    from leaklab.heap.nodes import HeapNodes

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
    msg = f"that {shorten(kind, _KIND_LIMIT)} is gone, or others hold it by now: read the memory again"
    raise GoneError(msg)
