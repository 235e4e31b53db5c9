"""Find what keeps objects alive for its own sake: variables, modules, running functions, the interpreter.

A root is ranked by how well a reader knows it. The user's variables come first, the interpreter's own holders last.
"""

from __future__ import annotations

import contextvars
import gc
import re
import signal
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaklab.explain.heap.frames import running_frames
from leaklab.explain.source.origins import Origin, origin_of
from leaklab.objects import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

VARIABLES, USER_MODULES, RUNNING, LIBRARIES, INTERPRETER = range(5)
"""The ranks."""

_module_dict: Callable[[object], dict[str, Any] | None] = vars(types.ModuleType)["__dict__"].__get__
_subclasses_of = type.__dict__["__subclasses__"]
_inherits = type.__subclasscheck__  # (base, kind): in C, asks no metaclass
_type_flags = type.__dict__["__flags__"].__get__
_type_dict = type.__dict__["__dict__"].__get__
_HEAP_TYPE = 1 << 9
_STANDARD_MODULES = frozenset(sys.builtin_module_names) | sys.stdlib_module_names
_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_RESULT_NAME = re.compile(r"_{1,3}|_\d+|Out|_oh|_i{1,3}|_i\d+|In|_ih|_dh")


@dataclass(frozen=True, slots=True)
class Root:
    """Something that is alive for its own sake.

    Attributes:
        address: Of the object that paths begin at: a namespace, a module, a frame, a value. It may be unknown to the
            collector; frames are vertices only where the hidden references were asked for.
        words: What it is, for the reader.
        expression: Python expression whose attributes (of a module) or whose self it is; empty if there is none.
        rank: 0 the user's variables, 1 the user's modules, 2 running functions, 3 libraries, 4 the interpreter.
    """

    address: int
    words: str
    expression: str
    rank: int


def find_roots(namespace: dict[str, Any] | None, *, hidden_names: Collection[str] = ()) -> list[Root]:
    """Return all roots, best known first, each address once.

    Args:
        namespace: The user's variables, which become one root; None if there are only those of ``__main__``.
        hidden_names: Names in it that the front end has put there (``Out``, ``_``, ``exit``). Their values become roots
            of the last rank, so that a caller can tell them from the user's.
    """
    roots: list[Root] = []
    if namespace is not None:
        roots.append(Root(id(namespace), "notebook variable", "", VARIABLES))
        roots.extend(_hidden_variables(namespace, hidden_names))
    for provider in (_modules, _frames, _exceptions, _context, _hooks, _signal_handlers, _static_types):
        roots.extend(provider())
    roots.sort(key=lambda root: root.rank)
    first: dict[int, Root] = {}
    for root in roots:
        first.setdefault(root.address, root)
    return list(first.values())


def _hidden_variables(namespace: dict[str, Any], hidden_names: Collection[str]) -> Iterator[Root]:
    for name in hidden_names:
        if name in namespace:
            words = "notebook history" if _RESULT_NAME.fullmatch(name) else "IPython"
            yield Root(id(namespace[name]), words, name, INTERPRETER)


def _modules() -> Iterator[Root]:
    """Yield the namespace of each module, and the module itself, which may hold more: the state of its C code."""
    yield Root(id(sys.modules), "module 'sys'", "sys.modules", LIBRARIES)
    for name, module in _loaded():
        words, entry = f"module {name!r}", f"sys.modules[{name!r}]"
        if not _inherits(types.ModuleType, type(module)):
            yield Root(id(module), words, entry, LIBRARIES)
            continue
        variables = _module_dict(module)
        if type(variables) is dict:
            rank = _module_rank(name, variables)
            yield Root(id(variables), words, name if _DOTTED_NAME.fullmatch(name) else entry, rank)
            yield Root(id(module), words, entry, rank)


def _loaded() -> Iterator[tuple[str, object]]:
    """Yield what is in ``sys.modules``, where people put anything."""
    entries: list[tuple[object, object]] = list(sys.modules.items())
    for name, module in entries:
        if type(name) is str and module is not None:
            yield name, module


def _module_rank(name: str, variables: dict[str, Any]) -> int:
    if name == "__main__":
        return USER_MODULES
    file = variables.get("__file__")
    package = name.partition(".")[0]
    if type(file) is not str:
        if package in _STANDARD_MODULES:
            return LIBRARIES
        parent: object = sys.modules.get(package)
        if package != name and _inherits(types.ModuleType, type(parent)):
            return _module_rank(package, _module_dict(parent) or {})  # torch.ops has no file, torch has
        return USER_MODULES
    return USER_MODULES if origin_of(file) is Origin.USER else LIBRARIES


def _frames() -> Iterator[Root]:
    for running in running_frames():
        words = f"thread {running.thread!r}" if running.thread else f"running function {running.function}"
        yield Root(id(running.frame), words, "", INTERPRETER if running.origin is Origin.FRONT_END else RUNNING)


def _exceptions() -> Iterator[Root]:
    """Yield the last uncaught exception, and those that are being handled, in any thread."""
    for name in ("last_exc", "last_value", "last_traceback"):
        if (value := vars(sys).get(name)) is not None:
            yield Root(id(value), "last exception", f"sys.{name}", INTERPRETER)
    current = sys.exc_info()[1]
    for handled in sys._current_exceptions().values():  # noqa: SLF001 - no public name
        value = handled[1] if type(handled) is tuple else handled  # from 3.12 on the exception itself
        if value is not None:
            expression = "sys.exc_info()[1]" if value is current else ""
            yield Root(id(value), "exception being handled", expression, INTERPRETER)


def _context() -> Iterator[Root]:
    # The copy is ours and dies here; the map of variables in it is the very one the running context uses.
    for values in gc.get_referents(contextvars.copy_context()):
        yield Root(id(values), "context variable", "contextvars.copy_context()", INTERPRETER)


def _hooks() -> Iterator[Root]:
    generator_hooks = sys.get_asyncgen_hooks()
    hooks: tuple[tuple[str, object], ...] = (
        ("sys.gettrace()", sys.gettrace()),
        ("sys.getprofile()", sys.getprofile()),
        ("sys.get_asyncgen_hooks().firstiter", generator_hooks.firstiter),
        ("sys.get_asyncgen_hooks().finalizer", generator_hooks.finalizer),
    )
    for expression, hook in hooks:
        if hook is not None:
            yield Root(id(hook), "interpreter", expression, INTERPRETER)


def _signal_handlers() -> Iterator[Root]:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if handler is not None and not _inherits(int, type(handler)):
            yield Root(id(handler), "signal handler", f"signal.getsignal({int(number)})", INTERPRETER)


def _static_types() -> Iterator[Root]:
    """Yield the namespaces of the types that C code defines: the collector does not know the types themselves."""
    pending: list[type] = [object]
    seen: set[int] = set()
    while pending:
        kind = pending.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        pending.extend(_subclasses_of(kind))
        if not _type_flags(kind) & _HEAP_TYPE:
            for variables in gc.get_referents(_type_dict(kind)):
                yield Root(id(variables), f"type {type_name(kind)}", "", INTERPRETER)
