"""Cycles that no variable reaches: found, shortest, written edge by edge."""

from __future__ import annotations

import itertools
import time

import networkx as nx
import numpy as np
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
