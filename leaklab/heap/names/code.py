"""Name what functions, methods, cells, frames, generators, tracebacks and exceptions refer to."""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leaklab.heap.names.reference import Reference, among, by_attribute, in_words, literal, read
from leaklab.heap.running import local_variables
from leaklab.runtime.containers import entries_in, keys_in
from leaklab.runtime.frame_stacks import stack_words
from leaklab.runtime.objects import class_attribute, is_kind_of
from leaklab.runtime.referents import get_referents

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
_FRAME_ATTRIBUTES = ("f_back", "f_globals", "f_builtins", "f_code", "f_trace")
_EXCEPTION_ATTRIBUTES = ("args", "__cause__", "__context__", "__traceback__")
_PREFIXES = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}
_GENERATOR_PARTS = ("yieldfrom", "await", "origin", "frame", "code")
KINDS: Final = {
    types.MethodType: "bound-method",
    types.BuiltinFunctionType: "bound-method",
    METHOD_WRAPPER: "bound-method",
    functools.partial: "partial",
    classmethod: "function",
    staticmethod: "function",
    property: "function",
}
LEFTOVERS: Final = {
    types.FunctionType: "annotations",
    types.BuiltinFunctionType: "class of the method",
    METHOD_WRAPPER: "slot that is wrapped",
    LRU_CACHE: "internals of lru_cache",
    property: "name",
    classmethod: "internals of the method",
    staticmethod: "internals of the method",
    functools.partial: "internals of the partial",
    types.FrameType: "temporary value of a frame",
    types.GeneratorType: "temporary value of a generator",
    types.CoroutineType: "temporary value of a coroutine",
    types.AsyncGeneratorType: "temporary value of an asynchronous generator",
}


def code_words(code: types.CodeType) -> str:
    """Return the name of a function as a path shows it: ``fill()``, ``Trainer.fit()``, ``<lambda>``."""
    name: str = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]  # co_qualname came with 3.11
    return name if name.endswith(">") else f"{name}()"


def loop_words(code: types.CodeType) -> str:
    """Return how a path shows the reference to what a ``for`` loop of *code* goes through."""
    return f"iterator of a loop in {code_words(code)}" if code.co_flags & inspect.CO_OPTIMIZED else "iterator of a loop"


def function_words(function: object) -> str:
    """Return what to call *function*: ``fill()``, ``<lambda>``, ``a callable`` if it has no code in Python."""
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
    inner = [each for each in get_referents(holder) if each is not attributes]
    cache: Any = next((each for each in inner if type(each) is dict), {})
    if child is cache:
        yield in_words("cache")
    elif any(child is key for key in keys_in(cache)):
        yield in_words("arguments of a cached call", "element")
    elif any(child is each for each in inner) and not _is_part_of_lru_cache(child):
        yield in_words("cached result", "element")


def _is_part_of_lru_cache(child: object) -> bool:
    """Return whether *child* is one of the types and markers that every cache refers to."""
    probe = functools.lru_cache(maxsize=None)(print)
    parts = [each for each in get_referents(probe) if type(each) is type or type(each) is object]
    return any(child is part for part in parts)


def in_property(holder: Any, child: object) -> Iterator[Reference]:
    """Name what a property keeps beside its functions."""
    yield from among(holder, child, ("__name__",))


def locals_of(frame: types.FrameType) -> list[tuple[str, object]]:
    """Return the local variables of *frame*, which may be the body of a module or class too, and leave it as it was."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return local_variables(frame)
    variables: Any = frame.f_locals
    if not is_kind_of(variables, dict):
        return []  # exec with a mapping of the user's own, which could run anything
    return [(name, value) for name, value in entries_in(variables) if type(name) is str]


def in_frame(holder: Any, child: object) -> Iterator[Reference]:
    """Name local variables, then the parts of the frame."""
    yield from among(holder, child, _FRAME_ATTRIBUTES)
    if type(child) is dict and holder.f_locals is child:
        yield by_attribute("f_locals")
    yield from _variables_or_parts(holder, holder, child, "")


def in_generator(holder: Any, child: object) -> Iterator[Reference]:
    """Name what a suspended generator, coroutine or asynchronous generator waits for and holds."""
    prefix = _PREFIXES[type(holder)]
    yield from among(holder, child, [f"{prefix}_{part}" for part in _GENERATOR_PARTS])
    yield from among(holder, child, ("__name__", "__qualname__"))
    frame = read(holder, f"{prefix}_frame")
    if type(frame) is types.FrameType:
        if type(child) is dict and frame.f_locals is child:
            yield Reference(f".{prefix}_frame.f_locals", f".{prefix}_frame.f_locals", ".f_locals", "attribute")
        yield from _variables_or_parts(holder, frame, child, f".{prefix}_frame")


def _variables_or_parts(holder: object, frame: types.FrameType, child: object, prefix: str) -> Iterator[Reference]:
    variables = list(_variables(frame, child, prefix))
    yield from variables
    if variables:
        return
    if class_attribute(type(child), "__next__") is not None and np.any(stack_words(frame) == id(child)):
        yield in_words(loop_words(frame.f_code))
    elif any(child is inner for inner in get_referents(holder)):
        yield from _parts(frame, child)


def _variables(frame: types.FrameType, child: object, prefix: str) -> Iterator[Reference]:
    where = code_words(frame.f_code)
    for name, value in locals_of(frame):
        if value is child:
            # Inside a function only: the locals of a module are its namespace, a dict of its own.
            yield in_words(f"local {name!r} of {where}", "frame-local", f"{prefix}.f_locals[{literal(name)}]")
        elif type(child) is types.CellType and _is_cell_of(frame, name) and read(child, "cell_contents") is value:
            yield in_words(f"local {name!r} of {where}", "frame-local")


def _parts(frame: types.FrameType, child: object) -> Iterator[Reference]:
    """Name what a frame holds beside its variables."""
    where = code_words(frame.f_code)
    if type(child) is types.FunctionType and child.__code__ is frame.f_code:
        yield in_words(f"function of {where}", "function")
    elif is_kind_of(child, BaseException):
        yield in_words(f"exception being handled in {where}")


def _is_cell_of(frame: types.FrameType, name: str) -> bool:
    return name in frame.f_code.co_cellvars or name in frame.f_code.co_freevars


def in_exception(holder: Any, child: object) -> Iterator[Reference]:
    """Name what an exception keeps alive."""
    yield from among(holder, child, _EXCEPTION_ATTRIBUTES)


def in_traceback(holder: Any, child: object) -> Iterator[Reference]:
    """Name the next traceback; the frame is found as a member."""
    yield from among(holder, child, ("tb_next",))


NAMERS: Final = {
    types.FunctionType: in_function,
    types.CellType: in_cell,
    types.BuiltinFunctionType: in_builtin_method,
    LRU_CACHE: in_lru_cache,
    property: in_property,
    types.FrameType: in_frame,
    types.GeneratorType: in_generator,
    types.CoroutineType: in_generator,
    types.AsyncGeneratorType: in_generator,
    BaseException: in_exception,
    types.TracebackType: in_traceback,
}
