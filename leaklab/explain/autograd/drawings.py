"""Collapse an autograd graph into pictures: by node where it is small, by module, forward line or operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from leaklab.explain.autograd.graph_nodes import GraphNodes
from leaklab.explain.autograd.saved_storages import SavedStorages
from leaklab.model.retention import Drawing, DrawnBy, GraphBox

MAX_NODES_DRAWN = 60
"""A larger graph is not read as a picture of its nodes."""
_MAX_BOXES = 40
_MAX_LINKS = 120
_NO_MODULE = "(before any parameter)"
_REST = "(the rest)"
_PART = re.compile(r"\.[^.\[]+|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Drawer:
    """Draws one graph.

    Attributes:
        graph: Its nodes.
        storages: What they saved.
        leaf_names: For the nodes of leaves that have one, the expression of the leaf.
    """

    graph: GraphNodes
    storages: SavedStorages
    leaf_names: dict[int, str]

    def drawings(self) -> tuple[Drawing, ...]:
        """Return all drawings that say something about this graph, from the finest to the coarsest."""
        found = []
        if len(self.graph.nodes) <= MAX_NODES_DRAWN:
            found.append(self._by_node())
        if any("." in name or "[" in name for name in self.leaf_names.values()):
            found.append(self._collapsed(DrawnBy.MODULE, self._modules()))
        if any(node.line for node in self.graph.nodes):
            lines = [node.line or "(line unknown)" for node in self.graph.nodes]
            found.append(self._collapsed(DrawnBy.LINE, lines))
        found.append(self._collapsed(DrawnBy.OPERATION, [node.name for node in self.graph.nodes]))
        return tuple(found)

    def _by_node(self) -> Drawing:
        nodes = self.graph.nodes
        names = [f"{position}" for position in range(len(nodes))]
        drawing = self._collapsed(DrawnBy.NODE, names, limit=MAX_NODES_DRAWN)
        boxes = [
            GraphBox(
                nodes[position].name, 1, box.n_bytes, box.is_root, box.is_leaf,
                self.leaf_names.get(position) or nodes[position].line,
            )
            for position, box in enumerate(drawing.boxes)
        ]  # fmt: skip
        return Drawing(DrawnBy.NODE, tuple(boxes), drawing.links)

    def _collapsed(self, by: DrawnBy, names: list[str], *, limit: int = _MAX_BOXES) -> Drawing:
        """Put the nodes of one name into one box; beyond *limit* the boxes with the fewest bytes become one."""
        parts = {part.name: part for part in self.storages.parts(dict(enumerate(names)))}
        shown = set(list(parts)[:limit])
        if len(parts) > limit:
            shown = set(list(parts)[: limit - 1])
            names = [name if name in shown else _REST for name in names]
            parts = {part.name: part for part in self.storages.parts(dict(enumerate(names)))}
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        has_operation = {name for node, name in zip(self.graph.nodes, names, strict=True) if node.leaf is None}
        roots = {names[position] for position in self.graph.starts}
        boxes = tuple(
            GraphBox(name, parts[name].n_nodes, parts[name].n_bytes, name in roots, name not in has_operation)
            for name in places
        )
        links = Counter(
            (places[names[position]], places[names[before]])
            for position, node in enumerate(self.graph.nodes)
            for before in node.inputs
        )
        inner = [(start, end, count) for (start, end), count in links.most_common() if start != end]
        return Drawing(by, boxes, tuple(inner[:_MAX_LINKS]))

    def _modules(self) -> list[str]:
        """Return for each node the module whose parameters it uses, or that of the latest operation before it.

        Deeply nested modules are put together until there are few enough to draw.
        """
        nodes = self.graph.nodes
        modules = {position: _module_of(name) for position, name in self.leaf_names.items()}
        for position in self._forward_order():
            if position in modules:
                continue
            known = [before for before in nodes[position].inputs if modules.get(before, _NO_MODULE) != _NO_MODULE]
            latest = max(known, key=lambda before: nodes[before].order, default=None)
            modules[position] = _NO_MODULE if latest is None else modules[latest]
        names = [modules[position] for position in range(len(nodes))]
        return _few_enough(names, lambda distinct: len(distinct) <= _MAX_BOXES)

    def _forward_order(self) -> list[int]:
        """Return the positions of all nodes, each behind the nodes it takes its inputs from."""
        n_missing = [len(set(node.inputs)) for node in self.graph.nodes]
        users: list[list[int]] = [[] for _ in self.graph.nodes]
        for position, node in enumerate(self.graph.nodes):
            for before in set(node.inputs):
                users[before].append(position)
        ordered = [position for position, missing in enumerate(n_missing) if not missing]
        for position in ordered:  # grows while it is read
            for user in users[position]:
                n_missing[user] -= 1
                if not n_missing[user]:
                    ordered.append(user)
        return ordered


def _module_of(leaf: str) -> str:
    """Return ``model[0]`` for ``model[0].weight``, and the name itself for a tensor that is no attribute."""
    head, dot, _attribute = leaf.rpartition(".")
    return head if dot and "]" not in _attribute else leaf


def _few_enough(names: list[str], is_few: Callable[[set[str]], bool]) -> list[str]:
    """Cut the last parts off the longest names until there are few different ones."""
    depth = max(len(_PART.findall(name)) for name in names)
    while depth and not is_few(set(names)):
        depth -= 1
        names = [_cut(name, depth) for name in names]
    return names


def _cut(name: str, depth: int) -> str:
    ends = [match.end() for match in _PART.finditer(name)]
    return name if len(ends) <= depth else name[: ends[depth - 1]] if depth else name[: _PART.search(name).start()]  # type: ignore[union-attr]
