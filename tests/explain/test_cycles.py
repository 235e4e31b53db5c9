"""Cycles that no variable reaches: found, shortest, written edge by edge; immortal ones told from garbage."""

from __future__ import annotations

import itertools
import time

import networkx as nx
import numpy as np
import pytest
from apart import apart
from cycle_heaps import REACHED, clean_heap, collected_heap, waiting_heap
from cycle_shapes import COLLECTED, IMMORTAL
from explain_builders import Link, Node, vertex_of, view_of
from hypothesis import given
from hypothesis import strategies as st

from leaklab.explain.cycles.cycles import CYCLE_ROOT, UNSEEN_ROOT, group_orphans
from leaklab.explain.cycles.region import Region
from leaklab.heap.index import build_index
from leaklab.model.paths import CycleCertainty, CycleCut

EDGES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
)


def heap_of(n_vertices, edges):
    """Make lists that refer to each other as *edges* say."""
    lists = [[] for _ in range(n_vertices)]
    for source, target in edges:
        lists[source].append(lists[target])
    return lists


def region_of(n_vertices, edges, leaked=None):
    lists = heap_of(n_vertices, edges)
    index = build_index(lists)
    mask = np.ones(n_vertices, bool) if leaked is None else np.isin(np.arange(n_vertices), leaked)
    for made in lists:
        made.clear()
    return Region(index, np.ones(n_vertices, bool), mask)


def cyclic_parts(n_vertices, edges):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_vertices))
    graph.add_edges_from(edges)
    parts = map(frozenset, nx.strongly_connected_components(graph))
    return graph, {part for part in parts if len(part) > 1 or graph.has_edge(min(part), min(part))}


@given(EDGES)
def test_every_orphan_is_kept_by_the_nearest_cycle_that_reaches_it(heap):
    n_vertices, edges = heap
    graph, cyclic = cyclic_parts(n_vertices, edges)
    region = region_of(n_vertices, edges)
    groups, others = region.by_cycle(range(n_vertices))
    for component, members in groups.items():
        keeper = frozenset(region.members_of(component).tolist())
        assert keeper in cyclic
        for member in members:
            distances = {
                part: min(
                    (nx.shortest_path_length(graph, v, member) for v in part if nx.has_path(graph, v, member)),
                    default=99,
                )
                for part in cyclic
            }
            assert distances[keeper] == min(distances.values()) < 99
    reached = {target for part in cyclic for vertex in part for target in nx.descendants(graph, vertex)} | {
        vertex for part in cyclic for vertex in part
    }
    assert sorted(others) == sorted(set(range(n_vertices)) - reached)


@given(EDGES)
def test_the_cycle_through_an_object_is_the_shortest(heap):
    n_vertices, edges = heap
    graph, cyclic = cyclic_parts(n_vertices, edges)
    region = region_of(n_vertices, edges)
    for vertex in set().union(*cyclic):
        cycle = region.shortest_cycle(vertex)
        assert cycle[0] == vertex
        assert all(graph.has_edge(a, b) for a, b in itertools.pairwise([*cycle, vertex]))
        lengths = [
            1 + nx.shortest_path_length(graph, after, vertex)
            for after in graph.successors(vertex)
            if nx.has_path(graph, after, vertex)
        ]
        assert len(cycle) == min(lengths)


@given(EDGES)
def test_what_hangs_together_is_a_weak_component_below_its_top(heap):
    n_vertices, _edges = heap
    edges = {(min(edge), max(edge)) for edge in heap[1] if edge[0] != edge[1]}
    graph = nx.DiGraph(list(edges))
    graph.add_nodes_from(range(n_vertices))
    groups = region_of(n_vertices, edges).hanging_together(range(n_vertices))
    assert {frozenset(members) for _top, members in groups} == set(
        map(frozenset, nx.weakly_connected_components(graph))
    )
    for top, members in groups:
        assert sorted(top) == [vertex for vertex in sorted(members) if not graph.in_degree(vertex)]


def test_without_a_cycle_through_it_an_object_has_none():
    assert region_of(2, {(0, 1)}).shortest_cycle(0) == []


def test_a_cycle_of_survivors_explains_more_than_an_older_one_that_is_nearer():
    edges = {(0, 0), (0, 3), (1, 1), (1, 2), (2, 3)}
    groups, others = region_of(4, edges, leaked=[1, 3]).by_cycle([3])
    assert others == []
    (component,) = groups
    assert region_of(4, edges, leaked=[1, 3]).members_of(component).tolist() == [1]


def orphans_of(runs, **options):
    """Group the survivors of *runs*, which nothing else holds: the lists are emptied."""
    with view_of({}, runs, **options) as view:
        for born in runs:
            born.clear()
        found = group_orphans(view, np.flatnonzero(view.leaked & (view.tree.root_of < 0)).tolist())
        return [(orphans, [*map(type, (view.objects[v] for v in orphans.members))]) for orphans in found]


def rings(n_runs=5):
    """Leave a pair of nodes that refer to each other in every run."""
    runs = []
    for _ in range(n_runs):
        one = Node()
        other = Node(back=one)
        one.forth = other
        runs.append([one, other, vars(one), vars(other)])
    return runs


def test_cycles_of_one_kind_are_one_place():
    ((orphans, kinds),) = orphans_of(rings())
    assert orphans.path.root == CYCLE_ROOT
    assert [step.reference for step in orphans.path.steps] == ["", ".forth", ".back"]
    assert orphans.path.steps[-1].note == "the first object again: the cycle is closed"
    assert kinds.count(Node) == 8
    assert orphans.certainty is CycleCertainty.GARBAGE
    assert not orphans.crosses_hidden


def test_a_cycle_that_something_else_holds_is_not_what_keeps_it():
    runs = rings()
    with view_of({}, runs) as view:
        (orphans,) = group_orphans(view, np.flatnonzero(view.leaked).tolist())
    assert orphans.certainty is CycleCertainty.UNSEEN
    assert orphans.path.root == UNSEEN_ROOT
    assert (orphans.cycle, orphans.cut) == ([], None)


def test_cycles_by_other_references_are_other_places():
    runs = [[Link(), Node()] for _ in range(2)]
    for link, node in runs:
        link.parent = link
        node.me = node
    link = node = _link = _node = None
    assert len(orphans_of(runs)) == 2


def test_a_ring_has_one_fingerprint_wherever_it_is_read_from_and_however_long_it_is():
    prints = set()
    for n_links in (2, 3, 100):
        ring = [Link() for _ in range(n_links)]
        for link, after in zip(ring, [*ring[1:], ring[0]], strict=True):
            link.parent = after
        link = after = None
        ((orphans, _),) = orphans_of([ring, []])
        prints.add(orphans.fingerprint)
        assert len(orphans.path.steps) <= 31
    assert len(prints) == 1


def test_a_long_ring_is_cut_in_its_middle():
    ring = [Link() for _ in range(1000)]
    for link, after in zip(ring, [*ring[1:], ring[0]], strict=True):
        link.parent = after
    link = after = None
    ((orphans, _),) = orphans_of([ring, []])
    (cut,) = [step for step in orphans.path.steps if "more objects" in step.reference]
    assert cut.reference == "(… 971 more objects …)"


def test_a_cycle_begins_with_what_the_reader_knows():
    box = []
    owner = Node(box=box)
    box.append({"owner": owner})
    runs = [[owner, box, box[0], vars(owner)], []]
    owner = box = None
    ((orphans, _),) = orphans_of(runs)
    assert [step.kind for step in orphans.path.steps] == [
        "explain_builders.Node",
        "list",
        "dict",
        "explain_builders.Node",
    ]


def test_orphans_without_a_cycle_are_grouped_by_what_is_at_their_top():
    runs = [[Link(Node()), []] for _ in range(4)]
    for born in runs:
        born.append(born[0].parent)
    born = None
    found = orphans_of(runs)
    assert {orphans.path.root for orphans, _ in found} == {UNSEEN_ROOT}
    assert sorted(sorted(kind.__name__ for kind in kinds) for _, kinds in found) == [
        ["Link", "Link", "Link", "Node", "Node", "Node"],
        ["list", "list", "list"],
    ]
    assert all(orphans.cycle == [] for orphans, _ in found)
    assert {(step.reference, step.kind) for orphans, _ in found for step in orphans.path.steps} == {
        ("its top", "explain_builders.Link"),
        ("its top", "list"),
    }


def test_there_may_be_no_orphans():
    with view_of({}) as view:
        assert group_orphans(view, []) == []


def test_the_cut_of_a_ring_is_an_attribute_of_the_first_object_that_has_one():
    ((orphans, _),) = orphans_of(rings())
    assert orphans.cut == CycleCut(".back", "del obj.back", "obj is the explain_builders.Node", is_safe=True)


def test_the_function_in_a_cycle_is_told_with_its_line():
    def make():
        box = []
        box.append(lambda: box)
        return [box, box[0], box[0].__closure__]

    runs = [make(), []]
    line = make.__code__.co_firstlineno + 2
    ((orphans, _),) = orphans_of(runs)
    assert [step.note for step in orphans.path.steps] == [
        "",
        "",
        f"<lambda> at {__file__}, line {line}",
        "the first object again: the cycle is closed",
    ]


def test_a_hundred_thousand_orphans_cost_less_than_two_seconds():
    runs = [[], []]
    for _ in range(50_000):
        one = Link()
        one.parent = Link(one)
        runs[0] += [one, one.parent]
    one = None
    with view_of({}, objects=[thing for born in runs for thing in born], runs=runs) as view:
        orphans = np.flatnonzero(view.leaked).tolist()
        first = vertex_of(view, runs[0][0])
        runs[0].clear()
        assert len(orphans) == 100_000
        started = time.process_time()
        (found,) = group_orphans(view, orphans)
        assert time.process_time() - started < 2
        assert len(found.members) == 100_000
        assert first in found.members
        assert found.certainty is CycleCertainty.GARBAGE


ASSUMED = {
    # the hooks of a tensor whose Python object is gone: nobody tells which node owns them
    "hook_of_an_intermediate_result_sees_a_later_one",
    "hook_of_many_gradients_sees_their_sum",
    "hook_of_a_result_that_is_changed_in_place",
}
CUTS = {
    "hook_of_a_result_sees_the_result": ("._backward_hooks[", "handle.remove()"),
    "hook_of_a_node_sees_its_result": ("hook <lambda> in the post_hooks of the node", "handle.remove()"),
    "prehook_of_a_node_sees_its_result": ("hook <lambda> in the pre_hooks of the node", "handle.remove()"),
    "post_accumulate_hook_sees_its_parameter": ("._post_accumulate_grad_hooks[", "handle.remove()"),
    "second_order_backward": (".grad", "tensor.grad = None"),
    "pack_hook_returns_the_tensor_it_got": ("saved for backward as 'result'", "return value.detach()"),
    "leaf_has_its_result_as_attribute": (".result", "del obj.result"),
    "ctx_keeps_a_later_result": (".later", "del obj.later"),
    "unpack_hook_sees_the_output": ("[0]", "items[0] = None"),
    "array_of_objects_and_tensor_hold_each_other": (".array", "del obj.array"),
}


@pytest.fixture(scope="module")
def collected():
    return apart(collected_heap)


@pytest.fixture(scope="module")
def waiting():
    return apart(waiting_heap)


@pytest.fixture(scope="module")
def clean():
    return apart(clean_heap)


def test_the_truth_about_each_program_is_what_a_collection_leaves(collected):
    alive, _found, notes = collected
    assert alive == set(IMMORTAL)
    assert notes == ()


@pytest.mark.parametrize("name", IMMORTAL)
def test_an_immortal_cycle_is_found_and_proved_where_it_can_be(collected, name):
    _alive, found, _notes = collected
    assert found[name].certainty is (CycleCertainty.PROBABLE if name in ASSUMED else CycleCertainty.PROVED)
    assert found[name].crosses_hidden
    assert len(found[name].path.steps) >= 3
    assert found[name].path.steps[-1].note.endswith("the first object again: the cycle is closed")
    assert found[name].path.steps[0].kind == found[name].path.steps[-1].kind


@pytest.mark.parametrize("name", IMMORTAL)
def test_every_immortal_cycle_says_where_it_is_cut(collected, name):
    _alive, found, _notes = collected
    cut = found[name].cut
    assert cut is not None
    assert cut.how
    assert cut.words
    if name in CUTS:
        reference, how = CUTS[name]
        assert cut.reference.startswith(reference)
        assert cut.how == how


def test_the_line_of_a_closure_is_in_the_cycle(collected):
    _alive, found, _notes = collected
    steps = found["hook_of_a_node_sees_its_result"].path.steps
    line = IMMORTAL["hook_of_a_node_sees_its_result"].__code__.co_firstlineno + 3
    (note,) = [step.note for step in steps if step.kind == "function"]
    assert note.startswith("<lambda> at ")
    assert note.endswith(f"cycle_shapes.py, line {line}")


def test_what_is_only_assumed_is_said(collected):
    _alive, found, _notes = collected
    notes = [step.note for name in ASSUMED for step in found[name].path.steps if "tensor_pre_hooks" in step.reference]
    assert len(notes) == len(ASSUMED)
    assert all("owner cannot be read" in note for note in notes)


def test_what_waits_for_a_collection_is_garbage(waiting):
    alive, found, alive_afterwards = waiting
    assert alive == set(COLLECTED)
    assert {name: orphans.certainty for name, orphans in found.items()} == dict.fromkeys(
        COLLECTED, CycleCertainty.GARBAGE
    )
    assert not any(orphans.crosses_hidden for orphans in found.values())
    assert alive_afterwards == set()


def test_what_has_a_reason_to_live_is_reached_or_held_by_something_unseen(clean):
    alive, found = clean
    assert alive == {*REACHED, "tensor hook", "ring", "graph"}
    assert {name: orphans.certainty for name, orphans in found.items()} == {
        "tensor hook": CycleCertainty.UNSEEN,
        "ring": CycleCertainty.UNSEEN,
        "graph": CycleCertainty.UNSEEN,
    }


def test_what_something_unseen_holds_is_said_to_be_so(clean):
    _alive, found = clean
    assert str(found["ring"].path) == "held by something that is not seen from Python"
    assert found["ring"].cut is None
    assert not found["ring"].crosses_hidden
