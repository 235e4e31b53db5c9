"""Find survivors that C code keeps as a part of another object: nothing that Python can see refers to them.

Three are known (read in the sources of CPython 3.11 and seen in heaps): a running thread keeps its start method in the
arguments of the C function that it runs, a weak reference to its lock, and the bound methods on the stacks of its
functions, such as ``__exit__`` of a lock that it waits for; an ``io.StringIO`` keeps what was written in a list until
somebody reads it.
"""

from __future__ import annotations

import _thread
import io
import threading
import types
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from leaklab.heap.view import HeapView
from leaklab.runtime.objects import has_base


def without_unseen_parts(view: HeapView, orphans: Sequence[int]) -> list[int]:
    """Return *orphans* without those that are parts of leaked threads and text streams, which some root reaches."""
    n_threads = _n_leaked(view, _is_thread_type)
    n_streams = _n_leaked(view, _is_text_stream_type)
    if not orphans or not (n_threads or n_streams):
        return list(orphans)
    streams = [vertex for vertex in orphans if n_streams and _is_list_of_text(view.objects[vertex])][:n_streams]
    locks = [vertex for vertex in orphans if n_threads and _is_lock_reference(view.objects[vertex])][:n_threads]
    on_stacks = [vertex for vertex in orphans if n_threads and _is_method_of_leaked(view, view.objects[vertex])]
    parts = {*streams, *locks, *on_stacks}
    return [vertex for vertex in orphans if vertex not in parts]


def _n_leaked(view: HeapView, is_wanted: Callable[[type], bool]) -> int:
    return int(np.count_nonzero(view.types.mask(is_wanted) & view.leaked & (view.tree.root_of >= 0)))


def _is_thread_type(kind: type) -> bool:
    return has_base(kind, threading.Thread)


def _is_text_stream_type(kind: type) -> bool:
    return kind is io.StringIO


def _is_list_of_text(thing: object) -> bool:
    return type(thing) is list and all(type(item) is str for item in thing)


def _is_lock_reference(thing: object) -> bool:
    return type(thing) is weakref.ref and type(weakref.ref.__call__(thing)) is _thread.LockType


def _is_method_of_leaked(view: HeapView, thing: object) -> bool:
    if type(thing) is not types.MethodType:
        return False
    vertex = view.index.vertex_of(id(thing.__self__))
    return vertex >= 0 and bool(view.leaked[vertex]) and view.is_reached(vertex)
