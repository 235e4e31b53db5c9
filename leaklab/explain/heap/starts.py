"""Choose where paths begin, and what each beginning costs: a reader's own variables nothing."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leaklab.explain.heap.roots import LIBRARIES, Root, find_roots
from leaklab.objects import has_base, loaded_type

# What a path may cost. A path through user's variables wins over one through modules, that over one through frames; the
# notebook's own holders come last but for the interpreter's.
_COST_OF_RANK = (0, 4, 8, 16, 40)
_COST_OF_HISTORY_NAME = 10
_COST_OF_HISTORY_COPY = 14
_COST_OF_SHELL = 40
_PLACES = ("module ", "thread ", "running function ")
_SHELL_NAMES = ("get_ipython", "exit", "quit")
_HISTORY_HOME = re.compile(r"In|Out")
_HISTORY_COPY = re.compile(r"_i?h|_oh|_dh|_+|_i+|_i?\d+")


@dataclass(frozen=True, slots=True)
class Start:
    """Where paths begin.

    Attributes:
        address: The object that the search begins at.
        words: What it is.
        expression: Python for the first object of a path (for a module: the module); empty where there is none.
        cost: What beginning here costs.
        is_variable: Whether it is the value of one of the user's variables.
        is_library: Whether it belongs to a library.
        is_place: Whether it is a module, its namespace, or a running function: paths begin there and pass nowhere else.
        is_history: Whether this is one of the names under which the notebook keeps its history.
        is_shells: Whether this is one of the names that the shell puts among the user's variables.
    """

    address: int
    words: str
    expression: str
    cost: int
    is_variable: bool = False
    is_library: bool = False
    is_place: bool = False
    is_history: bool = False
    is_shells: bool = False


def find_starts(namespace: dict[str, Any] | None) -> list[Start]:
    """Return where paths may begin: each of the user's variables, then modules, frames, the interpreter."""
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
    return starts


def _variables(root: Root, namespace: dict[str, Any]) -> Iterator[Start]:
    for name, value in list(namespace.items()):
        if type(name) is not str:
            continue
        cost = 0
        if _HISTORY_HOME.fullmatch(name):
            cost = _COST_OF_HISTORY_NAME
        elif _HISTORY_COPY.fullmatch(name):
            cost = _COST_OF_HISTORY_COPY
        is_history = cost > 0
        is_shells = name in _SHELL_NAMES or is_shell_type(type(value)) or _is_function_of_shell(value)
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


def is_history_name(name: str) -> bool:
    """Return whether the notebook keeps its history under *name*."""
    return bool(_HISTORY_HOME.fullmatch(name) or _HISTORY_COPY.fullmatch(name))
