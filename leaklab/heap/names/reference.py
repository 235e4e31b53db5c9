"""One reference from a holder to what it holds: in words, and as Python writes it.

Attributes are read through descriptors written in C, so that no code of the holder's class is run.
"""

from __future__ import annotations

import keyword
import math
import re
import types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leaklab.runtime.objects import mro_of, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_LITERAL_CHARACTERS = 200
"""Longer keys get no Python suffix: an expression that fills a page helps nobody."""
MAX_SHOWN_CHARACTERS = 60
_MAX_LITERAL_BITS = 128  # of an int: CPython refuses to print very large ones
_MAX_TUPLE_DEPTH = 4
_DIGITS = re.compile(r"\d+")
class_dict = type.__dict__["__dict__"].__get__
"""The namespace of a class, even if its metaclass overrides ``__getattribute__``."""


@dataclass(frozen=True, slots=True)
class Reference:
    """How a holder refers to a child.

    Attributes:
        text: What a path shows: ``.history``, ``['loss']``, ``[3]``, ``local 'x' of fill()``, ``element``.
        suffix: Python that, appended to an expression for the holder, evaluates to the child; None if Python has no
            way, or if the way runs through code that the holder's class has written itself.
        stable: The same for tomorrow's run: ``[*]`` instead of positions, ``#`` instead of numbers within keys.
        kind: One of ``attribute key index element closure default partial bound-method function frame-local slot
            callback hidden other``; ``hidden`` is a reference that the garbage collector does not report.
    """

    text: str
    suffix: str | None
    stable: str
    kind: str


def literal(key: object, depth: int = 0) -> str | None:
    """Return Python source that evaluates to a key equal to *key*, None unless it is plain and short.

    Only exact built-in types are printed: a subclass could run the user's ``__repr__``.
    """
    kind = type(key)
    if key is None or kind is bool:
        return repr(key)
    if kind is str or kind is bytes:
        return repr(key) if len(key) <= MAX_LITERAL_CHARACTERS else None  # type: ignore[arg-type]  # exact str or bytes
    if kind is int:
        return repr(key) if key.bit_length() <= _MAX_LITERAL_BITS else None  # type: ignore[attr-defined]  # exact int
    if kind is float:
        return repr(key) if math.isfinite(key) else None  # type: ignore[arg-type]  # exact float
    if kind is tuple and depth < _MAX_TUPLE_DEPTH:
        return _tuple_literal(key, depth)  # type: ignore[arg-type]  # exact tuple
    return None


def _tuple_literal(key: tuple[object, ...], depth: int) -> str | None:
    parts = [literal(part, depth + 1) for part in key[:MAX_LITERAL_CHARACTERS]]
    if None in parts or sum(map(len, filter(None, parts))) > MAX_LITERAL_CHARACTERS:
        return None
    return f"({', '.join(filter(None, parts))}{',' if len(parts) == 1 else ''})"


def shown(key: object, depth: int = 0) -> str:
    """Return a short text for *key*: its literal where there is one, ``<Trainer>`` for an object."""
    if type(key) is str or type(key) is bytes:
        text = repr(key[:MAX_SHOWN_CHARACTERS])
        return text if len(key) <= MAX_SHOWN_CHARACTERS else f"{text[:-1]}…{text[-1]}"
    if type(key) is tuple and depth < _MAX_TUPLE_DEPTH and len(key) <= MAX_SHOWN_CHARACTERS // 10:
        return f"({', '.join(shown(part, depth + 1) for part in key)}{',' if len(key) == 1 else ''})"
    text_or_none = literal(key)
    if text_or_none is not None and len(text_or_none) <= MAX_SHOWN_CHARACTERS:
        return text_or_none
    return "<thread>" if _is_thread_of_local(key) else f"<{type_name(type(key))}>"


def _is_thread_of_local(key: object) -> bool:
    """Return whether a `threading.local` keeps the values of one thread under *key*.

    That is a dummy of the thread; before Python 3.13 it is a weak reference to the dummy.
    """
    dummy = key() if type(key) is weakref.ref else key
    return type_name(type(dummy)) == "_thread._localdummy"


def stable_key(key: object, depth: int = 0) -> str:
    """Return *key* as a fingerprint may contain it: numbers are positions in disguise and become ``*`` or ``#``."""
    if type(key) is str:
        return _DIGITS.sub("#", repr(key[:MAX_SHOWN_CHARACTERS]))
    if type(key) is int or type(key) is float:
        return "*"
    if type(key) is tuple and depth < _MAX_TUPLE_DEPTH:
        return f"({', '.join(stable_key(part, depth + 1) for part in key[:MAX_SHOWN_CHARACTERS])})"
    # The name from before Python 3.13, so that saved fingerprints last.
    return "<weakref.ReferenceType>" if _is_thread_of_local(key) else shown(key)


def is_name(key: object) -> bool:
    """Return whether *key* can be written after a dot."""
    return type(key) is str and key.isidentifier() and not keyword.iskeyword(key)


def by_attribute(name: str, kind: str = "attribute", *, evaluable: bool = True) -> Reference:
    """Name a reference by attribute; *name* need not be an identifier."""
    text = f".{name}" if is_name(name) else f".__dict__[{shown(name)}]"
    suffix = text if is_name(name) else f".__dict__[{literal(name)}]" if literal(name) else None
    return Reference(text, suffix if evaluable else None, text, kind)


def by_key(key: object, suffix: str | None) -> Reference:
    """Name the reference from a mapping to the value under *key*."""
    return Reference(f"[{shown(key)}]", suffix, f"[{stable_key(key)}]", "key")


def by_index(index: int, *, evaluable: bool = True) -> Reference:
    """Name the reference from a sequence to one of its items."""
    return Reference(f"[{index}]", f"[{index}]" if evaluable else None, "[*]", "index")


def in_words(text: str, kind: str = "other", suffix: str | None = None) -> Reference:
    """Name a reference for which the words are better than the Python, or the only way."""
    return Reference(text, suffix, text, kind)


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
    """Return the attribute *name* of *holder* if a C descriptor can read it, otherwise `MISSING`."""
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


def among(holder: object, child: object, names: Iterable[str], kind: str = "attribute") -> Iterator[Reference]:
    """Name the attributes in *names* that C code answers with *child*; names that the type lacks are passed over."""
    for name in names:
        descriptor = c_descriptor(type(holder), name)
        if descriptor is not MISSING and read_by(descriptor, holder) is child:
            yield by_attribute(name, kind, evaluable=is_evaluable(type(holder), name, descriptor))
