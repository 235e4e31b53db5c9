"""One reference from a holder to what it holds: in words, and as Python writes it."""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass

from leaklab.objects import type_name

MAX_LITERAL_CHARACTERS = 200
"""Longer keys get no Python suffix: an expression that fills a page helps nobody."""
MAX_SHOWN_CHARACTERS = 60
_MAX_LITERAL_BITS = 128  # of an int: CPython refuses to print very large ones
_MAX_TUPLE_DEPTH = 4
_DIGITS = re.compile(r"\d+")


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
    return f"<{type_name(type(key))}>"


def stable_key(key: object, depth: int = 0) -> str:
    """Return *key* as a fingerprint may contain it: numbers are positions in disguise and become ``*`` or ``#``."""
    if type(key) is str:
        return _DIGITS.sub("#", repr(key[:MAX_SHOWN_CHARACTERS]))
    if type(key) is int or type(key) is float:
        return "*"
    if type(key) is tuple and depth < _MAX_TUPLE_DEPTH:
        return f"({', '.join(stable_key(part, depth + 1) for part in key[:MAX_SHOWN_CHARACTERS])})"
    return shown(key)


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
