"""Find the tensors that an object or a namespace holds, each with the expression that leads to it.

The search goes breadth first through `gc.get_referents`, which runs no code of the objects and reads no ``__dict__``;
names are looked up afterwards, for the few objects that are told of. Modules, classes, functions and the notebook's
own machinery are not entered: through them everything is reachable from anything.
"""

from __future__ import annotations

import gc
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any

from leaklab.explain.references import best_reference
from leaklab.objects import has_base, is_kind_of, is_tensor, is_tensor_type, type_name

MAX_OBJECTS = 200_000
"""A search of so many objects takes 0.2 s; who holds more tensors than that is told of the first."""

_ATOMS = frozenset(map(id, (str, bytes, bytearray, int, float, complex, bool, type(None), range, slice)))
_NOT_ENTERED: tuple[type, ...] = (
    type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType,
)  # fmt: skip
_NOT_USERS = re.compile(r"(IPython|ipykernel|traitlets|leaklab|comm|zmq|tornado|asyncio|logging)(\.|$)")
_MAX_STEPS = 30
_FOLDS = (
    (re.compile(r"\.__dict__\['([^\W\d]\w*)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['([^\W\d]\w*)'\]"), r".\1"),
    (re.compile(r"\._modules\['(\d+)'\]"), r"[\1]"),
)


class FoundTensors:
    """The tensors that were found.

    Attributes:
        tensors: In the order in which they were met, the nearest first.
        is_complete: Whether the search ended before `MAX_OBJECTS`.
    """

    def __init__(self, starts: Mapping[str, object]) -> None:
        """Search from *starts*: expressions, the preferred first, with their objects."""
        self.tensors: list[Any] = []
        self.is_complete = True
        self._names: dict[int, str] = {}
        self._parents: dict[int, Any] = {}
        self._seen: dict[int, Any] = {}
        self._enterable: dict[int, bool] = {}
        fresh: list[Any] = []
        for name, thing in starts.items():
            if self._meet(thing, fresh):
                self._names[id(thing)] = name
        while fresh:
            fresh = self._next(fresh)

    def name_of(self, thing: object) -> str:
        """Return the expression for an object that was met; words for a reference that Python cannot write."""
        suffixes: list[str] = []
        while id(thing) not in self._names:
            holder = self._parents[id(thing)]
            reference = best_reference(holder, thing)
            suffixes.append(reference.suffix if reference.suffix is not None else f" ({reference.text})")
            thing = holder
            if len(suffixes) == _MAX_STEPS:
                return "..." + _folded("".join(reversed(suffixes)))
        return _folded(self._names[id(thing)] + "".join(reversed(suffixes)))

    def _meet(self, thing: Any, fresh: list[Any]) -> bool:
        kind = type(thing)
        if id(kind) in _ATOMS or id(thing) in self._seen:
            return False
        enterable = self._enterable.get(id(kind))
        if enterable is None:
            enterable = self._enterable[id(kind)] = _is_enterable(kind)
        if not enterable:
            return False
        if len(self._seen) >= MAX_OBJECTS:
            self.is_complete = False
            return False
        self._seen[id(thing)] = thing
        if is_tensor(thing):
            self.tensors.append(thing)
        else:
            fresh.append(thing)
        return True

    def _next(self, holders: list[Any]) -> list[Any]:
        fresh: list[Any] = []
        for holder in holders:
            for held in _held_by(holder):
                if self._meet(held, fresh):
                    self._parents[id(held)] = holder
        return fresh


def user_variables(namespace: Mapping[str, object]) -> dict[str, object]:
    """Return the variables to search, the user's own names before those that begin with ``_``.

    A notebook's outputs (``Out``, ``_``) stay among them: they keep graphs as any variable does.
    """
    variables = [(name, value) for name, value in list(namespace.items()) if type(name) is str]
    variables.sort(key=lambda pair: pair[0].startswith("_") or pair[0] in ("In", "Out"))
    return dict(variables)


def _is_enterable(kind: type) -> bool:
    if is_tensor_type(kind):
        return True
    return not any(has_base(kind, base) for base in _NOT_ENTERED) and not _NOT_USERS.match(type_name(kind))


def _held_by(holder: Any) -> Iterable[Any]:
    kind = type(holder)
    if kind is list or kind is tuple:  # the collector lists their items from behind
        return list(holder)
    if kind is types.FunctionType:  # its globals would lead to everything
        return [each for each in (holder.__closure__, holder.__defaults__, holder.__kwdefaults__) if each is not None]
    if kind is types.MethodType and not is_kind_of(holder.__self__, types.ModuleType):
        return [holder.__self__]
    return gc.get_referents(holder)


def _folded(expression: str) -> str:
    """Write attributes as a person does: ``model[0].weight`` for ``model._modules['0']._parameters['weight']``."""
    for pattern, replacement in _FOLDS:
        expression = pattern.sub(replacement, expression)
    return expression
