"""Name items of containers and arrays, and attributes of instances, by the built-ins' own methods."""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from leaklab.heap.names.code import LRU_CACHE
from leaklab.heap.names.reference import (
    MISSING,
    Reference,
    among,
    by_attribute,
    by_index,
    by_key,
    c_descriptor,
    class_dict,
    has_plain_access,
    has_plain_items,
    in_words,
    is_evaluable,
    is_name,
    is_one_of,
    literal,
    look_up,
    members,
    read_by,
    shown,
    stable_key,
)
from leaklab.runtime.containers import entries_in, items_in, keys_in
from leaklab.runtime.objects import is_kind_of, mro_of
from leaklab.runtime.referents import get_referents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TUPLE_GETTER: type = type(collections.namedtuple("_Pair", "first").__dict__["first"])  # noqa: PYI024 - its field's type
_read_base = np.ndarray.base.__get__
_read_dtype = np.ndarray.dtype.__get__
_read_flat = np.ndarray.flat.__get__
_read_shape = np.ndarray.shape.__get__
_NAMED_ELSEWHERE = ("__dict__", "__callback__")  # the latter is a weak reference's
LEFTOVERS: Final = {types.MappingProxyType: "underlying mapping", type: "internals of the class"}


def keys_of(mapping: dict[Any, Any], child: object) -> list[object]:
    """Return the keys under which *mapping* holds *child*, those a person would choose first.

    Plain keys come before objects, and public names before ``_`` and ``__x``.
    """
    found = [key for key, value in entries_in(mapping) if value is child]
    return sorted(found, key=lambda key: (literal(key) is None, type(key) is str and str.startswith(key, "_")))


def in_dict(holder: Any, child: object) -> Iterator[Reference]:
    """Name values by their keys, then keys."""
    for key in keys_of(holder, child):
        yield by_key(key, key_suffix(type(holder), key))
    if any(key is child for key in keys_in(holder)):
        yield Reference(f"key {shown(child)}", None, f"key {stable_key(child)}", "key")


def key_suffix(kind: type, key: object) -> str | None:
    """Return the Python that reads *key* from a mapping of type *kind*, None if there is no safe way."""
    text = literal(key)
    if text is None:
        return None
    if has_plain_items(kind):
        return f"[{text}]"
    # A subclass with a __getitem__ of its own may answer anything; dict.get still returns what is stored.
    if look_up(kind, "get") is dict.__dict__["get"] and has_plain_access(kind):
        return f".get({text})"
    return None


def in_list(holder: Any, child: object) -> Iterator[Reference]:
    """Name items of a list or a deque by position."""
    evaluable = has_plain_items(type(holder))
    for index, item in enumerate(items_in(holder)):
        if item is child:
            yield by_index(index, evaluable=evaluable)


def in_tuple(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by field where the class is a named tuple, else by position."""
    kind = type(holder)
    fields = _field_names(kind) if kind is not tuple else ()
    evaluable = has_plain_items(kind)
    for index, item in enumerate(items_in(holder)):
        if item is not child:
            continue
        if index < len(fields):
            is_field = type(look_up(kind, fields[index])) is _TUPLE_GETTER and has_plain_access(kind)
            yield by_attribute(fields[index], evaluable=is_field)
        else:
            yield by_index(index, evaluable=evaluable)


def _field_names(kind: type) -> tuple[str, ...]:
    fields = look_up(kind, "_fields")
    if fields is MISSING or type(fields) is not tuple or not all(map(is_name, items_in(fields))):
        return ()
    return cast("tuple[str, ...]", fields)


def in_set(holder: Any, child: object) -> Iterator[Reference]:
    """Name elements, which have neither position nor key."""
    if any(item is child for item in items_in(holder)):
        yield in_words("element", "element")


def in_array(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by their indices, and the object whose memory a view shows."""
    if _read_dtype(holder) == np.dtype(object):
        shape = _read_shape(holder)
        for number, item in enumerate(_read_flat(holder)):
            if item is child:
                yield _item_reference(np.unravel_index(number, shape), evaluable=has_plain_items(type(holder)))
    if _read_base(holder) is child:
        yield by_attribute("base", "hidden")


def _item_reference(indices: tuple[Any, ...], *, evaluable: bool) -> Reference:
    text = f"[{', '.join(str(int(index)) for index in indices) or '()'}]"
    return Reference(text, text if evaluable else None, f"[{', '.join('*' * len(indices))}]", "hidden")


def in_members(holder: object, child: object, kinds: Mapping[int, str]) -> Iterator[Reference]:
    """Name slots, and attributes that a C type keeps in its struct.

    Args:
        holder: Refers to *child*, perhaps.
        child: Is compared by identity.
        kinds: What to call the references of some C types, by their address; ``attribute`` where a type is not listed.
    """
    kind = type(holder)
    for name, descriptor, owner in members(kind):
        if name in _NAMED_ELSEWHERE or read_by(descriptor, holder) is not child:
            continue
        word = kinds.get(id(owner), "slot" if "__slots__" in class_dict(owner) else "attribute")
        yield by_attribute(name, word, evaluable=is_evaluable(kind, name, descriptor))


def in_class_of(holder: object, child: object) -> Iterator[Reference]:
    """Name the class of *holder*."""
    if child is type(holder):
        found = object.__dict__["__class__"]
        yield by_attribute("__class__", evaluable=is_evaluable(type(holder), "__class__", found))


def in_inline_attributes(holder: object, child: object) -> Iterator[Reference]:
    """Name attributes that the methods of the class mention, without making the instance's dict.

    Attributes of an instance live in an array without names until somebody reads ``__dict__``; from then on the
    instance carries a dict for good (CPython 3.11 and 3.12). To try names one by one leaves no trace.
    """
    kind = type(holder)
    if c_descriptor(kind, "__dict__") is MISSING or is_kind_of(holder, type):
        return  # what a class has is in a dict of its own, and asking for it by name would bind it
    names, attributes = _mentioned_names(kind), _class_attributes(kind)
    # A descriptor could run the user's code. Most names that the class has too are its methods.
    for name in names & attributes.keys():
        in_class = attributes[name]
        is_method = type(in_class) is types.FunctionType
        if is_method or in_class is child or look_up(type(in_class), "__get__") is not MISSING:
            names.remove(name)
    found = []
    for name in names:
        try:
            value = object.__getattribute__(holder, name)
        except AttributeError:
            continue
        if value is child:
            found.append(name)
    plain_access = has_plain_access(kind)
    for name in sorted(found):
        yield by_attribute(name, evaluable=plain_access)


def _class_attributes(kind: type) -> dict[str, object]:
    """Return what the classes in the mro of *kind* define, as `look_up` finds it: of very many names in one pass."""
    attributes: dict[str, object] = {}
    for each in reversed(mro_of(kind)):
        attributes.update(class_dict(each))
    return attributes


def _mentioned_names(kind: type) -> set[str]:
    names: set[str] = set()
    for each in mro_of(kind):
        for value in list(class_dict(each).values()):
            if type(value) is types.FunctionType:
                names.update(value.__code__.co_names)
    return names


def in_instance_dict(holder: object, child: object) -> Iterator[Reference]:
    """Name the instance's dict, and the attributes in it. Reading it may leave a dict on the instance."""
    descriptor = c_descriptor(type(holder), "__dict__")
    attributes = MISSING if descriptor is MISSING else read_by(descriptor, holder)
    if attributes is child:
        yield by_attribute("__dict__", evaluable=is_evaluable(type(holder), "__dict__", descriptor))
    elif is_kind_of(attributes, dict):
        for key in keys_of(attributes, child):  # type: ignore[arg-type]  # a dict by its real type
            yield attribute_reference(holder, key)


def attribute_reference(holder: object, key: object) -> Reference:
    """Name the attribute *key* in the ``__dict__`` of *holder*, an instance, a class, a module or a function."""
    if type(key) is not str:
        return in_words("entry of __dict__", "attribute")
    if is_name(key) and not _is_hidden_by_class(holder, key):
        return by_attribute(key, evaluable=has_plain_access(type(holder)))
    suffix = by_attribute("__dict__").text
    reachable = look_up(type(holder), "__dict__") is c_descriptor(type(holder), "__dict__")
    entry = f"{suffix}[{key!r}]"
    if _is_cache_of_class(holder, key):  # the class gives it as it is; the place is called as it always was
        return Reference(f".{key}", f".{key}", entry, "attribute")
    return Reference(entry, entry if reachable and has_plain_access(type(holder)) else None, entry, "attribute")


def _is_hidden_by_class(holder: object, name: str) -> bool:
    """Return whether ``holder.name`` gives something else than the entry of the instance's or class's dict."""
    in_class = look_up(type(holder), name)
    if in_class is not MISSING and look_up(type(in_class), "__set__") is not MISSING:
        return True
    if not is_kind_of(holder, type):
        return False
    value = class_dict(holder).get(name, MISSING)
    plain = (types.FunctionType, property, types.MemberDescriptorType, types.GetSetDescriptorType)
    return not is_one_of(type(value), plain) and look_up(type(value), "__get__") is not MISSING


def _is_cache_of_class(holder: object, name: str) -> bool:
    is_class = is_kind_of(holder, type) and has_plain_access(type(holder))
    return is_class and is_name(name) and type(class_dict(holder).get(name)) is LRU_CACHE


def in_type(holder: Any, child: object) -> Iterator[Reference]:
    """Name the namespace of a class and its bases."""
    if any(child is inner for inner in get_referents(class_dict(holder))):
        # vars(T) is a read-only view, never the dict itself
        yield Reference(".__dict__", None, ".__dict__", "attribute")
    yield from among(holder, child, ("__bases__", "__mro__"))
    if type(child) is types.ModuleType and any(child is inner for inner in get_referents(holder)):
        yield in_words("module of the class")


NAMERS: Final = {
    dict: in_dict,
    list: in_list,
    tuple: in_tuple,
    collections.deque: in_list,
    set: in_set,
    frozenset: in_set,
    np.ndarray: in_array,
    type: in_type,
}
