"""The shape of a heap as a tree: variables, what only they keep alive, down to tensors.

It is the dominator tree, the largest part of it: an object stands below the one object whose end would be its own end.
So widths add up, which those of a tree of references would not.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leaklab.heap.index import OWN_DICT
from leaklab.heap.shortest_paths import ROOT, path_to
from leaklab.model.heap import IcicleNode

if TYPE_CHECKING:
    from leaklab.heap.saved.arrays import SavedNodes
    from leaklab.heap.shortest_paths import Start
    from leaklab.runtime.addresses import Ints

MOST_NODES = 3_000
LEAST_SHARE = 0.0004
"""Of what is the user's, or of the rest: what is smaller is less than half a pixel wide on most screens."""
OWN_SHARE = 0.7
"""Of the room, what the user's own objects may take: a library is often larger than all of a small program."""
YOURS, YOUR_MODULES, LIBRARIES, RUNNING, INTERPRETER = (
    "your variables", "your modules", "libraries", "functions that run", "the interpreter",
)  # fmt: skip
SEVERAL = "shared by several variables"
UNSEEN, LEAKLAB, WHOLE = "no visible holder", "leaklab itself", "all objects"
_OWN_GROUPS = frozenset({YOURS, SEVERAL, YOUR_MODULES, RUNNING})
_ORDER = (YOURS, YOUR_MODULES, RUNNING, LIBRARIES, INTERPRETER, UNSEEN, LEAKLAB)
_MODULE = re.compile(r"module '([^'.]+)")
_FOLDED = (OWN_DICT, "._parameters", "._buffers", "._modules")
_BUFFERS = ("._buffers", "['_buffers']")  # by the module, or by its ``__dict__``
_SAVED = re.compile(r"\._(raw_)?saved_|\.grad_fn|\.next_functions")
_MOST_HOLDERS = 50
_TENSOR, _OTHER = "tensor", "other"


@dataclass(slots=True)
class _Part:
    """A node that is being built."""

    label: str
    expression: str = ""
    kind: str = ""
    part: str = _OTHER
    n_bytes: int = 0
    small_bytes: int = 0
    n_small: int = 0
    number: int = -1
    children: list[_Part] = field(default_factory=list)

    def frozen(self) -> IcicleNode:
        """Return the node; groups keep their order, objects stand by their size."""
        ordered = sorted(self.children, key=lambda child: -child.n_bytes) if self.label != WHOLE else self.children
        children = tuple(child.frozen() for child in ordered)
        return IcicleNode(
            self.label, self.expression, self.kind, self.part, self.n_bytes, self.small_bytes, self.n_small,
            self.number, children,
        )  # fmt: skip


def icicle_of(heap: SavedNodes, device: str = "") -> IcicleNode:
    """Return the largest part of the dominator tree of *heap*, below groups of where it begins.

    Only the memory of *device* counts, one of `HeapNodes.devices`; all of it where that is empty.
    """
    return _Icicle(heap, device).whole()


def icicles_of(heap: SavedNodes) -> tuple[tuple[str, IcicleNode], ...]:
    """Return an icicle for each device whose memory *heap* has a part in, the host first, each with its name."""
    return tuple((device, icicle_of(heap, device if len(heap.devices) > 1 else "")) for device in heap.devices)


class _Icicle:
    def __init__(self, heap: SavedNodes, device: str) -> None:
        self._heap = heap
        exclusive = heap.exclusive_on(device) if device else (heap.exclusive_bytes, heap.exclusive_parts)
        self._sizes, self._parts = exclusive
        parents = heap.dominators.parents()
        self._below = np.argsort(parents, kind="stable")
        sorted_parents = parents[self._below]
        numbers = np.arange(ROOT, len(parents) + 1)
        self._offsets = np.searchsorted(sorted_parents, numbers)
        of_starts = zip(heap.starts, heap.start_vertices.tolist(), strict=True)
        self._variables = [vertex for start, vertex in of_starts if start.is_variable]
        self._total = heap.bytes_on(device) if device else heap.bytes_together(np.ones(len(parents), bool))
        self._least = 1

    def whole(self) -> IcicleNode:
        """Return the root, with a group for each kind of beginning."""
        heap = self._heap
        tops = [self._children(ROOT)]
        if heap.arrays.namespace >= 0:  # its variables are what people know, not the dict that has them
            tops = [tops[0][tops[0] != heap.arrays.namespace], self._children(heap.arrays.namespace)]
        groups: dict[str, _Part] = {}
        below: dict[str, list[Ints]] = defaultdict(list)
        for vertices in tops:
            self._distribute(vertices, groups, below)
        if heap.arrays.namespace >= 0:
            group = groups.setdefault(YOURS, _Part(YOURS))
            group.n_bytes += int(self._parts[heap.arrays.namespace])
        n_shown = 0
        for names, share in ((_OWN_GROUPS, OWN_SHARE), (groups.keys() - _OWN_GROUPS, 1.0)):
            shown = {name: groups[name] for name in sorted(names & groups.keys())}
            self._least = max(1, int(sum(group.n_bytes for group in shown.values()) * LEAST_SHARE))
            waiting: list[tuple[int, int, int, _Part]] = []
            for name, group in shown.items():
                for vertices in below[name]:
                    self._wait(vertices, group, waiting)
            n_shown += self._grow(waiting, int(MOST_NODES * share) - n_shown)
        if SEVERAL in groups:
            yours = groups.setdefault(YOURS, _Part(YOURS))
            yours.children.append(groups[SEVERAL])
            yours.n_bytes += groups[SEVERAL].n_bytes
        root = _Part(WHOLE, n_bytes=self._total)
        root.children = [self._packages(groups[name]) if name == LIBRARIES else groups[name] for name in _ORDER
                         if name in groups and groups[name].n_bytes]  # fmt: skip
        return root.frozen()

    def _children(self, vertex: int) -> Ints:
        start = vertex - ROOT
        found: Ints = self._below[self._offsets[start] : self._offsets[start + 1]]
        return found

    def _distribute(self, vertices: Ints, groups: dict[str, _Part], below: dict[str, list[Ints]]) -> None:
        """Put objects that stand at the top into their groups."""
        names = [*map(self._group_name, self._heap.starts), UNSEEN]
        numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, SEVERAL, LEAKLAB]))}
        of_start = np.array([numbers[name] for name in names])
        of_vertex = of_start.take(self._heap.paths.root_of[vertices])  # of -1 the last
        is_shared = (of_vertex == numbers.get(YOURS, -1)) & ~np.isin(vertices, self._variables)
        of_vertex[is_shared] = numbers[SEVERAL]
        of_vertex[self._heap.is_foreign[vertices]] = numbers[LEAKLAB]
        for name, number in numbers.items():
            chosen = vertices[of_vertex == number]
            if not len(chosen):
                continue
            group = groups.setdefault(name, _Part(name))
            group.n_bytes += int(self._sizes[chosen].sum())
            below[name].append(chosen)

    @staticmethod
    def _group_name(start: Start) -> str:
        """Return the group of what begins at *start*."""
        if start.is_variable:
            return YOURS
        if _MODULE.match(start.words):
            return LIBRARIES if start.is_library else YOUR_MODULES
        return RUNNING if start.is_place else INTERPRETER

    def _wait(self, vertices: Ints, above: _Part, waiting: list[tuple[int, int, int, _Part]]) -> None:
        """Note the objects that stand below *above*: they are shown, if there is room, or are too small for it."""
        sizes = self._sizes[vertices]
        is_large = sizes >= self._least
        for vertex, size in zip(vertices[is_large].tolist(), sizes[is_large].tolist(), strict=True):
            heapq.heappush(waiting, (-size, len(waiting), vertex, above))
        small = sizes[~is_large & (sizes > 0)]  # most objects have no byte in the memory of an accelerator
        above.n_small += len(small)
        above.small_bytes += int(small.sum())

    def _grow(self, waiting: list[tuple[int, int, int, _Part]], room: int) -> int:
        """Show what waits, the largest first, as long as there is room; then it counts as too small.

        Returns:
            How many objects are shown.
        """
        n_shown = 0
        while waiting:
            size, _number, vertex, above = heapq.heappop(waiting)
            if n_shown >= room:
                above.n_small += 1
                above.small_bytes -= size
                continue
            if self._is_folded(vertex, above):
                self._wait(self._children(vertex), above, waiting)
                continue
            n_shown += 1
            part = self._part_of(vertex, above)
            part.n_bytes = -size
            above.children.append(part)
            self._wait(self._children(vertex), part, waiting)
        return n_shown

    def _is_folded(self, vertex: int, above: _Part) -> bool:
        """Return whether an object is the ``__dict__`` of the one above it, or a table of a module."""
        if above.number < 0 or self._heap.kinds[int(self._heap.kind_of[vertex])].name != "dict":
            return False
        return self._heap.reference_name(self._holder_of(vertex), vertex) in _FOLDED

    def _holder_of(self, vertex: int) -> int:
        """Return the object before this one on its path; itself where the path begins with it."""
        vertices = path_to(self._heap.paths, vertex) if self._heap.is_reached(vertex) else [vertex]
        return vertices[-2] if len(vertices) > 1 else vertex

    def _part_of(self, vertex: int, above: _Part) -> _Part:
        heap = self._heap
        expression, place = heap.name_of(vertex)
        if not expression and above.expression and above.number >= 0:
            name = heap.reference_name(above.number, vertex)
            expression = f"{above.expression}{name}" if name.startswith((".", "[")) else ""
        kind = heap.kinds[int(heap.kind_of[vertex])].name
        content = int(heap.contents.number_of[vertex])
        words = f"{kind} {heap.contents.table[content].words}" if content >= 0 else kind
        label = expression or f"({kind})"
        if above.expression and expression.startswith(above.expression) and expression != above.expression:
            label = expression[len(above.expression) :]
        return _Part(label, expression or place, words, self._role(vertex, kind, content), number=vertex)

    def _role(self, vertex: int, kind: str, content: int) -> str:
        """Return what a tensor is to a training program: by its type, and by the references on its path."""
        if content < 0:
            return _OTHER
        heap = self._heap
        if heap.contents.table[content].requires_grad is None:
            return "array"
        if kind.rpartition(".")[2] == "Parameter":
            return "parameter"
        holders = heap.index.referrers(vertex)[:_MOST_HOLDERS].tolist()
        names = [(holder, heap.reference_name(holder, vertex)) for holder in holders]
        if any(name == ".grad" for _holder, name in names):
            return "gradient"
        if any(name.startswith("[") and self._is_table_of_buffers(holder) for holder, name in names):
            return "buffer"
        if any(name.startswith("[") and self._is_of_an_optimizer(holder) for holder, name in names):
            return "optimizer state"
        return "saved for backward" if any(_SAVED.match(name) for _holder, name in names) else _TENSOR

    def _is_table_of_buffers(self, vertex: int) -> bool:
        holders = self._heap.index.referrers(vertex)[:_MOST_HOLDERS].tolist()
        return any(self._heap.reference_name(holder, vertex) in _BUFFERS for holder in holders)

    def _is_of_an_optimizer(self, vertex: int) -> bool:
        """Return whether the path to an object goes through one of torch's optimizers."""
        heap = self._heap
        if not heap.is_reached(vertex):
            return False
        path = path_to(heap.paths, vertex)
        return any(heap.kinds[int(heap.kind_of[each])].name.startswith("torch.optim.") for each in path)

    def _packages(self, group: _Part) -> _Part:
        """Return the group of libraries with a part for each top package, so that torch is one rectangle."""
        by_name: dict[str, _Part] = {}
        packages = defaultdict(list)
        for child in group.children:
            start = int(self._heap.paths.root_of[child.number])
            found = _MODULE.match(self._heap.starts[start].words) if start >= 0 else None
            packages[found[1] if found else "other"].append(child)
        for name, children in packages.items():
            by_name[name] = _Part(name, n_bytes=sum(child.n_bytes for child in children), children=children)
        group.children = list(by_name.values())
        return group
