"""Find the tensors by which one run hands its autograd graph on to the next.

Of all tensors that the last run made, a graph that gets longer hangs on those that the *next* run will compute with: a
hidden state, a running total. What was computed from them (an output, a loss) leads to the same nodes, and is replaced
by a new one without keeping anything. torch numbers its nodes in the order in which they are made, so the border
between two runs is known: what the nodes of the newest run take from beyond it was handed on by the run before, and its
counterparts in the newest run are what is handed on now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from leaklab.runtime.autograd_graph import inputs_of, number_of, result_of
from leaklab.runtime.graph_marks import GraphMarks, next_number
from leaklab.runtime.objects import no_torch_functions


class _Result(NamedTuple):
    """A result of a node: of which type the node is, which of its results, and how long before the run's end."""

    kind: type
    number: int
    age: int


def carried_tensors(tensors: Iterable[Any], nodes: Iterable[Any], marks: GraphMarks) -> set[int]:
    """Return the addresses of those of *tensors* that hand the graph of the last run on to the next.

    Args:
        tensors: All tensors of the heap.
        nodes: The autograd nodes whose inputs were looked at before: to ask others would wrap more of a graph.
        marks: Where the runs began; nothing was computed since the last one ended.

    Returns:
        Empty where the last run used nothing of the graphs of earlier ones, or where that is not known.
    """
    taken = {
        (id(before), number): before
        for node in nodes
        if number_of(node) >= marks.newest
        for before, number in inputs_of(node)
        if before is not None and marks.first <= number_of(before) < marks.newest
    }
    if not taken:
        return set()
    with no_torch_functions():
        results = {id(tensor): result for tensor in tensors if (result := result_of(tensor)) is not None}
    now = next_number()
    made = {
        address: _Result(type(node), number, now - number_of(node))
        for address, (node, number) in results.items()
        if marks.newest <= number_of(node) < now
    }
    carried: set[int] = set()
    for (_address, number), node in taken.items():
        if number_of(node) >= marks.previous:
            carried |= _counterparts(made, _Result(type(node), number, marks.newest - number_of(node)))
    # What was used and has no counterpart was not made in every run: it is still there to be used by the next.
    return carried or {address for address, (node, number) in results.items() if (id(node), number) in taken}


def _counterparts(made: dict[int, _Result], earlier: _Result) -> set[int]:
    """Return who of *made* plays the part in the last run that *earlier* played in the run before."""
    alike = {address: abs(result.age - earlier.age) for address, result in made.items() if result[:2] == earlier[:2]}
    nearest = min(alike.values(), default=0)
    return {address for address, distance in alike.items() if distance == nearest}
