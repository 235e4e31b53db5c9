"""Graphs made by hand or at random, as an index without a heap or as a view of lists; and what is true of them."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import strategies as st

from leaklab.heap.index import HeapIndex, build_index
from leaklab.heap.shortest_paths import ROOT, UNREACHED, Start, search
from leaklab.heap.view import BASELINE, HeapView
from leaklab.runtime.addresses import AddressTable, KindTable, kinds_of


def index_of(n_vertices, edges):
    """Return the index of a graph; the edges keep the order of their sources."""
    edges = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=n_vertices))])
    ids = np.arange(1, n_vertices + 1) * 16
    return HeapIndex(ids, offsets, edges[:, 1].astype(np.int32), AddressTable(ids))


@st.composite
def heaps(draw):
    """Draw vertices, edges, the cost of each vertex, whether it is blocked, and roots with their prices."""
    n = draw(st.integers(1, 14))
    vertices = st.integers(0, n - 1)
    return (
        n,
        draw(st.sets(st.tuples(vertices, vertices), max_size=60)),
        draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)),
        draw(st.lists(st.booleans(), min_size=n, max_size=n)),
        draw(st.lists(st.tuples(vertices, st.integers(0, 9)), max_size=4)),
    )


def random_graph(rng, *, most=12):
    """Return the number of vertices, the edges, and the roots of some small graph."""
    n_vertices = rng.randint(1, most)
    n_edges = int(n_vertices * rng.choice([0.5, 1, 1.5, 2, 3]))
    edges = [(rng.randrange(n_vertices), rng.randrange(n_vertices)) for _ in range(n_edges)]
    return n_vertices, edges, sorted(rng.sample(range(n_vertices), rng.randint(0, min(3, n_vertices))))


def random_graphs(number, seed, **limits):
    rng = random.Random(seed)
    return [random_graph(rng, **limits) for _ in range(number)]


def reached_from(roots, edges, *, without=(), without_edges=()):
    """Return what *roots* reach, by a plain search; `ROOT` may be the first of an edge that is left out."""
    cut = set(without_edges)
    found = {root for root in roots if root not in without and (ROOT, root) not in cut}
    pending = list(found)
    while pending:
        vertex = pending.pop()
        for edge in edges:
            if edge[0] == vertex and edge not in cut and edge[1] not in found and edge[1] not in without:
                found.add(edge[1])
                pending.append(edge[1])
    return found


def dominators_by_removal(n_vertices, edges, roots):
    """Return for each vertex the dominator that is dominated by all others, by taking vertices out one by one."""
    everything = reached_from(roots, edges)
    dominated_by = {vertex: everything - reached_from(roots, edges, without={vertex}) for vertex in everything}
    parents = []
    for vertex in range(n_vertices):
        above = [other for other in everything if other != vertex and vertex in dominated_by[other]]
        lowest = min(above, key=lambda other: len(dominated_by[other]), default=ROOT)
        parents.append(lowest if vertex in everything else UNREACHED)
    return parents


def smallest_cuts(edges, roots, target):
    """Return the number of edges of the smallest cut, and all sets of so many that cut *target* off."""
    edges = sorted({edge for edge in edges if edge[0] != edge[1]})
    for size in range(len(edges) + 1):
        found = [
            cut
            for cut in itertools.combinations(edges, size)
            if target not in reached_from(roots, edges, without_edges=cut)
        ]
        if found:
            return size, found
    return None, []


def lists_of(n_vertices, edges):
    """Return that many lists, each of which holds the lists that its edges lead to."""
    lists = [[] for _ in range(n_vertices)]
    for holder, held in edges:
        lists[holder].append(lists[held])
    return lists


def plain_view(objects, places):
    """Return a view of *objects*, of which those at *places* are alive for their own sake, like modules."""
    index = build_index(objects)
    starts = [Start(id(objects[place]), "module 'm'", "", 0, is_place=True) for place in places]
    blocked = np.zeros(len(objects), bool)
    blocked[list(places)] = True
    tree = search(
        index, [(place, 0) for place in places], vertex_cost=np.ones(len(objects), np.int64), blocked_into=blocked
    )
    runs = np.full(len(objects), BASELINE, np.int64)
    nothing = np.zeros(len(objects), bool)
    kinds = kinds_of(objects)
    types = KindTable(kinds)
    return HeapView(objects, len(objects), index, kinds, types, tree, starts, runs, runs, nothing, nothing)
