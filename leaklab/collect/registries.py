"""Registries whose entries Python does not show: tables that the interpreter and torch keep in C and C++.

What such a table keeps looks as if nothing held it. Some tables are lists of the interpreter's, and are found by an
entry that is always there. Of the others only the length can be read: one that grows as a leak does is its suspect.

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

from leaklab.runtime.addresses import Addresses
from leaklab.runtime.objects import loaded_variables

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Registry:
    """One registry. Its functions are called between runs: they change nothing and take microseconds.

    Attributes:
        adds: The call that adds an entry, ``atexit.register``.
        removes: The call that takes it out again; empty where there is none.
        count: Returns how many entries there are, None if that is not known (yet). None where the table is a list.
        entry: Returns an entry by which the interpreter's own list or dict is found; None if it is not there.
        has_callables: Whether entries are functions, or whatever else can be called, with arguments for them.
    """

    adds: str
    removes: str = ""
    count: Callable[[], int | None] | None = None
    entry: Callable[[], object] | None = None
    has_callables: bool = True

    @property
    def words(self) -> str:
        """What it is, for the beginning of a path."""
        return f"the table of {self.adds}"

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


REGISTRIES: list[Registry] = [
    Registry("atexit.register", "atexit.unregister(function)", count=atexit._ncallbacks),  # noqa: SLF001 - the only count there is
    Registry("os.register_at_fork", entry=lambda: vars(threading).get("_after_fork")),
    Registry("os.register_at_fork", entry=_of_logging("_acquireLock")),
    Registry("os.register_at_fork", entry=_of_logging("_releaseLock")),
    Registry("codecs.register", "codecs.unregister(function)", entry=lambda: encodings.search_function),
    Registry("codecs.register_error", entry=lambda: codecs.strict_errors),
    Registry("torch.jit.script or torch.jit.trace", count=_torchscript_functions, has_callables=False),
    Registry("torch.library.Library.impl", "library._destroy()", count=_torch_kernels),
    Registry("readline.add_history", "readline.clear_history()", count=_lines_of_readline, has_callables=False),
]


def registry_at(root: str) -> Registry | None:
    """Return the registry that a path begins at, surely or probably; None if it begins elsewhere."""
    return next((registry for registry in REGISTRIES if root in (registry.words, registry.suspicion)), None)


def entry_counts() -> Addresses:
    """Return how many entries each of `REGISTRIES` has; `UNKNOWN` where that cannot be read."""
    return np.array([_count(registry) for registry in REGISTRIES], np.int64)


def _count(registry: Registry) -> int:
    try:
        count = None if registry.count is None else registry.count()
    except Exception:  # noqa: BLE001 - a private name of another version; a registry that somebody else has added
        return UNKNOWN
    return UNKNOWN if count is None else count
