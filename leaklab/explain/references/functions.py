"""Name what functions, methods, cells and other callables refer to."""

from __future__ import annotations

import functools
import gc
import types
from typing import TYPE_CHECKING, Any

from leaklab.explain.references.attributes import among
from leaklab.explain.references.descriptors import read
from leaklab.explain.references.record import Reference, by_attribute, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD_WRAPPER: type = type([].__len__)
LRU_CACHE: type = type(functools.lru_cache(print))

_FUNCTION_ATTRIBUTES = {
    "__closure__": "closure",
    "__defaults__": "default",
    "__kwdefaults__": "default",
    "__code__": "function",
    "__globals__": "function",
    "__builtins__": "function",
    "__name__": "function",
    "__qualname__": "function",
    "__module__": "function",
    "__doc__": "function",
    "__type_params__": "function",
}


def code_words(code: types.CodeType) -> str:
    """Return the name of a function as a path shows it: ``fill()``, ``Trainer.fit()``, ``<lambda>``."""
    name: str = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]  # co_qualname came with 3.11
    return name if name.endswith(">") else f"{name}()"


def function_words(function: object) -> str:
    """Return how to speak of *function*: ``fill()``, ``<lambda>``, ``a callable`` if it has no code in Python."""
    while type(function) is functools.partial or type(function) is types.MethodType:
        function = read(function, "func" if type(function) is functools.partial else "__func__")
    if type(function) is types.FunctionType:
        return code_words(function.__code__)
    if type(function) is types.BuiltinFunctionType:
        return f"{function.__name__}()"
    return "a callable"


def in_function(holder: Any, child: object) -> Iterator[Reference]:
    """Name the parts of a function. Its annotations are not read: that may run code (3.14) or change it (3.10)."""
    for name, kind in _FUNCTION_ATTRIBUTES.items():
        yield from among(holder, child, (name,), kind)


def in_cell(holder: Any, child: object) -> Iterator[Reference]:
    """Name the variable's value; an empty cell has none."""
    yield from among(holder, child, ("cell_contents",), "closure")


def in_builtin_method(holder: Any, child: object) -> Iterator[Reference]:
    """Name the object that a method written in C is bound to."""
    yield from among(holder, child, ("__self__", "__module__"), "bound-method")


def in_lru_cache(holder: Any, child: object) -> Iterator[Reference]:
    """Name the wrapped function, the cache, its results and the arguments they are kept for."""
    attributes: Any = read(holder, "__dict__")
    if child is attributes:
        yield by_attribute("__dict__")
        return
    if child is dict.get(attributes, "__wrapped__"):
        yield by_attribute("__wrapped__", "function")
        return
    inner = [each for each in gc.get_referents(holder) if each is not attributes]
    cache: Any = next((each for each in inner if type(each) is dict), {})
    if child is cache:
        yield in_words("cache")
    elif any(child is key for key in list(dict.keys(cache))):
        yield in_words("arguments of a cached call", "element")
    elif any(child is each for each in inner) and not _is_part_of_lru_cache(child):
        yield in_words("cached result", "element")


def _is_part_of_lru_cache(child: object) -> bool:
    """Return whether *child* is one of the types and markers that every cache refers to."""
    probe = functools.lru_cache(maxsize=None)(print)
    parts = [each for each in gc.get_referents(probe) if type(each) is type or type(each) is object]
    return any(child is part for part in parts)


def in_property(holder: Any, child: object) -> Iterator[Reference]:
    """Name what a property keeps beside its functions."""
    yield from among(holder, child, ("__name__",))


NAMERS = {
    types.FunctionType: in_function,
    types.CellType: in_cell,
    types.BuiltinFunctionType: in_builtin_method,
    LRU_CACHE: in_lru_cache,
    property: in_property,
}
KINDS = {
    types.MethodType: "bound-method",
    types.BuiltinFunctionType: "bound-method",
    METHOD_WRAPPER: "bound-method",
    functools.partial: "partial",
    classmethod: "function",
    staticmethod: "function",
    property: "function",
}
LEFTOVERS = {
    types.FunctionType: "annotations",
    types.BuiltinFunctionType: "class of the method",
    METHOD_WRAPPER: "slot that is wrapped",
    LRU_CACHE: "internals of lru_cache",
    property: "name",
    classmethod: "internals of the method",
    staticmethod: "internals of the method",
    functools.partial: "internals of the partial",
}
