"""Read what autograd nodes saved for the backward pass, as it is stored.

Only ``_raw_saved_*.data`` is read: no unpack hook runs and no checkpoint is computed again. Reading costs a Python
wrapper for each saved tensor that has none yet; it lives as long as the graph.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from leaklab.graph_walk import FunctionBase, descriptors_of
from leaklab.objects import has_base, is_exactly, is_tensor

_PREFIX = "_raw_saved_"
_MAX_PACKED_DEPTH = 3


class State(enum.Enum):
    """What has become of a saved tensor."""

    HELD = enum.auto()
    PACKED = enum.auto()
    FREED = enum.auto()


@dataclass(frozen=True, slots=True)
class Field:
    """One saved tensor of a node; for the length of a walk only, as it refers to the user's tensors.

    Attributes:
        name: What it was saved as: ``self``, ``weight``, ``tensors[1]``.
        state: Whether it is there.
        tensors: The tensor; for a packed one the tensors found in what the hook made of it.
    """

    name: str
    state: State
    tensors: tuple[Any, ...]


class FieldReader:
    """Reads the fields of nodes; what a type of nodes has is looked up once."""

    def __init__(self) -> None:
        self._readers: dict[int, list[tuple[str, Callable[[Any], Any]]]] = {}

    def fields_of(self, node: Any) -> Iterator[Field]:
        """Yield every tensor that *node* saved, or had saved before a backward pass freed it."""
        kind = type(node)
        readers = self._readers.get(id(kind))
        if readers is None:
            readers = self._readers[id(kind)] = _readers_of(kind)
        for name, read in readers:
            try:
                raw = read(node)
            except RuntimeError:  # a list of saved tensors says so when it was freed
                yield Field(name, State.FREED, ())
                continue
            if is_exactly(raw, (list, tuple)):
                for number, one in enumerate(raw):
                    yield from _field(f"{name}[{number}]", one)
            else:
                yield from _field(name, raw)
        if is_python_node(kind):
            yield from _context_attributes(node)


def is_python_node(kind: type) -> bool:
    """Return whether nodes of *kind* come from a ``torch.autograd.Function``; they are its ``ctx`` as well."""
    return has_base(kind, FunctionBase)


def _readers_of(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    source = descriptors_of(kind)
    return [(name.removeprefix(_PREFIX), source[name].__get__) for name in source if name.startswith(_PREFIX)]


def _field(name: str, raw: Any) -> Iterator[Field]:
    if raw is None:
        return
    held = raw.data
    if raw.unpack_hook is not None:
        yield Field(name, State.PACKED, tuple(_tensors_in(held)))
    elif held is not None:
        yield Field(name, State.HELD, (held,))
    elif _was_freed(raw):
        yield Field(name, State.FREED, ())


def _was_freed(raw: Any) -> bool:
    """Tell a freed tensor from one that was never saved; asked only where there is neither data nor a hook to run."""
    try:
        raw.unpack()
    except RuntimeError:
        return True
    return False


def _tensors_in(packed: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in what a pack hook returned, such as the ``(device, tensor)`` of ``save_on_cpu``."""
    if is_tensor(packed):
        yield packed
    elif is_exactly(packed, (tuple, list)) and depth < _MAX_PACKED_DEPTH:
        for item in packed:
            yield from _tensors_in(item, depth + 1)
    elif type(packed) is dict and depth < _MAX_PACKED_DEPTH:
        for item in packed.values():
            yield from _tensors_in(item, depth + 1)


def _context_attributes(node: Any) -> Iterator[Field]:
    """Yield the tensors that a ``torch.autograd.Function`` put on its ``ctx`` instead of saving them."""
    for name, value in list(object.__getattribute__(node, "__dict__").items()):
        if is_tensor(value):
            yield Field(f"ctx.{name}", State.HELD, (value,))
