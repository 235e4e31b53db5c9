"""Heaps made by hand: a few objects, told who was born in which run, as a view of the whole heap."""

from __future__ import annotations

import gc
import sys
import types
from contextlib import contextmanager

import numpy as np

from leaklab.heap.borrow import heap_view
from leaklab.heap.view import Births

N_RUNS = 5


class Node:
    """Refers to others by attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Link:
    """Refers to another by a slot: nothing stands between the two."""

    __slots__ = ("parent",)

    def __init__(self, parent=None):
        self.parent = parent


def births_of(runs, n_runs=None):
    """Say that the objects of ``runs[i]`` were born in run ``i``."""
    addresses = [id(thing) for born in runs for thing in born]
    numbers = [number for number, born in enumerate(runs) for _ in born]
    return Births(np.array(addresses, np.int64), np.array(numbers, np.int64), n_runs or len(runs))


def everything_below(*things):
    """List *things* and what they refer to, as far as the collector knows; not modules, classes and their like."""
    found = {}
    pending = list(things)
    while pending:
        thing = pending.pop()
        if id(thing) in found or not gc.is_tracked(thing) or _is_world(thing):
            continue
        found[id(thing)] = thing
        pending.extend(gc.get_referents(thing))
    return list(found.values())


def _is_world(thing):
    if type(thing) in (type, types.ModuleType, types.FrameType):
        return True
    return type(thing) is dict and any(thing is getattr(module, "__dict__", None) for module in sys.modules.values())


@contextmanager
def view_of(variables=None, runs=(), *, more=(), objects=None, n_runs=None, summaries=True):
    """View a heap of *variables*, of the survivors of each run, and of *more*; or of the *objects* given."""
    if objects is None:
        objects = everything_below(
            *([] if variables is None else [variables]), *more, *(s for born in runs for s in born)
        )
    births = births_of(runs, n_runs)
    with heap_view(objects, births, variables, [runs], summaries=summaries) as view:
        yield view


@contextmanager
def real_view_of(variables=None, runs=(), *, n_runs=None):
    """View the heap of this process, in which *variables* is the user's namespace."""
    gc.collect()
    objects = gc.get_objects()
    with view_of(variables, runs, objects=objects, n_runs=n_runs) as view:
        yield view
    objects.clear()


def vertex_of(view, thing):
    vertex = view.index.vertex_of(id(thing))
    assert vertex >= 0
    return vertex
