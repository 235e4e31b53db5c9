"""Remember, for each row of the explorer, which nodes were opened and which holders are ignored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leaklab.asking.looking import GoneError, look_at
from leaklab.model.live import LiveGraph, LiveNode
from leaklab.widgets.clipping import clip
from leaklab.widgets.payload import Data
from leaklab.widgets.sources import Source


@dataclass(slots=True)
class _Look:
    """Addresses, each with its type; an address is followed only while an object of that type lies there."""

    opened: dict[int, str] = field(default_factory=dict)
    hidden: dict[int, str] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, LiveNode] = field(default_factory=dict)


class Looks:
    """The live graphs of all rows."""

    def __init__(self, source: Source, namespace: dict[str, Any], *, summaries: bool) -> None:
        self._source, self._namespace, self._summaries = source, namespace, summaries
        self._looks: dict[int, _Look] = {}

    def clear(self) -> None:
        """Forget all of it."""
        self._looks.clear()
        self._namespace = {}

    def change(self, number: int, change: str, key: str) -> Data:
        """Open or hide the node *key* of row *number*, show it or all again, and return the new graph.

        Args:
            number: The row.
            change: ``open``, ``hide``, ``show``, ``reset``; anything else looks again.
            key: The node.

        Raises:
            GoneError: if the object is gone.
        """
        look = self._looks.setdefault(number, _Look())
        if change == "reset":
            self._looks[number] = look = _Look()
        elif change == "show":
            look.hidden.pop(int(key) if key.isdecimal() else 0, None)
        elif change in ("open", "hide"):
            address, kind = self._locate(number, key)
            (look.opened if change == "open" else look.hidden)[address] = kind
            if change == "hide":
                look.opened.pop(address, None)
                look.words[address] = _name(look.nodes.get(key), kind)
        return self._graph(number, look, change)

    def _locate(self, number: int, key: str) -> tuple[int, str]:
        node = self._looks[number].nodes.get(key)
        if node is None:
            return self._source.locate(number, key)
        if not node.address:
            msg = "that is no object: open or ignore what it leads to"
            raise GoneError(msg)
        return node.address, node.kind

    def _graph(self, number: int, look: _Look, change: str) -> Data:
        found = self._source.find(number)
        graph = look_at(
            found.borrowed,
            self._namespace,
            asked=found.expression,
            opened=list(look.opened),
            hidden=look.hidden,
            summaries=self._summaries,
        )
        look.nodes = {node.key: node for node in graph.nodes}
        present = {node.address for node in graph.nodes}
        for address in [address for address in look.opened if address not in present]:
            del look.opened[address]
        notes = [note for note in (found.note, _sentence(graph, look, change), *graph.notes) if note]
        return {
            "live": True,
            "asked": clip(graph.asked),
            "nodes": [_node(node, look) for node in graph.nodes],
            "links": [
                {"holder": link.holder, "held": link.held, "reference": clip(link.reference), "suspect": False}
                for link in graph.links
            ],
            "hidden": [[str(address), clip(look.words.get(address, kind))] for address, kind in look.hidden.items()],
            "notes": [clip(note) for note in notes],
        }


def _sentence(graph: LiveGraph, look: _Look, change: str) -> str:
    """Return what the paths that are left come to."""
    if graph.n_paths == 0:
        if look.hidden:
            return "without what is ignored no path is left: letting go there frees the object"
        return "no variable, module or running function leads to it: see 'explain this one'"
    if change in ("hide", "show") and look.hidden:
        return f"without what is ignored {_paths(graph.n_paths)} still to it"
    return f"{_paths(graph.n_paths)} to it now"


def _paths(number: int) -> str:
    return "one independent path leads" if number == 1 else f"{number} independent paths lead"


def _node(node: LiveNode, look: _Look) -> Data:
    return {
        "key": node.key,
        "role": node.role,
        "kind": clip(node.kind),
        "summary": clip(node.summary),
        "status": node.status.value,
        "note": clip(node.note),
        "expression": clip(node.expression),
        "holders": node.n_holders,
        "opened": node.address in look.opened,
    }


def _name(node: LiveNode | None, kind: str) -> str:
    return node.expression or node.kind if node is not None else kind
