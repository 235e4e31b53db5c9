"""Compute what comes back if one object goes, for all objects at once: the sums over the tree of dominators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leaklab.heap.dominators import DominatorTree
    from leaklab.runtime.addresses import Ints


def exclusive_sizes(
    tree: DominatorTree, own_bytes: Ints, storages: Iterable[tuple[int, list[int]]]
) -> tuple[Ints, Ints]:
    """Return for each vertex the bytes that come back if it goes, and the part of it that no vertex below it has.

    Args:
        tree: Who alone keeps whom alive. Everything that is a vertex must be reached.
        own_bytes: Of each vertex alone.
        storages: Size and users of each storage of tensors, which comes back if all its users go.

    Returns:
        Two arrays of shape ``(n_vertices,)``. The second adds up to the bytes of everything: what of a vertex and its
        storages is counted right there. A storage counts at the nearest vertex that keeps all of its users.
    """
    weights = np.zeros(len(tree.above), np.int64)
    weights[tree.reach.bfs_index] = own_bytes
    sizes: list[int] = []
    groups: list[list[int]] = []
    for n_bytes, users in storages:
        sizes.append(n_bytes)
        groups.append(users)
    owners = tree.reach.bfs_index[[users[0] for users in groups]] if groups else np.zeros(0, np.int32)
    for number in [number for number, users in enumerate(groups) if len(users) > 1]:
        below: Ints = tree.reach.bfs_index[groups[number]]
        while len(below) > 1:  # halves them: whoever is above both of a pair is above the storage
            middle = (len(below) + 1) // 2
            padded = np.append(below, below[:1]) if len(below) % 2 else below
            below = tree.nearest_above(padded[:middle], padded[middle:])
        owners[number] = below[0]
    np.add.at(weights, owners, sizes)
    return tree.sums(weights)[tree.reach.bfs_index], weights[tree.reach.bfs_index]
