"""What comes back if objects go, against removing them from small graphs; data and storages counted once."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch
from explain_builders import Node, everything_below, real_view_of, vertex_of, view_of
from graph_builders import lists_of, plain_view, random_graph, random_graphs, reached_from

from leaklab.explain.alive.retained import freed_with, retained, retained_sizes, size_of_freed
from leaklab.explain.alive.smallest_cut import freed_without
from leaklab.explain.leaks.sizes import TENSOR_BYTES
from leaklab.heap.shortest_paths import ROOT
from leaklab.runtime.sizes import shallow_bytes, shallow_bytes_of

MB = 1_000_000


def all_holders(n_vertices, edges, roots):
    """Return the roots with what none of them reaches: that is held by something unseen."""
    return [*roots, *(set(range(n_vertices)) - reached_from(roots, edges))]


def cleared(lists):
    for each in lists:
        each.clear()


def test_retained_sizes_equal_brute_force_on_2000_random_graphs():
    rng = random.Random(11)
    for n_vertices, edges, roots in random_graphs(2000, seed=11, most=9):
        lists = lists_of(n_vertices, edges)
        view = plain_view(list(lists), roots)
        sizes = [sys.getsizeof(each) for each in lists]
        holders = all_holders(n_vertices, edges, roots)
        gone = rng.sample(range(n_vertices), rng.randint(1, min(3, n_vertices)))
        gone = [vertex for vertex in gone if vertex in reached_from(roots, edges)]
        expected = set(range(n_vertices)) - reached_from(holders, edges, without=set(gone))
        found = retained(view, gone)
        assert (found.n_objects, found.exclusive_bytes) == (len(expected), sum(sizes[v] for v in expected))
        single = retained_sizes(view).tolist()
        for vertex in range(n_vertices):
            alone = set(range(n_vertices)) - reached_from(holders, edges, without={vertex})
            assert single[vertex] == sum(sizes[v] for v in alone)
        cleared(lists)


def test_what_goes_without_references_equals_brute_force():
    rng = random.Random(12)
    for _ in range(500):
        n_vertices, edges, roots = random_graph(rng, most=9)
        cut = rng.sample(edges, min(len(edges), rng.randint(0, 4))) + [(ROOT, root) for root in roots[:1]]
        lists = lists_of(n_vertices, edges)
        view = plain_view(list(lists), roots)
        holders = all_holders(n_vertices, edges, roots)
        expected = set(range(n_vertices)) - reached_from(holders, edges, without_edges=cut)
        assert freed_without(view, cut).tolist() == sorted(expected)
        cleared(lists)


def test_what_disjoint_holders_retain_is_never_more_than_all_there_is():
    rng = random.Random(13)
    for _ in range(300):
        n_vertices, edges, roots = random_graph(rng, most=10)
        lists = lists_of(n_vertices, edges)
        view = plain_view(list(lists), roots)
        holders: list[int] = []
        for vertex in rng.sample(range(n_vertices), n_vertices):
            goes = set(freed_with(view, [vertex]).tolist())
            if not goes.intersection(holders) and not any(vertex in freed_with(view, [other]) for other in holders):
                holders.append(vertex)
        total = retained(view, range(n_vertices)).exclusive_bytes
        assert sum(retained(view, [holder]).exclusive_bytes for holder in holders) <= total
        cleared(lists)


def test_a_long_chain_goes_as_a_whole():
    chain: list[object] = []
    for _ in range(20_000):
        chain = [chain]
    objects = everything_below(chain)
    with view_of({"chain": chain}, objects=[*objects, space := {"chain": chain}]) as view:
        del space
        assert retained(view, [vertex_of(view, chain)]).n_objects == 20_001
    objects.clear()


def held(view, *things):
    return retained(view, [vertex_of(view, thing) for thing in things])


def test_strings_that_only_a_list_holds_go_with_it():
    texts = [chr(65 + k) * MB for k in range(3)]
    with view_of({"texts": texts}) as view:
        found = held(view, texts)
    assert 3 * MB < found.exclusive_bytes < 3 * MB + 1000
    assert (found.shared_bytes, found.n_objects) == (0, 1)


def test_a_string_in_two_lists_goes_only_with_both():
    text = "x" * MB
    first, second = [text], [text]
    del text
    with view_of({"first": first, "second": second}) as view:
        assert held(view, first).exclusive_bytes < 200
        assert held(view, first).shared_bytes > MB
        both = held(view, first, second)
    assert MB < both.exclusive_bytes < MB + 1000
    assert both.shared_bytes == 0


def test_a_string_that_something_unseen_uses_stays():
    text = "x" * MB
    texts = [text]  # and this function's own variable, which is no vertex that goes
    with view_of({"texts": texts}) as view:
        assert held(view, texts).exclusive_bytes < 200
    assert text


def test_data_inside_dicts_of_data_goes_with_who_holds_the_dicts():
    rows = [{"loss": 0.5, "text": chr(66 + k) * MB} for k in range(2)]
    with view_of({"rows": rows}) as view:
        assert 2 * MB < held(view, rows).exclusive_bytes < 2 * MB + 2000


def test_texts_that_are_keys_go_with_their_dict():
    table = {chr(65 + number) * MB: [number] for number in range(3)}
    with view_of({"table": table}) as view:
        assert 3 * MB < held(view, table).exclusive_bytes < 3 * MB + 2000


def test_texts_among_keys_of_several_types_are_counted_once():
    table = {1.5: [1], **{chr(65 + number) * MB: [number] for number in range(3)}}
    with view_of({"table": table}) as view:
        assert 3 * MB < held(view, table).exclusive_bytes < 3 * MB + 2000


def test_a_key_that_is_a_value_too_goes_once_and_one_of_another_dict_stays():
    text = "k" * MB
    first, second = {text: [text]}, {"l" * MB: [text]}
    del text
    with view_of({"first": first, "second": second}) as view:
        assert held(view, first).exclusive_bytes < 2000
        assert MB < held(view, second).exclusive_bytes < MB + 2000
        assert 2 * MB < held(view, first, second).exclusive_bytes < 2 * MB + 2000


def test_an_array_goes_with_its_holder_and_a_shared_one_does_not():
    arrays = [np.ones(MB, np.int8)]
    views = [np.ones(2 * MB, np.int8)[:10]]
    other = [arrays[0][5:]]
    with view_of({"arrays": arrays, "views": views, "other": other}) as view:
        assert held(view, arrays).exclusive_bytes < 500
        assert MB < held(view, arrays, other).exclusive_bytes < MB + 1000
        assert 2 * MB < held(view, views).exclusive_bytes < 2 * MB + 1000


def test_a_storage_that_two_tensors_use_is_counted_once_and_goes_only_with_both():
    base = torch.zeros(MB // 4)
    first, second = Node(tensor=base[10:]), Node(tensor=base[:10])
    del base
    with real_view_of({"first": first, "second": second}) as view:
        alone, both = held(view, first), held(view, first, second)
        assert alone.exclusive_bytes < 1000
        assert alone.shared_bytes >= MB
        assert MB <= both.exclusive_bytes < MB + 2000
        assert (both.shared_bytes, both.is_lower_bound) == (0, False)
        sizes = retained_sizes(view)
        assert sizes[vertex_of(view, first)] < 1000


def test_the_storage_of_two_tensors_of_one_holder_is_the_holders():
    base = torch.zeros(MB // 4)
    holder = Node(tensors=[base[10:], base[:10], base[5:]])
    del base
    with real_view_of({"holder": holder}) as view:
        sizes = retained_sizes(view)
        assert MB <= sizes[vertex_of(view, holder.tensors)] < MB + 2000
        cpp_parts = 4 * TENSOR_BYTES  # of the three views and of their base, which they keep
        assert sizes[vertex_of(view, holder)] == held(view, holder).exclusive_bytes - cpp_parts


def test_a_tensor_that_is_also_held_elsewhere_is_shared():
    tensor = torch.zeros(MB // 4)
    kept = [tensor]
    with view_of({"kept": kept, "current": tensor}) as view:
        found = held(view, kept)
    assert found.exclusive_bytes < 200
    assert MB <= found.shared_bytes < MB + 200


def test_objects_that_no_root_reaches_go_with_what_only_they_keep():
    top = Node(inner=[Node(data="x" * MB)])
    objects = everything_below(top)
    with view_of({}, objects=objects) as view:
        vertices = [vertex_of(view, top)]
        view.tree.root_of[:] = -1
        assert MB < retained(view, vertices).exclusive_bytes < MB + 5000
    objects.clear()


def test_what_an_object_that_no_root_reaches_refers_to_never_goes_with_something_else():
    # 2 is reached from the root through 1, and is held by 3, which nothing visible holds.
    lists = lists_of(4, [(0, 1), (1, 2), (3, 2)])
    view = plain_view(list(lists), [0])
    assert freed_with(view, [1]).tolist() == [1]
    assert freed_with(view, [1, 3]).tolist() == [1, 2, 3]
    cleared(lists)


@pytest.mark.parametrize("freed", [[], np.zeros(0, np.int64)], ids=["list", "array"])
def test_nothing_retains_nothing(freed):
    view = plain_view([[], []], [0])
    assert size_of_freed(view, freed).exclusive_bytes == 0
    assert retained(view, []).n_objects == 0


class Sized:
    """Lies about its size."""

    def __sizeof__(self):
        raise AssertionError


def test_all_objects_together_weigh_what_each_of_them_does():
    things = [[1], {}, (1, 2), {1}, Sized(), torch.ones(9), np.ones(9), int, Sized, test_nothing_retains_nothing, sys]
    assert shallow_bytes_of(things).tolist() == [shallow_bytes(thing) for thing in things]
    assert shallow_bytes_of([]).tolist() == []
