"""Tell whether survivors are a library's own affair: its objects, in its own tables."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterable
from itertools import chain

from leaklab.explain.leaks.groups import Group
from leaklab.explain.source.origins import Origin, origin_of
from leaklab.explain.view import HeapView
from leaklab.objects import is_kind_of, type_name

# Built-in types whose objects carry code of the user, or a frame of it.
_CODE_CARRIERS = frozenset({
    types.CellType, types.FrameType, types.CodeType, types.GeneratorType,
    types.CoroutineType, types.AsyncGeneratorType, types.TracebackType, type,
})  # fmt: skip
_WITHOUT_FILE = sys.stdlib_module_names | frozenset(sys.builtin_module_names) | {"torch"}
_module_of = type.__dict__["__module__"].__get__


def is_library_matter(view: HeapView, vertex: int, members: Iterable[int]) -> bool:
    """Return whether the path to *vertex* begins in a library, and none of *members* is of the user's making."""
    if not view.is_reached(vertex) or not view.starts[view.tree.root_of[vertex]].is_library:
        return False
    return not any(_is_users(view.objects[member]) for member in chain(members, [vertex]))


def are_library_weakrefs(view: HeapView, group: Group) -> bool:
    """Return whether *group* is nothing but weak references that an object of a library keeps for itself."""
    if group.holder < 0 or not all(is_kind_of(view.objects[member], weakref.ref) for member in group.members):
        return False
    above = [view.objects[vertex] for vertex in view.path(group.holder)[-2:]]
    return any("." in type_name(type(thing)) and not is_users_kind(type(thing)) for thing in above)


def _is_users(thing: object) -> bool:
    if type(thing) is types.MethodType:
        thing = thing.__func__
    if type(thing) is types.FunctionType:
        return origin_of(thing.__code__.co_filename) is Origin.USER
    kind = type(thing)
    return any(kind is carrier for carrier in _CODE_CARRIERS) or is_users_kind(kind)


def is_users_kind(kind: type) -> bool:
    """Return whether *kind* is a class of the user's code, as far as its module tells."""
    try:
        name = _module_of(kind)
    except (AttributeError, TypeError):
        return True
    if type(name) is not str:
        return True
    if name == "builtins":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name.partition(".")[0] not in _WITHOUT_FILE
    return type(file) is not str or origin_of(file) is Origin.USER
