"""Collect the part of a heap through which roots may reach some objects, as a graph of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.reaching.freed import references_to
from leaklab.explain.reaching.reach import ROOT

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.view import HeapView

MAX_REFERENCES = 200_000
"""So many references are followed back at most; a search in more would take seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """What leads to some objects, as far as roots reach it.

    Attributes:
        holders: The holder of each reference, as a vertex; `ROOT` for what a root itself holds.
        held: The object that it holds. No two references have both in common.
        is_whole: Whether all of it is here. If not, what was not followed further back counts as held by roots.
        n_orphans: Objects that lead here and that no root reaches: they keep what they refer to, whatever is cut.
    """

    holders: Ints
    held: Ints
    is_whole: bool
    n_orphans: int


def backward(view: HeapView, targets: Ints, max_references: int = MAX_REFERENCES) -> Backward:
    """Follow references back from *targets* to the roots, no further than these.

    Args:
        view: The heap.
        targets: Vertices.
        max_references: The search ends when it has followed so many.
    """
    is_root = np.zeros(view.index.n_vertices, bool)
    is_root[view.roots] = True
    seen = np.zeros(view.index.n_vertices, bool)
    holders: list[Ints] = []
    held: list[Ints] = []
    open_ends = np.zeros(0, np.int64)
    n_followed = n_orphans = 0
    level = np.unique(targets)
    while len(level):
        seen[level] = True
        if n_followed + int(np.diff(view.index.reverse[0])[level].sum()) > max_references:
            open_ends = level
            break
        sources, above = references_to(view.index, level[~is_root[level]])
        orphans = view.is_orphan[sources]
        n_orphans += len(np.unique(sources[orphans]))
        sources, above = sources[~orphans], above[~orphans]
        n_followed += len(sources)
        holders.append(sources)
        held.append(above)
        level = np.unique(sources)
        level = level[~seen[level]]
    ends = np.union1d(open_ends, view.roots[seen[view.roots]])
    holders.append(np.full(len(ends), ROOT))
    held.append(ends)
    pairs = np.unique(np.stack([np.concatenate(holders), np.concatenate(held)], axis=1).astype(np.int64), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return Backward(pairs[:, 0], pairs[:, 1], not len(open_ends), n_orphans)
