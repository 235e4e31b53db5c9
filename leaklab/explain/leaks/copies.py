"""Recognise survivors that are copies of one object that was there before: a metric copied per batch.

Their tensors distinguish copies from other instances of the class: the values correlate with the original's, even after
some steps of training; those of a new random initialisation do not. Nothing of the user's runs: attributes are read
from the instance's dict, values by torch's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from leaklab.heap.names.reference import MISSING, c_descriptor, read_by
from leaklab.heap.view import BASELINE, HeapView
from leaklab.runtime.containers import entries_in
from leaklab.runtime.objects import (
    has_base,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    safe_len,
    type_name,
)

MIN_COPIES = 2
MIN_ELEMENTS = 4
"""Tensors with fewer elements say nothing about where they come from."""
MAX_ELEMENTS = 1 << 20
"""Of a larger tensor the first so many elements are compared: reading them takes a millisecond."""
MIN_CORRELATION = 0.6
"""Correlation of the values. That of two random vectors of 64 elements exceeds it once in 10**7 pairs."""
_MAX_PAIRS = 8
_KEEPER_STEPS = 2
_NOWHERE = -1
_MAX_DEPTH = 10
"""Four levels for a layer in a model: attributes, the dict of modules, the layer's attributes, its parameters."""
_MAX_COMPARED = 500
_PLAIN_MODULES = ("builtins", "collections", "types", "functools", "weakref", "inspect", "threading", "logging")
_type_module = type.__dict__["__module__"].__get__

Parts = Mapping[str, object]


def original_of(view: HeapView, members: Sequence[int]) -> str:
    """Return the expression of the object that *members* hold copies of; empty if they hold none.

    The original was there before the first run, is reached, and is not held in the place that holds the copies.
    """
    copies: dict[int, list[int]] = {}
    for vertex in members:
        if view.birth_run[vertex] != BASELINE and _may_be_copied(view.objects[vertex]):
            copies.setdefault(int(view.kinds[vertex]), []).append(vertex)
    for kind, vertices in sorted(copies.items(), key=lambda item: -len(item[1])):
        if len(vertices) < MIN_COPIES:
            continue
        newest = max(vertices, key=lambda vertex: (int(view.birth_run[vertex]), -vertex))
        found = _original(view, kind, newest)
        if found:
            return found
    return ""


def _may_be_copied(thing: object) -> bool:
    """Return whether *thing* is an instance of a class that somebody wrote: it has attributes and is no container."""
    kind = type(thing)
    if is_tensor(thing) or _is_plain(kind):
        return False
    if has_base(kind, type) or c_descriptor(kind, "__dict__") is MISSING:
        return False
    return bool(_parts(thing))


def _is_plain(kind: type) -> bool:
    """Return whether *kind* is one of Python's own building blocks, of which equal ones are everywhere."""
    module = _type_module(kind)
    return type(module) is not str or module.partition(".")[0] in _PLAIN_MODULES


def _original(view: HeapView, kind: int, copy: int) -> str:
    places = {next((vertex for vertex in reversed(view.path(copy)) if view.birth_run[vertex] == BASELINE), _NOWHERE)}
    places |= _keepers(view, copy)
    same_kind = np.flatnonzero((view.kinds == kind) & (view.birth_run == BASELINE)).tolist()
    reached = [vertex for vertex in same_kind if view.is_reached(vertex) and vertex != copy]
    for vertex in sorted(reached, key=lambda vertex: (int(view.tree.cost[vertex]), vertex))[:_MAX_PAIRS]:
        if not places.isdisjoint(view.path(vertex)):
            continue  # kept in the same places, as what the warm-up left is: an earlier copy, or all of them are equals
        if is_copy(view.objects[vertex], view.objects[copy]):
            return view.describe(vertex).expressions[-1] or type_name(type(view.objects[vertex]))
    return ""


def _keepers(view: HeapView, copy: int) -> set[int]:
    """Return what was there before and holds *copy*, or something of its run that holds it, as a bound method does."""
    found, above = set[int](), [copy]
    for _ in range(_KEEPER_STEPS):
        above = [int(vertex) for below in above for vertex in view.index.referrers(below)]
        found |= {vertex for vertex in above if view.birth_run[vertex] == BASELINE}
        above = [vertex for vertex in above if view.birth_run[vertex] != BASELINE]
    return found


def is_copy(one: object, other: object) -> bool:
    """Return whether two objects have the same attributes, of the same types and shapes, and tensors of like values."""
    pairs = list(islice(_paired(one, other, _MAX_DEPTH), _MAX_COMPARED))
    if not pairs or any(not _same_shape(a, b) for a, b in pairs):
        return False
    values = [_likeness(a, b) for a, b in pairs if is_tensor(a) and not _is_constant(a)]
    return bool(values) and min(values) > MIN_CORRELATION


def _paired(one: object, other: object, depth: int) -> Iterator[tuple[object, object]]:
    """Yield the attributes of two objects in pairs; None stands for one that the other lacks."""
    mine, yours = _parts(one), _parts(other)
    for name in sorted({*mine, *yours}):
        a, b = mine.get(name), yours.get(name)
        if a is b or (name.startswith("_") and not is_tensor(a) and not _is_table(a)):
            continue  # shared, or a private attribute that a lazy property may fill at any time
        if depth > 1 and type(a) is type(b) and not is_tensor(a) and _parts(a):
            yield from _paired(a, b, depth - 1)
        else:
            yield a, b


def _is_table(thing: object) -> bool:
    return is_kind_of(thing, dict)


def _parts(thing: object) -> Parts:
    """Return the attributes of an instance, the entries of a dict with names; empty for anything else."""
    if is_kind_of(thing, dict):
        table: Any = thing
    elif is_tensor(thing) or _is_plain(type(thing)):
        return {}
    else:
        descriptor = c_descriptor(type(thing), "__dict__")
        table = {} if descriptor is MISSING else read_by(descriptor, thing)
    if not is_kind_of(table, dict):
        return {}
    return {name: value for name, value in entries_in(table) if type(name) is str}


def _same_shape(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if is_tensor(a):
        base: Any = loaded_type("torch", "Tensor")
        with no_torch_functions():
            return bool(base.size(a) == base.size(b)) and base.dtype.__get__(a) is base.dtype.__get__(b)
    return safe_len(a) is None or is_kind_of(a, str) or safe_len(a) == safe_len(b)


def _likeness(a: object, b: object) -> float:
    x, y = _values(a), _values(b)
    if not len(x) or len(x) != len(y):
        return 0.0
    x, y = x - x.mean(), y - y.mean()  # numbers between 0 and 1 would all point the same way
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size else 0.0


def _is_constant(tensor: object) -> bool:
    values = _values(tensor)
    return len(values) < MIN_ELEMENTS or bool((values == values[0]).all())


def _values(tensor: Any) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the first values of a dense tensor as floats; none of a kind that cannot be read without computing."""
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            if str(base.device.__get__(tensor)) != "cpu" or str(base.layout.__get__(tensor)) != "torch.strided":
                return np.zeros(0)
            flat = base.reshape(base.detach(tensor), (-1,))[:MAX_ELEMENTS]
            return np.asarray(base.numpy(base.double(flat)))
        except (RuntimeError, TypeError, ValueError):
            return np.zeros(0)
