"""Name the local variables of frames and generators, and the parts of tracebacks and exceptions."""

from __future__ import annotations

import gc
import inspect
import types
from typing import TYPE_CHECKING, Any

from leaklab.explain.heap.frames import local_variables
from leaklab.explain.references.attributes import among
from leaklab.explain.references.descriptors import read
from leaklab.explain.references.functions import code_words
from leaklab.explain.references.record import Reference, by_attribute, in_words, literal
from leaklab.objects import is_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME_ATTRIBUTES = ("f_back", "f_globals", "f_builtins", "f_code", "f_trace")
_EXCEPTION_ATTRIBUTES = ("args", "__cause__", "__context__", "__traceback__")
_PREFIXES = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}
_GENERATOR_PARTS = ("yieldfrom", "await", "origin", "frame", "code")


def locals_of(frame: types.FrameType) -> list[tuple[str, object]]:
    """Return the local variables of *frame*, which may be the body of a module or class too, and leave it as it was."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return local_variables(frame)
    variables: Any = frame.f_locals
    if not is_kind_of(variables, dict):
        return []  # exec with a mapping of the user's own, which could run anything
    return [(name, value) for name, value in list(dict.items(variables)) if type(name) is str]


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
    if not variables and any(child is inner for inner in gc.get_referents(holder)):
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


NAMERS = {
    types.FrameType: in_frame,
    types.GeneratorType: in_generator,
    types.CoroutineType: in_generator,
    types.AsyncGeneratorType: in_generator,
    BaseException: in_exception,
    types.TracebackType: in_traceback,
}
LEFTOVERS = {
    types.FrameType: "temporary value of a frame",
    types.GeneratorType: "temporary value of a generator",
    types.CoroutineType: "temporary value of a coroutine",
    types.AsyncGeneratorType: "temporary value of an asynchronous generator",
}
