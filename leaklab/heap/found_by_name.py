"""Begin a path at what has a name of its own, so that the path does not depend on who else is imported.

A logger is referred to by every module that asked for it, a class by every module that imports it. Which of these a
search comes from is chance. What programs find by its name is called by that name:

1. one of the user's variables, where the path begins at one;
2. the last thing of the path that has a name of its own: a logger, a class, a function of a module;
3. the module that the search came from.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leaklab.heap.shortest_paths import Start
from leaklab.runtime.objects import (
    HEAP_TYPE,
    class_dict,
    flags_of,
    is_kind_of,
    loaded_type,
    loaded_variables,
    type_name,
)


def begin_at_name(start: Start, things: Sequence[object], n_old: int) -> tuple[int, Start]:
    """Return how many of *things* to leave out, and where the path then begins.

    Args:
        start: Where the search began.
        things: The objects of the path, the root first.
        n_old: So many of them, the first ones, were there before the runs: what a run has made is no name.
    """
    if start.is_variable:
        return 0, start
    for place in range(min(n_old, len(things)) - 1, 0, -1):
        home, python = _own_name(things[place])
        if python:
            words = f"module {home!r}"
            if words == start.words and home != "logging":
                break  # the search came from there
            return place, replace(start, words=words, expression=python)
    return 0, start


def _own_name(thing: Any) -> tuple[str, str]:
    """Return the module in which *thing* is found by its name, and Python for it; empty where it has no such name."""
    kind = type(thing)
    if kind is types.FunctionType or (is_kind_of(thing, type) and flags_of(thing) & HEAP_TYPE):
        home = thing.__module__ if kind is types.FunctionType else class_dict(thing).get("__module__")
        name = _simple_name(thing)
        if type(home) is not str or loaded_variables(home).get(name) is not thing:
            return "", ""
        return home, f"{home}.{name}"
    logger = loaded_type("logging", "Logger")
    if type_name(kind) == "logging.Manager":
        return "logging", "logging.root.manager"
    return ("logging", _logger_name(thing)) if logger is not None and is_kind_of(thing, logger) else ("", "")


def _simple_name(thing: Any) -> str:
    name = type_name(thing).rpartition(".")[2] if is_kind_of(thing, type) else thing.__name__
    return name if type(name) is str else ""


def _logger_name(logger: Any) -> str:
    variables = loaded_variables("logging")
    if logger is variables.get("root"):
        return "logging.root"
    name, manager = vars(logger).get("name"), class_dict(variables["Logger"]).get("manager")
    known = {} if manager is None else vars(manager).get("loggerDict", {})
    return f"logging.getLogger({name!r})" if type(name) is str and known.get(name) is logger else ""
