"""Read attributes through descriptors written in C, so that no code of the holder's class is run."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from leaklab.objects import mro_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

class_dict = type.__dict__["__dict__"].__get__
"""The namespace of a class, even if its metaclass overrides ``__getattribute__``."""


def is_one_of(kind: type, kinds: tuple[type, ...]) -> bool:
    """``kind in kinds`` without the ``__eq__`` that the metaclass of *kind* may have."""
    return any(kind is each for each in kinds)


class _Missing:
    """The type of `MISSING`."""

    __slots__ = ()


MISSING: Final = _Missing()
"""Stands for a value that is not there, where None may be one."""


def look_up(kind: type, name: str) -> object:
    """Return what the classes in the mro of *kind* define under *name*, unbound; `MISSING` if none does."""
    for each in mro_of(kind):
        namespace: Mapping[str, object] = class_dict(each)
        if name in namespace:
            return namespace[name]
    return MISSING


def c_descriptor(kind: type, name: str) -> Any:
    """Return the first descriptor written in C that *kind* has under *name*, `MISSING` if there is none.

    A property of the user under the same name is stepped over.
    """
    for each in mro_of(kind):
        found = class_dict(each).get(name, MISSING)
        if is_one_of(type(found), (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return found
    return MISSING


def read(holder: object, name: str) -> object:
    """Return the attribute *name* of *holder* if a C descriptor can tell it, otherwise `MISSING`."""
    descriptor = c_descriptor(type(holder), name)
    return MISSING if descriptor is MISSING else read_by(descriptor, holder)


def read_by(descriptor: Any, holder: object) -> object:
    """Return what *descriptor* reads from *holder*, `MISSING` if it is not set or cannot be read now."""
    try:
        value: object = type(descriptor).__get__(descriptor, holder, type(holder))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return MISSING
    return value


def is_evaluable(kind: type, name: str, found: object) -> bool:
    """Return whether ``holder.name`` gives what the C descriptor *found* reads.

    It does not when a subclass hides the descriptor, or replaces attribute access by code of its own.
    """
    return look_up(kind, name) is found and has_plain_access(kind)


def has_plain_access(kind: type) -> bool:
    """Return whether ``holder.name`` is answered by C code (``__getattr__`` only comes after it)."""
    return type(look_up(kind, "__getattribute__")) is types.WrapperDescriptorType


def has_plain_items(kind: type) -> bool:
    """Return whether ``holder[key]`` is answered by C code."""
    return is_one_of(type(look_up(kind, "__getitem__")), (types.WrapperDescriptorType, types.MethodDescriptorType))


def members(kind: type) -> Iterator[tuple[str, Any, type]]:
    """Yield every member descriptor of *kind*: its name, itself, and the class that has it.

    These read one field of the object's struct: ``__slots__`` of Python classes and most attributes of C types.
    """
    for owner in mro_of(kind):
        for name, found in list(class_dict(owner).items()):
            if type(found) is types.MemberDescriptorType and type(name) is str:
                yield name, found, owner
