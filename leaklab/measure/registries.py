"""Registries whose entries Python does not show: tables that the interpreter, torch and others keep in C and C++.

What such a table keeps looks as if nothing held it. Some tables are lists of the interpreter's, and are found by an
entry that is always there. Of some the length can be read: one that grows as a leak does is its suspect. Of all that
are filled by a call into C this call is seen in a run that is watched (`leaklab.check.stores_in_c`): that is proof.

`REGISTRIES` is open: whoever knows another registry appends a `Registry` before the check.
"""

from __future__ import annotations

import atexit
import codecs
import encodings
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaklab.model import RootPath
from leaklab.runtime.addresses import Addresses
from leaklab.runtime.objects import loaded_variables

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Registry:
    """One registry. Its functions are called between runs: they change nothing and take microseconds.

    Attributes:
        adds: The call that adds an entry, ``atexit.register``.
        removes: The call that takes it out again; empty where there is none.
        count: Returns how many entries there are, None if that is not known (yet). None where that cannot be read.
        entry: Returns an entry by which the interpreter's own list or dict is found; None if it is not there.
        has_callables: Whether entries are functions, or whatever else can be called, with arguments for them.
        call: The function in C that adds an entry, where it is not *adds*: ``sqlite3.Connection.create_function``.
        ends: How an entry goes, in words, where no single call takes it out.
        table: What it is: a ``stack`` is entered and left.
    """

    adds: str
    removes: str = ""
    count: Callable[[], int | None] | None = None
    entry: Callable[[], object] | None = None
    has_callables: bool = True
    call: str = ""
    ends: str = ""
    table: str = "table"

    @property
    def c_function(self) -> str:
        """The function in C that is seen to be called when an entry is added."""
        return self.call or self.adds

    @property
    def words(self) -> str:
        """What it is, for the beginning of a path."""
        return f"the {self.table} of {self.adds}"

    @property
    def suspicion(self) -> str:
        """The same, where only its length speaks for it."""
        return f"probably {self.words}"


def _torchscript_functions() -> int | None:
    state = _loaded("torch.jit._state")
    return None if state is None else len(state["_python_cu"].get_functions())


def _torch_kernels() -> int | None:
    library = _loaded("torch.library")
    return None if library is None else len(library["_impls"])


def _lines_of_readline() -> int | None:
    readline = _loaded("readline")
    return None if readline is None else readline["get_current_history_length"]()


def _loaded(module: str) -> Mapping[str, Any] | None:
    """Return the namespace of a module; None if it was not imported."""
    return loaded_variables(module) or None


def _of_logging(name: str) -> Callable[[], object]:
    return lambda: (_loaded("logging") or {}).get(name)


_OF_SQLITE = "sqlite3.Connection"
_ENDS_WITH_CONNECTION = "close the connection when it has been used"

REGISTRIES: list[Registry] = [
    Registry("atexit.register", "atexit.unregister(function)", count=atexit._ncallbacks),  # noqa: SLF001 - the only count there is
    Registry("os.register_at_fork", entry=lambda: vars(threading).get("_after_fork"), call="posix.register_at_fork"),
    Registry("os.register_at_fork", entry=_of_logging("_acquireLock")),
    Registry("os.register_at_fork", entry=_of_logging("_releaseLock")),
    Registry(
        "codecs.register", "codecs.unregister(function)", entry=lambda: encodings.search_function,
        call="_codecs.register",
    ),
    Registry(
        "codecs.register_error", entry=lambda: codecs.strict_errors, call="_codecs.register_error",
        ends="use one name for all runs, so that each handler replaces the one before",
    ),
    Registry("sys.addaudithook"),
    Registry("sys.monitoring.register_callback", "sys.monitoring.register_callback(tool, event, None)"),
    Registry("torch.jit.script or torch.jit.trace", count=_torchscript_functions, has_callables=False),
    Registry("torch.library.Library.impl", "library._destroy()", count=_torch_kernels, call="torch._C.impl"),
    Registry(
        "torch.autograd.graph.saved_tensors_hooks", call="torch._C._autograd._push_saved_tensors_default_hooks",
        table="stack",
    ),
    Registry(
        "torch.utils._python_dispatch.TorchDispatchMode", call="torch._C._push_on_torch_dispatch_stack", table="stack",
    ),
    Registry(
        "torch.overrides.TorchFunctionMode", call="torch._C._push_on_torch_function_stack", table="stack",
    ),
    Registry("torch.monitor.register_event_handler", "torch.monitor.unregister_event_handler(handle)"),
    Registry("torch._C._cuda_attach_out_of_memory_observer"),
    Registry(
        f"{_OF_SQLITE}.create_function", "create_function(name, n_arguments, None)", ends=_ENDS_WITH_CONNECTION
    ),
    Registry(
        f"{_OF_SQLITE}.create_aggregate", "create_aggregate(name, n_arguments, None)", ends=_ENDS_WITH_CONNECTION
    ),
    Registry(
        f"{_OF_SQLITE}.create_window_function", "create_window_function(name, n_arguments, None)",
        ends=_ENDS_WITH_CONNECTION,
    ),
    Registry(f"{_OF_SQLITE}.create_collation", "create_collation(name, None)", ends=_ENDS_WITH_CONNECTION),
    Registry("_tkinter.tkapp.createcommand", "deletecommand(name)"),
    Registry("readline.add_history", "readline.clear_history()", count=_lines_of_readline, has_callables=False),
]  # fmt: skip


def registry_on(path: RootPath) -> Registry | None:
    """Return the registry that a path begins at, surely or probably, or passes; None if there is none."""
    places = {path.root, *(step.reference for step in path.steps)}
    return next((one for one in REGISTRIES if not places.isdisjoint((one.words, one.suspicion))), None)


def registry_of_call(name: str) -> Registry | None:
    """Return the registry that the function in C with this name adds to; None if none is known."""
    return next((registry for registry in REGISTRIES if registry.c_function == name), None)


def entry_counts() -> Addresses:
    """Return how many entries each of `REGISTRIES` has; `UNKNOWN` where that cannot be read."""
    return np.array([_count(registry) for registry in REGISTRIES], np.int64)


def _count(registry: Registry) -> int:
    try:
        count = None if registry.count is None else registry.count()
    except Exception:  # noqa: BLE001 - a private name of another version; a registry that somebody else has added
        return UNKNOWN
    return UNKNOWN if count is None else count
