"""Name the items of built-in containers and of their subclasses, read with the built-in's own methods."""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any, cast

from leaklab.explain.references.descriptors import (
    MISSING,
    has_plain_access,
    has_plain_items,
    look_up,
)
from leaklab.explain.references.record import (
    Reference,
    by_attribute,
    by_index,
    by_key,
    in_words,
    is_name,
    literal,
    shown,
    stable_key,
)
from leaklab.objects import is_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_TUPLE_GETTER: type = type(collections.namedtuple("_Pair", "first").__dict__["first"])  # noqa: PYI024 - its field's type


def keys_of(mapping: dict[Any, Any], child: object) -> list[object]:
    """Return the keys under which *mapping* holds *child*, those a person would choose first.

    Plain keys come before objects, and public names before ``_`` and ``__x``.
    """
    # A list first: another thread may add a key while the loop runs.
    keys = [key for key, value in list(dict.items(mapping)) if value is child]
    return sorted(keys, key=lambda key: (literal(key) is None, type(key) is str and str.startswith(key, "_")))


def in_dict(holder: Any, child: object) -> Iterator[Reference]:
    """Name values by their keys, then keys."""
    for key in keys_of(holder, child):
        yield by_key(key, key_suffix(type(holder), key))
    if any(key is child for key in list(dict.keys(holder))):
        yield Reference(f"key {shown(child)}", None, f"key {stable_key(child)}", "key")


def key_suffix(kind: type, key: object) -> str | None:
    """Return the Python that reads *key* from a mapping of type *kind*, None if there is no safe way."""
    text = literal(key)
    if text is None:
        return None
    if has_plain_items(kind):
        return f"[{text}]"
    # A subclass with a __getitem__ of its own may answer anything; dict.get still tells what is stored.
    if look_up(kind, "get") is dict.__dict__["get"] and has_plain_access(kind):
        return f".get({text})"
    return None


def in_list(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by position."""
    evaluable = has_plain_items(type(holder))
    for index, item in enumerate(list.__iter__(holder)):
        if item is child:
            yield by_index(index, evaluable=evaluable)


def in_tuple(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by field where the class is a named tuple, else by position."""
    kind = type(holder)
    fields = _field_names(kind) if kind is not tuple else ()
    evaluable = has_plain_items(kind)
    for index, item in enumerate(tuple.__iter__(holder)):
        if item is not child:
            continue
        if index < len(fields):
            is_field = type(look_up(kind, fields[index])) is _TUPLE_GETTER and has_plain_access(kind)
            yield by_attribute(fields[index], evaluable=is_field)
        else:
            yield by_index(index, evaluable=evaluable)


def _field_names(kind: type) -> tuple[str, ...]:
    fields = look_up(kind, "_fields")
    if fields is MISSING or type(fields) is not tuple or not all(is_name(name) for name in fields):
        return ()
    return cast("tuple[str, ...]", fields)


def in_deque(holder: Any, child: object) -> Iterator[Reference]:
    """Name items by position."""
    evaluable = has_plain_items(type(holder))
    for index, item in enumerate(list(collections.deque.__iter__(holder))):
        if item is child:
            yield by_index(index, evaluable=evaluable)


def in_set(holder: Any, child: object) -> Iterator[Reference]:
    """Name elements, which have neither position nor key."""
    walk = set.__iter__ if is_kind_of(holder, set) else frozenset.__iter__
    if any(item is child for item in list(walk(holder))):
        yield in_words("element", "element")


NAMERS = {
    dict: in_dict,
    list: in_list,
    tuple: in_tuple,
    collections.deque: in_deque,
    set: in_set,
    frozenset: in_set,
}
LEFTOVERS = {types.MappingProxyType: "underlying mapping"}
