"""Name what instances and classes refer to: attributes, slots, the class itself, its bases.

Attributes of an instance live in an array without names until somebody reads ``__dict__``; from then on the instance
carries a dict for good (CPython 3.11 and 3.12). So names that the class's own methods use are tried first, one by
one, which leaves no trace; ``__dict__`` is read only if none of them fits.
"""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any

from leaklab.explain.references.attributes import among
from leaklab.explain.references.containers import keys_of
from leaklab.explain.references.descriptors import (
    MISSING,
    c_descriptor,
    class_dict,
    has_plain_access,
    is_evaluable,
    is_one_of,
    look_up,
    members,
    read_by,
)
from leaklab.explain.references.record import Reference, by_attribute, in_words, is_name
from leaklab.objects import is_kind_of, mro_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMED_ELSEWHERE = ("__dict__", "__callback__")  # the latter is a weak reference's


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
    """Name attributes that the methods of the class mention, without making the instance's dict."""
    kind = type(holder)
    if c_descriptor(kind, "__dict__") is MISSING or is_kind_of(holder, type):
        return  # what a class has is in a dict of its own, and asking for it by name would bind it
    plain_access = has_plain_access(kind)
    for name in sorted(_mentioned_names(kind)):
        in_class = look_up(kind, name)
        if in_class is child or look_up(type(in_class), "__get__") is not MISSING:
            continue  # a descriptor could run the user's code
        try:
            value = object.__getattribute__(holder, name)
        except AttributeError:
            continue
        if value is child:
            yield by_attribute(name, evaluable=plain_access)


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


def in_type(holder: Any, child: object) -> Iterator[Reference]:
    """Name the namespace of a class and its bases."""
    if any(child is inner for inner in gc.get_referents(class_dict(holder))):
        # vars(T) is a read-only view, never the dict itself
        yield Reference(".__dict__", None, ".__dict__", "attribute")
    yield from among(holder, child, ("__bases__", "__mro__"))
    if type(child) is types.ModuleType and any(child is inner for inner in gc.get_referents(holder)):
        yield in_words("module of the class")


NAMERS = {type: in_type}
LEFTOVERS = {type: "internals of the class"}
