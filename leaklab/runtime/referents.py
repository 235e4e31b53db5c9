"""Ask objects what they refer to: all that leaklab asks the collector about references, in one place.

What CPython's collector does not say, or says wrongly, is mended here: a module that reports dead objects (3.12), the
dict of an instance that the instance does not report (3.13 and later).
"""

from __future__ import annotations

import ctypes
import gc
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from leaklab.runtime.addresses import Addresses, Ints, addresses_of, kinds_of, object_at, types_at
from leaklab.runtime.objects import HEAP_TYPE, MANAGED_DICT, flags_of, has_base, module_dict

WORD: Final = ctypes.sizeof(ctypes.c_void_p)
# Python 3.11 to 3.14, with the interpreter lock and without it.
_MANAGED_OFFSETS: Final = (-3 * WORD, -WORD)
_dict_offset_of = type.__dict__["__dictoffset__"].__get__

BATCH_OBJECTS = 8_000
"""How many objects to ask for their references at once: what is made of so many stays in the processor's caches, and
takes a fifth less time than fifty thousand at once."""


def is_unsafe_to_ask(thing: object) -> bool:
    """Return whether *thing* reports objects that are dead already: the module ``_asyncio`` of Python 3.12.

    It reports the finished iterators that it keeps to be used again (``module_traverse`` in ``_asynciomodule.c``).
    Their reference count is zero: whoever holds one for a moment frees it a second time, and the next collection never
    ends.
    """
    if type(thing) is not types.ModuleType:
        return False
    definition = _definition_of(thing)
    return bool(definition) and ctypes.c_char_p.from_address(definition + _DEFINED_NAME_OFFSET).value == b"_asyncio"


_definition_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyModule_GetDef", ctypes.pythonapi))
_DEFINED_NAME_OFFSET = 5 * WORD  # of `m_name` in PyModuleDef: an object's header and three words lie before it
_FEW = 32  # one by one up to here, through an array of types beyond


def _safe_referents(*things: object) -> list[object]:
    """As `gc.get_referents`; of a module that reports dead objects only the dict."""
    asked = list(things)
    places: Iterable[int] = range(len(asked))
    if len(asked) > _FEW:
        places = np.flatnonzero(kinds_of(asked) == id(types.ModuleType)).tolist()
    for place in places:
        if is_unsafe_to_ask(asked[place]):
            asked[place] = [module_dict(asked[place])]
    return gc.get_referents(*asked)


def referents_of(objects: list[object]) -> tuple[list[object], Ints, Ints]:
    """Ask the collector for the references of many objects at once.

    Returns:
        What the objects refer to, the addresses of that, and for each the position in *objects* of who refers to it.
        A marker that is no object of the heap stands after the references of each object; its owner means nothing.
    """
    marker = object()
    separator = [marker]
    asked: list[object] = [separator] * (2 * len(objects))
    asked[::2] = objects
    referents = get_referents(*asked)
    addresses = addresses_of(referents)
    return referents, addresses, np.cumsum(addresses == id(marker), dtype=np.int32)


class _Probe:
    """Instances of this show where CPython keeps the pointer to an instance's ``__dict__``.

    An instance keeps its attributes without a dict until somebody reads ``__dict__``; from then on they lie one object
    further away. Which dict is an instance's own is read from that very place: a dict that is an attribute,
    ``self.cache``, is referred to by the instance just the same, and is none.
    """

    def __init__(self) -> None:
        self.attribute: dict[str, int] = {}


def word_at(address: int) -> int:
    """Return the machine word at *address*, 0 for a null pointer."""
    return ctypes.c_void_p.from_address(address).value or 0


def words_at(addresses: Addresses) -> Addresses:
    """Return the machine word at each address, as `word_at`, three times faster."""
    return np.fromiter(map(_value_of, map(ctypes.c_ssize_t.from_address, addresses.tolist())), np.int64, len(addresses))


_value_of = operator.attrgetter("value")


def _managed_offset() -> int:
    """Return where the pointer to a dict that the interpreter manages lies, from the instance; 0 if unknown."""
    opened, closed = _Probe(), _Probe()
    own = id(vars(opened))
    for offset in _MANAGED_OFFSETS if flags_of(_Probe) & MANAGED_DICT else ():
        if word_at(id(opened) + offset) == own and word_at(id(closed) + offset) != id(closed.attribute):
            return offset
    return 0


_MANAGED_OFFSET: Final = _managed_offset()


def is_own_dict(thing: object, child: object) -> bool:
    """Return whether *child* is the ``__dict__`` of *thing*, an instance as `own_dicts` has them."""
    if type(child) is not dict:
        return False
    offset = _offset_in(type(thing))
    return offset != 0 and word_at(id(thing) + offset) == id(child)


def contents_of(thing: object) -> list[object]:
    """Return what *thing* refers to, its attributes too where they lie in a dict of its own.

    To look at an instance may give it such a dict: its references are then others than before, in another order.
    """
    referents = get_referents(thing)
    own = [child for child in referents if is_own_dict(thing, child)]
    return [*referents, *get_referents(*own)]


def dict_pointers(types: dict[int, type]) -> Iterator[tuple[int, int]]:
    """Yield the address of each type whose instances have a dict at a known place, and that place."""
    for address, kind in types.items():
        if offset := _offset_in(kind):
            yield address, offset


def _offset_in(kind: type) -> int:
    """Return where instances of *kind* have the pointer to their dict; 0 where that is not known, or not the same."""
    flags = flags_of(kind)
    if not flags & HEAP_TYPE or has_base(kind, type):  # a class's dict is always there
        return 0
    return _MANAGED_OFFSET if flags & MANAGED_DICT else max(_dict_offset_of(kind), 0)


def _whole_referents(*things: object) -> list[object]:
    """As `gc.get_referents`, and of an instance whose ``__dict__`` has been made that dict, too.

    From Python 3.13 on the values of attributes may lie in the instance also after somebody has read ``__dict__``. Then
    the instance reports the values and not the dict, and the dict nothing: nobody seems to refer to it.
    """
    asked = list(things)
    places: Iterable[int] = range(len(asked))
    if len(asked) > _FEW:
        kinds = kinds_of(asked)
        managed = [kind for kind, of in types_at(kinds).items() if _offset_in(of) == _MANAGED_OFFSET]
        with_place = np.flatnonzero(np.isin(kinds, managed))
        is_made = words_at(addresses_of(asked).take(with_place) + _MANAGED_OFFSET) != 0
        places = with_place.compress(is_made).tolist()
    for place in places:
        if _offset_in(type(asked[place])) == _MANAGED_OFFSET:
            asked[place] = _with_made_dict(asked[place])
    return gc.get_referents(*asked)


def _with_made_dict(thing: object) -> object:
    """Return *thing*, or a list that refers to the same and to the dict of *thing* where *thing* does not report it."""
    made = word_at(id(thing) + _MANAGED_OFFSET)
    if not made:
        return thing
    referents = gc.get_referents(thing)
    # A list reports its last item first.
    return thing if made in map(id, referents) else [*reversed(referents), object_at(made)]


get_referents: Callable[..., list[Any]] = {
    (3, 10): gc.get_referents,
    (3, 11): gc.get_referents,
    (3, 12): _safe_referents,
}.get(sys.version_info[:2], _whole_referents if _MANAGED_OFFSET else gc.get_referents)
"""What the arguments refer to, in order: the only way in which leaklab asks ``gc.get_referents``."""
