"""Hooks of modules, handlers of loggers and callbacks of the notebook that were registered again and again."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from leaklab.explain.kernel.claims import MANY, SMALL_BYTES, Claims, asking, name_of, vertices_at
from leaklab.heap.view import HeapView
from leaklab.model.kernel import Suspect, Suspicion
from leaklab.runtime.objects import (
    attributes_of,
    has_base,
    is_exactly,
    loaded_type,
    loaded_variables,
    running_shell,
    type_name,
)

_FEW = 4
"""So many registrations of one function on one module are not meant."""
_TABLES = (dict, OrderedDict)
_STORE = re.compile(r"_(?:\w+_)?hooks(?:_\w+)?")
_GLOBAL_STORE = re.compile(r"_global_\w*hooks\w*")
_HOOKS_HOME = "torch.nn.modules.module"


def hooks(claims: Claims) -> Iterator[Suspect]:
    """Yield each function that is registered again and again on one module, or on several."""
    view = claims.view
    homes: dict[str, Counter[str]] = defaultdict(Counter)
    cuts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for owner, key, store in _hook_stores(view):
        entries = list(store.values())
        names = [_name_of_function(entry) for entry in entries]
        for name, count in Counter(names).items():
            if count >= _FEW:
                homes[name][f"{owner}.{key}"] += count
                home = view.index.vertex_of(id(store))
                pairs = ((home, view.index.vertex_of(id(entry))) for entry in entries)
                cuts[name] += [pair for pair, own in zip(pairs, names, strict=True) if own == name and pair[1] >= 0]
        entries.clear()
    for name, places in homes.items():
        freed = claims.take(cuts[name])
        (where, most), *_ = places.most_common(1)
        asked = f"list({where}.values())[-1]"
        count = places.total()
        if freed.n_bytes >= SMALL_BYTES or count >= MANY:
            words = f"{name} on {len(places):,} modules" if len(places) > 1 else f"{name} on {where}"
            command = asking("whyalive", asked)
            yield Suspect(
                Suspicion.HOOKS, words, freed.n_bytes, count, float(most), what=claims.what(freed), command=command
            )


def callbacks(claims: Claims) -> Iterator[Suspect]:
    """Yield loggers that have many handlers of one class, and events of the notebook with many of one function."""
    for where, entries in _lists_of_callbacks(claims.view):
        for name, count in Counter(map(_name_of_function, entries)).items():
            if count >= _FEW:
                alike = {id(entry) for entry in entries if _name_of_function(entry) == name}
                home = claims.view.index.vertex_of(id(entries))
                freed = claims.take((home, vertex) for vertex in vertices_at(claims.view, alike).tolist())
                words, command = f"{name} in {where}", asking("whyalive", f"{where}[-1]")
                yield Suspect(Suspicion.CALLBACKS, words, freed.n_bytes, count, command=command)


def _hook_stores(view: HeapView) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    """Yield who has it, its name, and the store, of all stores of hooks that are not empty."""
    for key, store in list(loaded_variables(_HOOKS_HOME).items()):
        if _GLOBAL_STORE.fullmatch(key) and store:
            yield _HOOKS_HOME, key, store
    bases = [loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer")]
    owners = view.types.mask(lambda of: any(base is not None and has_base(of, base) for base in bases))
    for vertex in np.flatnonzero(owners).tolist():
        for key, store in list(attributes_of(view.objects[vertex]).items()):
            if type(key) is str and _STORE.fullmatch(key) and is_exactly(store, _TABLES) and len(store) >= _FEW:
                yield name_of(view, vertex), key, store


def _lists_of_callbacks(view: HeapView) -> Iterator[tuple[str, list[Any]]]:
    kind = loaded_type("logging", "Logger")
    loggers = np.flatnonzero(view.types.mask(lambda of: kind is not None and has_base(of, kind))).tolist()
    for logger in (attributes_of(view.objects[vertex]) for vertex in loggers):
        name = "" if logger.get("name") == "root" else repr(logger.get("name"))
        handlers = logger.get("handlers")
        if type(handlers) is list:
            yield f"logging.getLogger({name}).handlers", handlers
    table = attributes_of(getattr(running_shell(), "events", None)).get("callbacks")
    for event, callbacks in table.items() if type(table) is dict else ():
        yield f"get_ipython().events.callbacks[{event!r}]", callbacks


def _name_of_function(thing: Any) -> str:
    """Return what a reader calls *thing*, which can be called: two functions made by one ``def`` have one name."""
    while is_exactly(thing, (MethodType, partial)):
        thing = thing.__func__ if type(thing) is MethodType else thing.func
    return str(thing.__qualname__) if type(thing) is FunctionType else type_name(type(thing))
