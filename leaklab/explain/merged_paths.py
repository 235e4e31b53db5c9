"""Merge the paths by which one place keeps its survivors: 23 of 24 through `[i]['loss']`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from leaklab.explain.groups import Group
from leaklab.heap.paths import fold
from leaklab.heap.view import HeapView
from leaklab.model.check import Way
from leaklab.model.merged_paths import without_positions
from leaklab.runtime.objects import type_name

_MOST_NAMED = 400
"""Of more objects so many are looked at, spread evenly over them: each reference on their paths has to be named."""
_MOST_REFERENCES = 40
"""A longer path is one along a chain: its references are repeated."""
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
    below = [vertex for vertex in known if vertex != hangs_on[vertex]]
    step = max(1, -(-len(below) // _MOST_NAMED))
    sample = known if step == 1 else known[::step]
    first = _first_reference(group)
    kinds = [type_name(type(view.objects[vertex])) for vertex in sample]
    paths = without_positions([_folded(list(_references(view, hangs_on[vertex], vertex))) for vertex in sample])
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


def _references(view: HeapView, entry: int, vertex: int) -> Iterator[str]:
    """Yield the references from *entry* to *vertex*; of a long chain nothing but that it is one."""
    chain = [vertex]
    while chain[-1] != entry and len(chain) <= _MOST_REFERENCES:
        chain.append(int(view.tree.parent[chain[-1]]))
    if chain[-1] != entry:
        yield REPEATED
        return
    for hop in fold([view.objects[each] for each in reversed(chain)]):
        text = hop.reference.text
        yield text if hop.reference.kind != "key" or text.startswith(_OF_TEXT) else _INDEX


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
