"""The graph of the heap in flat arrays."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.heap import index as index_module
from leaklab.heap.index import ReferencePass, build_index
from leaklab.runtime.addresses import AddressTable, JoinedTable, kinds_of


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def names_of(vertices, names):
    return [names[vertex] for vertex in vertices.tolist()]


@pytest.fixture
def family():
    """Return ``[a, b, c, d]``: a holds b and c, b holds c twice, c holds a, d holds nothing of them."""
    a, b, c, d = [], [], [], [1, "text"]
    a += [b, c]
    b += [c, c]
    c.append(a)
    yield [a, b, c, d]
    a.clear()


def test_a_vertex_refers_to_what_its_object_refers_to(family):
    index = build_index(family)
    assert [names_of(index.referents(v), "abcd") for v in range(4)] == [["c", "b"], ["c", "c"], ["a"], []]
    assert (index.n_vertices, index.n_edges) == (4, 5)


def test_a_vertex_is_referred_to_by_who_refers_to_it(family):
    index = build_index(family)
    assert [names_of(index.referrers(v), "abcd") for v in range(4)] == [["c"], ["a"], ["a", "b", "b"], []]


def test_a_vertex_is_the_position_of_its_object(family):
    index = build_index(family)
    assert index.ids.tolist() == [id(thing) for thing in family]
    assert [index.vertex_of(id(thing)) for thing in family] == [0, 1, 2, 3]
    assert index.vertices_of(np.array([id(family[3]), 0, id(family), id(family[1])])).tolist() == [3, -1, -1, 1]


def test_objects_outside_the_list_are_no_vertices(family):
    index = build_index(family[:2])
    assert index.vertex_of(id(family[2])) == -1
    assert names_of(index.referents(0), "ab") == ["b"]


def test_an_ignored_object_has_no_references(family):
    index = build_index(family, ignored=np.array([id(family[2]), 12345]))
    assert names_of(index.referents(0), "abcd") == ["b"]
    assert [len(index.referents(v)) for v in (1, 2)] == [0, 0]
    assert len(index.referrers(2)) == 0


def test_the_list_itself_is_never_part_of_the_graph():
    thing: list[object] = []
    objects = [thing]
    objects.append(objects)
    index = build_index(objects)
    objects.clear()
    assert index.n_edges == 0


def test_hidden_references_come_behind_the_others_of_their_source(family):
    a, b, _, d = family
    index = build_index(family, hidden=[(d, b, "words"), (a, d, "more words"), (d, a, ""), (d, object(), ""), ([], a)])
    assert names_of(index.referents(0), "abcd") == ["c", "b", "d"]
    assert names_of(index.referents(1), "abcd") == ["c", "c"]
    assert names_of(index.referents(3), "abcd") == ["b", "a"]
    assert names_of(index.referrers(0), "abcd") == ["c", "d"]


def test_hidden_references_of_ignored_objects_are_left_out(family):
    a, _, _, d = family
    index = build_index(family, hidden=[(d, a), (a, d)], ignored=np.array([id(a)]))
    assert len(index.referents(3)) == 0
    assert len(index.referrers(3)) == 0


def test_the_borders_of_batches_do_not_show(family, monkeypatch):
    whole = build_index(family)
    for size in (1, 2, 3):
        monkeypatch.setattr(index_module, "BATCH_OBJECTS", size)
        parts = build_index(family)
        assert parts.forward_offsets.tolist() == whole.forward_offsets.tolist()
        assert parts.forward_targets.tolist() == whole.forward_targets.tolist()


def test_an_empty_heap_has_an_index():
    index = build_index([])
    assert (index.n_vertices, index.n_edges, index.vertex_of(16)) == (0, 0, -1)


def test_the_whole_heap_agrees_with_the_collector():
    probe = [[], []]
    holder = Thing(probe=probe)
    objects = gc.get_objects()
    index = build_index(objects)
    at = index.vertex_of(id(probe))
    assert sorted(index.ids[index.referents(at)]) == sorted(map(id, probe))
    sources = [objects[v] for v in index.referrers(at).tolist()]
    objects.clear()
    assert any(source is holder or source is vars(holder) for source in sources)


def test_the_index_keeps_no_object_alive():
    thing = Thing(other=Thing())
    watched = weakref.ref(thing)
    objects = [thing, thing.other]
    index = build_index(objects, hidden=[(thing.other, thing)])
    objects.clear()
    del thing
    assert watched() is None
    assert index.n_vertices == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_the_switch_of_the_collector_stays_as_it_was(enabled):
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        build_index([[]])
        assert gc.isenabled() is enabled
        with pytest.raises(IndexError):
            build_index([[]], hidden=[()])
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


class HostileMeta(type):
    __hash__ = None

    def __eq__(cls, other):
        raise AssertionError

    def __instancecheck__(cls, other):
        raise AssertionError


class Hostile(metaclass=HostileMeta):
    __hash__ = None

    def refuse(self, *_, **__):
        raise AssertionError

    __eq__ = __len__ = __bool__ = __iter__ = __getattribute__ = __repr__ = __sizeof__ = __index__ = refuse
    __array__ = __array_interface__ = __class__ = property(refuse)


def test_no_method_of_an_object_is_called():
    hostile = Hostile()
    index = build_index([hostile, [hostile], Hostile], hidden=[(hostile, hostile)])
    assert index.referents(0).tolist() == [2, 0]
    assert index.referrers(0).tolist() == [0, 1]


# Numbers of vertices; each is held by those in its list.
HEAPS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=6), min_size=n, max_size=n)
)


@given(HEAPS)
def test_the_inverse_is_the_same_references_turned_round(held):
    objects = [[] for _ in held]
    for holder, targets in zip(objects, held, strict=True):
        holder.extend(objects[target] for target in targets)
    index = build_index(objects)
    forward = sorted((v, w) for v in range(len(held)) for w in index.referents(v).tolist())
    backward = sorted((v, w) for w in range(len(held)) for v in index.referrers(w).tolist())
    for holder in objects:
        holder.clear()
    assert forward == backward == sorted((v, w) for v, targets in enumerate(held) for w in targets)


@given(st.lists(st.integers(1, 2**47), unique=True, max_size=40), st.lists(st.integers(1, 2**47), max_size=10))
def test_scattered_addresses_are_found_and_others_are_not(addresses, others):
    table = AddressTable(np.array(addresses, dtype=np.int64))
    expected = [addresses.index(address) if address in addresses else -1 for address in addresses + others]
    assert table.positions(np.array(addresses + others, dtype=np.int64)).tolist() == expected


@given(
    st.sets(st.integers(0, 2**18), min_size=1, max_size=40),
    st.sampled_from([0x55D0_0000_0000, 0x7F12_3450_0000]),
    st.integers(0, 2**22),
)
def test_neighbouring_addresses_are_found_and_those_between_are_not(numbers, start, other):
    addresses = [start + 16 * number for number in sorted(numbers)]
    table = AddressTable(np.array(addresses, dtype=np.int64))
    asked = [*addresses, start + other]
    expected = [addresses.index(address) if address in addresses else -1 for address in asked]
    assert table.positions(np.array(asked, dtype=np.int64)).tolist() == expected
    assert table.position(addresses[0]) == 0


def test_objects_that_one_pass_brings_to_light_become_vertices_with_all_their_references():
    row = (1, "text")  # the collector does not track a tuple of such
    gc.collect()
    holder, other = [row], [row, [5]]
    objects = [holder, other]
    references = ReferencePass(objects)
    met = [thing for batch in references.unlisted() for thing in batch]
    assert sorted(map(id, met)) == sorted([id(row), id(row), id(other[1])])
    index = references.finish([row, other[1]], [(row, holder, "hidden")])
    assert [sorted(index.referents(v).tolist()) for v in range(4)] == [[2], [2, 3], [0], []]
    assert index.vertices_of(np.array([id(other), id(row), id(objects)])).tolist() == [1, 2, -1]
    assert index.referrers(2).tolist() == [0, 1]


def test_one_pass_equals_an_index_of_everything():
    things = [Thing(inner=[Thing()], text="a") for _ in range(20)]
    for before, after in itertools.pairwise(things):
        after.before = before
    everything = [*things, *(vars(thing) for thing in things), *(thing.inner for thing in things)]
    listed, extra = everything[:30], everything[30:]
    whole = build_index(list(everything), ignored=np.array([id(things[3])]))
    parts = ReferencePass(listed, np.array([id(things[3])]))
    parts = parts.finish(extra, [])
    for vertex in range(len(everything)):
        assert sorted(parts.referents(vertex).tolist()) == sorted(whole.referents(vertex).tolist())
    assert parts.ids.tolist() == whole.ids.tolist()


def test_an_address_is_asked_of_the_second_table_where_the_first_does_not_have_it():
    table = JoinedTable(AddressTable(np.array([32, 64])), np.array([1 << 40, 96]))
    assert table.positions(np.array([96, 64, 48, 1 << 40, 32])).tolist() == [3, 1, -1, 2, 0]
    assert table.position(128) == -1
    is_known, positions = table.look_up(np.array([128, 64, 96]))
    assert (is_known.tolist(), positions.tolist()) == ([False, True, True], [1, 3])


def test_types_are_those_that_python_tells():
    things = [1, "a", None, [], {}, Thing(), int, np.ones(2), np]
    assert kinds_of(things).tolist() == [id(type(thing)) for thing in things]
    assert kinds_of([]).tolist() == []
