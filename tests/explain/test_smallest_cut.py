"""The smallest set of references that keeps an object alive, against trying all sets on small graphs."""

from __future__ import annotations

import itertools
import random
import sys

import numpy as np
import pytest
import torch
from explain_builders import Link, Node, real_view_of, vertex_of, view_of
from graph_builders import lists_of, plain_view, random_graph, reached_from, smallest_cuts

from leaklab.explain.alive import smallest_cut as cuts_module
from leaklab.explain.alive.smallest_cut import backward, freed_without, independent_paths, smallest_cut
from leaklab.heap.shortest_paths import ROOT


def cleared(lists):
    for each in lists:
        each.clear()


def test_smallest_cuts_equal_brute_force_on_random_graphs():
    rng = random.Random(21)
    n_cut = 0
    for _ in range(700):
        n_vertices, edges, roots = random_graph(rng, most=7)
        edges = edges[:12]
        target = rng.randrange(n_vertices)
        lists = lists_of(n_vertices, edges)
        view = plain_view(list(lists), roots)
        cut = smallest_cut(view, [target])
        if target in roots:
            assert (cut.references, "a root itself" in cut.obstacle) == ((), True)
        else:
            size, cuts = smallest_cuts(edges, roots, target)
            assert (cut.is_exact, cut.obstacle, len(cut.references)) == (True, "", size)
            # Of all cuts of that size the nearest is the one that leaves most of the graph reached.
            reached = [reached_from(roots, edges, without_edges=each) for each in cuts]
            assert reached_from(roots, edges, without_edges=cut.references) == max(reached, key=len)
            assert len(independent_paths(view, target, limit=100)) == size
            n_cut += size > 1
        cleared(lists)
    assert n_cut > 20


def test_independent_paths_are_paths_from_roots_that_share_no_reference():
    rng = random.Random(22)
    for _ in range(200):
        n_vertices, edges, roots = random_graph(rng, most=9)
        target = rng.randrange(n_vertices)
        lists = lists_of(n_vertices, edges)
        view = plain_view(list(lists), roots)
        if target not in roots:
            used = []
            for path in independent_paths(view, target):
                assert path[0] in roots
                assert path[-1] == target
                steps = list(itertools.pairwise(path))
                assert set(steps) <= set(edges)
                used += steps
            assert len(used) == len(set(used))
        cleared(lists)


def two_lists():
    thing = Node(inner=[])
    return {"first": [thing], "second": {"key": thing}}


def test_cutting_two_lists_frees_what_both_hold_and_one_of_them_frees_nothing():
    variables = two_lists()
    with view_of(variables) as view:
        one, two = (vertex_of(view, variables[name]) for name in ("first", "second"))
        target = vertex_of(view, variables["first"][0])
        inner = vertex_of(view, variables["first"][0].inner)
        cut = smallest_cut(view, [target])
        assert cut.references == tuple(sorted([(one, target), (two, target)]))
        freed = freed_without(view, cut.references).tolist()
        assert {target, inner} <= set(freed)
        assert not {one, two} & set(freed)
        assert len(freed_without(view, cut.references[:1])) == 0
        paths = independent_paths(view, target)
        assert sorted(paths) == sorted([[view.namespace, one, target], [view.namespace, two, target]])


def records_of_one_thing():
    thing = Node()
    return {"records": [{"number": [number], "thing": thing} for number in range(2000)]}


def test_behind_2000_dicts_in_one_list_one_reference_is_enough():
    variables = records_of_one_thing()
    with view_of(variables) as view:
        target = vertex_of(view, variables["records"][0]["thing"])
        cut = smallest_cut(view, [target])
        assert cut.references == ((view.namespace, vertex_of(view, variables["records"])),)
        assert target in freed_without(view, cut.references)
        assert len(independent_paths(view, target)) == 1


def owner_of_two():
    thing = Node(inner=[])
    owner = Node(pair=(thing, []), more=[], method=[Node(other=[]).__init__])
    vars(owner)
    return {"holder": [owner]}


def test_a_reference_inside_a_tuple_is_never_cut():
    variables = owner_of_two()
    owner = variables["holder"][0]
    with view_of({}, more=[variables]) as view:
        pair, thing = vertex_of(view, owner.pair), vertex_of(view, owner.pair[0])
        references = smallest_cut(view, [thing]).references
        assert references
        assert pair not in [holder for holder, _held in references]


def nested_owner():
    return {"holder": [owner_of_two()["holder"]]}


def test_an_instance_is_never_cut_off_from_its_own_dict():
    variables = nested_owner()
    with view_of(variables) as view:
        attributes = vars(variables["holder"][0][0])
        held = [vertex_of(view, attributes["pair"]), vertex_of(view, attributes["more"])]
        own_dict = vertex_of(view, attributes)
        del attributes
        references = smallest_cut(view, held).references
        assert len(references) == 1
        assert references[0][1] != own_dict


def test_what_a_bound_method_is_bound_to_is_never_cut_off():
    variables = owner_of_two()
    with view_of(variables) as view:
        method = variables["holder"][0].method[0]
        bound, target = vertex_of(view, method), vertex_of(view, method.__self__)
        del method
        references = smallest_cut(view, [target]).references
        assert [held for _holder, held in references] == [bound]


def views_and_gradients():
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    return {"shown": [torch.zeros(10)[2:]], "weight": [weight]}


def test_a_view_is_never_cut_off_from_its_base_but_a_tensor_from_its_gradient():
    variables = views_and_gradients()
    with real_view_of(variables) as view:
        shown, weight = variables["shown"][0], variables["weight"][0]
        ends = [vertex_of(view, each) for each in (shown, weight)]
        base, gradient = vertex_of(view, shown._base), vertex_of(view, weight.grad)
        del shown, weight
        assert smallest_cut(view, [base]).references == ((vertex_of(view, variables["shown"]), ends[0]),)
        assert smallest_cut(view, [gradient]).references == ((ends[1], gradient),)


def test_a_variable_is_preferred_to_the_local_of_a_running_function():
    thing = Link()
    kept = [[thing]]
    with real_view_of({"kept": kept}) as view:
        cut = smallest_cut(view, [vertex_of(view, thing)])
    assert cut.is_exact
    assert len(cut.references) == 2  # this function's own variable is the other one
    assert sys._getframe() is not None


def test_a_root_that_is_no_place_is_a_reference_of_its_own():
    thing = Node()
    try:
        sys.last_value = error = ValueError("kept")
        error.thing = thing
        del error
        with real_view_of({}) as view:
            value = vertex_of(view, sys.last_value)
            assert (ROOT, value) in smallest_cut(view, [value]).references
    finally:
        del sys.last_value


def test_what_is_alive_for_its_own_sake_has_an_obstacle_and_one_path():
    with view_of({"things": []}) as view:
        cut = smallest_cut(view, [view.namespace])
        assert (cut.references, cut.is_exact) == ((), True)
        assert cut.obstacle == "it is a root itself: a module, a namespace, a running function or the like"
        assert independent_paths(view, view.namespace) == []


def test_what_nothing_reaches_needs_no_cut_and_has_no_path():
    lists = lists_of(3, [(1, 2)])
    view = plain_view(list(lists), [0])
    cut = smallest_cut(view, [2])
    assert (cut.references, cut.is_exact, cut.obstacle, cut.n_orphans) == ((), True, "", 1)
    assert independent_paths(view, 2) == []
    cleared(lists)


def test_a_search_that_ends_early_gives_a_cut_that_is_not_called_the_smallest():
    # 0 -> 1 -> 2..51 -> 52: cutting 0 -> 1 would do, but the search ends before it gets there.
    edges = [(0, 1), *((1, k) for k in range(2, 52)), *((k, 52) for k in range(2, 52))]
    lists = lists_of(53, edges)
    view = plain_view(list(lists), [0])
    region = backward(view, np.array([52]), max_references=60)
    assert not region.is_whole
    assert backward(view, np.array([52])).is_whole
    cleared(lists)


def test_a_cut_in_part_of_what_leads_to_an_object_still_cuts_it_off(monkeypatch):
    edges = [(0, 1), *((1, k) for k in range(2, 8)), *((k, 8) for k in range(2, 8))]
    lists = lists_of(9, edges)
    view = plain_view(list(lists), [0])
    monkeypatch.setattr(cuts_module, "backward", lambda view, targets: backward(view, targets, 6))
    cut = smallest_cut(view, [8])
    assert not cut.is_exact
    assert cut.references == tuple((k, 8) for k in range(2, 8))
    assert 8 in freed_without(view, cut.references)
    paths = independent_paths(view, 8, limit=3)
    assert [(path[1], path[-1], len(path)) for path in paths] == [(1, 8, 4)] * 3
    cleared(lists)


def test_several_targets_are_cut_off_together():
    variables = {"box": {"things": [Node(), Node()]}}
    with view_of(variables) as view:
        targets = [vertex_of(view, thing) for thing in variables["box"]["things"]]
        cut = smallest_cut(view, targets)
        assert cut.references == ((vertex_of(view, variables["box"]), vertex_of(view, variables["box"]["things"])),)
        assert set(targets) <= set(freed_without(view, cut.references).tolist())


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_paths_are_returned_than_asked_for(limit):
    lists = lists_of(8, [(0, k) for k in range(1, 7)] + [(k, 7) for k in range(1, 7)])
    view = plain_view(list(lists), [0])
    assert len(independent_paths(view, 7, limit=limit)) == limit
    cleared(lists)
