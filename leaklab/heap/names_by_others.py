"""Find Python for an object whose cheapest path Python cannot write: by another holder, or by the name of its key.

A parameter is a key of its optimizer's state, which is near, and has a name in its model. What the optimizer keeps of
the parameter lies under that key, the gradient lies in the parameter: both have a name as soon as the parameter has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaklab.heap.shortest_paths import path_to

if TYPE_CHECKING:
    from leaklab.heap.nodes import HeapNodes

_MOST_REFERRERS = 50
_MOST_DETOURS = 4
"""So many keys and other holders one name may lead over."""


def expression_of(heap: HeapNodes, vertex: int, n_detours: int = _MOST_DETOURS) -> str:
    """Return Python for an object that a root reaches, empty where none is found.

    Args:
        heap: Alive or saved.
        vertex: The object.
        n_detours: How often the path may be left.
    """
    path = path_to(heap.paths, vertex)
    steps = heap.python_along(path)
    for _ in range(n_detours):
        unnamed = next((number for number, (_place, code) in enumerate(steps) if not code), None)
        if unnamed is None:
            return steps[-1][1]
        place = steps[unnamed][0]
        known = _by_key(heap, *steps[unnamed - 1], place, n_detours - 1) if unnamed else ""
        known = known or _by_holder(heap, place)
        if not known:
            return ""
        steps = heap.python_along(path[path.index(place) :], known)
    return steps[-1][1] if all(code for _place, code in steps) else ""


def _by_key(heap: HeapNodes, holder: int, known: str, value: int, n_detours: int) -> str:
    """Return Python for what lies in a dict, for which *known* is Python, under an object that has a name."""
    key = heap.key_of(holder, value)
    if key < 0 or heap.paths.root_of[key] < 0 or not n_detours:
        return ""
    name = expression_of(heap, key, n_detours)
    return f"{known}[{name}]" if name else ""


def _by_holder(heap: HeapNodes, vertex: int) -> str:
    """Return Python for an object by one that refers to it beside its path.

    What a variable leads to comes before what a library has, a part of a ``torch.nn.Module`` before an entry of
    anything else, the shorter before the longer.
    """
    named = []
    for holder in heap.index.referrers(vertex)[:_MOST_REFERRERS].tolist():
        if heap.paths.root_of[holder] < 0:
            continue
        vertices = [*path_to(heap.paths, holder), vertex]
        if vertex in vertices[:-1]:
            continue
        steps = heap.python_along(vertices)
        if all(code for _place, code in steps):
            owner = steps[-2][0] if len(steps) > 1 else vertex
            is_part = heap.kinds[int(heap.kind_of[owner])].is_torch_module
            is_variable = heap.starts[int(heap.paths.root_of[holder])].is_variable
            named.append((not is_variable, not is_part, len(steps[-1][1]), steps[-1][1]))
    return min(named)[-1] if named else ""
