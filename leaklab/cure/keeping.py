"""Keep the user's data over a trial: what a changed program takes out, drops or rebinds is put back."""

from __future__ import annotations

import ast
import collections
import contextlib
import inspect
import io
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from leaklab.cure.edits import NotTriedError
from leaklab.cure.levels import Heap
from leaklab.cure.training import has_graph
from leaklab.heap.names.reference import look_up
from leaklab.runtime.objects import has_base, is_exactly, is_tensor, loaded_type, type_name
from leaklab.runtime.ours import is_history_name

_KINDS: tuple[Any, ...] = (list, collections.OrderedDict, dict, set, collections.deque)
"""Containers whose contents can be put back; what their subclasses do meanwhile is not asked."""
_MAPPINGS: tuple[Any, ...] = (dict, collections.OrderedDict, collections.defaultdict)
_NOTHING = object()
_SEQUENCES: tuple[Any, ...] = (list, collections.deque)
_STREAMS: tuple[Any, ...] = (io.StringIO, io.BytesIO)
_REPLACED = ("str", "bytes", "tuple", "numpy.ndarray", "pandas.")
"""What is not changed itself where a part of it takes its place."""
_MOST_CONTAINERS, _MOST_ENTRIES = 2_000, 1_000_000


class KeptData:
    """The variables, and what the containers among them and on the paths of the leaks hold.

    Args:
        namespace: The variables of the program.
        addresses: Of the objects on the paths of the leaks.
        heap: Lends the heap.
    """

    def __init__(self, namespace: dict[str, Any], addresses: Collection[int], heap: Heap) -> None:
        self._namespace = namespace
        self._variables = dict(namespace)
        self._contents: list[tuple[Any, list[Any]]] = []
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        self._streams: list[tuple[Any, Any, int]] = []
        self._seen = {id(namespace)}
        self._n_entries = 0
        with heap() as objects:
            on_path = [thing for thing in objects if id(thing) in addresses]
        for thing in (*on_path, *_attributes(self._variables)):
            self._keep(thing)

    def _keep(self, thing: Any) -> bool:
        if id(thing) in self._seen:
            return True
        base = _base(thing)
        if base is None or len(self._contents) >= _MOST_CONTAINERS:
            return False
        entries = _entries(base, thing)
        if base not in _SEQUENCES and not all(map(_is_hashed_by_c, _keys(base, entries))):
            return False  # to put it back would run the user's code
        self._n_entries += len(entries)
        if self._n_entries > _MOST_ENTRIES:
            return False
        self._seen.add(id(thing))
        self._contents.append((thing, entries))
        return True

    def keep_all(self, expressions: Sequence[str]) -> None:
        """Keep what *expressions* name: what is in a container, and which object stands there.

        Raises:
            NotTriedError: if that cannot be put back.
        """
        for expression in expressions:
            try:
                node = ast.parse(expression, mode="eval").body
                container = _value(node, self._variables)
            except (SyntaxError, LookupError, AttributeError, TypeError):
                container = None
            if container is None:
                is_kept = False
            elif is_exactly(container, _STREAMS):
                self._streams.append((container, container.getvalue(), container.tell()))
                is_kept = True
            elif is_tensor(container) or type_name(type(container)).startswith(_REPLACED):
                is_kept = self._keep_place(node, container)  # it is not changed itself
            else:
                is_kept = self._keep(container)
                self._keep_place(node, container)
            if not is_kept:
                msg = f"it would empty {expression}, which a trial could not put back"
                raise NotTriedError(msg)

    def keep_places(self, expressions: Sequence[str]) -> None:
        """Note which objects stand in variables and attributes of variables; those that are not there are left out."""
        for node in (ast.parse(expression, mode="eval").body for expression in expressions):
            with contextlib.suppress(LookupError, AttributeError, TypeError):
                self._keep_place(node, _value(node, self._variables))

    def _keep_place(self, node: ast.expr, value: Any) -> bool:
        """Note which object stands in a variable or attribute; return whether that can be put back."""
        if isinstance(node, ast.Name):
            self._places.append((self._namespace, node.id, value))
            return True
        if not isinstance(node, ast.Attribute):
            return False
        try:
            attributes = object.__getattribute__(_value(node.value, self._variables), "__dict__")
        except (LookupError, AttributeError, TypeError):
            return False
        if type(attributes) is not dict or node.attr not in attributes:
            return False
        self._places.append((attributes, node.attr, value))
        return True

    def put_back(self) -> None:
        """Bring back every variable that is gone or has another type, and what containers have lost.

        What was added stays where it is of the kinds that were there: counters of the program may count it. Entries of
        other kinds go, such as numbers, or tensors without a graph, in a list of tensors that have one.
        """
        for name, value in self._variables.items():
            if name not in self._namespace or type(self._namespace[name]) is not type(value):
                self._namespace[name] = value
        for name in self._namespace.keys() - self._variables.keys():
            if not is_history_name(name):
                del self._namespace[name]
        for mapping, name, value in self._places:
            mapping[name] = value
        for stream, text, position in self._streams:
            if not stream.closed and not stream.getvalue().startswith(text):
                stream.seek(0)
                stream.truncate()
                stream.write(text)
                stream.seek(position)
        for container, entries in self._contents:
            base = _base(container)
            now = _entries(base, container)
            if len(now) < len(entries) or _has_other_kinds(base, now, entries):
                base.clear(container)
                (base.extend if base in _SEQUENCES else base.update)(container, entries)


def _attributes(variables: dict[str, Any]) -> Iterator[Any]:
    """Yield the variables and the attributes of the objects that are variables."""
    for name, value in variables.items():
        if is_history_name(name):
            continue
        yield value
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            continue
        if type(attributes) is dict:
            yield from list(attributes.values())


def _value(node: ast.expr, variables: dict[str, Any]) -> Any:
    """Return what an expression of names, attributes and constant keys refers to, running no code of the user's."""
    if isinstance(node, ast.Name):
        return variables[node.id]
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, variables)
        found = inspect.getattr_static(owner, node.attr)
        is_descriptor = is_exactly(found, (types.MemberDescriptorType, types.GetSetDescriptorType))
        return found.__get__(owner) if is_descriptor else found
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        container = _value(node.value, variables)
        if is_exactly(container, (list, tuple)):
            return container[node.slice.value]
        if is_exactly(container, _MAPPINGS) and is_exactly(node.slice.value, (str, int, bytes)):
            found = dict.get(container, node.slice.value, _NOTHING)
            if found is not _NOTHING:
                return found
    raise LookupError


def _base(thing: object) -> Any:
    kind = type(thing)
    return next((base for base in _KINDS if has_base(kind, base)), None)


def _entries(base: Any, container: Any) -> list[Any]:
    return list(base.items(container) if has_base(base, dict) else base.__iter__(container))


def _keys(base: Any, entries: list[Any]) -> Iterator[Any]:
    return (entry[0] for entry in entries) if has_base(base, dict) else iter(entries)


def _is_hashed_by_c(key: object) -> bool:
    """Return whether no code of the user's runs where *key* is put into a dict or a set; a tuple may hold anything."""
    if type(key) is tuple:
        return all(map(_is_hashed_by_c, key))
    if is_exactly(key, filter(None, (loaded_type("torch", "Tensor"), loaded_type("torch.nn", "Parameter")))):
        return True  # by their addresses: no two are compared
    return all(isinstance(look_up(type(key), name), types.WrapperDescriptorType) for name in ("__hash__", "__eq__"))


def _has_other_kinds(base: Any, now: list[Any], entries: list[Any]) -> bool:
    if not entries or len(now) == len(entries):
        return False
    values = ([entry[1] if has_base(base, dict) else entry for entry in some] for some in (now, entries))
    kinds_now, kinds_before = ({(id(type(value)), has_graph(value)) for value in some} for some in values)
    return not kinds_now <= kinds_before
