"""Note by addresses where a leak is kept, so that the line which writes there can be looked for in a later run."""

from __future__ import annotations

from dataclasses import dataclass

from leaklab.explain.leaks.groups import Group
from leaklab.explain.view import HeapView


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of one leak.

    Attributes:
        fingerprint: The leak's.
        chain: Addresses from the first object of its path to what grows (or to its newest entry), that one last. Empty
            where no root reaches it.
        variable: The user's variable that the path begins with; empty if it begins elsewhere.
        grows: Whether the last object grows itself; otherwise the one before it has got the last as an entry.
    """

    fingerprint: str
    chain: tuple[int, ...]
    variable: str
    grows: bool


def spot_of_growth(view: HeapView, fingerprint: str, vertex: int, *below: object) -> Spot:
    """Return the place of something that grows: *vertex*, or the last of *below*, which it leads to."""
    chain, variable = _way_to(view, vertex)
    return Spot(fingerprint, (*chain, *map(id, below)), variable, grows=True)


def spot_of_group(view: HeapView, group: Group, fingerprint: str) -> Spot:
    """Return the place that took the newest entry of *group*."""
    reached = [entry for entry in group.entries if view.tree.root_of[entry] >= 0]
    if not reached:
        return Spot(fingerprint, (), "", grows=False)
    newest = max(reached, key=lambda entry: (int(view.credit_of[entry]), -int(view.tree.cost[entry])))
    chain, variable = _way_to(view, newest)
    return Spot(fingerprint, chain, variable, grows=False)


def _way_to(view: HeapView, vertex: int) -> tuple[tuple[int, ...], str]:
    if vertex == view.namespace:
        return (int(view.index.ids[vertex]),), ""
    vertices = view.path(vertex)
    start = view.starts[view.tree.root_of[vertex]]
    addresses = tuple(int(view.index.ids[v]) for v in vertices)
    return addresses, _variable_name(start.expression) if start.is_variable else ""


def _variable_name(expression: str) -> str:
    return expression if expression.isidentifier() else ""
