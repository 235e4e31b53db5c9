"""Moments written by hand, and what differs between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_builders import FLOATS, moment, place

from leaklab.decide.heap_diff import compare_heap_snapshots, compare_places

HEAPS = st.dictionaries(st.integers(1, 60).map(lambda n: 16 * n), st.sampled_from(["list", "dict", "Foo"]))


def changes(a, b):
    return {row.kind: (row.n_born, row.n_died) for row in compare_heap_snapshots(a, b)[0].objects}


def test_a_moment_does_not_differ_from_itself():
    same = moment({16: "list", 32: "dict"}, lengths={16: 3}, arrays=[(48, "bytes", 2000)])
    difference, changed = compare_heap_snapshots(same, same)
    assert (difference.objects, difference.tensors, difference.arrays, difference.places) == ((), (), (), ())
    assert changed.is_empty


def test_new_addresses_are_births_and_missing_ones_deaths():
    a, b = moment({16: "list", 32: "dict"}), moment({16: "list", 48: "Foo", 64: "Foo"})
    assert changes(a, b) == {"Foo": (2, 0), "dict": (0, 1)}


def test_another_type_at_the_same_address_is_a_death_and_a_birth():
    assert changes(moment({16: "list"}), moment({16: "dict"})) == {"list": (0, 1), "dict": (1, 0)}


def test_a_young_object_at_an_old_address_is_another_one():
    a, b = moment({16: "Foo"}), moment({16: "Foo"}, young=[16])
    assert changes(a, b) == {"Foo": (1, 1)}


def test_youth_means_nothing_where_the_earlier_moment_did_not_collect():
    a, b = moment({16: "Foo"}, collected=False), moment({16: "Foo"}, young=[16])
    assert changes(a, b) == {}


def test_a_difference_is_exact_only_towards_the_moment_since_which_births_were_watched():
    a, b = moment({}), moment({}, exact_since="t")
    assert compare_heap_snapshots(a, b)[0].exact
    assert not compare_heap_snapshots(a, moment({}, exact_since="another"))[0].exact


@given(HEAPS, HEAPS)
def test_births_minus_deaths_are_the_net_change_of_each_type(before, after):
    difference, changed = compare_heap_snapshots(moment(before), moment(after))
    survivors = {address for address, kind in before.items() if after.get(address) == kind}
    born = Counter(kind for address, kind in after.items() if address not in survivors)
    died = Counter(kind for address, kind in before.items() if address not in survivors)
    assert {row.kind: row.n_born for row in difference.objects if row.n_born} == dict(born)
    assert {row.kind: row.n_died for row in difference.objects if row.n_died} == dict(died)
    assert all(row.n_born - row.n_died == row.n_after - row.n_before for row in difference.objects)
    assert changed.born.tolist() == sorted(set(after) - survivors)


@given(HEAPS, HEAPS)
def test_across_processes_only_the_net_change_of_each_type_is_told(before, after):
    difference, changed = compare_heap_snapshots(moment(before), moment(after, process="2-2.0"))
    counts_before, counts_after = Counter(before.values()), Counter(after.values())
    assert {row.kind: row.n_born for row in difference.objects if row.n_born} == dict(counts_after - counts_before)
    assert {row.kind: row.n_died for row in difference.objects if row.n_died} == dict(counts_before - counts_after)
    assert changed.is_empty
    assert "two processes" in difference.notes[0]


def test_a_container_that_lives_on_is_followed_by_its_length_largest_step_first():
    a = moment({16: "list", 32: "dict", 48: "list"}, lengths={16: 3, 32: 10, 48: 1})
    b = moment({16: "list", 32: "dict", 48: "list"}, lengths={16: 5, 32: 2, 48: 1})
    assert compare_heap_snapshots(a, b)[1].grown.tolist() == [[32, 10, 2], [16, 3, 5]]


def test_a_container_in_the_place_of_a_dead_one_has_not_grown():
    a, b = moment({16: "list"}, lengths={16: 3}), moment({16: "list"}, lengths={16: 5}, young=[16])
    assert compare_heap_snapshots(a, b)[1].grown.tolist() == []


def test_one_tensor_is_one_row_with_the_bytes_of_its_storage():
    b = moment({16: "torch.Tensor"}, tensors={16: FLOATS}, storages=[(16, 7, 32768)])
    difference, changed = compare_heap_snapshots(moment({}), b)
    (row,) = difference.tensors
    assert (row.what, row.n_born, row.n_died, row.bytes_born) == (FLOATS, 1, 0, 32768)
    assert changed.born_tensors.tolist() == [[16, 0]]


def test_a_view_of_an_old_tensor_brings_no_bytes():
    a = moment({16: "torch.Tensor"}, tensors={16: FLOATS}, storages=[(16, 7, 32768)])
    b = moment(
        {16: "torch.Tensor", 32: "torch.Tensor"},
        tensors={16: FLOATS, 32: FLOATS},
        storages=[(16, 7, 32768), (32, 7, 32768)],
    )
    (row,) = compare_heap_snapshots(a, b)[0].tensors
    assert (row.n_born, row.bytes_born) == (1, 0)
    (device,) = compare_heap_snapshots(a, b)[0].devices
    assert (device.bytes_before, device.bytes_after, device.storages_after) == (32768, 32768, 1)


def test_two_new_views_share_their_bytes():
    b = moment(
        {16: "torch.Tensor", 32: "torch.Tensor"},
        tensors={16: FLOATS, 32: FLOATS},
        storages=[(16, 7, 32768), (32, 7, 32768)],
    )
    (row,) = compare_heap_snapshots(moment({}), b)[0].tensors
    assert (row.n_born, row.bytes_born) == (2, 32768)


def test_another_shape_at_the_same_address_is_another_tensor():
    small = replace(FLOATS, shape="(3,)")
    a = moment({16: "torch.Tensor"}, tensors={16: FLOATS}, storages=[(16, 7, 32768)])
    b = moment({16: "torch.Tensor"}, tensors={16: small}, storages=[(16, 7, 12)])
    rows = {row.what.shape: (row.n_born, row.n_died) for row in compare_heap_snapshots(a, b)[0].tensors}
    assert rows == {"(3,)": (1, 0), "(64, 128)": (0, 1)}


def test_a_tensor_that_gets_a_graph_stays_the_same_tensor():
    a = moment({16: "torch.Tensor"}, tensors={16: FLOATS})
    b = moment({16: "torch.Tensor"}, tensors={16: replace(FLOATS, has_graph=True)})
    assert compare_heap_snapshots(a, b)[0].tensors == ()


def test_an_array_of_another_size_at_the_same_address_is_another_array():
    a, b = moment({}, arrays=[(16, "bytes", 2000)]), moment({}, arrays=[(16, "bytes", 5000)])
    (row,) = compare_heap_snapshots(a, b)[0].arrays
    assert (row.n_born, row.n_died, row.bytes_born, row.bytes_died) == (1, 1, 5000, 2000)


def test_across_processes_equal_arrays_cancel_out():
    a = moment({}, arrays=[(16, "bytes", 2000)])
    b = moment({}, arrays=[(640, "bytes", 2000), (960, "bytes", 2000)], process="2-2.0")
    (row,) = compare_heap_snapshots(a, b)[0].arrays
    assert (row.n_born, row.n_died, row.bytes_born) == (1, 0, 2000)


def test_an_old_dict_of_numbers_that_gets_a_list_is_no_birth():
    """The collector lists a dict only once it contains something that it follows."""
    a = moment({}, places=[place("counts", 16, "dict", length=2)])
    b = moment({16: "dict"}, young=[16], places=[place("counts", 16, "dict", length=3)])
    difference, changed = compare_heap_snapshots(a, b)
    assert [row.n_born for row in difference.objects] == [0]
    assert changed.born.tolist() == []
    assert [(row.expression, row.change) for row in difference.places] == [("counts", "grown")]


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        (None, place("x", 16, "list"), "born"),
        (place("x", 16, "list"), None, "died"),
        (place("x", 16, "list", length=3), place("x", 16, "list", length=5), "grown"),
        (place("x", 16, "list", length=5), place("x", 16, "list", length=3), "shrunk"),
        (place("x", 16, "Net"), place("x", 32, "Net"), "replaced"),
        (place("x", 16, "list"), place("x", 16, "dict"), "replaced"),
        (place("x", 16, "int"), place("x", 32, "int"), None),
        (place("x", 16, "str", n_bytes=70), place("x", 32, "str", n_bytes=80), None),
        (place("x", 16, "str", n_bytes=70), place("x", 32, "str", n_bytes=9000), "replaced"),
        (place("x", 16, "list"), place("x", 16, "list"), None),
    ],
)  # fmt: skip
def test_what_becomes_of_a_name(was, now, change):
    rows = compare_places([was] if was else [], [now] if now else [], same_process=True)
    assert [row.change for row in rows] == ([change] if change else [])


def test_a_name_of_another_process_is_not_replaced_because_its_address_differs():
    assert compare_places([place("x", 16, "Net")], [place("x", 32, "Net")], same_process=False) == ()


def test_a_value_born_at_the_old_address_replaces_the_old_one():
    same = place("x", 16, "Net")
    assert [row.change for row in compare_places([same], [same], same_process=True, born=frozenset({16}))] == [
        "replaced"
    ]


def test_modules_imported_in_between_are_named():
    assert compare_heap_snapshots(moment({}, modules=["a"]), moment({}, modules=["a", "b"]))[0].new_modules == ("b",)
