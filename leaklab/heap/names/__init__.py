"""Name the references from one object to another, as a person would write them.

What can be named is in tables from a type to a small function, its namer; an object is asked by the namers of every
class in its mro. Nothing here runs code that a class of the user could have written: no ``repr``, no ``==``, no
``len``, no property, no ``__getattr__``. Naming comes after the references have been recorded, because reading some
of them changes what the garbage collector reports.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

from leaklab.heap.names import builtins, code, containers
from leaklab.heap.names.reference import Reference, in_words
from leaklab.runtime.objects import is_tensor, mro_of, type_name
from leaklab.runtime.referents import get_referents

__all__ = ["MAX_NAMES", "Namer", "Reference", "best_reference", "name_references"]

MAX_NAMES = 16
"""No more names than this are looked for: a list may hold the same object a million times."""
Namer = Callable[[object, object], Reference]
"""Returns the best name of the reference from one object to another."""

_MODULES: Final = (containers, code, builtins)
# By the address of the type: hashing a type may run its metaclass's __hash__. All of them live for ever.
_NAMERS: Final = {id(kind): namer for module in _MODULES for kind, namer in module.NAMERS.items()}
_KINDS: Final = {id(kind): word for kind, word in (code.KINDS | builtins.KINDS).items()}
_LEFTOVERS: Final = {id(kind): words for module in _MODULES for kind, words in module.LEFTOVERS.items()}


def name_references(holder: object, child: object) -> list[Reference]:
    """Return every way in which *holder* refers to *child*, the best first.

    Both are live objects, compared by identity. References that the garbage collector does not report (kind
    ``hidden``) are found too.

    Returns:
        At most `MAX_NAMES`; empty only if *holder* does not refer to *child* as far as can be seen.
    """
    found = _distinct(itertools.chain(_by_namers(holder, child), containers.in_inline_attributes(holder, child)))
    if not found:
        # Last, because reading the dict of an instance may leave that dict on it
        found = _distinct(containers.in_instance_dict(holder, child))
    if not found:
        found = _distinct(containers.in_class_of(holder, child))
    if not found and any(child is inner for inner in get_referents(holder)):
        found = [_left_over(holder)]
    return sorted(found, key=lambda reference: reference.suffix is None)


def best_reference(holder: object, child: object) -> Reference:
    """Return the best name; words that claim nothing if the reference is gone or cannot be seen any more."""
    names = name_references(holder, child)
    return names[0] if names else in_words(f"reference inside {type_name(type(holder))}")


def _by_namers(holder: object, child: object) -> Iterator[Reference]:
    kind = type(holder)
    for namer in dict.fromkeys(_NAMERS[id(each)] for each in mro_of(kind) if id(each) in _NAMERS):
        yield from namer(holder, child)
    if is_tensor(holder):
        yield from builtins.in_tensor(holder, child)
    elif builtins.is_node(kind):
        yield from builtins.in_node(holder, child)
    yield from containers.in_members(holder, child, _KINDS)


def _distinct(references: Iterator[Reference]) -> list[Reference]:
    first: dict[str, Reference] = {}
    for reference in itertools.islice(references, 2 * MAX_NAMES):
        first.setdefault(reference.text, reference)
    return list(first.values())[:MAX_NAMES]


def _left_over(holder: object) -> Reference:
    kind = type(holder)
    words = next((_LEFTOVERS[id(each)] for each in mro_of(kind) if id(each) in _LEFTOVERS), None)
    is_entry = any(type_name(each) in _CONTAINERS_IN_C for each in mro_of(kind))
    return in_words(words or f"reference inside {type_name(kind)}", "element" if is_entry else "other")


_CONTAINERS_IN_C = frozenset({"xml.etree.ElementTree.Element"})
"""Types that keep their entries in an array of C, which only the collector reads."""
