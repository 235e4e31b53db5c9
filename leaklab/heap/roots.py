"""Find the roots: variables, modules, running functions, the interpreter's own; and where paths begin.

Roots are ranked by how familiar they are to a reader: the user's variables first, the interpreter's own holders last.
"""

from __future__ import annotations

import contextvars
import re
import signal
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.heap.running import is_of_function, running_frames
from leaklab.heap.shortest_paths import Start
from leaklab.measure.registries import REGISTRIES
from leaklab.runtime.containers import CONTEXT_HERE
from leaklab.runtime.objects import (
    HEAP_TYPE,
    class_dict,
    flags_of,
    has_base,
    is_exactly,
    is_kind_of,
    loaded_type,
    module_dict,
    type_name,
)
from leaklab.runtime.ours import HISTORY_HOMES, IMPORT_NAMES, SHELL_NAMES, Origin, is_history_name, origin_of
from leaklab.runtime.referents import get_referents

if TYPE_CHECKING:
    from collections.abc import Collection

    from leaklab.heap.index import HeapIndex

VARIABLES, USER_MODULES, RUNNING, LIBRARIES, INTERPRETER = range(5)
"""The ranks."""
_subclasses_of = type.__dict__["__subclasses__"]
_STANDARD_MODULES = frozenset(sys.builtin_module_names) | sys.stdlib_module_names
_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
# What a path may cost. A path through user's variables wins over one through modules, that over one through frames; the
# notebook's own holders come last but for the interpreter's.
_COST_OF_RANK = (0, 4, 8, 16, 40)
_COST_OF_HISTORY_NAME = 10
_COST_OF_HISTORY_COPY = 14
_COST_OF_SHELL = 40
_COST_OF_CALLED = 18  # whoever else holds it has a better name for it
_PLACES = ("module ", "thread ", "running ")


def find_starts(namespace: dict[str, Any] | None, called: object = None) -> list[Start]:
    """Return where paths may begin: each of the user's variables, then modules, frames, the interpreter.

    Last comes *called*, what is run again and again: nobody but leaklab may hold a function that was made for a check.
    """
    starts: list[Start] = []
    for root in find_roots(namespace):
        if namespace is not None and root.address == id(namespace):
            starts += _variables(root, namespace)
        else:
            is_place = root.words.startswith(_PLACES)
            cost = _COST_OF_RANK[root.rank]
            is_library = root.rank == LIBRARIES
            starts.append(
                Start(root.address, root.words, root.expression, cost, is_library=is_library, is_place=is_place)
            )
    if called is not None:
        starts.append(Start(id(called), "what is checked", "", _COST_OF_CALLED))
    return starts


def interpreter_tables(objects: list[object], index: HeapIndex) -> Iterator[Start]:
    """Yield the lists and dicts of callbacks that only the interpreter refers to, each found by a known entry of it.

    Args:
        objects: The heap, in the order of *index*.
        index: Who refers to whom.
    """
    for registry in REGISTRIES:
        entry = None if registry.entry is None else registry.entry()
        vertex = -1 if entry is None else index.vertex_of(id(entry))
        edges = np.flatnonzero(index.forward_targets == vertex) if vertex >= 0 else ()
        for holder in {int(np.searchsorted(index.forward_offsets, edge, side="right")) - 1 for edge in edges}:
            if is_exactly(objects[holder], (list, dict)) and not (index.forward_targets == holder).any():
                yield Start(int(index.ids[holder]), registry.words, "", _COST_OF_RANK[INTERPRETER])


def _variables(root: Root, namespace: dict[str, Any]) -> Iterator[Start]:
    for name, value in list(namespace.items()):
        if type(name) is not str:
            continue
        cost = 0
        if is_history := is_history_name(name):
            cost = _COST_OF_HISTORY_NAME if name in HISTORY_HOMES else _COST_OF_HISTORY_COPY
        is_shells = (
            name in SHELL_NAMES or name in IMPORT_NAMES or is_shell_type(type(value)) or _is_function_of_shell(value)
        )
        if is_shells:
            cost = _COST_OF_SHELL
        expression = name if name.isidentifier() else f"globals()[{name!r}]"
        yield Start(
            id(value), root.words, expression, cost, is_variable=True, is_history=is_history, is_shells=is_shells
        )


def is_shell_type(kind: type) -> bool:
    """Return whether *kind* is the class of a shell of IPython."""
    shell = loaded_type("IPython.core.interactiveshell", "InteractiveShell")
    return shell is not None and has_base(kind, shell)


def _is_function_of_shell(value: object) -> bool:
    """Return whether *value* is a function of IPython's: its ``open`` stands in for the built-in one."""
    if type(value) is not types.FunctionType:
        return False
    home = value.__globals__.get("__name__")
    return type(home) is str and home.startswith("IPython.core.")


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
            of the last rank, so that a caller can separate them from the user's.
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
            words = "notebook history" if is_history_name(name) else "IPython"
            yield Root(id(namespace[name]), words, name, INTERPRETER)


def _modules() -> Iterator[Root]:
    """Yield the namespace of each module, and the module itself, which may hold more: the state of its C code."""
    yield Root(id(sys.modules), "module 'sys'", "sys.modules", LIBRARIES)
    for name, module in _loaded():
        words, entry = f"module {name!r}", f"sys.modules[{name!r}]"
        if not is_kind_of(module, types.ModuleType):
            yield Root(id(module), words, entry, LIBRARIES)
            continue
        variables = module_dict(module)
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
        if package != name and is_kind_of(parent, types.ModuleType):
            return _module_rank(package, module_dict(parent) or {})  # torch.ops has no file, torch has
        return LIBRARIES if _is_made_by_library(variables) else USER_MODULES
    return USER_MODULES if origin_of(file) is Origin.USER else LIBRARIES


def _is_made_by_library(variables: dict[str, Any]) -> bool:
    """Return whether a library wrote the text of the module and loads it, as torch does that of remote modules."""
    home = type_name(type(variables.get("__loader__"))).partition(".")[0]
    if home in _STANDARD_MODULES:
        return False
    package: object = sys.modules.get(home)
    file = (module_dict(package) or {}).get("__file__") if is_kind_of(package, types.ModuleType) else None
    return type(file) is str and origin_of(file) is not Origin.USER


def _frames() -> Iterator[Root]:
    for running in running_frames(bodies=True):
        words = f"thread {running.thread!r}" if running.thread else f"running function {running.function}"
        if not running.thread and not is_of_function(running.frame):
            words = "running loop"
        yield Root(id(running.frame), words, "", INTERPRETER if running.origin is Origin.FRONT_END else RUNNING)


def _exceptions() -> Iterator[Root]:
    """Yield the last uncaught exception, and those that are being handled, in any thread."""
    for name in ("last_exc", "last_value", "last_traceback"):
        if (value := vars(sys).get(name)) is not None:
            yield Root(id(value), "last exception", f"sys.{name}", INTERPRETER)
    for handled in sys._current_exceptions().values():  # noqa: SLF001 - no public name
        value = handled[1] if type(handled) is tuple else handled  # from 3.12 on the exception itself
        if value is not None:
            expression = "sys.exc_info()[1]" if value is sys.exc_info()[1] else ""
            yield Root(id(value), "exception being handled", expression, INTERPRETER)


def _context() -> Iterator[Root]:
    # The copy is ours and dies here; the map of variables in it is the very one the running context uses.
    for values in get_referents(contextvars.copy_context()):
        yield Root(id(values), "context variable", CONTEXT_HERE, INTERPRETER)


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
        if handler is not None and not is_kind_of(handler, int):
            yield Root(id(handler), "signal handler", f"signal.getsignal({int(number)})", INTERPRETER)


def _static_types() -> Iterator[Root]:
    """Yield the namespaces of the types that C code defines: the collector does not track the types themselves."""
    pending: list[type] = [object]
    seen: set[int] = set()
    while pending:
        kind = pending.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        pending.extend(_subclasses_of(kind))
        if not flags_of(kind) & HEAP_TYPE:
            for variables in get_referents(class_dict(kind)):
                yield Root(id(variables), f"type {type_name(kind)}", "", INTERPRETER)
