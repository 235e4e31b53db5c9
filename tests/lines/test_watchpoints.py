"""A watchpoint's numbers change when its place changes, and only then; no code of the user's objects runs."""

from __future__ import annotations

import array
import collections
import io

import pytest
import torch

from leaklab.lines.change import watchpoint


class Holder:
    """An instance with an attribute that is replaced."""

    def __init__(self, value: object) -> None:
        self.value = value


class Hostile(list):
    def __len__(self):
        raise AssertionError

    def __getitem__(self, place):
        raise AssertionError

    def __eq__(self, other):
        raise AssertionError

    __hash__ = None


def changes(chain, act, *, grows=False) -> bool:
    point = watchpoint("print", chain, grows=grows)
    before = point.token()
    assert not point.has_changed(before)
    act()
    assert point.has_changed(before) == (point.token() != before)
    return point.has_changed(before)


GROWING = {
    "list": ([1], lambda things: things.append(2)),
    "dict": ({1: 1}, lambda things: things.update({2: 2})),
    "set": ({1}, lambda things: things.add(2)),
    "deque": (collections.deque([1]), lambda things: things.append(2)),
    "bytearray": (bytearray(b"1"), lambda things: things.extend(b"2")),
    "array": (array.array("i", [1]), lambda things: things.append(2)),
    "StringIO": (io.StringIO(), lambda stream: stream.write("2")),
    "a list with methods of its own": (Hostile([1]), lambda things: list.append(things, 2)),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_container_that_gets_longer_has_changed(name):
    thing, act = GROWING[name]
    assert changes([Holder(thing), thing], lambda: act(thing), grows=True)


def test_an_attribute_that_is_replaced_has_changed_and_another_one_has_not():
    value = [1]
    holder = Holder(value)
    assert not changes([holder, value], lambda: setattr(holder, "other", 3), grows=True)
    assert changes([holder, value], lambda: setattr(holder, "value", [1]), grows=True)


def test_a_key_that_is_replaced_has_changed_and_another_one_has_not():
    value = [1]
    names = {"other": 0, "value": value}
    assert not changes([names, value], lambda: names.update(other=1), grows=True)
    assert changes([names, value], lambda: names.update(value=[1]), grows=True)


def test_an_entry_of_an_old_container_is_watched_by_the_containers_length():
    entry = object()
    things = [entry]
    assert changes([things, entry], lambda: things.append(1))


def test_a_tensor_written_in_place_and_a_new_gradient_are_changes():
    weight = torch.ones(2, requires_grad=True)
    unseen = object()  # the graph's node: nothing that the collector reports refers to it
    assert changes([Holder(weight), weight, unseen], lambda: weight.sum().backward())
    total = torch.zeros(2)
    assert changes([Holder(total), total], lambda: total.add_(1), grows=True)


def test_the_newest_entries_are_handed_out():
    things = {"a": [1]}
    point = watchpoint("print", [things, things["a"]], grows=False)
    before, new = point.token(), [2]
    things["b"] = new
    assert [thing for thing in point.new_entries(before, point.token()) if thing is new] == [new]


def test_a_key_that_is_an_object_counts_as_an_entry():
    key, value = Holder(1), [1]
    things = {"a": [0]}
    point = watchpoint("print", [things, things["a"]], grows=False)
    before = point.token()
    things[key] = value
    assert any(thing is key for thing in point.new_entries(before, point.token()))


def test_a_place_that_cannot_be_read_has_no_watch():
    assert watchpoint("print", [object(), object()], grows=False) is None
