"""Find leaklab's own objects: explorers, widgets, sessions and reports hold nothing for a reader to let go of."""

from __future__ import annotations

import gc

import numpy as np

from leaklab.addresses import Addresses, kinds_of, types_at
from leaklab.explain.heap.own_dicts import is_own_dict

_OWN = "leaklab."
_EXAMPLES = "leaklab.notebooks.demo"
_module_of = type.__dict__["__module__"].__get__


def is_own_kind(kind: type) -> bool:
    """Return whether *kind* is a class of leaklab's, but for those that leak on purpose, to be tried on."""
    try:
        name = _module_of(kind)
    except (AttributeError, TypeError):
        return False
    return type(name) is str and name.startswith(_OWN) and name != _EXAMPLES


def own_addresses(objects: list[object]) -> Addresses:
    """Return the addresses of those of *objects* that are leaklab's, and of their dicts."""
    kinds = kinds_of(objects)
    wanted = [address for address, kind in types_at(kinds).items() if is_own_kind(kind)]
    found = [objects[place] for place in np.flatnonzero(np.isin(kinds, wanted)).tolist()]
    dicts = [child for thing in found for child in gc.get_referents(thing) if is_own_dict(thing, child)]
    return np.array([*map(id, found), *map(id, dicts)], np.int64)
