"""Find survivors that C code keeps as a part of another object: nothing that Python can see refers to them.

Six are known (read in the sources of CPython 3.11 and of torch, and seen in heaps): a running thread keeps its start
method in the arguments of the C function that it runs, a weak reference to its lock, and the bound methods on the
stacks of its functions, such as ``__exit__`` of a lock that it waits for; an ``io.StringIO`` keeps what was written in
a list until somebody reads it; a file opened for text keeps its decoder through an object in C that the collector does
not list; a class keeps weak references to its subclasses; the memory of a tensor keeps the Python
object that stands for it.
"""

from __future__ import annotations

import _thread
import codecs
import io
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.heap.reachability import references_of
from leaklab.heap.view import HeapView
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import has_base, is_kind_of, loaded_type


def without_unseen_parts(view: HeapView, orphans: Sequence[int]) -> list[int]:
    """Return *orphans* without those that are parts of leaked objects which some root reaches."""
    if not orphans:
        return []
    n_threads = _n_leaked(view, _is_thread_type)
    n_streams = _n_leaked(view, _is_text_stream_type)
    n_files = _n_leaked(view, _is_text_file_type)
    decoders = [vertex for vertex in orphans if n_files and _is_decoder(view.objects[vertex])][:n_files]
    streams = [vertex for vertex in orphans if n_streams and _is_list_of_text(view.objects[vertex])][:n_streams]
    locks = [vertex for vertex in orphans if n_threads and _is_lock_reference(view.objects[vertex])][:n_threads]
    in_hand = in_hand_of_threads(view)
    on_stacks = [vertex for vertex in orphans if n_threads and _is_method_of(view, view.objects[vertex], in_hand)]
    of_classes = [vertex for vertex in orphans if _is_reference_to_leaked_class(view, view.objects[vertex])]
    storages = [vertex for vertex in orphans if _is_memory_of_leaked(view, view.objects[vertex])]
    parts = {*streams, *decoders, *locks, *on_stacks, *of_classes, *storages}
    return [vertex for vertex in orphans if vertex not in parts]


def in_hand_of_threads(view: HeapView) -> npt.NDArray[np.bool_]:
    """Return for each vertex whether running functions of leaked threads refer to it.

    What they alone put somewhere, such as the lock that a thread waits for in the list of all who wait, goes when they
    go on.
    """
    found = np.zeros(view.index.n_vertices, bool)
    is_thread = view.types.mask(_is_thread_type) & view.leaked
    if not is_thread.any():
        return found
    frames = np.flatnonzero((view.kinds == id(types.FrameType)) & (view.tree.root_of >= 0))
    holders, held = references_of(view.index, frames)
    words = {view.starts[root].words for root in view.tree.root_of[holders[is_thread[held]]].tolist()}
    words = {one for one in words if one.startswith("thread ")}
    is_theirs = [view.starts[root].words in words for root in view.tree.root_of[frames].tolist()]
    found[references_of(view.index, frames[is_theirs])[1]] = True
    return found


def _n_leaked(view: HeapView, is_wanted: Callable[[type], bool]) -> int:
    return int(np.count_nonzero(view.types.mask(is_wanted) & view.leaked & (view.tree.root_of >= 0)))


def _is_thread_type(kind: type) -> bool:
    return has_base(kind, threading.Thread)


def _is_text_stream_type(kind: type) -> bool:
    return kind is io.StringIO


def _is_text_file_type(kind: type) -> bool:
    return has_base(kind, io.TextIOWrapper)


def _is_decoder(thing: object) -> bool:
    return has_base(type(thing), codecs.IncrementalDecoder)


def _is_list_of_text(thing: object) -> bool:
    return type(thing) is list and all(type(item) is str for item in items_in(thing))


def _is_lock_reference(thing: object) -> bool:
    return type(thing) is weakref.ref and type(weakref.ref.__call__(thing)) is _thread.LockType


def _is_method_of(view: HeapView, thing: object, in_hand: npt.NDArray[np.bool_]) -> bool:
    if type(thing) is not types.MethodType:
        return False
    vertex = view.index.vertex_of(id(thing.__self__))
    return vertex >= 0 and bool(view.leaked[vertex] or in_hand[vertex]) and view.is_reached(vertex)


def _is_reference_to_leaked_class(view: HeapView, thing: object) -> bool:
    referent = weakref.ref.__call__(thing) if type(thing) is weakref.ref else None
    if referent is None or not is_kind_of(referent, type):
        return False
    # The class itself may be held from C only: then that is told of the class, not of the reference to it.
    vertex = view.index.vertex_of(id(referent))
    return vertex >= 0 and bool(view.leaked[vertex])


def _is_memory_of_leaked(view: HeapView, thing: object) -> bool:
    kind: Any = loaded_type("torch", "UntypedStorage")
    if kind is None or type(thing) is not kind:
        return False
    storage = view.storages.by_key.get(thing._cdata)  # type: ignore[attr-defined]  # noqa: SLF001 - the storage's identity has no public name
    users = [] if storage is None else storage.users
    return any(view.leaked[user] and view.is_reached(user) for user in users)
