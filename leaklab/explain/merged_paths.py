"""Merge the paths by which one place keeps its survivors: 23 of 24 through `[i]['loss']`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from leaklab.explain.groups import Group
from leaklab.heap.paths import fold
from leaklab.heap.view import HeapView
from leaklab.model.check import Way
from leaklab.model.merged_paths import without_positions
from leaklab.runtime.objects import type_name

_MOST_NAMED = 1_000
"""So many references are named, of objects spread evenly over all: each takes 0.2 to 1 ms, most in autograd graphs."""
_MOST_REFERENCES = 24
"""Of a longer path the first and the last references are named: it is one along a chain, whose links are alike."""
_HEAD, _TAIL = 9, 3
"""Objects at either end of such a path whose references are named."""
_LONGEST_WALK = 5_000
"""A path that is longer is not followed to its end."""
_MOST_WAYS = 24
_LONGEST_BLOCK, _OFTEN = 3, 3
_POSITIONS = ("key", "index", "element")
_INDEX = "[i]"
_OF_TEXT = ("['", '["')
"""How a reference by a key begins that is a text; other keys are numbers and the like, told as positions."""


def merged_ways(view: HeapView, group: Group, main_objects: Sequence[int]) -> tuple[Way, ...]:
    """Return by which references the holder of *group* keeps *main_objects*, those of most objects first.

    Their counts add up to the number of objects that were looked at. Empty where there is no common way to tell.
    """
    hangs_on = dict(zip(group.members, group.hangs_on, strict=False))
    known = [vertex for vertex in main_objects if vertex in hangs_on]
    spread = known[:: max(1, len(known) // _MOST_NAMED)] if any(vertex != hangs_on[vertex] for vertex in known) else []
    n_references = sum(len(_chain(view, hangs_on[vertex], vertex, _MOST_REFERENCES)) for vertex in spread)
    step = -(-n_references // _MOST_NAMED)
    sample = spread[:: max(1, step)] or known
    first = _first_reference(group)
    kinds = [type_name(type(view.objects[vertex])) for vertex in sample]
    paths = without_positions([_references(view, hangs_on[vertex], vertex) for vertex in sample])
    found = Counter(((*first, *path), kind) for path, kind in zip(paths, kinds, strict=True))
    if len(found) > _MOST_WAYS:
        return ()
    return tuple(Way(references, kind, count) for (references, kind), count in found.most_common())


def _first_reference(group: Group) -> tuple[str, ...]:
    """Return how the holder refers to its entries, of several by position."""
    if group.crossing is None or group.holder < 0:
        return ()
    text = group.crossing.text
    is_one_of_many = group.crossing.kind in _POSITIONS and len(group.entries) > 1
    return (_INDEX if is_one_of_many and text.startswith("[") else text,)


def _chain(view: HeapView, entry: int, vertex: int, most: int = _LONGEST_WALK) -> list[int]:
    """Return the vertices from *entry* to *vertex*; of more than *most* the last."""
    chain = [vertex]
    while chain[-1] != entry and len(chain) <= most and view.tree.parent[chain[-1]] >= 0:
        chain.append(int(view.tree.parent[chain[-1]]))
    return chain[::-1]


def _references(view: HeapView, entry: int, vertex: int) -> list[str]:
    """Return the references from *entry* to *vertex*, those that are repeated once."""
    chain = _chain(view, entry, vertex)
    if chain[0] != entry:
        return [REPEATED]
    if len(chain) - 1 <= _MOST_REFERENCES:
        return _folded(_named(view, chain))
    head, tail = _folded(_named(view, chain[:_HEAD])), _named(view, chain[-_TAIL:])
    if head[-1] != REPEATED:
        return [*head, REPEATED, tail[-1]]
    return [*head, *(text for text in tail if text not in head)]


def _named(view: HeapView, chain: Sequence[int]) -> list[str]:
    """Return how each of *chain* refers to the next; a key that is no text is told as a position."""
    hops = [hop.reference for hop in fold([view.objects[vertex] for vertex in chain])]
    return [hop.text if hop.kind != "key" or hop.text.startswith(_OF_TEXT) else _INDEX for hop in hops]


def _folded(references: list[str]) -> list[str]:
    """Return *references* with what is repeated told once: the links of a chain are one way, however long it is."""
    told: list[str] = []
    place = 0
    while place < len(references):
        size, n_times = max(
            ((size, _n_times(references[place:], size)) for size in range(1, _LONGEST_BLOCK + 1)),
            key=lambda repeated: repeated[0] * (repeated[1] if repeated[1] >= _OFTEN else 1),
        )
        if n_times >= _OFTEN:
            told += [*references[place : place + size], REPEATED]
            place += size * n_times
        else:
            told.append(references[place])
            place += 1
    return told


def _n_times(references: Sequence[str], size: int) -> int:
    """Return how often in a row *references* begin with their first *size*."""
    n_times = 1
    while references[n_times * size : (n_times + 1) * size] == references[:size]:
        n_times += 1
    return n_times


REPEATED = "..."
