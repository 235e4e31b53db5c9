"""Ask the collector what many objects refer to, at once and undisturbed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np

from leaklab.addresses import addresses_of

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints

BATCH_OBJECTS = 8_000
"""How many objects to ask for their references at once: what is made of so many stays in the processor's caches, and
takes a fifth less time than fifty thousand at once."""


def referents_of(objects: list[object]) -> tuple[list[object], Ints, Ints]:
    """Ask the collector for the references of many objects at once.

    Returns:
        What the objects refer to, the addresses of that, and for each the position in *objects* of who refers to it.
        A marker that is no object of the heap stands after the references of each object; its owner means nothing.
    """
    marker = object()
    separator = [marker]
    asked: list[object] = [separator] * (2 * len(objects))
    asked[::2] = objects
    referents = gc.get_referents(*asked)
    addresses = addresses_of(referents)
    return referents, addresses, np.cumsum(addresses == id(marker), dtype=np.int32)
