"""Touch a live object safely: its type, its name, a short summary.

Nothing here calls a method that the object's class could have written. ``type(o)`` is asked instead of ``o.__class__``,
types are compared by identity or through their ``__mro__``, and lengths are read only of exact built-in types: an
object that raises, hangs or lies in ``__repr__``, ``__len__``, ``__eq__`` or ``__getattr__`` is never given the chance.
"""

from __future__ import annotations

import array
import collections
import io
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

_type_dict = type.__dict__["__dict__"].__get__  # vars(T), even if a metaclass overrides __getattribute__
_type_module = type.__dict__["__module__"].__get__
_type_qualname = type.__dict__["__qualname__"].__get__
_type_mro = type.__dict__["__mro__"].__get__

SIZED_TYPES = (
    list, dict, set, frozenset, tuple, collections.deque, collections.OrderedDict, collections.defaultdict,
    collections.Counter, bytes, bytearray, str, array.array,
)  # fmt: skip
"""Exact types whose ``len`` is C code and cannot run the user's."""

_UNBOUND_LEN: Mapping[type, Any] = {kind: kind.__len__ for kind in SIZED_TYPES}


def mro_of(kind: type) -> tuple[type, ...]:
    """Return the ``__mro__`` of *kind* without asking its metaclass."""
    mro: tuple[type, ...] = _type_mro(kind)
    return mro


def is_tensor(thing: object) -> bool:
    """Return whether *thing* is a tensor, without running its ``__class__``."""
    return torch.Tensor in mro_of(type(thing))


def is_kind_of(thing: object, kind: type) -> bool:
    """``isinstance`` that looks at the real type only and runs no ``__instancecheck__``."""
    return kind in mro_of(type(thing))


def type_name(kind: type) -> str:
    """Return the qualified name of *kind*: ``torch.Tensor``, ``list``, ``Trainer`` for a class of the notebook."""
    try:
        module, qualname = _type_module(kind), _type_qualname(kind)
    except (AttributeError, KeyError, TypeError):
        return "object"
    if not (type(module) is str and type(qualname) is str):
        return qualname if type(qualname) is str else "object"
    if module in ("builtins", "__main__"):
        return qualname.replace("<locals>.", "")
    return f"{module}.{qualname.replace('<locals>.', '')}"


def safe_len(thing: object) -> int | None:
    """Return ``len`` of an exact built-in container, None for anything else."""
    measure = _UNBOUND_LEN.get(type(thing))
    return None if measure is None else int(measure(thing))


def tensor_words(tensor: torch.Tensor) -> str:
    """Return shape, dtype and device of *tensor* in a few words, ``?`` for what it does not tell."""
    with torch._C.DisableTorchFunctionSubclass():
        try:
            shape: object = tuple(torch.Tensor.size(tensor))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            shape = "?"
        try:
            dtype = str(torch.Tensor.dtype.__get__(tensor)).removeprefix("torch.")
            device = str(torch.Tensor.device.__get__(tensor))
        except (RuntimeError, TypeError, AttributeError):
            return f"{shape}"
    return f"{shape} {dtype} {device}"


def summary(thing: object) -> str:
    """Say in a few words what *thing* is, without its content: shape of a tensor, length of a container."""
    if is_tensor(thing):
        return tensor_words(thing)  # type: ignore[arg-type]  # is_tensor is no TypeGuard: the real type is asked
    length = safe_len(thing)
    if length is not None:
        unit = {str: "characters", bytes: "bytes", bytearray: "bytes"}.get(type(thing), "entries")
        return f"{length:,} {unit if length != 1 else {'entries': 'entry'}.get(unit, unit[:-1])}"
    if type(thing) is io.StringIO or type(thing) is io.BytesIO:
        return ""
    if type(thing) is type or type in mro_of(type(thing)):
        return type_name(thing)  # type: ignore[arg-type]
    return ""
