"""Lengths of containers are what plain loops say, and no code of their classes runs."""

from __future__ import annotations

import array
import collections
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.measure.checkpoint import Lengths, container_lengths, follow
from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of


class CalledError(Exception):
    """Code of a user's class ran."""


calls: list[str] = []


def _trap(name: str):
    def method(self: object, *args: object) -> None:
        calls.append(name)
        raise CalledError(name)

    return method


_NAMES = (
    "__len__", "__eq__", "__bool__", "__getattr__", "__getattribute__", "__repr__", "__iter__", "__sizeof__",
    "__contains__", "__getitem__", "__length_hint__", "__index__",
)  # fmt: skip
_TRAPS = {**{name: _trap(name) for name in _NAMES}, "__hash__": _trap("__hash__")}


class HostileMeta(type):
    """A metaclass that raises at every question."""


def hostile(base: type) -> type:
    return HostileMeta(f"Hostile{base.__name__}", (base,), {**_TRAPS, "__class__": property(_trap("__class__"))})


BASES = (list, dict, set, collections.deque, bytearray, collections.OrderedDict, collections.defaultdict)
HOSTILE = [hostile(base) for base in BASES]
# The traps are set last: making a class asks its metaclass, too.
for trap in ("__eq__", "__hash__", "__len__", "__getattribute__", "__instancecheck__", "__subclasscheck__", "__bool__"):
    setattr(HostileMeta, trap, _trap(f"meta {trap}"))


def measured(things: list[object]) -> dict[int, int]:
    lengths = container_lengths(things, addresses_of(things), KindTable(kinds_of(things)))
    assert lengths.kinds.tolist() == [kind for kind in lengths.kinds.tolist() if kind in {id(type(t)) for t in things}]
    return dict(zip(lengths.addresses.tolist(), lengths.lengths.tolist(), strict=True))


class Stack(list):
    """A list with a name of its own."""


ITEMS = st.lists(st.integers(), max_size=30)
CONTAINERS = st.one_of(
    ITEMS,
    ITEMS.map(set),
    ITEMS.map(Stack),
    ITEMS.map(dict.fromkeys),
    ITEMS.map(collections.deque),
    ITEMS.map(collections.Counter),
    ITEMS.map(lambda items: bytearray(len(items))),
    ITEMS.map(lambda items: array.array("d", items)),
)
FIXED = st.one_of(st.tuples(st.integers()), st.text(), st.binary(), st.integers(), st.frozensets(st.integers()))


@given(st.lists(CONTAINERS, max_size=20), st.lists(FIXED, max_size=10))
def test_every_container_has_the_length_that_len_gives_and_nothing_else_is_measured(containers, others):
    expected = {id(thing): len(thing) for thing in containers}
    assert measured([*others, *containers]) == expected


@pytest.mark.parametrize("text", [io.StringIO, io.BytesIO])
def test_a_file_in_memory_is_as_long_as_what_was_written(text):
    stream = text()
    stream.write("four" if text is io.StringIO else b"four")
    assert measured([stream]) == {id(stream): 4}
    assert stream.tell() == 4


def test_a_closed_file_in_memory_counts_as_empty():
    stream = io.StringIO("text")
    stream.close()
    assert measured([stream]) == {id(stream): 0}


def test_hostile_containers_are_measured_and_none_of_their_code_runs():
    things: list[object] = [base.__new__(kind) for base, kind in zip(BASES, HOSTILE, strict=True)]
    list.extend(things[0], [1, 2, 3])
    dict.__setitem__(things[1], "a", 1)
    set.update(things[2], (1, 2))
    collections.deque.append(things[3], 1)
    bytearray.extend(things[4], b"12345")
    dict.__setitem__(things[5], "a", 1)
    calls.clear()
    found = measured_quietly(things)
    assert calls == []
    assert found == [3, 1, 2, 1, 5, 1, 0]


def measured_quietly(things: list[object]) -> list[int]:
    lengths = container_lengths(things, addresses_of(things), KindTable(kinds_of(things)))
    by_address = dict(zip(lengths.addresses.tolist(), lengths.lengths.tolist(), strict=True))
    return [by_address[id(thing)] for thing in things]


def lengths_of(rows: dict[tuple[int, int], int]) -> Lengths:
    keys = list(rows)
    return Lengths(
        np.array([address for address, _kind in keys], np.int64),
        np.array([kind for _address, kind in keys], np.int64),
        np.array(list(rows.values()), np.int64),
    )


def naive_follow(moments: list[dict[tuple[int, int], int]]) -> dict[tuple[int, int], tuple[int, ...]]:
    found = {}
    for key, last in moments[-1].items():
        # Empty where it was not yet alive at the first moment; unknown if it is missing later.
        series = [moment.get(key) for moment in moments]
        if None not in series[1:] and last > (series[0] or 0):
            found[key] = tuple(length or 0 for length in series)
    return found


# One object per address; the same address with another kind is another object.
MOMENT = st.dictionaries(st.integers(1, 12), st.tuples(st.sampled_from([7, 9]), st.integers(0, 5)), max_size=12).map(
    lambda rows: {(address * 16, kind): length for address, (kind, length) in rows.items()}
)


@given(st.lists(MOMENT, min_size=2, max_size=4))
def test_following_containers_agrees_with_looking_each_up(moments):
    addresses, kinds, table = follow([lengths_of(moment) for moment in moments])
    found = {
        (address, kind): tuple(row)
        for address, kind, row in zip(addresses.tolist(), kinds.tolist(), table.tolist(), strict=True)
    }
    assert found == naive_follow(moments)


def test_only_the_list_that_grew_is_followed():
    grows, stays, shrinks = [1], [1, 2], [1, 2, 3]
    things: list[object] = [grows, stays, shrinks]
    moments = []
    for _ in range(3):
        moments.append(container_lengths(things, addresses_of(things), KindTable(kinds_of(things))))
        grows.append(0)
        shrinks.pop()
    addresses, kinds, table = follow(moments)
    assert (addresses.tolist(), kinds.tolist(), table.tolist()) == ([id(grows)], [id(list)], [[1, 2, 3]])
