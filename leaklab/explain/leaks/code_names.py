"""Say by which names the user's code knows a container."""

from __future__ import annotations

import re
import types
from collections import defaultdict

from leaklab.heap.names import best_reference
from leaklab.heap.view import HeapView
from leaklab.lines.branches import Names
from leaklab.runtime.containers import items_in, newest_items, newest_pairs
from leaklab.runtime.objects import class_attribute, has_base, loaded_type

_N_KEYS = 4
"""So many of the newest keys are looked at."""
_DEPTH = 3
"""A container in a container in a container is known by the name of the outermost."""
_MOST_REFERRERS = 100
_NAME = re.compile(r"(?:\.|\[')([^\W\d]\w*)(?:'\])?$")


def names_in_code(view: HeapView, vertex: int) -> Names:
    """Return the names under which code can change the container *vertex*."""
    attributes: set[str] = set()
    variables: set[str] = set()
    free: dict[types.CodeType, set[str]] = defaultdict(set)
    owners: set[int] = set()
    waiting, depth = [vertex], 0
    while waiting and depth < _DEPTH:
        above: list[int] = []
        for inner in waiting:
            for outer in view.index.referrers(inner)[:_MOST_REFERRERS].tolist():
                holder, held = view.objects[outer], view.objects[inner]
                if type(holder) is types.CellType:
                    for code, name in _closures(view, outer):
                        free[code].add(name)
                    continue
                owners.add(id(holder))
                if type(holder) is dict:  # maybe that of an object
                    owners.update(view.index.ids[view.index.referrers(outer)].tolist())
                reference = best_reference(holder, held).text
                named = _NAME.search(reference)
                if named is not None:
                    attributes.add(named[1])
                    if type(holder) is dict:
                        variables.add(named[1])
                is_plain = any(has_base(type(holder), kind) for kind in (list, tuple, dict))
                if is_plain and not reference.startswith("."):
                    above.append(outer)
        waiting, depth = above, depth + 1
    return Names(
        frozenset(attributes),
        frozenset(variables),
        {code: frozenset(one) for code, one in free.items()},
        id(view.objects[vertex]),
        frozenset(owners),
        _has_identity_keys(view, vertex),
    )


def _has_identity_keys(view: HeapView, vertex: int) -> bool:
    """Return whether the newest keys, or entries of a list, are objects that equal only themselves."""
    container = view.objects[vertex]
    if has_base(type(container), dict):
        keys = [key for key, _value in newest_pairs(container, _N_KEYS)]
    elif has_base(type(container), set) or has_base(type(container), list):
        keys = newest_items(container, _N_KEYS)
    else:
        return False
    tensor = loaded_type("torch", "Tensor")
    return bool(keys) and all(
        all(class_attribute(type(key), name) is getattr(object, name) for name in ("__hash__", "__eq__"))
        or (tensor is not None and has_base(type(key), tensor))
        for key in keys
    )


def _closures(view: HeapView, cell: int) -> list[tuple[types.CodeType, str]]:
    """Return the code objects that have the variable in *cell*, with its name there."""
    found = []
    for closure in view.index.referrers(cell).tolist():
        cells = view.objects[closure]
        if type(cells) is not tuple:
            continue
        place = next((n for n, one in enumerate(items_in(cells)) if one is view.objects[cell]), None)
        for function in view.index.referrers(closure).tolist():
            of = view.objects[function]
            if type(of) is types.FunctionType and place is not None and place < len(of.__code__.co_freevars):
                found.append((of.__code__, of.__code__.co_freevars[place]))
    return found
