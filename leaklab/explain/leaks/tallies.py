"""Say what a group of survivors is: which objects, how many, how many bytes, with or without a graph."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leaklab.explain.autograd.native_parts import cpp_bytes, native_parts
from leaklab.explain.view import OLD, HeapView
from leaklab.model.native import NativeParts
from leaklab.objects import has_base, loaded_type, no_torch_functions, summary, type_name
from leaklab.sizes import owned_bytes
from leaklab.tensors import storage_bytes, storages_of


@dataclass(frozen=True, slots=True)
class Tally:
    """A group of survivors in numbers and words.

    Attributes:
        what: The objects that matter most: its tensors if it has any, else what the holder refers to.
        headline: Those objects, as vertices.
        n_bytes: Bytes of all of the group, storages of other owners not counted; the C++ parts are estimated.
        others: The other types in it, with how many of each, most frequent first.
        kinds: Names of all types in it.
        has_graph: Whether any of its tensors still has its autograd graph.
    """

    what: str
    headline: tuple[int, ...]
    n_bytes: int
    others: tuple[tuple[str, int], ...]
    kinds: frozenset[str]
    has_graph: bool


class Tallier:
    """Counts groups of one view.

    Args:
        view: The heap.
    """

    def __init__(self, view: HeapView) -> None:
        self._view = view
        others = (v for v in view.tensors if v < view.n_heap and view.run_of[v] == OLD)
        self._owned_by_others = frozenset(storage_bytes(view.objects[vertex] for vertex in others))

    def count(self, members: Sequence[int], entries: Sequence[int]) -> Tally:
        """Count *members*; *entries* are those that the holder refers to."""
        objects = self._view.objects
        places = np.asarray(members, np.int64)
        tensors = places[self._view.is_tensor[places]].tolist()
        headline = tensors or [vertex for vertex in entries if self._view.leaked[vertex]] or list(members)
        names = self._names(places)
        what, main_kind = self._words(headline)
        vertices = [*members, *self._hidden_below({*members, *entries})]
        data_bytes = owned_bytes([objects[v] for v in vertices], without_storages=self._owned_by_others)
        return Tally(
            what=what,
            headline=tuple(headline),
            n_bytes=data_bytes + cpp_bytes(self._view, vertices),
            others=tuple((name, count) for name, count in names.most_common(8) if name != main_kind),
            kinds=frozenset(names),
            has_graph=any(_has_graph(objects[vertex]) for vertex in tensors),
        )

    def native_parts(self, members: Sequence[int], entries: Sequence[int]) -> NativeParts:
        """Return what *members*, and the graphs below them and *entries*, take of native memory."""
        vertices = [*members, *self._hidden_below({*members, *entries})]
        return native_parts(self._view, vertices, self._owned_by_others)

    def bytes_of(self, members: Iterable[int]) -> int:
        """Return the bytes of *members*, storages of others not counted."""
        return owned_bytes([self._view.objects[v] for v in members], without_storages=self._owned_by_others)

    def storages_of(self, vertices: Iterable[int]) -> int:
        """Return the bytes of the storages of the tensors *vertices*, those of others not counted."""
        sizes = storage_bytes(self._view.objects[vertex] for vertex in vertices)
        return sum(size for key, size in sizes.items() if key not in self._owned_by_others)

    @staticmethod
    def storages_of_all(view: HeapView, vertices: Iterable[int]) -> int:
        """Return the bytes of the storages of the tensors *vertices*, whoever else owns them."""
        return sum(storage_bytes(view.objects[vertex] for vertex in vertices).values())

    def _names(self, places: npt.NDArray[np.int64]) -> Counter[str]:
        """Return how many of the objects at *places* have a type of each name."""
        kinds = self._view.kinds[places]
        distinct, firsts, counts = np.unique(kinds, return_index=True, return_counts=True)
        names: Counter[str] = Counter()
        for _kind, first, count in zip(distinct, firsts.tolist(), counts.tolist(), strict=True):
            names[type_name(type(self._view.objects[int(places[first])]))] += count
        return names

    def _words(self, headline: Sequence[int]) -> tuple[str, str]:
        """Return the words for the biggest kind among *headline*, and the name of its type."""
        shapes: Counter[tuple[str, str]] = Counter()
        places = np.asarray(headline, np.int64)
        is_tensor = self._view.is_tensor[places]
        for thing in (self._view.objects[vertex] for vertex in places[is_tensor].tolist()):
            weight = sum(size for _key, size in storages_of(thing) or ())
            shapes[type_name(type(thing)), summary(thing)] += max(weight, 1)
        for name, count in self._names(places[~is_tensor]).items():
            shapes[name, ""] += count
        (name, words), _weight = shapes.most_common(1)[0]
        more = len(shapes) - 1
        suffix = f" and {more} other kind{'s' if more > 1 else ''}" if more else ""
        return f"{name} {words}".strip() + suffix, name

    def _hidden_below(self, vertices: set[int]) -> list[int]:
        """Return what only hidden references reach from *vertices*: autograd nodes and the tensors they saved."""
        view = self._view
        seen: set[int] = set()
        queue = deque(vertices)
        while queue:
            for after in view.index.referents(queue.popleft()).tolist():
                if (view.in_graph[after] or after >= view.n_heap) and after not in seen:
                    seen.add(after)
                    queue.append(after)
        return list(seen - vertices)


def _has_graph(tensor: object) -> bool:
    base = loaded_type("torch", "Tensor")
    with no_torch_functions():
        return base is not None and base.grad_fn.__get__(tensor) is not None  # type: ignore[attr-defined]  # a tensor


def has_optimizer(view: HeapView, members: Sequence[int]) -> bool:
    """Return whether an optimizer is among *members*."""
    optimizer = loaded_type("torch.optim", "Optimizer")
    kinds = {id(type(view.objects[vertex])): type(view.objects[vertex]) for vertex in members}
    return optimizer is not None and any(has_base(kind, optimizer) for kind in kinds.values())
