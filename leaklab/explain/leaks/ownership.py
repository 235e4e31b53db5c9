"""Decide whose an object is: the user's, a library's or the notebook's own.

For the owners on a path it is said, too, by which of their own calls they may let go.
"""

from __future__ import annotations

import re
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.explain.counterparts import lets_go
from leaklab.explain.leaks.groups import Group
from leaklab.heap.paths import Described
from leaklab.heap.shortest_paths import Start
from leaklab.heap.view import HeapView
from leaklab.runtime.containers import entries_in, items_in
from leaklab.runtime.objects import (
    class_dict,
    has_base,
    is_exactly,
    is_kind_of,
    loaded_type,
    module_dict,
    mro_of,
    type_name,
)
from leaklab.runtime.ours import FRONT_ENDS, HISTORY_CONTAINERS, Origin, origin_of

_INTERPRETER_COST = 40
_KEPT_BY_CODE = ("last exception", "exception being handled", "context variable", "signal handler")
# Built-in types whose objects carry code of the user, or a frame of it.
_CODE_CARRIERS = frozenset({
    types.CellType, types.FrameType, types.CodeType, types.GeneratorType,
    types.CoroutineType, types.AsyncGeneratorType, types.TracebackType, type,
})  # fmt: skip
_WITHOUT_FILE = sys.stdlib_module_names | frozenset(sys.builtin_module_names) | {"torch"}
_module_name = type.__dict__["__module__"].__get__


class Ownership:
    """Whose each vertex of a view is.

    An object is nobody's concern if nothing in Python leads to it, if its path begins in a library or in the
    interpreter, or if its path leads through code of a library or an object of the notebook's own: the tables inside a
    class that the user has merely imported are none of the user's.
    """

    def __init__(self, view: HeapView) -> None:
        self._view = view
        self._is_start_not_users = [*map(_begins_elsewhere, view.starts), True]
        self._history = {start.address for start in view.starts if start.expression in HISTORY_CONTAINERS}
        self._known: dict[int, bool] = {}

    def is_not_users(self, vertices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of *vertices* are no concern of the user's."""
        return np.fromiter((self.is_one_not_users(vertex) for vertex in vertices.tolist()), bool, len(vertices))

    def is_one_not_users(self, vertex: int) -> bool:
        """Return whether *vertex* is no concern of the user's."""
        view, above = self._view, []
        if vertex == view.namespace:
            return False
        if self._is_start_not_users[view.tree.root_of[vertex]] or int(view.index.ids[vertex]) in self._history:
            return True
        before = int(view.tree.parent[vertex])
        while before >= 0 and before not in self._known:
            above.append(before)
            before = int(view.tree.parent[before])
        answer = before >= 0 and self._known[before]
        for passed in reversed(above):
            answer = answer or _is_not_users(view.objects[passed])
            self._known[passed] = answer
        return answer

    def root_words(self, vertex: int) -> str:
        """Return where *vertex* is kept, in a few words."""
        root = int(self._view.tree.root_of[vertex])
        return self._view.starts[root].words if root >= 0 else "held by nothing in Python"


def _begins_elsewhere(start: Start) -> bool:
    if start.is_library:
        return True
    return start.cost >= _INTERPRETER_COST and start.words not in _KEPT_BY_CODE


def _is_not_users(thing: object) -> bool:
    kind = type(thing)
    if kind is types.FrameType:
        return origin_of(thing.f_code.co_filename) is not Origin.USER  # type: ignore[attr-defined]  # the type was asked
    if kind is types.FunctionType:
        return origin_of(thing.__code__.co_filename) is not Origin.USER  # type: ignore[attr-defined]
    if is_kind_of(thing, type):
        return not is_users_kind(thing)  # type: ignore[arg-type]  # the real type was asked
    if has_base(kind, types.ModuleType):
        return False  # where a path begins, and judged there
    return type_name(kind).startswith(FRONT_ENDS)


def is_library_matter(view: HeapView, vertex: int, members: Iterable[int]) -> bool:
    """Return whether the path to *vertex* begins in a library, and none of *members* is of the user's making."""
    if not view.is_reached(vertex) or not view.starts[view.tree.root_of[vertex]].is_library:
        return False
    return not any(_is_users(view.objects[member]) for member in chain(members, [vertex]))


def is_librarys_table(view: HeapView, above: Sequence[int]) -> bool:
    """Return whether the path *above* a table begins in a library or leads to it through an object of one.

    The object is that nearest to the table which is no built-in container. The standard library's hold what is the
    user's: a namespace, a counter, a cache that a decorator made.
    """
    if above and view.starts[view.tree.root_of[above[0]]].is_library:
        return True
    for kind in (type(view.objects[place]) for place in reversed(above)):
        package, dot, _name = type_name(kind).partition(".")
        if is_users_kind(kind) or (dot and package not in sys.stdlib_module_names):
            return not is_users_kind(kind)
    return False


def are_library_weakrefs(view: HeapView, group: Group) -> bool:
    """Return whether *group* is nothing but weak references that an object of a library keeps for itself."""
    if group.holder < 0 or not all(is_kind_of(view.objects[member], weakref.ref) for member in group.members):
        return False
    above = [view.objects[vertex] for vertex in view.path(group.holder)[-2:]]
    return any("." in type_name(type(thing)) and not is_users_kind(type(thing)) for thing in above)


_FinalizerInfo: Any = weakref.finalize._Info  # type: ignore[attr-defined]  # noqa: SLF001 - what its registry holds
_info_weakref = _FinalizerInfo.weakref.__get__


def lives_by_its_keys(view: HeapView, group: Group) -> bool:
    """Return whether *group* are values that go with their keys, which are leaked themselves and held elsewhere.

    So a weak dictionary keeps something for each of a library's objects, `weakref.finalize` an entry for each object
    that it is to finalize, and a table of weak references one for each object that lives: who keeps those is the leak.
    """
    entries, members = {int(view.index.ids[entry]) for entry in group.entries}, set(group.members)
    n_values = n_leaked = 0
    for parent in {int(view.tree.parent[entry]) for entry in group.entries}:
        for key, value in _pairs_in(view.objects[parent]) if parent >= 0 else ():
            if id(value) in entries or id(key) in entries:
                n_values += 1
                reference = _info_weakref(value) if type(value) is _FinalizerInfo else _weak_one(key, value)
                owner = weakref.ref.__call__(reference) if is_kind_of(reference, weakref.ref) else None
                vertex = -1 if owner is None else view.index.vertex_of(id(owner))
                n_leaked += bool(vertex >= 0 and view.leaked[vertex] and vertex not in members)
    return 2 * n_leaked > n_values


def _pairs_in(things: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a dict, of a set the weak references that take themselves out, each as both."""
    if is_kind_of(things, dict):
        yield from entries_in(things)
    elif is_kind_of(things, set):  # as a WeakSet has one
        weak = (thing for thing in items_in(things) if is_kind_of(thing, weakref.ref))
        yield from ((one, one) for one in weak if _callback_of(one) is not None)


_callback_of = vars(weakref.ref)["__callback__"].__get__


def _weak_one(key: Any, value: Any) -> Any:
    """Return the weak reference of an entry: its key, or a value that takes the entry out when its object dies."""
    is_cleared = is_kind_of(value, weakref.ref) and _callback_of(value) is not None
    return value if is_cleared and not is_kind_of(key, weakref.ref) else key


def _is_users(thing: object) -> bool:
    if type(thing) is types.MethodType:
        thing = thing.__func__
    if type(thing) is types.FunctionType:
        return origin_of(thing.__code__.co_filename) is Origin.USER
    kind = type(thing)
    return any(kind is carrier for carrier in _CODE_CARRIERS) or is_users_kind(kind)


def is_users_kind(kind: type) -> bool:
    """Return whether *kind* is a class of the user's code, as far as its module says."""
    try:
        name = _module_name(kind)
    except (AttributeError, TypeError):
        return True
    if type(name) is not str or name == "__main__":
        return True
    module = sys.modules.get(name)
    # A module may compute its attributes: only its own dict is asked.
    file = (module_dict(module) or {}).get("__file__") if is_kind_of(module, types.ModuleType) else None
    if type(file) is not str:
        return name.partition(".")[0] not in _WITHOUT_FILE
    return origin_of(file) is Origin.USER


_PLAIN = frozenset(
    {"builtins", "collections", "types", "functools", "weakref", "_io", "_weakref", "array", "_contextvars"}
)
"""Modules whose types hold what they are given: it is not they who decide what is kept."""
_CALLABLES = (types.FunctionType, staticmethod, classmethod, types.MethodDescriptorType, types.BuiltinFunctionType)
_N_NAMES = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """One object of a path.

    Attributes:
        code: Python for it; empty where there is none.
        kind: Name of its type, or its own if it is a class.
        is_plain: Whether it is a list, a dict, a function or the like, which belongs to whoever made it.
        is_library: Whether it is a library's: an instance of its class, or such a class itself.
        releases: Its methods that by their names let go of something, at most three.
    """

    code: str
    kind: str
    is_plain: bool = False
    is_library: bool = False
    releases: tuple[str, ...] = ()


def owners_of(things: Sequence[object], described: Described) -> tuple[Owner, ...]:
    """Return for the first steps of *described* whose they are; *things* are their objects, as far as they are known.

    The classes are read along their real ``__mro__``; no code of the user is run.
    """
    return tuple(
        _owner(thing, code or _local_code(described, number))
        for number, (thing, code) in enumerate(zip(things, described.expressions, strict=False))
    )


def _local_code(described: Described, number: int) -> str:
    """Return Python for a step below a local variable, as it is written in that function; empty if there is none."""
    steps = described.path.steps[: number + 1]
    local = re.match(r"local '(\w+)' of ", steps[0].reference)
    if local is None or not all(step.reference.startswith((".", "[")) for step in steps[1:]):
        return ""
    return "".join((local[1], *(step.reference for step in steps[1:])))


def _owner(thing: object, code: str) -> Owner:
    is_class = is_kind_of(thing, type)
    kind: type = thing if is_class else type(thing)  # type: ignore[assignment]  # the real type was asked
    name = type_name(kind)
    is_plain = not is_class and ("." not in name or name.partition(".")[0] in _PLAIN) and not is_users_kind(kind)
    if is_plain:
        return Owner(code, name, is_plain=True)
    return Owner(
        code, name, is_library=not is_users_kind(kind), releases=tuple(_releases(kind, is_class=is_class))[:_N_NAMES]
    )


def _releases(kind: type, *, is_class: bool) -> Iterator[str]:
    """Yield the methods that by their names let go of something, the plainest names first."""
    yield from sorted(_named_releases(kind, is_class=is_class), key=lambda name: "_" in name)


def _named_releases(kind: type, *, is_class: bool) -> Iterator[str]:
    seen: set[str] = set()
    tensor = loaded_type("torch", "Tensor")
    if tensor is not None and has_base(kind, tensor):
        return  # `detach()` lets go of a graph, not of an entry
    for base in mro_of(kind)[:-1]:
        if type_name(base).partition(".")[0] in _PLAIN:
            continue
        for name, value in class_dict(base).items():
            if type(name) is not str or name in seen:
                continue
            seen.add(name)
            wanted = (staticmethod, classmethod) if is_class else _CALLABLES
            if lets_go(name) and is_exactly(value, wanted):
                yield name
