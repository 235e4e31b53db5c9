"""The cheapest path from a root to every object."""

from __future__ import annotations

import heapq
import itertools
import time

import numpy as np
import pytest
from graph_builders import heaps, index_of
from hypothesis import given
from hypothesis import strategies as st

from leaklab.heap import shortest_paths as search_module
from leaklab.heap.shortest_paths import PathTree, hops_to, path_to, search


class Drawn:
    """A graph written as ``a->b b->c``; vertices are numbered in alphabetical order."""

    def __init__(self, text, *, costs=None, blocked=""):
        pairs = [tuple(edge.split("->")) for edge in text.split()]
        self.names = sorted({name for pair in pairs for name in pair})
        number = {name: position for position, name in enumerate(self.names)}
        self.number = number
        self.index = index_of(len(number), [(number[a], number[b]) for a, b in pairs])
        self.costs = np.array([(costs or {}).get(name, 1) for name in self.names])
        self.blocked = np.array([name in blocked for name in self.names])

    def paths(self, **roots):
        tree = search(
            self.index,
            [(self.number[name], cost) for name, cost in roots.items()],
            vertex_cost=self.costs,
            blocked_into=self.blocked,
        )
        return {name: "".join(self.names[v] for v in path_to(tree, at)) for name, at in self.number.items()}


def test_a_path_begins_at_the_root_and_names_every_vertex():
    assert Drawn("a->b b->c c->d").paths(a=0) == {"a": "a", "b": "ab", "c": "abc", "d": "abcd"}


def test_the_short_way_wins_where_all_vertices_cost_the_same():
    assert Drawn("a->b b->c c->d a->d").paths(a=0)["d"] == "ad"


def test_a_longer_way_wins_where_it_is_cheaper():
    assert Drawn("a->b b->c c->d a->x x->d", costs={"x": 5}).paths(a=0)["d"] == "abcd"


def test_a_root_that_begins_expensive_is_entered_from_a_cheaper_one():
    assert Drawn("a->b b->c").paths(a=0, b=9)["c"] == "abc"


def test_a_root_that_begins_cheap_is_not_entered():
    assert Drawn("a->b b->c").paths(a=0, b=1)["c"] == "bc"


def test_a_blocked_vertex_is_only_a_beginning():
    drawn = Drawn("a->m m->c b->c", blocked="m")
    assert drawn.paths(a=0) == {"a": "a", "b": "", "c": "", "m": ""}
    assert drawn.paths(a=0, m=7)["c"] == "mc"


def test_what_no_root_reaches_has_no_path():
    drawn = Drawn("a->b x->y y->x")
    tree = search(drawn.index, [(0, 0)], vertex_cost=drawn.costs)
    assert drawn.paths(a=0)["x"] == ""
    assert (tree.cost[2], tree.parent[2], tree.root_of[2]) == (-1, -1, -1)


def test_a_vertex_that_costs_nothing_is_passed_for_nothing():
    drawn = Drawn("a->x x->y y->d a->d", costs={"x": 0, "y": 0})
    assert drawn.paths(a=3) == {"a": "a", "d": "ad", "x": "ax", "y": "axy"}


def test_among_equal_paths_the_first_root_wins_then_the_first_vertex():
    drawn = Drawn("a->x b->x a->c a->b c->z b->z")
    assert drawn.paths(b=2, a=2)["x"] == "bx"
    assert drawn.paths(a=2, b=2)["x"] == "ax"
    assert drawn.paths(a=0)["z"] == "abz"


def test_a_root_that_is_not_in_the_heap_is_skipped():
    drawn = Drawn("a->b")
    tree = search(drawn.index, [(-1, 0), (0, 0)], vertex_cost=drawn.costs)
    assert tree.root_of.tolist() == [1, 1]


def test_without_roots_nothing_is_reached():
    drawn = Drawn("a->b")
    assert search(drawn.index, [], vertex_cost=drawn.costs).root_of.tolist() == [-1, -1]


def test_negative_costs_are_refused():
    drawn = Drawn("a->b")
    with pytest.raises(ValueError, match="costs must be 0 or more"):
        search(drawn.index, [(0, 0)], vertex_cost=np.array([0, -1]))
    with pytest.raises(ValueError, match="costs must be 0 or more"):
        search(drawn.index, [(0, -1)], vertex_cost=drawn.costs)


def test_arrays_that_do_not_fit_are_refused():
    drawn = Drawn("a->b")
    with pytest.raises(ValueError, match="has 2 vertices"):
        search(drawn.index, [(0, 0)], vertex_cost=np.array([1]))
    with pytest.raises(ValueError, match="has 2 vertices"):
        search(drawn.index, [(0, 0)], vertex_cost=drawn.costs, blocked_into=np.zeros(3, bool))


def costs_by_dijkstra(n, edges, price, blocked, roots):
    cost = [-1] * n
    queue = [(start, vertex) for vertex, start in roots]
    heapq.heapify(queue)
    while queue:
        here, vertex = heapq.heappop(queue)
        if cost[vertex] == -1:
            cost[vertex] = here
            for source, target in edges:
                if source == vertex and not blocked[target]:
                    heapq.heappush(queue, (here + price[target], target))
    return cost


@given(heaps())
def test_every_path_is_as_cheap_as_dijkstra_says(heap):
    n, edges, price, blocked, roots = heap
    tree = search(index_of(n, edges), roots, vertex_cost=np.array(price), blocked_into=np.array(blocked))
    assert tree.cost.tolist() == costs_by_dijkstra(n, edges, price, blocked, roots)


@given(heaps())
def test_every_path_consists_of_references_and_costs_what_the_tree_says(heap):
    n, edges, price, blocked, roots = heap
    tree = search(index_of(n, edges), roots, vertex_cost=np.array(price), blocked_into=np.array(blocked))
    for vertex in range(n):
        path = path_to(tree, vertex)
        assert bool(path) == (tree.cost[vertex] >= 0)
        if path:
            assert set(itertools.pairwise(path)) <= edges
            assert not any(blocked[entered] for entered in path[1:])
            root, start = roots[tree.root_of[vertex]]
            assert root == path[0]
            assert tree.cost[vertex] == start + sum(price[entered] for entered in path[1:])


@given(heaps())
def test_one_by_one_and_all_at_once_choose_the_same_paths(heap):
    n, edges, price, blocked, roots = heap
    trees = []
    for few in (10**9, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search_module, "_FEW_EDGES", few)
            trees.append(search(index_of(n, edges), roots, vertex_cost=np.array(price), blocked_into=np.array(blocked)))
    assert trees[0].parent.tolist() == trees[1].parent.tolist()
    assert trees[0].root_of.tolist() == trees[1].root_of.tolist()


def test_a_chain_of_300_000_objects_takes_seconds_at_most():
    n = 300_000
    index = index_of(n, np.column_stack([np.arange(n - 1), np.arange(1, n)]).tolist())
    started = time.process_time()
    tree = search(index, [(0, 0)], vertex_cost=np.ones(n, int))
    assert time.process_time() - started < 5
    assert tree.cost[-1] == n - 1
    assert path_to(tree, n - 1) == list(range(n))


def test_a_chain_behind_a_wide_object_is_not_slower():
    n, width = 100_000, 1_000
    edges = [(0, at) for at in range(1, width)] + [(at, at + 1) for at in range(width - 1, n - 1)]
    started = time.process_time()
    tree = search(index_of(n, edges), [(0, 0)], vertex_cost=np.ones(n, int))
    assert time.process_time() - started < 3
    assert tree.cost[-1] == n - width + 1


@given(st.integers(0, 200), st.randoms(use_true_random=False))
def test_hops_are_what_walking_up_counts(n, random):
    parent = np.array([random.randrange(-1, vertex) if vertex else -1 for vertex in range(n)], np.int64)
    new = np.array(random.sample(range(n), n), np.int64)  # a parent may have any number
    shuffled = np.full(n, -1, np.int64)
    shuffled[new] = np.where(parent >= 0, new[parent], -1) if n else shuffled
    tree = PathTree(shuffled, np.zeros(n, np.int64), np.zeros(n, np.int64))
    assert hops_to(tree).tolist() == [len(path_to(tree, vertex)) - 1 for vertex in range(n)]


def test_hops_along_a_chain_take_few_rounds():
    n = 100_000
    tree = PathTree(np.arange(n, dtype=np.int64) - 1, np.zeros(n, np.int64), np.zeros(n, np.int64))
    assert hops_to(tree).tolist() == list(range(n))
