"""Immediate dominators of all objects at once, against taking objects out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from graph_builders import dominators_by_removal, index_of, random_graphs, reached_from

from leaklab.heap import dominators as dominators_module
from leaklab.heap.dominators import dominators, immediate_dominators
from leaklab.heap.shortest_paths import ROOT, UNREACHED, levels, reach


def tree_of(n_vertices, edges, roots, **options):
    index = index_of(n_vertices, edges)
    return dominators(index, reach(index, np.array(roots, np.int64)), **options)


def test_a_diamond_is_dominated_by_its_top():
    tree = tree_of(5, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], [0])
    assert tree.parents().tolist() == [ROOT, 0, 0, 0, 3]


def test_what_two_roots_reach_has_no_dominator():
    tree = tree_of(4, [(0, 2), (1, 2), (2, 3)], [0, 1])
    assert tree.parents().tolist() == [ROOT, ROOT, ROOT, 2]


def test_what_no_root_reaches_is_said_to_be_unreached():
    tree = tree_of(4, [(0, 1), (2, 1), (2, 3)], [0])
    assert tree.parents().tolist() == [ROOT, 0, UNREACHED, UNREACHED]


def test_a_graph_without_roots_has_no_tree():
    assert tree_of(2, [(0, 1)], []).parents().tolist() == [UNREACHED, UNREACHED]


def test_an_edge_of_the_first_tree_may_be_the_one_that_moves_its_target():
    # 1 is found through 7; but 7 moves up, and 1 has to follow although nothing else of 1 has changed.
    edges = [(0, 1), (0, 2), (1, 3), (3, 4), (2, 4), (3, 5), (4, 5), (5, 6), (6, 3)]
    assert tree_of(7, edges, [0]).parents().tolist() == dominators_by_removal(7, edges, [0])


@pytest.mark.parametrize("max_passes", [16, 0], ids=["all at once", "one by one"])
def test_dominators_equal_those_by_removal_on_1000_random_graphs(max_passes):
    for n_vertices, edges, roots in random_graphs(1000, seed=max_passes):
        found = tree_of(n_vertices, edges, roots, max_passes=max_passes).parents().tolist()
        assert found == dominators_by_removal(n_vertices, edges, roots), (n_vertices, edges, roots)


def test_sums_equal_those_by_removal():
    for n_vertices, edges, roots in random_graphs(300, seed=3):
        tree = tree_of(n_vertices, edges, roots)
        weight = np.array([10**k % 7 + 1 for k in range(n_vertices)])
        places = tree.reach.bfs_index
        weights = np.zeros(len(tree.above), np.int64)
        weights[places[places >= 0]] = weight[places >= 0]
        sums = tree.sums(weights)
        everything = reached_from(roots, edges)
        assert sums[0] == sum(weight[list(everything)].tolist())
        for vertex in everything:
            gone = everything - reached_from(roots, edges, without={vertex})
            assert sums[places[vertex]] == sum(weight[list(gone)].tolist())


def chain(length):
    return [(k, k + 1) for k in range(length - 1)]


def test_a_long_chain_is_dominated_link_by_link_and_summed_from_its_end():
    length = 20_000
    tree = tree_of(length, chain(length), [0])
    assert tree.parents().tolist() == list(range(-1, length - 1))
    weights = np.ones(length + 1, np.int64)
    assert tree.sums(weights)[tree.reach.bfs_index].tolist() == list(range(length, 0, -1))


def test_two_long_chains_with_rungs_from_two_roots_have_no_dominators():
    length = 5000
    left, right = chain(length), [(a + length, b + length) for a, b in chain(length)]
    rungs = [(k, k + length) for k in range(length)] + [(k + length, k) for k in range(length)]
    tree = tree_of(2 * length, left + right + rungs, [0, length])
    assert set(tree.parents().tolist()) == {ROOT}


def test_what_needs_too_many_passes_is_computed_one_by_one_to_the_same_result(monkeypatch):
    rng = np.random.default_rng(5)
    length, window = 3000, 30
    heads = rng.integers(0, length - window - 1, length)
    edges = [*chain(length), *zip(heads.tolist(), (heads + 1 + rng.integers(0, window, length)).tolist(), strict=True)]
    called = []

    def counted(*arguments):
        called.append(True)
        return immediate_dominators(*arguments)

    monkeypatch.setattr(dominators_module, "immediate_dominators", counted)
    fast = tree_of(length, edges, [0], max_passes=10_000)
    assert not called
    slow = tree_of(length, edges, [0], max_passes=2)
    assert called
    assert (fast.above == slow.above).all()
    assert tree_of(length, edges, [0]).parents().tolist() == fast.parents().tolist()


def test_a_hub_that_everything_refers_to_has_no_dominator_but_the_roots():
    n_vertices = 1000
    edges = [(0, k) for k in range(1, n_vertices - 1)] + [(k, n_vertices - 1) for k in range(1, n_vertices - 1)]
    assert tree_of(n_vertices, edges, [0]).parents()[-1] == 0


def test_levels_cover_a_tree_once_wide_levels_apart():
    parent = reach(index_of(204, [*chain(4), *((3, k) for k in range(4, 204))]), np.array([0])).parent
    assert list(levels(parent)) == [(1, 5, False), (5, 205, True)]
    assert list(levels(np.zeros(1, np.int32))) == []
