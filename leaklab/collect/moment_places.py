"""Note what the variables of the notebook and the attributes of modules refer to."""

from __future__ import annotations

import array
import collections
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

from leaklab.collect.buffers import MIN_BYTES
from leaklab.collect.own_objects import is_machinery
from leaklab.model.moments import Place
from leaklab.objects import has_base, is_tensor, is_tensor_type, loaded_type, safe_len, summary, type_name
from leaklab.sizes import shallow_bytes
from leaklab.tensors import storages_of

NOTEBOOK = "notebook"

_HISTORY_NAME = re.compile(r"_{1,3}|_\d+|Out|_oh|_i{1,3}|_i\d+|In|_ih|_dh|get_ipython|exit|quit|open|__\w+__")
_module_dict: Callable[[object], dict[str, Any] | None] = vars(types.ModuleType)["__dict__"].__get__
# What a module keeps on purpose while a program runs. Its constants, functions and classes are no such thing.
_KEEPERS = (list, dict, set, collections.deque, bytearray, array.array)
_TEXTS = frozenset((id(str), id(bytes)))


def find_places(namespace: dict[str, Any] | None, hidden_names: Collection[str] = ()) -> Iterator[Place]:
    """Yield the variables, then the attributes of modules that keep data.

    Args:
        namespace: The user's variables.
        hidden_names: Names in it that the front end has put there.
    """
    known: set[int] = set()
    if namespace is not None:
        known.add(id(namespace))
        for name, value in list(namespace.items()):
            is_users = type(name) is str and not _HISTORY_NAME.fullmatch(name) and name not in hidden_names
            if is_users and not is_machinery(type_name(type(value))):
                yield _place(name if name.isidentifier() else f"globals()[{name!r}]", NOTEBOOK, value)
    keeps: dict[int, bool] = {}
    for module, variables in _module_dicts():
        if id(variables) in known or is_machinery(module) or module == "linecache":
            continue
        known.add(id(variables))
        for name, value in list(variables.items()):
            kind = type(value)
            if id(kind) not in keeps:
                keeps[id(kind)] = _keeps_data(kind)
            if keeps[id(kind)] and type(name) is str and not name.startswith("__") and _is_worth_it(value):
                yield _place(f"{module}.{name}", module, value)


def module_names() -> tuple[str, ...]:
    """Return the names of the modules loaded."""
    return tuple(sorted(name for name in list(sys.modules) if type(name) is str))


def _module_dicts() -> Iterator[tuple[str, dict[str, Any]]]:
    modules: list[tuple[Any, Any]] = list(sys.modules.items())
    for name, module in modules:
        if type(name) is str and has_base(type(module), types.ModuleType):
            variables = _module_dict(module)
            if type(variables) is dict:
                yield name, variables


def _keeps_data(kind: type) -> bool:
    arrays = loaded_type("numpy", "ndarray")
    return (
        any(kind is keeper for keeper in _KEEPERS)
        or id(kind) in _TEXTS
        or is_tensor_type(kind)
        or (arrays is not None and has_base(kind, arrays))
    )


def _is_worth_it(value: object) -> bool:
    # A module has hundreds of short texts; those are its words.
    return id(type(value)) not in _TEXTS or (safe_len(value) or 0) >= MIN_BYTES


def _place(expression: str, home: str, value: object) -> Place:
    kind = type(value)
    n_bytes = sum(size for _key, size in storages_of(value) or ()) if is_tensor(value) else shallow_bytes(value)
    length = safe_len(value)
    return Place(
        expression, home, id(value), type_name(kind), summary(value), n_bytes, -1 if length is None else length
    )
