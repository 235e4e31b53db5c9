"""Where the explorer's rows come from, and how the living object of a row is found again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leaklab.ask.alive import GoneError, at_address, evaluate, expressions_of, look_around, look_at, modules_of
from leaklab.explorer.payload import Data, rows_data
from leaklab.model import Check
from leaklab.model.alive import HeapOverview, LiveGraph, LiveNode, Retainer
from leaklab.reports.heap_overview import overview_words
from leaklab.runtime.objects import type_name
from leaklab.text import clip, format_bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A living object, borrowed.

    Attributes:
        borrowed: The object, the only item. Whoever takes it empties the list.
        expression: Python for it; empty where it was found by its address.
        note: What the reader should know: that it is not the leaked object itself, for instance. May be empty.
    """

    borrowed: list[Any]
    expression: str
    note: str = ""


class Source(ABC):
    """Rows, each of which stands for an object."""

    @abstractmethod
    def data(self) -> Data:
        """Return what the page shows of the rows."""

    @abstractmethod
    def find(self, number: int) -> Found:
        """Return the living object of row *number*.

        Raises:
            GoneError: if there is none any more, or none can be found.
        """

    @abstractmethod
    def locate(self, number: int, key: str) -> tuple[int, str]:
        """Return address and type of the object that node *key* of the recorded graph of row *number* stands for.

        Raises:
            GoneError: as `find`.
        """

    def statuses(self, number: int) -> dict[int, str]:
        """Return what a report said of the objects that lead to row *number*, by their addresses now."""
        del number
        return {}

    @abstractmethod
    def close(self) -> None:
        """Forget all rows."""


class ReportSource(Source):
    """The leaks of a check, then its bounded places. Objects are found by the expressions of their paths."""

    def __init__(self, check: Check, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._paths = [leak.path for leak in (*check.leaks, *check.bounded)]

    def data(self) -> Data:
        """Return nothing: the page shows the report itself."""
        return {}

    def find(self, number: int) -> Found:
        """Return the leaked object, or, if it is gone or is a value that all code shares, what holds it."""
        expressions = self._expressions(number)
        problem = ""
        for expression in reversed(expressions):
            borrowed, why_not = self._evaluated(number, expression)
            if borrowed:
                return Found(borrowed, expression, problem)
            problem = problem or why_not
        raise GoneError(problem or "no variable leads to it, so there is nothing to look at: see its path")

    def locate(self, number: int, key: str) -> tuple[int, str]:
        """Return where the object of a step lies now."""
        expressions = self._expressions(number)
        position = int(key.removeprefix("box ")) - 1 if key.removeprefix("box ").isdecimal() else -1
        if not 0 <= position < len(expressions):
            msg = "Python has no expression for that one, so it cannot be opened from the report; open what is above it"
            raise GoneError(msg)
        borrowed = evaluate(expressions[position], self._namespace, modules_of(self._paths[number]))
        try:
            return id(borrowed[0]), type_name(type(borrowed[0]))
        finally:
            borrowed.clear()

    def statuses(self, number: int) -> dict[int, str]:
        """Return the status of each step of the path whose object still is where the report found it."""
        found = {}
        for expression, step in zip(self._expressions(number), self._paths[number].steps, strict=False):
            borrowed, _why_not = self._evaluated(number, expression)
            if borrowed:
                found[id(borrowed.pop())] = step.status.value
        return found

    def close(self) -> None:
        """Forget the paths and the user's variables."""
        self._namespace, self._paths = {}, []

    def _evaluated(self, number: int, expression: str) -> tuple[list[Any], str]:
        """Return the value of *expression* as the only item of a list, or an empty list and why there is none."""
        try:
            return evaluate(expression, self._namespace, modules_of(self._paths[number])), ""
        except GoneError as error:
            return [], str(error)

    def _expressions(self, number: int) -> list[str]:
        return expressions_of(self._paths[number]) if 0 <= number < len(self._paths) else []


class HeapSource(Source):
    """What keeps most of the heap alive. Objects are found by their addresses, as long as they live."""

    def __init__(self, namespace: dict[str, Any], *, summaries: bool) -> None:
        self.overview: HeapOverview = look_around(namespace, summaries=summaries)
        self._rows: list[Retainer] = [*self.overview.variables, *self.overview.retainers]

    def data(self) -> Data:
        """Return the largest retainers as rows, and the tensors by kind as a table."""
        found = self.overview
        tensors = [(row.kind, row.words, row.count, row.n_bytes) for row in found.tensors]
        names = [("kind", "text"), ("shape, dtype, device", "text"), ("count", "number"), ("bytes", "bytes")]
        return {
            "mode": "heap",
            "outcome": "",
            "title": overview_words(found),
            "lines": [],
            "notes": [clip(note) for note in found.notes],
            "items": [_row(row) for row in self._rows],
            "runs": [],
            "tables": {"Tensors": rows_data(names, tensors)},
            "environment": "",
        }

    def find(self, number: int) -> Found:
        """Return the object that the row was made of, if it still lives."""
        if not 0 <= number < len(self._rows):
            msg = "there is no such row"
            raise GoneError(msg)
        row = self._rows[number]
        return Found(at_address(row.address, row.kind), row.expression)

    def locate(self, number: int, key: str) -> tuple[int, str]:
        """Refuse: there is no recorded graph of the living heap."""
        del number, key
        msg = "look at the object first, then open its holders"
        raise GoneError(msg)

    def close(self) -> None:
        """Forget the rows."""
        self._rows = []


def _row(row: Retainer) -> Data:
    return {
        "what": clip(" ".join(filter(None, (row.kind, row.summary)))),
        "holder": clip(row.expression or "(no expression)"),
        "place": clip(row.place),
        "retained": row.retained_bytes,
        "facts": [
            ["expression", clip(row.expression or "Python has none")],
            ["begins at", clip(row.place)],
            ["would free", format_bytes(row.retained_bytes)],
        ],
    }


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
        address = 0
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
        return self._graph(number, look, change, address)

    def _locate(self, number: int, key: str) -> tuple[int, str]:
        node = self._looks[number].nodes.get(key)
        if node is None:
            return self._source.locate(number, key)
        if not node.address:
            msg = "that is not an object: open or ignore what it leads to"
            raise GoneError(msg)
        return node.address, node.kind

    def _graph(self, number: int, look: _Look, change: str, acted_on: int) -> Data:
        statuses = self._source.statuses(number)
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
            "focus": next((node.key for node in graph.nodes if node.address and node.address == acted_on), ""),
            "nodes": [_node(node, look, statuses) for node in graph.nodes],
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
            return "Nothing else holds this object; dropping the ignored references would free it."
        return "no variable, module or running function leads to it: see 'Why is it alive?'"
    if change in ("hide", "show") and look.hidden:
        return f"without what is ignored, {_paths(graph.n_paths)} to it"
    return f"{_paths(graph.n_paths)} to it now"


def _paths(number: int) -> str:
    return "one independent path leads" if number == 1 else f"{number} independent paths lead"


def _node(node: LiveNode, look: _Look, statuses: Mapping[int, str]) -> Data:
    return {
        "key": node.key,
        "role": node.role,
        "kind": clip(node.kind),
        "summary": clip(node.summary),
        "status": statuses.get(node.address, node.status.value),
        "note": clip(node.note),
        "expression": clip(node.expression),
        "holders": node.n_holders,
        "opened": node.address in look.opened,
    }


def _name(node: LiveNode | None, kind: str) -> str:
    return node.expression or node.kind if node is not None else kind
